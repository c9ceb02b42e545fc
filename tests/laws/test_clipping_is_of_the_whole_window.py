"""Law 7: the window's gradient is clipped once, as one large batch's."""

from __future__ import annotations

import math

import pytest
import torch
from laws.toys import OURS, Narrow, Pieces, Toy, cut, gradient_by_hand, relative, run_window


def check_clipping_equals_the_large_batch(pieces: Pieces, world=None):
    world = world or Toy()
    batch = world.batch()
    whole = gradient_by_hand(world, batch)
    norm = float(whole.norm())
    limit = min(10.0, norm / 2)
    for sizes in ([16], [4] * 4, [7, 7, 2], [1] * 16):
        outcome = run_window(world, cut(batch, sizes), pieces, provisional=8.0, clip_norm=limit)
        assert outcome.update.clipped
        assert outcome.update.gradient_norm == pytest.approx(norm, rel=1e-9)
        assert float(outcome.gradient.norm()) == pytest.approx(limit, rel=1e-9)
        assert relative(outcome.gradient, whole * (limit / norm)) <= 1e-9


@pytest.mark.parametrize("world", [Toy(), Narrow()], ids=["toy", "detector"])
def test_clipping_equals_the_large_batch(world):
    check_clipping_equals_the_large_batch(OURS, world)


def test_torch_clips_the_same():
    world = Toy()
    batch = world.batch()
    model = world.model()
    gradients = gradient_by_hand(world, batch).split([p.numel() for p in model.parameters()])
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient.view_as(parameter).clone()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    expected = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    outcome = run_window(world, batch.split(4), clip_norm=10.0)
    assert relative(outcome.gradient, expected) <= 1e-6  # torch adds 1e-6 to the norm


def test_a_small_gradient_is_left_alone():
    world = Toy()
    batch = world.batch()
    whole = gradient_by_hand(world, batch)
    outcome = run_window(world, batch.split(4), clip_norm=2 * float(whole.norm()))
    assert not outcome.update.clipped
    assert torch.equal(outcome.gradient, run_window(world, batch.split(4), clip_norm=math.inf).gradient)


def test_clipping_each_micro_batch_is_something_else():
    """Rule 67: the order matters on this window."""
    world = Toy()
    batch = world.batch()
    whole = gradient_by_hand(world, batch)
    parts = [gradient_by_hand(world, part) for part in batch.split(4)]
    each = sum(g * min(1.0, 10.0 / float(g.norm())) for g in parts)
    once = whole * (10.0 / float(whole.norm()))
    assert relative(each * (10.0 / float(each.norm())), once) > 0.01
