"""The losses against an independent implementation, on four real pictures (reference/parity)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from visiontrain.batch import Targets
from visiontrain.boxes import xywh_to_xyxy
from visiontrain.config.groups import LossConfig
from visiontrain.losses import LOSSES
from visiontrain.models import MODELS
from visiontrain.models.weights import load_model
from visiontrain.nn.head import DualOutput, HeadOutput, cell_centres
from visiontrain.nn.norm import freeze_batch_norm

NAMES = ("yolov8n", "yolo11n", "yolo26n")


@pytest.fixture(scope="module")
def parity(shared):
    folder = shared / "reference" / "parity"
    return {name: np.load(folder / f"{name}-expected.npz") for name in NAMES}, np.load(folder / "batch.npz")


def output(expected, head=""):
    distances, scores = (torch.from_numpy(expected[f"eval/1/{head}{what}"]).mT for what in ("boxes", "scores"))
    anchors, strides = cell_centres([(40, 40), (20, 20), (10, 10)], (8, 16, 32), distances)
    return HeadOutput(distances, scores, anchors, strides, (320, 320))


def targets_of(batch):
    rows = torch.from_numpy(batch["targets"]).float()
    return Targets(rows[:, 0].long(), rows[:, 1].long(), xywh_to_xyxy(rows[:, 2:]) * 320)


def loss_of(name, expected, batch):
    dual = name.startswith("yolo26")
    said = DualOutput(output(expected, "one2many/"), output(expected, "one2one/")) if dual else output(expected)
    return LOSSES[MODELS[name[:-1]].loss](LossConfig())(said, targets_of(batch))


@pytest.mark.parametrize("name", NAMES)
def test_parts(parity, name):
    """Of two heads the file holds the parts of the second."""
    loss = loss_of(name, parity[0][name], parity[1])
    term = list(loss.terms)[-1]
    for part, value in loss.parts[term].items():
        expected = float(parity[0][name][f"loss/{part.removeprefix('o2o_')}"])
        assert float(value / loss.terms[term].weight) == pytest.approx(expected, rel=1e-4), part


@pytest.mark.parametrize("name", NAMES)
def test_sum(parity, name):
    """The window's gradient is that of images * S / w; this is that number. Of two heads at the start of a run."""
    terms = loss_of(name, parity[0][name], parity[1]).terms.values()
    found = 4 * sum(float(term.total / term.weight) for term in terms)
    assert found == pytest.approx(float(parity[0][name]["loss_sum"]), rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_gradient(shared, parity, name):
    """Of the checkpoint in the published format on the four pictures, BatchNorm as in evaluation."""
    expected, batch = parity[0][name], parity[1]
    model = freeze_batch_norm(load_model(shared / "reference/parity" / f"{name}-random.pt").train())
    loss = LOSSES[model.loss](LossConfig())(model(torch.from_numpy(batch["images"]).float() / 255), targets_of(batch))
    total = 4 * sum(term.total / term.weight for term in loss.terms.values())
    assert total.item() == pytest.approx(float(expected["loss_sum"]), rel=1e-4)
    total.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert float(torch.nn.utils.get_total_norm(gradients)) == pytest.approx(float(expected["grad_norm"]), rel=1e-3)
    first, theirs = model.model["0"].conv.weight.grad, torch.from_numpy(expected["grad_first_conv"])
    assert float((first - theirs).norm() / theirs.norm()) < 1e-3
