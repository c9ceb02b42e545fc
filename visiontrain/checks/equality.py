"""Is a window the gradient of its images as one batch? Measured on the user's own model, loss and pictures."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

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
PARTLY_SINGLE = 1e-5  # in float64: less is a part of model or loss that computes in float32, and no fault
SPLITS = (1, 2, 4)
SAME_SHAPE = 1e-6  # what is left of a gradient, relative, when one of another size but the same direction is taken away
NORM_REMEDY = "norm=group has no such difference, nor has norm=frozen, which keeps a checkpoint's statistics; a larger batch has less"


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
    whole, cuts = found[0], found[1:]
    shares = [share_of(cut.vector, whole.vector) for cut in cuts]
    ratio = cuts[0].sums.loss / whole.sums.loss if whole.sums.loss else 1.0
    worst = max(relative(cut.vector, whole.vector) for cut in cuts)
    rest = max(relative(cut.vector, s * whole.vector) for cut, s in zip(cuts, shares, strict=True))
    weight = min(whole.sums.weights.values())
    return [_divided_once(ratio, shares, rest), _one_weight(worst, rest, weight, len(batch), len(batch.targets))]


def _divided_once(ratio: float, shares: Sequence[float], rest: float) -> Row:
    """``shares`` of the one batch's gradient at A = 2 and 4, ``rest`` what differs besides a factor."""
    value = f"loss x {ratio:.3g}"
    remedy = "return sums from the loss, and their weight; the window divides once"
    told = f"A = 2 gives {shares[0]:.3g} times the gradient and A = 4 {shares[1]:.3g} times"
    if rest < SAME_SHAPE and _all_close(shares, [1 / k for k in SPLITS[1:]]):
        return Row("divided once", FAIL, value, f"{told}: divided by A a second time", remedy, ratio)
    if rest < SAME_SHAPE and _all_close(shares, SPLITS[1:]):
        return Row("divided once", FAIL, value, f"{told}: never divided", remedy, ratio)
    if not 0.75 < ratio < 1.33:
        return Row("divided once", FAIL, value, f"when A doubles; {told}", remedy, ratio)
    return Row("divided once", PASS, value, "when A doubles; 0.5 would mean that it is divided twice", "", ratio)


def _one_weight(worst: float, rest: float, weight: float, images: int, objects: int) -> Row:
    value = f"{worst:.1e}"
    what = f"{images} images with {objects} objects, cut 1, 2 and 4 times, float64, statistics frozen"
    # What divides is never below 1, so few objects hide a wrong division.
    if weight < SPLITS[-1] and worst <= PARTLY_SINGLE:
        meaning = f"{what}: their weight of {weight:.2g} is too small to tell one division from several"
        return Row("weighted loss", NOTE, value, meaning, "", worst)
    if worst <= TOLERANCES["cpu", torch.float64]:
        return Row("weighted loss", PASS, value, f"relative difference of {what}", "", worst)
    if worst <= PARTLY_SINGLE:
        meaning = f"{what}: part of model or loss computes in float32, so this is rounding"
        return Row("weighted loss", NOTE, value, meaning, "", worst)
    if rest < SAME_SHAPE:
        cause = "the gradient scales with the split (see divided once)"
    else:
        cause = (
            "the result varies with the split: each micro-batch is divided by a weight of its own (mean of means), or "
            "items that should be ignored count"
        )
    remedy = "return the sum and its weight; divide neither in the loss"
    return Row("weighted loss", FAIL, value, f"{what}: {cause}", remedy, worst)


def one_batch_rows(
    pieces: Pieces, model: Detector, micro_batches: Sequence[Batch], precision: Precision, of: str
) -> list[Row]:
    """The window as planned against its images as one batch: statistics frozen, then as training runs it.

    Args:
        micro_batches: as planned; all of them fit as one batch.
        of: what they are, for people: "the window's 64 images".
    """
    whole = join(micro_batches)

    def compared(like: Detector) -> tuple[Gradient, Gradient]:
        with full_float32():
            return gradient(pieces, like, micro_batches, precision), gradient(pieces, like, [whole], precision)

    if batch_norms(model):
        of += ", statistics frozen"
    frozen = freeze_batch_norm(copy.deepcopy(model))
    equal = _within(*compared(frozen), precision, of, lambda: _without_rounding(pieces, frozen, micro_batches))
    if not batch_norms(model):
        meaning = "no operation looks at the other images of a micro-batch"
        return [equal, Row("operations", PASS, "no BatchNorm", meaning)]
    planned, single = compared(copy.deepcopy(model))
    apart = relative(planned.vector, single.vector)
    return [equal, _operations(apart, len(micro_batches[0]), len(whole))]


@contextmanager
def full_float32() -> Iterator[None]:
    """No TF32 inside: its ten bits would be taken for a fault."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def _without_rounding(pieces: Pieces, model: Detector, micro_batches: Sequence[Batch]) -> float:
    """The same relative difference in float64, of half the images, for each needs twice the memory; at least two passes."""
    whole = join(micro_batches)
    half = whole.split(max(len(whole) // 2, 2))[0]
    cut = half.split(min(len(micro_batches[0]), -(-len(half) // 2)))
    exact, double = Precision(pieces.ranks.device, torch.float64), copy.deepcopy(model).double()
    return relative(gradient(pieces, double, cut, exact).vector, gradient(pieces, double, [half], exact).vector)


def _within(
    planned: Gradient, single: Gradient, precision: Precision, of: str, without_rounding: Callable[[], float]
) -> Row:
    """Within the tolerance; or beyond it, and then ``without_rounding`` tells rounding from a fault."""
    tolerance = TOLERANCES[single.vector.device.type, precision.dtype]
    apart = relative(planned.vector, single.vector)
    cosine = share_of(planned.vector, single.vector) * _norm(single.vector) / max(_norm(planned.vector), 1e-300)
    narrow = precision.dtype in (torch.bfloat16, torch.float16)
    good = apart <= tolerance and (not narrow or cosine >= 0.999)
    name, value, what = "one batch", f"{apart:.1e}", f"{of}, as planned against one batch, {precision.name}"
    if good:
        return Row(name, PASS, value, f"relative difference, {what}; at most {tolerance:g}", "", apart)
    what = f"{what}: more than {tolerance:g}"
    exact = without_rounding()
    if exact > PARTLY_SINGLE:
        meaning = f"{what}, and {exact:.1e} with half of them in float64: the window is not the gradient of its images"
        return Row(name, FAIL, value, meaning, "see weighted loss and divided once for the cause", apart)
    flips = max(
        abs(w - single.sums.weights[t]) / max(single.sums.weights[t], 1.0) for t, w in planned.sums.weights.items()
    )
    cause = (
        f"it chose other anchors too, for the weight moved by {flips:.1e}" if flips > tolerance else "not the window"
    )
    meaning = f"{what}, but {exact:.1e} with half of them in float64: rounding, {cause}"
    return Row(name, NOTE, value, meaning, "", apart)


def _operations(apart: float, m: int, images: int) -> Row:
    meaning = (
        f"not equivalent: BatchNorm. The same gradients differ by so much when its statistics are taken of {m} images and of"
        f" all {images}; no accumulation changes that"
    )
    return Row("operations", NOTE, f"{100 * apart:.1f} %", meaning, NORM_REMEDY, apart)


def share_of(a: Tensor, b: Tensor) -> float:
    """How much of b is in a: <a, b> / <b, b>."""
    return float(torch.dot(a.double(), b.double())) / max(_norm(b) ** 2, 1e-300)


def _norm(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64))


def _all_close(values: Sequence[float], expected: Sequence[float]) -> bool:
    return all(abs(v - e) < 1e-3 * e for v, e in zip(values, expected, strict=True))
