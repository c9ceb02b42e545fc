"""The end of a window: one multiplication, one finite check, one clip, one optimizer step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from visiontrain.training.precision import Precision
from visiontrain.training.window import WindowSums

CLIP_NORM = 10.0


@dataclass(frozen=True, slots=True)
class Update:
    """What became of a window: ``gradient_norm`` before clipping, over all parameters.

    ``reason`` is empty where the update was applied, else ``non-finite loss`` or ``gradient overflow``.
    """

    applied: bool
    reason: str
    gradient_norm: float
    clipped: bool


def apply_update(
    optimizer: Optimizer,
    sums: WindowSums,
    reach: Mapping[str, Sequence[nn.Parameter]],
    precision: Precision,
    clip_norm: float = CLIP_NORM,
    reduce: Callable[[WindowSums], None] = lambda sums: None,
) -> Update:
    """Turn the waiting sums into the window's gradient and step; a window that is not finite changes nothing.

    Order: reduce over ranks, unscale, multiply, finite check, clip, optimizer step, scaler update, gradients to none.

    Args:
        optimizer: holds every parameter of ``reach``.
        sums: of ``accumulate_window``.
        reach: the parameters of each loss term; a parameter belongs to one term.
        precision: as in ``accumulate_window``.
        clip_norm: largest norm of the whole gradient.
        reduce: makes the waiting gradients those of all ranks (``Reduction.reduce``).

    Raises:
        RankLost: from ``reduce``; weights and optimizer are untouched.
    """
    if not sums.finite:
        optimizer.zero_grad(set_to_none=True)
        return Update(False, "non-finite loss", math.nan, False)
    reduce(sums)
    scaler = precision.scaler
    if scaler:
        scaler.unscale_(optimizer)
    gradients = normalise(sums, reach)
    norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
    value = float(norm)  # the window's second and last host synchronisation
    if not math.isfinite(value):
        optimizer.zero_grad(set_to_none=True)
        precision.lower_scale()
        return Update(False, "gradient overflow", value, False)
    if value > clip_norm:
        torch._foreach_mul_(gradients, clip_norm / value)
    optimizer.step()
    if scaler:
        scaler.update()
    optimizer.zero_grad(set_to_none=True)
    return Update(True, "", value, value > clip_norm)


def normalise(sums: WindowSums, reach: Mapping[str, Sequence[nn.Parameter]]) -> list[torch.Tensor]:
    """Multiply the waiting gradients by images * provisional / weight, one call for each term; returns all of them."""
    everything = []
    for term in sums.weights:
        gradients = [p.grad for p in reach[term] if p.grad is not None]
        torch._foreach_mul_(gradients, sums.multiplier(term))
        everything += gradients
    return everything
