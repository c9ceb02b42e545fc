"""Law 5: inf in the first or the last micro-batch leaves weights and optimizer untouched; the scale falls after the window."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from laws.toys import ALONE, OURS, Pieces, Probe, Toy, flat, full_precision, reach_of, relative, run_window, scaled


def injected(world, fault: str, at: int):
    """The world's criterion with inf in its ``at``-th call."""
    calls = []

    def criterion(outputs, targets):
        calls.append(None)
        if len(calls) - 1 != at:
            return world.criterion(outputs, targets)
        if fault == "gradient":
            outputs.register_hook(lambda g: torch.full_like(g, torch.inf))
            return world.criterion(outputs, targets)
        return world.criterion(outputs * (torch.inf if fault == "inf loss" else torch.nan), targets)

    return criterion


def check_not_finite_changes_nothing(pieces: Pieces, fault="gradient", at=0, precision=None):
    world = Toy(torch.float32)
    precision = precision or full_precision(torch.float32)
    model = world.model()
    optimizer = Probe(model)
    reach = reach_of(model, world.term)
    parts = world.batch().split(4)

    def window(criterion):
        sums = pieces.accumulate(model, criterion, parts, ranks=ALONE, precision=precision)
        return pieces.apply(optimizer, sums, reach, precision, 10.0)

    assert window(world.criterion).applied  # the optimizer has a state to lose
    weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    update = window(injected(world, fault, at))

    assert not update.applied
    assert update.reason == ("gradient overflow" if fault == "gradient" else "non-finite loss")
    torch.testing.assert_close(model.state_dict(), weights, rtol=0, atol=0)
    torch.testing.assert_close(optimizer.state_dict()["state"], state["state"], rtol=0, atol=0)
    assert optimizer.state_dict()["param_groups"] == state["param_groups"]
    assert window(world.criterion).applied  # and training goes on
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("fault", ["inf loss", "nan loss", "gradient"])
@pytest.mark.parametrize("at", [0, 3], ids=["first", "last"])
def test_not_finite_changes_nothing(fault, at):
    check_not_finite_changes_nothing(OURS, fault, at)


@pytest.mark.parametrize("fault", ["inf loss", "gradient"])
@pytest.mark.parametrize("at", [0, 3], ids=["first", "last"])
def test_not_finite_changes_nothing_with_a_scaler(fault, at):
    precision = scaled()
    check_not_finite_changes_nothing(OURS, fault, at, precision)
    assert precision.scale == (2.0**15 if fault == "gradient" else 2.0**16)


def check_scale_is_constant_in_a_window(pieces: Pieces):
    """Rule 25: an overflow in the first micro-batch shows only after the last."""
    world = Toy(torch.float32)
    precision = scaled()
    faulty = injected(world, "gradient", 0)
    seen = []

    def watched(outputs, targets):
        seen.append(precision.scale)
        return faulty(outputs, targets)

    outcome = run_window(world, world.batch().split(4), pieces, precision=precision, criterion=watched)
    assert not outcome.update.applied
    assert seen == [2.0**16] * 4
    assert precision.scale == 2.0**15


def test_scale_is_constant_in_a_window():
    check_scale_is_constant_in_a_window(OURS)


def test_the_scale_stops_at_one():
    world = Toy(torch.float32)
    precision = scaled(2.0)
    for expected in (1.0, 1.0):
        outcome = run_window(
            world,
            world.batch().split(4),
            precision=precision,
            criterion=injected(world, "gradient", 0),
        )
        assert outcome.update.reason == "gradient overflow"
        assert precision.scale == expected


def test_an_overflow_repeated_with_smaller_scales_gives_the_window_at_last():
    """The window is a transaction: the same images again, until the gradient fits."""
    world = Toy(torch.float32)
    parts = world.batch().split(4)
    precision = scaled(2.0**124)  # overflows fp32 for real
    plain = run_window(world, parts)
    attempts = 0
    while not (outcome := run_window(world, parts, precision=precision)).update.applied:
        assert outcome.update.reason == "gradient overflow"
        assert math.isfinite(outcome.sums.loss)
        attempts += 1
    assert attempts >= 1
    assert precision.scale == 2.0 ** (124 - attempts)
    assert relative(outcome.gradient, plain.gradient) <= 1e-5


def test_a_scaler_changes_nothing_of_the_gradient():
    world = Toy(torch.float32)
    parts = world.batch().split(4)
    plain, with_scaler = run_window(world, parts), run_window(world, parts, precision=scaled())
    assert torch.equal(plain.gradient, with_scaler.gradient)
    assert torch.equal(flat(list(plain.model.parameters())), flat(list(with_scaler.model.parameters())))
