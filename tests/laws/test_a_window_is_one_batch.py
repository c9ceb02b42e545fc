"""Law 1: however a window is cut, its gradient is that of its images as one batch."""

from __future__ import annotations

import pytest
import torch
from laws.toys import (
    MIXED,
    OURS,
    TOLERANCE,
    Narrow,
    NarrowDual,
    NarrowX,
    Pieces,
    Toy,
    cut,
    gradient_by_hand,
    relative,
    run_window,
)

from visiontrain.training.window import check_terms

SPLITS = {
    "one batch": [16],
    "8": [8] * 2,
    "4": [4] * 4,
    "2": [2] * 8,
    "1": [1] * 16,
    "ragged 7": [7, 7, 2],  # a micro-batch without objects is among the splits of 1, 2 and 4
    "very ragged": [1, 13, 2],
}


def check_split_invariance(pieces: Pieces, world=None, splits=SPLITS):
    world = world or Toy()
    batch = world.batch()
    whole = gradient_by_hand(world, batch)
    for name, sizes in splits.items():
        outcome = run_window(world, cut(batch, sizes), pieces, provisional=8.0)
        assert outcome.update.applied, name
        assert relative(outcome.gradient, whole) <= TOLERANCE[world.dtype], name


def check_loss_is_of_the_window(pieces: Pieces):
    """Rule 7: the logged loss does not depend on the split either."""
    world = Toy()
    batch = world.batch()
    (term,) = world.criterion(world.model()(batch.images), batch.targets).terms.values()
    mean = (term.total / term.weight).item()
    for name, sizes in SPLITS.items():
        outcome = run_window(world, cut(batch, sizes), pieces, provisional=8.0)
        assert outcome.sums.loss == pytest.approx(mean, rel=1e-12), name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["fp64", "fp32"])
def test_toy(dtype):
    check_split_invariance(OURS, Toy(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["fp64", "fp32"])
def test_detector(dtype):
    check_split_invariance(OURS, Narrow(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["fp64", "fp32"])
def test_detector_with_two_heads(dtype):
    """Two terms with two weights: each parameter is reached by one of them."""
    check_split_invariance(OURS, NarrowDual(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["fp64", "fp32"])
def test_detector_whose_assignment_counts_anchors(dtype):
    """With class weights, and the part of the loss that the last epochs have."""
    check_split_invariance(OURS, NarrowX(dtype))


def test_each_head_reaches_its_own_parameters_alone():
    world = NarrowDual()
    model, batch = world.model(), world.batch().to("cpu", torch.float64)
    reach = model.term_parameters()
    check_terms(model, world.criterion, batch, reach)
    numbers = [id(p) for each in reach.values() for p in each]
    assert sorted(numbers) == sorted(id(p) for p in model.parameters() if p.requires_grad)
    loss = world.criterion(model(batch.images), batch.targets)
    for term, parameters in reach.items():
        gradients = torch.autograd.grad(loss.terms[term].total, parameters, retain_graph=True, allow_unused=True)
        assert all(g is not None for g in gradients)


def test_background_micro_batches_are_among_the_splits():
    batch = Narrow().batch()
    assert any(len(part.targets) == 0 for part in cut(batch, SPLITS["2"]))
    assert len(batch.targets) == sum(MIXED)


def test_logged_loss():
    check_loss_is_of_the_window(OURS)


def test_mean_of_ratios_is_something_else():
    """Rule 16: what dividing each micro-batch by its own weight would give is far away on this very window."""
    world = Narrow()
    batch = world.batch()
    whole = gradient_by_hand(world, batch)
    ratios = sum(gradient_by_hand(world, part) for part in batch.split(2))
    assert relative(ratios, whole) >= 0.05
