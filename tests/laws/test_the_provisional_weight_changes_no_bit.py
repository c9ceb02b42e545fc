"""Law 6: what the backward passes divide by leaves no trace in fp32 and fp64."""

from __future__ import annotations

import pytest
import torch
from laws.toys import OURS, Narrow, Pieces, Toy, run_window

VALUES = [1.0, *(2.0**k for k in (-3, -2, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10))]


def check_provisional_changes_no_bit(pieces: Pieces, world=None, values=VALUES):
    world = world or Toy(torch.float32)
    parts = world.batch().split(4)
    reference = run_window(world, parts, pieces, provisional=1.0)
    for value in values:
        outcome = run_window(world, parts, pieces, provisional=value)
        assert torch.equal(outcome.gradient, reference.gradient), value
        assert outcome.sums.loss == reference.sums.loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
def test_toy(dtype):
    check_provisional_changes_no_bit(OURS, Toy(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
def test_detector(dtype):
    check_provisional_changes_no_bit(OURS, Narrow(dtype), [2.0**-3, 2.0, 2.0**10])
