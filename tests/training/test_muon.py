"""Muon: its direction, its step against torch's, and what it moves."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import _muon as theirs

from visiontrain.config.groups import OptimConfig
from visiontrain.models import build_model
from visiontrain.training import muon
from visiontrain.training.optimizer import build_optimizer, parameter_groups, set_schedule
from visiontrain.training.schedule import Schedule

torch.set_num_threads(1)


@pytest.mark.parametrize("shape", [(8, 24), (24, 8), (16, 16), (16, 4, 3, 3)])
def test_the_direction_is_nearly_the_nearest_orthogonal_matrix(shape):
    torch.manual_seed(0)
    gradient = torch.randn(shape, dtype=torch.float64)
    found = muon.orthogonal(gradient)
    u, _, vh = torch.linalg.svd(gradient.flatten(1), full_matrices=False)
    singular = torch.linalg.svdvals(found.flatten(1))
    assert found.shape == gradient.shape and found.dtype == torch.float64
    assert singular.min() > 0.65 and singular.max() < 1.25
    turned = u.T @ found.flatten(1) @ vh.T  # diagonal where the singular vectors are kept
    assert (turned - torch.diag(turned.diagonal())).abs().max() < 1e-10


def test_a_gradient_of_zero_moves_nothing():
    assert not muon.orthogonal(torch.zeros(3, 5)).any()


@pytest.mark.parametrize("shape", [(8, 24), (24, 8)])
def test_the_direction_is_torchs_bit_for_bit_in_its_precision(shape):
    torch.manual_seed(1)
    gradient = torch.randn(shape)
    expected = theirs._zeropower_via_newtonschulz(
        gradient, (theirs.DEFAULT_A, theirs.DEFAULT_B, theirs.DEFAULT_C), theirs.DEFAULT_NS_STEPS, theirs.EPS
    )
    assert torch.equal(muon.orthogonal(gradient, torch.bfloat16), expected)


@pytest.mark.parametrize("shape", [(6, 20), (20, 6)])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_step_is_torchs_where_both_apply(shape, momentum, monkeypatch):
    """A matrix, with decay; both in float64, where torch rounds to bfloat16 otherwise."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    torch.manual_seed(2)
    start = torch.randn(shape, dtype=torch.float64)
    ours, its = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    group = {"params": [ours], "role": muon.ROLE, "factor": 1.0, "weight_decay": 0.1}
    mine = muon.Muon([group], lr=0.02, momentum=momentum, nesterov=momentum > 0)
    reference = torch.optim.Muon([its], lr=0.02, weight_decay=0.1, momentum=momentum, nesterov=momentum > 0)
    for _ in range(5):
        gradient = torch.randn(shape, dtype=torch.float64)
        ours.grad, its.grad = gradient.clone(), gradient.clone()
        mine.step()
        reference.step()
    assert torch.allclose(ours, its, rtol=0, atol=1e-12)
    assert (its - start).norm() > 0.1


def test_what_is_no_matrix_steps_as_sgd():
    torch.manual_seed(3)
    norm = nn.BatchNorm2d(4)
    twin = nn.BatchNorm2d(4)
    mine = build_optimizer(norm, OptimConfig(optimizer="Muon"), 5e-4)
    reference = build_optimizer(twin, OptimConfig(optimizer="SGD"), 5e-4)
    for _ in range(3):
        for a, b in zip(norm.parameters(), twin.parameters(), strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        mine.step()
        reference.step()
    assert all(torch.equal(a, b) for a, b in zip(norm.parameters(), twin.parameters(), strict=True))


def test_it_moves_hidden_layers_that_mix_channels():
    model = build_model("yolo11n", ["a", "b"])
    groups = {g["role"]: g for g in parameter_groups(model, 5e-4, matrices=True)}
    named = {id(p): name for name, p in model.named_parameters()}
    kept = {named[id(p)] for p in groups["weights"]["params"]}
    depthwise = {f"{n}.weight" for n, m in model.named_modules() if isinstance(m, nn.Conv2d) and m.groups > 1}
    predictors = {f"model.23.cv{branch}.{level}.2.weight" for branch in (2, 3) for level in range(3)}
    assert depthwise and kept == depthwise | predictors
    assert all(p.ndim > 1 for p in groups["matrices"]["params"])
    assert groups["matrices"]["weight_decay"] == groups["weights"]["weight_decay"] == 5e-4


def test_scales_of_layers_do_not_decay(narrow):
    """ConvNeXt's have three dimensions, and are of the norms' kind."""
    model = build_model("convnextn", ["a"])
    scales = {id(p) for name, p in model.named_parameters() if name.endswith("layer_scale")}
    roles = {g["role"] for g in parameter_groups(model, 5e-4) for p in g["params"] if id(p) in scales}
    assert scales and roles == {"norms"}


@pytest.mark.parametrize(("name", "auxiliary"), [("yolov8n", False), ("yolov9t", True)])
def test_layers_learn_at_a_share_of_the_next_ones_rate(name, auxiliary):
    """Auxiliary layers, which are numbered on from the head's 22, learn as the head does."""
    model = build_model(name, ["a", "b"], auxiliary=auxiliary)
    groups = parameter_groups(model, 5e-4, layer_decay=0.5)
    factors = {
        name: next(g["factor"] for g in groups if any(p is q for q in g["params"]))
        for name, p in model.named_parameters()
        if p.requires_grad
    }
    assert all(factor == 0.5 ** max(22 - int(name.split(".")[1]), 0) for name, factor in factors.items())
    assert len(groups) == len({(g["role"], g["factor"]) for g in groups})
    schedule = Schedule(1000, 0, lr0=0.1, lrf=0.1, momentum=0.9, warmup_momentum=0.8, warmup_bias_lr=0.1, cosine=False)
    optimizer = torch.optim.SGD(groups, lr=1.0)
    told, _ = set_schedule(optimizer, schedule, 500)
    assert all(g["lr"] == schedule.learning_rate(500) * g["factor"] for g in optimizer.param_groups)
    assert told == schedule.learning_rate(500)
