"""What is frozen has no gradient, its normalisation stays, and the rest learns."""

from __future__ import annotations

import copy

import pytest
import torch

from visiontrain.errors import ConfigError
from visiontrain.models import MODELS, build_model
from visiontrain.models.freezing import freeze

pytestmark = pytest.mark.usefixtures("narrow")


def learning(model):
    return {".".join(name.split(".")[:2]) for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize(
    ("what", "first"),
    [("3", 3), ("0,1,2", 3), ("model.0, 1,model.2", 3), ("11", 12), ("12", 12), ("backbone", 12)],
)
def test_by_count_number_and_name(what, first):
    """Layers 10 and 11 of yolov8 have no parameters."""
    model = build_model("yolov8n", ["a"])
    said = freeze(model, what)
    assert min(int(name.split(".")[1]) for name in learning(model)) == first
    frozen = sum(not p.requires_grad for name, p in model.named_parameters() if "dfl" not in name)
    assert said.startswith(f"Frozen: {frozen} of ")


@pytest.mark.parametrize("family", sorted(MODELS))
def test_backbone_is_what_comes_before_the_neck(family):
    model = build_model(f"{family}n", ["a"])
    freeze(model, "backbone")
    first = {"resnet": 3, "convnext": 3, "yolov8": 12, "yolov9": 9, "yolox": 10}.get(family, 13)
    assert min(int(name.split(".")[1]) for name in learning(model)) == first >= model.backbone


def test_statistics_of_what_is_frozen_stay_and_others_move():
    torch.manual_seed(0)
    model = build_model("yolov8n", ["a", "b"])
    freeze(model, "backbone")
    model = copy.deepcopy(model).train()  # as the average of the weights is made
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    output = model(torch.rand(2, 3, 64, 64))
    (output.distances.sum() + output.scores.sum()).backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == (not parameter.requires_grad), name
    moved = {name.split(".")[1] for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved and min(map(int, moved)) == 12
    assert model.eval().training is False and model.train().model["0"].bn.training is False
    assert model.model["12"].cv1.bn.training is True


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("model.99", r"yolov8n has nothing to train called model.99; layers are numbered 0 to 22|did you mean"),
        ("backbon", "did you mean|layers are numbered"),
        ("model.22.cv4", "did you mean model.22.cv[23]"),
        ("23", "nothing of yolov8n would be left"),
        ("1,23", "nothing to train called model.23"),
    ],
)
def test_what_is_not_there_is_said(what, message):
    with pytest.raises(ConfigError, match=message):
        freeze(build_model("yolov8n", ["a"]), what)


def test_nothing_is_frozen_unless_asked():
    model = build_model("yolov8n", ["a"])
    assert freeze(model, "") == "" and "model.0" in learning(model)
