"""The loss against an independent implementation, on four real pictures (reference/parity, yolov8n)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from visiontrain.batch import Targets
from visiontrain.boxes import xywh_to_xyxy
from visiontrain.config.schema import LossConfig
from visiontrain.losses import DetectionLoss
from visiontrain.nn.head import HeadOutput, cell_centres


@pytest.fixture(scope="module")
def parity(shared):
    folder = shared / "reference" / "parity"
    return np.load(folder / "yolov8n-expected.npz"), np.load(folder / "batch.npz")


def loss_of(expected, batch):
    distances = torch.from_numpy(expected["eval/1/boxes"]).transpose(1, 2)
    scores = torch.from_numpy(expected["eval/1/scores"]).transpose(1, 2)
    anchors, strides = cell_centres([(40, 40), (20, 20), (10, 10)], (8, 16, 32), distances)
    rows = torch.from_numpy(batch["targets"]).float()
    targets = Targets(rows[:, 0].long(), rows[:, 1].long(), xywh_to_xyxy(rows[:, 2:]) * 320)
    return DetectionLoss(LossConfig())(HeadOutput(distances, scores, anchors, strides), targets)


@pytest.mark.parametrize("part", DetectionLoss.part_names)
def test_parts(parity, part):
    expected, batch = parity
    loss = loss_of(expected, batch)
    value = loss.parts["detect"][part] / loss.terms["detect"].weight
    assert float(value) == pytest.approx(float(expected[f"loss/{part}"]), rel=1e-4)


def test_sum(parity):
    """The window's gradient is that of images * S / w; this is that number."""
    expected, batch = parity
    term = loss_of(expected, batch).terms["detect"]
    assert 4 * float(term.total / term.weight) == pytest.approx(float(expected["loss_sum"]), rel=1e-4)
