"""Prediction as a whole: the same boxes as validation, in order, in little memory; and what it writes and says."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import yaml

from visiontrain import YOLO, predict
from visiontrain.cli import main
from visiontrain.config.image_size import image_size
from visiontrain.config.schema import TrainConfig, ValConfig, build
from visiontrain.data.dataset import EvalSet
from visiontrain.data.description import load_description
from visiontrain.data.index import open_index
from visiontrain.data.loader import evaluation_loader
from visiontrain.errors import ConfigError, DataError, OutOfMemory
from visiontrain.evaluation.evaluator import evaluate
from visiontrain.models import build_model
from visiontrain.models.weights import SCHEMA_VERSION, load_network

SIZES = ((48, 64), (64, 48), (64, 64), (40, 64), (48, 64))


@pytest.fixture(params=["yolov8n", "yolo26n"])
def family(request) -> str:
    return request.param


@pytest.fixture
def checkpoint(narrow, tmp_path) -> str:
    return made("yolov8n", tmp_path)


def made(family: str, folder: Path) -> str:
    """A checkpoint that finds much, and different things in different pictures."""
    torch.manual_seed(0)
    model = build_model(family, ("sun", "sea"))
    for name, weights in model.named_parameters():
        if "cls" in name or name.endswith("weight"):
            weights.data += 0.3 * torch.randn_like(weights)
    settings = build(TrainConfig, {"data": "none.yaml", "imgsz": 64}).leaves()
    content = {"schema_version": SCHEMA_VERSION, "kind": "model", "model": model.description(), "settings": settings}
    torch.save({**content, "weights": model.state_dict()}, folder / "best.pt")
    return str(folder / "best.pt")


@pytest.fixture
def pictures(tmp_path) -> Path:
    """Five pictures of several shapes as a split, in images/val."""
    folder = tmp_path / "images" / "val"
    folder.mkdir(parents=True)
    (tmp_path / "labels" / "val").mkdir(parents=True)
    for number, (height, width) in enumerate(SIZES):
        noise = np.random.default_rng(number).integers(0, 255, (6, 6, 3), np.uint8)
        cv2.imwrite(str(folder / f"{number}.png"), cv2.resize(noise, (width, height)))
        (tmp_path / "labels" / "val" / f"{number}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    (tmp_path / "data.yaml").write_text("train: images/val\nval: images/val\nnames: [sun, sea]\n")
    return folder


@pytest.mark.parametrize("batch", [1, 3])
def test_a_picture_predicted_and_validated_gives_the_same_boxes(family, batch, narrow, tmp_path, pictures):
    path = made(family, tmp_path)
    config = build(ValConfig, {"model": path, "conf": 0.01, "max_det": 50})
    network, _ = load_network(path)
    samples = EvalSet(open_index(load_description(str(tmp_path / "data.yaml")), "val"), image_size(64), 32)
    loader = evaluation_loader(samples, 2, 0, False, 0, 1)
    truth = evaluate(network, loader, device=torch.device("cpu"), scoring=config.scoring, class_names=("sun", "sea"),
                     index=samples.index)  # fmt: skip
    results = predict(str(pictures), model=path, conf=0.01, max_det=50, device="cpu", batch=batch)
    assert [Path(result.path).name for result in results] == [f"{number}.png" for number in range(5)]
    assert sum(map(len, results)) == len(truth.found.scores) > 20
    for number, result in enumerate(results):
        of_it = truth.found.image == number
        assert np.allclose(result.boxes.xyxy, truth.found.boxes[of_it], atol=1e-4)
        assert np.allclose(result.boxes.conf, truth.found.scores[of_it], atol=1e-6)
        assert result.boxes.cls.tolist() == truth.found.classes[of_it].tolist()
        assert result.orig_shape == SIZES[number] and result.boxes.xyxy[:, [1, 3]].max() <= SIZES[number][0]
