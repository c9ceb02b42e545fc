from __future__ import annotations

from tools.gpu_prediction import same_detections, same_outputs


def test_the_checks_run_with_the_cpu_in_the_place_of_a_device():
    assert same_detections("cpu").endswith("detections are the same")
    assert "yolo26n" in same_outputs("cpu")
