"""Law 3: a window without objects has the gradient of its images, and pushes scores down."""

from __future__ import annotations

import pytest
import torch
from laws.toys import OURS, TOLERANCE, Narrow, NarrowX, Pieces, Toy, cut, gradient_by_hand, relative, run_window


def check_background_window(pieces: Pieces, world=None):
    world = world or Toy()
    batch = world.batch([0] * 6)
    whole = gradient_by_hand(world, batch)
    for sizes in ([6], [2, 2, 2], [1, 5]):
        outcome = run_window(world, cut(batch, sizes), pieces, provisional=4.0)
        assert outcome.update.applied
        assert outcome.sums.weights[world.term] == 0
        assert outcome.gradient.isfinite().all()
        assert relative(outcome.gradient, whole) <= TOLERANCE[world.dtype]


@pytest.mark.parametrize(
    "world", [Toy(), Narrow(torch.float32), Narrow(), NarrowX()], ids=["toy", "fp32", "fp64", "yolox"]
)
def test_background_window(world):
    check_background_window(OURS, world)


def test_every_trainable_parameter_has_a_gradient_without_objects():
    """The empty sums of the box terms still reach the box branch: with zeros, not with None."""
    world = Narrow(torch.float32)
    model = world.model()
    batch = world.batch([0, 0]).to("cpu")
    world.criterion(model(batch.images), batch.targets).terms["detect"].total.backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    assert all(not p.grad.any() for p in model.model["22"].cv2.parameters())


def test_scores_fall():
    world = Narrow(torch.float32)
    batch = world.batch([0] * 4)
    outcome = run_window(world, batch.split(2), provisional=1.0, clip_norm=10.0)
    images = batch.to("cpu").images
    with torch.no_grad():
        before, after = world.model()(images).scores.sigmoid().sum(), outcome.model(images).scores.sigmoid().sum()
    assert after < before


def test_a_background_micro_batch_is_not_over_weighted():
    """Clamping each micro-batch's weight to 1 would change this window; the objects' weight is 0.3 here."""
    world = Toy()
    batch = world.batch([1, 0, 0, 0])
    small = world.batch([1, 0, 0, 0]).targets.boxes * (0.3 / batch.targets.boxes.abs().sum().div(4))
    batch.targets.boxes.copy_(small)
    whole = gradient_by_hand(world, batch)
    outcome = run_window(world, batch.split(1))
    assert outcome.sums.weights["toy"] == pytest.approx(0.3)
    assert relative(outcome.gradient, whole) <= 1e-12
