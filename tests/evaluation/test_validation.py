from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import yaml

from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig, ValConfig
from visiontrain.errors import ConfigError, DataError
from visiontrain.evaluation.scores import scores_table
from visiontrain.evaluation.validation import validate
from visiontrain.models import build_model
from visiontrain.models.weights import SCHEMA_VERSION
from visiontrain.record.plots.ink import class_colour


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three grey pictures with one white square each, but for one that is empty."""
    root = tmp_path_factory.mktemp("squares")
    for folder in ("images/val", "labels/val", "images/train", "labels/train"):
        (root / folder).mkdir(parents=True)
    for number in range(3):
        picture = np.full((48, 64, 3), 90, np.uint8)
        picture[10:30, 20:40] = 255
        cv2.imwrite(str(root / f"images/val/{number}.png"), picture)
        (root / f"labels/val/{number}.txt").write_text("0 0.46875 0.41667 0.3125 0.41667\n" if number else "")
    (root / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [square, circle]\n")
    return root / "data.yaml"


@pytest.fixture(scope="module")
def checkpoint(data, tmp_path_factory):
    """A checkpoint that was never trained: what it finds is nonsense, what is counted is not."""
    torch.manual_seed(0)
    model = build_model("yolov8n", ("square", "circle"))
    settings = build(TrainConfig, {"data": str(data), "imgsz": 64}).leaves()
    path = tmp_path_factory.mktemp("weights") / "best.pt"
    content = {"schema_version": SCHEMA_VERSION, "kind": "model", "model": model.description(), "settings": settings}
    torch.save({**content, "weights": model.state_dict()}, path)
    return path


def settings(checkpoint, tmp_path, **changes):
    known = {"model": str(checkpoint), "device": "cpu", "workers": 0, "project": str(tmp_path), "plots": False}
    return build(ValConfig, {**known, **changes})


def test_data_and_size_come_from_the_checkpoint_and_the_folder_tells(checkpoint, data, tmp_path):
    evaluation = validate(settings(checkpoint, tmp_path))
    assert (evaluation.images, evaluation.targets) == (3, 2)
    args = yaml.safe_load((tmp_path / "val" / "args.yaml").read_text())
    assert (args["data"], args["imgsz"]) == (str(data), 64)
    scores = json.loads((tmp_path / "val" / "scores.json").read_text())
    assert scores["ap"] == evaluation.metrics["ap"]
    assert scores["per_class"]["circle"]["ap"] is None
    table = scores_table(evaluation).splitlines()
    assert [line.split()[0] for line in table[1:4]] == ["all", "square", "circle"]
    assert evaluation.folder == tmp_path / "val" and table[-1] == f"Saved in {tmp_path / 'val'}"
    assert table[3].split()[1:] == ["0", "0", "-", "-", "-", "-"]


def test_a_second_validation_leaves_the_first_folder_alone(checkpoint, tmp_path):
    (tmp_path / "val").mkdir()
    validate(settings(checkpoint, tmp_path, plots=True))
    assert not list((tmp_path / "val").iterdir())
    assert (tmp_path / "val2" / "confusion_matrix.png").is_file()


def test_the_first_pictures_are_drawn_with_their_labels_and_with_what_was_found(checkpoint, data, tmp_path):
    validate(settings(checkpoint, tmp_path, plots=True, conf=0))
    drawn = {path.name: cv2.imread(str(path)) for path in (tmp_path / "val").glob("*.jpg")}
    first, worst = {"val_labels.jpg", "val_predictions.jpg"}, {"val_worst_labels.jpg", "val_worst_predictions.jpg"}
    assert drawn.keys() == first | worst
    blue = {name: np.abs(sheet.astype(int) - class_colour(0)[::-1]).max(-1) < 40 for name, sheet in drawn.items()}
    assert blue["val_labels.jpg"].sum() > 200  # two of the three pictures have a square
    assert not blue["val_predictions.jpg"].any()  # a model that was never trained is sure of nothing


def test_the_pictures_bear_the_name_of_their_split(checkpoint, data, tmp_path):
    description = data.with_name("as_test.yaml")
    description.write_text("test: images/val\nval: images/val\nnames: [square, circle]\n")
    validate(settings(checkpoint, tmp_path, plots=True, data=str(description), split="test"))
    assert {path.name for path in (tmp_path / "val").glob("*.jpg")} == {
        f"test_{name}.jpg" for name in ("labels", "predictions", "worst_labels", "worst_predictions")
    }


def test_without_plots_there_are_no_pictures(checkpoint, tmp_path):
    validate(settings(checkpoint, tmp_path))
    assert {path.name for path in (tmp_path / "val").iterdir()} == {"args.yaml", "scores.json"}


def test_what_is_written_as_coco_json_scores_the_same_from_the_file(checkpoint, data, tmp_path):
    evaluation = validate(settings(checkpoint, tmp_path, save_json=True, conf=1e-6))
    written = tmp_path / "val" / "predictions.json"
    config = build(ValConfig, {"predictions": str(written), "data": str(data), "project": str(tmp_path), "conf": 0})
    again = validate(config)
    assert len(again.found) == len(evaluation.found) > 0
    assert again.metrics == evaluation.metrics and again.images == 3
    assert (tmp_path / "val2" / "scores.json").is_file()


def test_the_pictures_with_the_most_errors_are_named(checkpoint, tmp_path):
    evaluation = validate(settings(checkpoint, tmp_path))
    worst = json.loads((tmp_path / "val" / "scores.json").read_text())["worst"]
    assert [(each["missed"], each["wrong"]) for each in worst] == [(1, 0), (1, 0)]  # it is sure of nothing
    assert [Path(each["path"]).name for each in worst] == ["1.png", "2.png"]
    assert [each.image for each in evaluation.worst] == [1, 2]


def test_scoring_settings_apply(checkpoint, tmp_path):
    found = validate(settings(checkpoint, tmp_path, max_det=2, conf=0)).found
    assert np.unique(found.image, return_counts=True)[1].tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("names", "said"),
    [("[circle, square]", "class 0 is 'circle' and the checkpoint's is 'square'"), ("[square]", "1 classes and the")],
)
def test_other_classes_than_the_checkpoint_s_are_refused(names, said, checkpoint, data, tmp_path):
    other = data.with_name(f"other{len(names)}.yaml")
    other.write_text(f"val: images/val\nnames: {names}\n")
    with pytest.raises(DataError, match=said):
        validate(settings(checkpoint, tmp_path, data=str(other)))
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_without_data_asks_for_it(checkpoint, tmp_path):
    content = torch.load(checkpoint, weights_only=True)
    content["settings"]["data"] = ""
    torch.save(content, tmp_path / "bare.pt")
    with pytest.raises(ConfigError, match="data is missing"):
        validate(settings(tmp_path / "bare.pt", tmp_path))
