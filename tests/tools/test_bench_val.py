from __future__ import annotations

import json

from tools.bench_val import main


def test_the_ap_of_the_stub_is_that_of_pycocotools(tmp_path, capsys):
    words = ["pictures=32", "classes=3", "workers=0", "oracle=true", f"folder={tmp_path}"]
    assert main([*words, "format=json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["pictures"] == 32 and said["detections"] > 1000
    assert 0.3 < said["ap"] < 0.95
    assert abs(said["ap"] - said["oracle_ap"]) < 1e-9 and abs(said["ap50"] - said["oracle_ap50"]) < 1e-9
    assert main([*words[:3], f"folder={tmp_path}"]) == 0  # what is there is used again
    assert "pictures in" in capsys.readouterr().out


def test_a_wrong_word_is_answered(capsys):
    assert main(["images=3"]) == 2
    assert "known: pictures" in capsys.readouterr().err
