"""Is a window the gradient of its images as one batch? Measured on the user's own model, loss and pictures."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from visiontrain.batch import Batch, join
from visiontrain.checks.rows import FAIL, NOTE, PASS, Row
from visiontrain.distributed import Ranks
from visiontrain.models.detector import Detector
from visiontrain.nn.norm import batch_norms, freeze_batch_norm
from visiontrain.training.precision import Precision
from visiontrain.training.update import normalise
from visiontrain.training.window import Criterion, WindowSums, accumulate_window, provisional_weights

# ||a - b|| / ||b|| over the flattened gradient, before clipping (accumulation.md, section 12).
TOLERANCES = {
    ("cpu", torch.float64): 1e-12,
    ("cuda", torch.float64): 1e-12,
    ("cpu", torch.float32): 1e-5,
    ("cuda", torch.float32): 1e-4,
    ("cuda", torch.bfloat16): 3e-2,
    ("cuda", torch.float16): 3e-2,
}
SPLITS = (1, 2, 4)
NORM_REMEDY = "norm=group or norm=frozen has no such difference; a larger batch has less of it"


@dataclass(frozen=True, slots=True)
class Pieces:
    """What makes a gradient; a test puts a faulty one in place of one of them."""

    criterion: Criterion
    ranks: Ranks
    accumulate: Callable[..., WindowSums] = accumulate_window


@dataclass(frozen=True, slots=True)
class Gradient:
    """A window's gradient, flattened, not clipped, with the sums it rests on."""

    vector: Tensor
    sums: WindowSums


def gradient(pieces: Pieces, model: Detector, micro_batches: Sequence[Batch], precision: Precision) -> Gradient:
    """The gradient that the optimizer would get; those of the model are empty before and after."""
    model.zero_grad(set_to_none=True)
    boxes = sum(len(batch.targets) for batch in micro_batches)
    sums = pieces.accumulate(
        model,
        pieces.criterion,
        micro_batches,
        ranks=pieces.ranks,
        precision=precision,
        provisional=provisional_weights(model.loss_terms, boxes, len(micro_batches)),
    )
    normalise(sums, model.term_parameters())
    vector = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).div_(precision.scale)
    model.zero_grad(set_to_none=True)
    return Gradient(vector, sums)


def relative(a: Tensor, b: Tensor) -> float:
    """||a - b|| / ||b||, summed in float64."""
    return _norm(a - b) / max(_norm(b), 1e-300)


def split_rows(pieces: Pieces, model: Detector, batch: Batch) -> list[Row]:
    """The same images as 1, 2 and 4 micro-batches in float64, statistics frozen: is the sum divided once, by one weight?

    Rounding is out of the way, so what differs is a fault of loss or loop: divided twice, or by each micro-batch's own
    weight (the mean of means).

    Args:
        batch: at least 4 images, better with unequal numbers of objects.
    """
    exact = Precision(pieces.ranks.device, torch.float64)
    frozen = freeze_batch_norm(copy.deepcopy(model)).double()
    found = [gradient(pieces, frozen, batch.split(-(-len(batch) // k)), exact) for k in SPLITS]
    whole, halves, quarters = found
    share = [_share(g.vector, whole.vector) for g in found]
    ratio = halves.sums.loss / whole.sums.loss if whole.sums.loss else 1.0
    worst = max(relative(g.vector, whole.vector) for g in found[1:])
    # What is left after scaling: 0 where the splits differ by a factor alone.
    rest = max(relative(g.vector, s * whole.vector) for g, s in zip(found[1:], share[1:], strict=True))
    return [
        _divided_once(ratio, share, rest, halves, quarters),
        _one_weight(worst, rest, len(batch), len(batch.targets)),
    ]


def _divided_once(ratio: float, share: Sequence[float], rest: float, halves: Gradient, quarters: Gradient) -> Row:
    times = halves.sums.micro_batches / 1, quarters.sums.micro_batches / 1
    value = f"loss x {ratio:.3g}"
    if rest < 1e-6 and _all_close(share[1:], [1 / t for t in times]):
        cause = f"A = 2 gives {share[1]:.3g} of the gradient and A = 4 gives {share[2]:.3g}: divided by A a second time"
        return Row("divided once", FAIL, value, cause, "return sums from the loss; the window divides once", ratio)
    if rest < 1e-6 and _all_close(share[1:], times):
        cause = f"A = 2 gives {share[1]:.3g} times the gradient and A = 4 {share[2]:.3g} times: never divided"
        return Row("divided once", FAIL, value, cause, "divide by the weight of the window, once", ratio)
    if not 0.75 < ratio < 1.33:
        cause = f"the loss becomes {ratio:.3g} times as large when A doubles"
        return Row("divided once", FAIL, value, cause, "return sums from the loss; the window divides once", ratio)
    return Row("divided once", PASS, value, "when A doubles; 0.5 would mean that it is divided twice", "", ratio)


def _one_weight(worst: float, rest: float, images: int, objects: int) -> Row:
    value = f"{worst:.1e}"
    what = f"{images} images with {objects} objects, cut 1, 2 and 4 times, float64, statistics frozen"
    if worst <= TOLERANCES["cpu", torch.float64]:
        return Row("weighted loss", PASS, value, f"relative difference of {what}", "", worst)
    if worst <= 1e-5:
        meaning = f"{what}: part of model or loss computes in float32, so this is rounding"
        return Row("weighted loss", NOTE, value, meaning, "", worst)
    if rest < 1e-6:
        meaning = f"{what}: the gradient scales with the split (see divided once)"
    else:
        meaning = f"{what}: the result varies with the split: each micro-batch is divided by a weight of its own (mean of means), or items that should be ignored count"
    return Row(
        "weighted loss", FAIL, value, meaning, "return the sum and its weight; divide neither in the loss", worst
    )


def one_batch_rows(
    pieces: Pieces, model: Detector, micro_batches: Sequence[Batch], precision: Precision, of: str
) -> list[Row]:
    """The window as planned against its images as one batch: statistics frozen, then as training runs it.

    Args:
        micro_batches: as planned; all of them fit as one batch.
        of: what they are, for people: "the window's 64 images".
    """
    whole = [join(micro_batches)]
    rows = []
    frozen = freeze_batch_norm(copy.deepcopy(model))
    planned, single = (gradient(pieces, frozen, part, precision) for part in (micro_batches, whole))
    name = "one batch, frozen" if batch_norms(model) else "one batch"
    rows.append(_within(name, planned, single, precision, of))
    del frozen, planned, single
    if batch_norms(model):
        trained = copy.deepcopy(model)
        planned, single = (gradient(pieces, trained, part, precision) for part in (micro_batches, whole))
        rows.append(_operations(relative(planned.vector, single.vector), len(micro_batches[0]), len(whole[0]), of))
    else:
        rows.append(
            Row(
                "compatible operations", PASS, "no BatchNorm", "no operation looks at the other images of a micro-batch"
            )
        )
    return rows


def _within(name: str, planned: Gradient, single: Gradient, precision: Precision, of: str) -> Row:
    tolerance = TOLERANCES[single.vector.device.type, precision.dtype]
    apart = relative(planned.vector, single.vector)
    cosine = _share(planned.vector, single.vector) * _norm(single.vector) / max(_norm(planned.vector), 1e-300)
    flips = max(
        abs(w - single.sums.weights[t]) / max(single.sums.weights[t], 1.0) for t, w in planned.sums.weights.items()
    )
    narrow = precision.dtype in (torch.bfloat16, torch.float16)
    good = apart <= tolerance and (not narrow or cosine >= 0.999)
    what = f"{of} as planned against one batch, {precision.name}"
    if good:
        return Row(name, PASS, f"{apart:.1e}", f"relative difference, {what}; at most {tolerance:g}", "", apart)
    if flips > 1e-4:
        cause = f"assignment flips: rounding chose other anchors (the weight moved by {flips:.1e})"
    else:
        cause = f"precision: rounding of {precision.name}, if weighted loss passes"
    meaning = f"{what}: more than {tolerance:g}; {cause}"
    return Row(
        name, FAIL, f"{apart:.1e}", meaning, "see weighted loss: it has no rounding; amp=false has less of it", apart
    )


def _operations(apart: float, m: int, images: int, of: str) -> Row:
    meaning = (
        f"not equivalent: BatchNorm. It sees {m} images at a time, one batch of {images} would show it all; no accumulation"
        f" changes that ({of})"
    )
    return Row("compatible operations", NOTE, f"{100 * apart:.1f} %", meaning, NORM_REMEDY, apart)


def full_precision(precision: Precision) -> Precision:
    """The same without mixed precision."""
    return replace(precision, dtype=torch.float32, scaler=None)


def _share(a: Tensor, b: Tensor) -> float:
    """How much of b is in a: <a, b> / <b, b>."""
    return float(torch.dot(a.double(), b.double())) / max(_norm(b) ** 2, 1e-300)


def _norm(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64))


def _all_close(values: Sequence[float], expected: Sequence[float]) -> bool:
    return all(abs(v - e) < 1e-3 * e for v, e in zip(values, expected, strict=True))
