"""What a person has in hand after a prediction."""

from __future__ import annotations

import json
import sys

import cv2
import numpy as np
import pytest
import torch

from visiontrain.errors import ConfigError, VisionTrainError
from visiontrain.prediction.results import Boxes, Results, safe_name
from visiontrain.prediction.saving import _Names
from visiontrain.prediction.sources import Frame

ROWS = [[10.0, 5.0, 30.0, 25.0, 0.9, 1], [0.0, 0.0, 40.0, 30.0, 0.5, 0], [12.5, 6.0, 20.0, 9.0, 0.4, 1]]


@pytest.fixture
def result() -> Results:
    image = np.full((30, 40, 3), (200, 100, 50), np.uint8)  # RGB
    boxes = Boxes(torch.tensor(ROWS), (30, 40))
    return Results(Frame(image, "a/b.jpg", None), {0: "cat", 1: "a/../dog"}, boxes, {"inference": 3.0})


def test_boxes_in_every_notation(result):
    boxes = result.boxes
    assert boxes.xyxy[0].tolist() == [10, 5, 30, 25] and boxes.xywh[0].tolist() == [20, 15, 20, 20]
    assert boxes.xyxyn[1].tolist() == [0, 0, 1, 1] and boxes.xywhn[0].tolist() == pytest.approx([0.5, 0.5, 0.5, 2 / 3])
    assert boxes.conf.tolist() == pytest.approx([0.9, 0.5, 0.4]) and boxes.cls.tolist() == [1, 0, 1]
    assert len(boxes) == len(result) == 3 and len(boxes[0]) == 1 and len(boxes[boxes.cls == 1]) == 2
    assert [float(box.conf) for box in boxes] == boxes.conf.tolist()
    arrays = boxes.numpy()
    assert all(isinstance(part, np.ndarray) for part in (arrays.xywhn, arrays.conf, arrays[:2].data))
    assert np.allclose(arrays.xywhn, boxes.xywhn) and torch.equal(arrays.cpu().data, boxes.data)
    assert result.verbose() == "1 cat, 2 a/../dog" and result[:0].verbose() == "nothing found"
    assert len(result[1:].numpy().to("cpu")) == 2


def test_the_summary_is_plain_values(result):
    found = json.loads(result.to_json())
    assert found == result.summary() and found[0]["box"] == {"x1": 10.0, "y1": 5.0, "x2": 30.0, "y2": 25.0}
    assert (found[0]["name"], found[0]["class"], found[0]["confidence"]) == ("a/../dog", 1, 0.9)


def test_the_drawing_is_a_copy_in_opencv_order(result):
    assert result.orig_img[0, 0].tolist() == [50, 100, 200]
    drawn = result.plot(line_width=1, labels=False, conf=False)
    assert drawn.shape == (30, 40, 3) and drawn[28, 37].tolist() == [50, 100, 200]
    assert drawn[20, 10].tolist() != [50, 100, 200] and np.any(result.plot() != drawn)
    assert result.orig_img[20, 10].tolist() == [50, 100, 200]


def test_what_is_saved_by_hand_overwrites_nothing(result, tmp_path):
    assert cv2.imread(str(result.save(tmp_path / "a.png"))).shape == (30, 40, 3)
    text = result.save_txt(tmp_path / "a.txt", save_conf=True).read_text().splitlines()
    assert text[0] == "1 0.500000 0.500000 0.500000 0.666667 0.900000"
    for write, name in ((result.save, "a.png"), (result.save_txt, "a.txt")):
        with pytest.raises(ConfigError, match="is not overwritten"):
            write(tmp_path / name)
    with pytest.raises(ConfigError, match=r"written as \.jpg or \.png"):
        result.save(tmp_path / "a.gif")
    for _ in range(2):
        crops = result.save_crop(tmp_path / "crops")
    assert len(list((tmp_path / "crops").rglob("*.jpg"))) == 6 and crops[0].parent.parent == tmp_path / "crops"
    assert cv2.imread(str(crops[0])).shape == (20, 20, 3)


def test_names_of_classes_and_pictures_are_safe_as_files():
    assert safe_name("a/../dog", 1) == "a_.._dog_1" and safe_name("..", 2) == "2" and safe_name("cat", 0) == "cat"
    names = _Names()
    given = ["x/a.jpg", "y/A.png", "http://h/p/a%2Fb.jpg?q=1", "../..", "a_2.jpg"]
    assert [names.of(path, None) for path in given] == ["a", "A_2", "a_b", "..", "a_2_2"]


def test_other_libraries(result, monkeypatch):
    supervision = pytest.importorskip("supervision")
    detections = result.to_supervision()
    assert isinstance(detections, supervision.Detections) and detections.class_id.tolist() == [1, 0, 1]
    assert detections["class_name"].tolist()[1] == "cat" and len(result[:0].to_supervision()) == 0
    monkeypatch.setitem(sys.modules, "supervision", None)
    with pytest.raises(ConfigError, match=r"pip install 'visiontrain\[supervision\]'"):
        result.to_supervision()


def test_without_a_display_show_says_what_to_do(result, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    with pytest.raises(VisionTrainError, match="there is no display here"):
        result.show()
