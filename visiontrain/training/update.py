"""The end of a window: one multiplication, one finite check, one clip, one optimizer step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from visiontrain.errors import ConfigError
from visiontrain.training.precision import Precision
from visiontrain.training.window import WindowSums

CLIP_NORM = 10.0
ROUNDING = 1e-12  # relative, of multipliers that are one


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
        sums: of ``accumulate_window``; of ``accumulate_twice`` where terms share a parameter.
        reach: the parameters of each loss term.
        precision: as in ``accumulate_window``.
        clip_norm: largest norm of the whole gradient.
        reduce: makes the waiting gradients those of all ranks (``Reduction.reduce``).

    Raises:
        RankLost: from ``reduce``; weights and optimizer are untouched.
        ConfigError: from ``normalise``; likewise.
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
    """Multiply the waiting gradients by images * provisional / weight, one call for each term; returns all of them.

    Raises:
        ConfigError: terms with different multipliers share a parameter; after two passes they have one.
    """
    done: dict[nn.Parameter, float] = {}
    for term in sums.weights:
        multiplier = sums.multiplier(term)
        waiting = [p for p in reach[term] if p.grad is not None]
        for p in waiting:
            if not math.isclose(done.get(p, multiplier), multiplier, rel_tol=ROUNDING):
                raise ConfigError(
                    f"loss term {term!r} shares a parameter with a term of another weight: its gradient would be multiplied "
                    f"by {multiplier:g} or by {done[p]:g}, and neither is right. Accumulate with accumulate_twice."
                )
        fresh = [p for p in waiting if p not in done]
        if fresh:
            torch._foreach_mul_([p.grad for p in fresh], multiplier)
        done |= dict.fromkeys(fresh, multiplier)
    return [p.grad for p in done if p.grad is not None]
