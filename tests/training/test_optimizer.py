from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from visiontrain.config.groups import OptimConfig
from visiontrain.models import build_model
from visiontrain.training.optimizer import (
    LONG_RUN,
    OPTIMIZERS,
    STATES,
    allocate_state,
    build_optimizer,
    choose_optimizer,
    parameter_groups,
    set_schedule,
    state_bytes,
)
from visiontrain.training.schedule import Schedule

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model():
    return build_model("yolov8n", ["a", "b"])


def test_every_trainable_parameter_is_in_one_group(model):
    groups = {g["role"]: g["params"] for g in parameter_groups(model, 5e-4)}
    grouped = [id(p) for parameters in groups.values() for p in parameters]
    trainable = {id(p) for p in model.parameters() if p.requires_grad}
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == trainable
    assert id(model.model["22"].dfl.conv.weight) not in trainable


def test_only_weights_decay(model):
    groups = {g["role"]: g for g in parameter_groups(model, 5e-4)}
    assert {role: g["weight_decay"] for role, g in groups.items()} == {"weights": 5e-4, "norms": 0.0, "biases": 0.0}
    assert all(p.ndim > 1 for p in groups["weights"]["params"])
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert {id(m.weight) for m in norms} == {id(p) for p in groups["norms"]["params"]}
    assert {id(m.bias) for m in norms} <= {id(p) for p in groups["biases"]["params"]}


def test_a_role_without_parameters_has_no_group():
    assert [g["role"] for g in parameter_groups(nn.Linear(2, 2, bias=False), 1.0)] == ["weights"]


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_each_optimizer_steps(name):
    layers = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    optimizer = build_optimizer(layers, OptimConfig(optimizer=name), 5e-4)
    before = [p.clone() for p in layers.parameters()]
    layers(torch.randn(4, 3)).square().sum().backward()
    moving = [bool(p.grad.any()) for p in layers.parameters()]
    optimizer.step()
    moved = [not torch.equal(a, b) for a, b in zip(before, layers.parameters(), strict=True)]
    assert any(moving) and all(moved[i] for i, moves in enumerate(moving) if moves)


def test_sgd_is_nesterov():
    layer = nn.Linear(1, 1)
    assert all(g["nesterov"] for g in build_optimizer(layer, OptimConfig(optimizer="SGD"), 0.0).param_groups)
    plain = OptimConfig(optimizer="SGD", momentum=0.0)
    assert not any(g["nesterov"] for g in build_optimizer(layer, plain, 0.0).param_groups)


def test_auto_goes_by_the_length_of_the_run():
    config = OptimConfig()
    short = choose_optimizer(config, frozenset(), updates=LONG_RUN - 1, classes=3, images_per_update=64)
    long = choose_optimizer(config, frozenset(), updates=LONG_RUN, classes=3, images_per_update=64)
    assert (short.config.optimizer, long.config.optimizer) == ("AdamW", "Muon")
    assert short.config.lr0 < config.lr0
    assert long.config == replace(config, optimizer="Muon", lr0=0.02)
    tuned = choose_optimizer(config, frozenset(), updates=LONG_RUN, classes=3, images_per_update=64, scratch=False)
    assert tuned.config.lr0 == 0.01 and "from a checkpoint" in tuned.reason
    given = replace(config, lr0=0.3)
    kept = choose_optimizer(given, frozenset({"lr0"}), updates=LONG_RUN, classes=3, images_per_update=64)
    assert (kept.config.optimizer, kept.config.lr0) == ("Muon", 0.3)
    assert str(LONG_RUN - 1) in short.reason
    assert str(LONG_RUN) in long.reason


def test_auto_is_faster_from_scratch():
    fresh, tuned = (
        choose_optimizer(OptimConfig(), frozenset(), updates=10, classes=3, images_per_update=64, scratch=scratch)
        for scratch in (True, False)
    )
    assert (fresh.config.lr0, tuned.config.lr0) == (0.002857, 0.001429)
    assert "from scratch" in fresh.reason
    assert "from a checkpoint" in tuned.reason


def test_auto_keeps_what_was_given():
    config = OptimConfig(lr0=0.123, momentum=0.5)
    choice = choose_optimizer(config, frozenset({"lr0", "momentum"}), updates=10, classes=3, images_per_update=64)
    assert (choice.config.lr0, choice.config.momentum) == (0.123, 0.5)
    assert "lr0" not in choice.reason


def test_cfg02_adamw_with_the_default_of_sgd_is_told():
    given = frozenset({"optimizer"})
    choice = choose_optimizer(
        OptimConfig(optimizer="AdamW"), given, updates=100, classes=4, images_per_update=64, scratch=False
    )
    assert choice.config.lr0 == 0.01 and "lr0=0.00125 is what auto takes" in choice.reason
    said = choose_optimizer(
        OptimConfig(optimizer="AdamW"), given | {"lr0"}, updates=100, classes=4, images_per_update=64
    )
    assert said.reason == "as given"


def test_a_named_optimizer_is_left_alone():
    config = OptimConfig(optimizer="SGD")
    assert choose_optimizer(config, frozenset(), updates=1, classes=3, images_per_update=64).config is config


@pytest.mark.parametrize(
    ("rule", "images", "lr0", "said"),
    [
        ("none", 256, 0.1, ""),
        ("linear", 256, 0.4, "lr_scale=linear: lr0 0.1 x 256/64 = 0.4"),
        ("linear", 16, 0.025, "lr0 0.1 x 16/64 = 0.025"),
        ("sqrt", 256, 0.2, "lr_scale=sqrt: lr0 0.1 x sqrt(256/64) = 0.2"),
        ("sqrt", 64, 0.1, "lr0 0.1 x sqrt(64/64) = 0.1"),
    ],
)
def test_lr_scale_multiplies_the_given_lr0_and_says_so(rule, images, lr0, said):
    """Rule 70."""
    config = OptimConfig(optimizer="SGD", lr0=0.1, lr_scale=rule)
    choice = choose_optimizer(config, frozenset({"lr0"}), updates=1, classes=3, images_per_update=images)
    assert choice.config.lr0 == pytest.approx(lr0, rel=1e-12)
    assert choice.reason.endswith(said) and ("lr_scale" in choice.reason) == (rule != "none")
    assert choice.config == replace(config, lr0=choice.config.lr0)


def test_lr_scale_multiplies_the_chosen_lr0_too():
    plain, scaled = (
        choose_optimizer(OptimConfig(lr_scale=rule), frozenset(), updates=10, classes=3, images_per_update=256)
        for rule in ("none", "linear")
    )
    assert scaled.config.lr0 == 4 * plain.config.lr0
    assert "(4 + 3 classes) from scratch; lr_scale=linear: lr0 0.002857 x 256/64 = 0.011428" in scaled.reason


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_set_schedule(name):
    schedule = Schedule(1000.0, 100.0, 0.01, 0.01, 0.9, 0.8, 0.1, False)
    optimizer = build_optimizer(nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), OptimConfig(optimizer=name), 5e-4)
    lr, momentum = set_schedule(optimizer, schedule, 50)
    assert (lr, momentum) == (schedule.learning_rate(50), schedule.momentum_at(50))
    for group in optimizer.param_groups:
        assert group["lr"] == schedule.learning_rate(50, bias=group["role"] == "biases")
        assert (group["betas"][0] if "betas" in group else group["momentum"]) == momentum


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_state_made_before_the_first_step_changes_no_bit(name, weight_decay):
    """Also with momentum that warms up, signed zeros, and a parameter that gets no gradient at first."""
    ends = []
    for early in (False, True):
        torch.manual_seed(0)
        layers = nn.Sequential(
            nn.Linear(7, 5), nn.Conv2d(3, 2, 1).to(memory_format=torch.channels_last), nn.Linear(2, 2)
        )
        optimizer = build_optimizer(layers, OptimConfig(optimizer=name), weight_decay)
        assert optimizer.defaults.get("nesterov", True)
        if early:
            allocate_state(optimizer)
            before = dict(optimizer.state.items())
            assert state_bytes(optimizer) >= sum(p.nbytes for p in layers.parameters())
        for update in range(4):
            set_schedule(optimizer, SCHEDULE, 10 * update + 10)
            for p in layers[:2].parameters() if update < 2 else layers.parameters():
                p.grad = torch.randn_like(p) * (torch.rand_like(p) > 0.3) * -1.0
            optimizer.step()
        if early:
            assert all(optimizer.state[p] is s for p, s in before.items())
        moments = [t for p in layers[:2].parameters() for t in optimizer.state[p].values()]
        ends.append([*layers.parameters(), *moments])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))
    assert not any(torch.equal(a, torch.zeros_like(a)) for a in ends[0][:2])


SCHEDULE = Schedule(100, 30, lr0=0.1, lrf=0.1, momentum=0.9, warmup_momentum=0.5, warmup_bias_lr=0.1, cosine=False)


def test_state_that_is_there_stays_and_every_optimizer_has_a_maker():
    assert STATES.keys() == OPTIMIZERS.keys()
    layer = nn.Linear(2, 2)
    optimizer = build_optimizer(layer, OptimConfig(optimizer="AdamW"), 0.0)
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    before = {p: {k: t.clone() for k, t in s.items()} for p, s in optimizer.state.items()}
    allocate_state(optimizer)
    assert all(torch.equal(t, before[p][k]) for p, s in optimizer.state.items() for k, t in s.items())
