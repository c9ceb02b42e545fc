"""Two terms on one parameter: a window that runs twice, once for its weights, once for its gradient.

    grad = images * (d(sum S1)/dp / max(sum w1, 1) + d(sum S2)/dp / max(sum w2, 1))

One gradient cannot be multiplied by two quotients afterwards, so the weights must be known before the first backward pass.
The first pass runs every forward without gradient and adds up the weights, over all ranks. The second is an ordinary
window whose provisional weights stand to each other as the weights do, so that one multiplier is left for all terms.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from visiontrain.batch import Batch
from visiontrain.distributed import Ranks
from visiontrain.errors import ConfigError
from visiontrain.nn.recompute import untouched_statistics
from visiontrain.training.precision import Precision
from visiontrain.training.window import Criterion, WindowSums, accumulate_window, provisional_of

# Relative: the same forward pass twice gives the same weight, up to the order in which a GPU adds it up.
SAME_WEIGHT = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 1e-6, torch.float16: 1e-6}


def accumulator(reach: Mapping[str, Sequence[nn.Parameter]]) -> Callable[..., WindowSums]:
    """What accumulates a window: ``accumulate_window``, or where terms share a parameter ``accumulate_twice``."""
    return accumulate_twice if shared_parameters(reach) else accumulate_window


def shared_parameters(reach: Mapping[str, Sequence[nn.Parameter]]) -> int:
    """How many parameters belong to several loss terms; if any does, a window needs two passes."""
    owners = Counter(p for parameters in reach.values() for p in set(parameters))
    return sum(terms > 1 for terms in owners.values())


def accumulate_twice(
    model: nn.Module,
    criterion: Criterion,
    micro_batches: Sequence[Batch],
    *,
    ranks: Ranks,
    precision: Precision,
    provisional: Mapping[str, float] | float = 1.0,
    before: Callable[[Batch], None] = lambda batch: None,
    between: Callable[[], None] = lambda: None,
    overlap: bool = False,
    meets: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> WindowSums:
    """As ``accumulate_window``, for terms that share parameters; a window that is not finite ends after its first pass.

    Both passes see the same weights of the model, images and random numbers. Running statistics count the second alone.

    Args:
        before: called in both passes; in the first gradients are off (``torch.is_grad_enabled``).
        provisional: that of the loss's first term alone counts, and it changes no bit of the result.

    Raises:
        ConfigError: a weight was another one in the second pass, so this loss cannot be made exact; and as there.
        TypeError, OutOfMemory, RankLost, Stop: as there, in either pass.
    """
    cards = [ranks.device] if ranks.device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(cards), untouched_statistics(model):
        first = accumulate_window(
            model,
            criterion,
            micro_batches,
            ranks=ranks,
            precision=precision,
            before=before,
            meets=meets,
            stop=stop,
        )
    if not first.finite:
        return first
    second = accumulate_window(
        model,
        criterion,
        micro_batches,
        ranks=ranks,
        precision=precision,
        provisional=in_proportion(first.weights, provisional),
        before=before,
        between=between,
        overlap=overlap,
        meets=meets,
        stop=stop,
    )
    if second.finite:
        require_same_weights(first.weights, second.weights, SAME_WEIGHT[precision.dtype])
    return replace(second, weights=first.weights)


def in_proportion(weights: Mapping[str, float], provisional: Mapping[str, float] | float) -> dict[str, float]:
    """What each term divides by in the second pass: as the weights of the window to each other.

    The first term's is its provisional weight itself, so a window of one term, or of equal weights, has the bits that one
    pass gives. The others are rounded once, alike in all micro-batches.
    """
    divisors = {term: max(weight, 1.0) for term, weight in weights.items()}
    first = next(iter(divisors))
    unit = provisional_of(provisional, first)
    return {term: unit * (divisor / divisors[first]) for term, divisor in divisors.items()}


def require_same_weights(first: Mapping[str, float], second: Mapping[str, float], tolerance: float) -> None:
    """The gradient of the second pass is that of the first one's weights.

    Raises:
        ConfigError: the loss gave other weights for the same forward passes.
    """
    for term in {**first, **second}:
        one, other = first.get(term, math.nan), second.get(term, math.nan)
        if not math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance):
            raise ConfigError(
                f"loss term {term!r} had the weight {one:.9g} in the first pass of a window and {other:.9g} in the second, with"
                " the same parameters, images and random numbers. Its parameters are reached by another term too, so the"
                " weights must be known before the gradient, and this loss cannot be made exact. Let its weight follow from"
                " outputs and targets alone (no counter, no random numbers of its own); or detach the features of one term, or"
                " give both terms one weight (one Term)."
            )
