"""One accumulation window: forward and backward of its micro-batches, gradients left as sums.

The gradient of a window is that of one batch of the same images:

    grad = images * d(sum S)/dp / max(sum w, 1)        sums over all micro-batches of all ranks

S is the loss sum of a term and w its weight. w is known only after the forward passes, so each backward divides by a
provisional power of two, exact in binary floating point, and ``apply_update`` multiplies once. Where two terms reach one
parameter no single multiplier is left for it, and ``two_pass`` runs the window twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from visiontrain.batch import Batch, Targets
from visiontrain.distributed import Ranks
from visiontrain.errors import ConfigError, OutOfMemory
from visiontrain.losses.sums import LossSum, require_loss_sum
from visiontrain.memory import NoRoom, attempt
from visiontrain.training.interrupt import Stop
from visiontrain.training.precision import Precision

Criterion = Callable[..., LossSum]


@dataclass(frozen=True, slots=True)
class WindowSums:
    """What the forward passes of a window added up to, over all ranks; the gradients wait in ``p.grad``.

    ``totals`` and ``weights`` are by term, ``parts`` by term and part; ``provisional`` is what each backward divided by.
    ``positions`` are those of all images, in order; ``micro_batches`` are those of the rank that had most, ``passes`` all
    forward passes. ``share`` is this rank's part of the images. ``reduced``: the gradients are those of all ranks already
    (reduce=ddp); else each rank holds its own, and of the trainable parameters those numbered in ``touched`` have one on
    some rank. ``behind``: forward passes that this rank had fewer than the one that had most. ``bad``: what is wrong with
    pictures that could not be read.
    """

    totals: dict[str, float]
    weights: dict[str, float]
    parts: dict[str, dict[str, float]]
    provisional: dict[str, float]
    images: int
    targets: int
    micro_batches: int
    passes: int = 1
    positions: tuple[int, ...] = ()
    share: float = 1.0
    behind: int = 0
    reduced: bool = True
    touched: frozenset[int] = frozenset()
    bad: tuple[str, ...] = ()

    @property
    def finite(self) -> bool:
        return all(map(math.isfinite, (*self.totals.values(), *self.weights.values())))

    @property
    def loss(self) -> float:
        """The objective really optimised: sum over terms of S / max(w, 1)."""
        return sum(total / max(self.weights[term], 1.0) for term, total in self.totals.items())

    @property
    def part_means(self) -> dict[str, float]:
        return {
            name: value / max(self.weights[term], 1.0)
            for term, parts in self.parts.items()
            for name, value in parts.items()
        }

    def multiplier(self, term: str) -> float:
        """What turns the waiting gradient of a term into the window's."""
        return self.images * self.provisional[term] / max(self.weights[term], 1.0)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one rank tells the others at the end of its part of a window: numbers and words, never tensors."""

    names: tuple[tuple[str, ...], ...] = ()
    values: tuple[float, ...] = ()
    provisional: dict[str, float] = field(default_factory=dict)
    positions: tuple[int, ...] = ()
    targets: int = 0
    passes: int = 0
    touched: frozenset[int] = frozenset()
    no_room: str = ""
    stop: bool = False
    largest: int = 0
    bad: tuple[str, ...] = ()


def accumulate_window(
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
    """Forward and backward of every micro-batch of this rank; no update, no normalisation.

    Under ``torch.no_grad`` there is no backward pass, and the sums are all that comes of it.

    Args:
        model: in training mode, gradients empty; with ``overlap`` as DistributedDataParallel (``reduction.wrapped``).
        criterion: (outputs, targets) -> LossSum.
        micro_batches: this rank's, on the host or the device; none where a window has too few images for it.
        ranks: who shares the window.
        precision: autocast and gradient scale.
        provisional: by term, a power of two near the weight of one micro-batch, equal on all ranks; it changes no bit of
            the result while nothing leaves the normal range.
        before: called with each micro-batch before its forward pass (reseeding, a progress bar).
        between: called after each loss, before its backward pass (reading the memory in use).
        overlap: the last backward pass sums the gradients over the ranks as it goes; every rank must have a micro-batch.
        meets: the passes themselves wait for the other ranks (synchronised BatchNorm, ``overlap``), so one that fails can
            agree on nothing.
        stop: with several ranks, asked between micro-batches (at the end alone where they ``meet``); true on one abandons
            the window on all.

    Raises:
        TypeError: the criterion returned something else than LossSum, or a weight with a graph.
        ConfigError: it gave other terms or parts for one micro-batch than for another.
        OutOfMemory: here or on another rank; ``largest`` is the micro-batch that was too large. Gradients hold a part of
            the window and running statistics have moved; once those are dropped and these restored, the same images can
            run again as smaller micro-batches.
        RankLost: another rank did not come; the same holds.
        Stop: with several ranks, one was asked to stop; the same holds.
    """
    sums = torch.zeros((), dtype=torch.float64, device=ranks.device)
    names: tuple[tuple[str, ...], ...] = ()
    divisors: dict[str, float] = {}
    if not overlap and isinstance(model, DistributedDataParallel):
        model = model.module  # torch's wrapper waits for all ranks before its second pass, and one may have no image

    def passes() -> None:
        nonlocal sums, names, divisors
        for number, batch in enumerate(micro_batches, 1):
            if ranks.size > 1 and not meets and stop():
                return
            before(batch)
            with nullcontext() if overlap and number == len(micro_batches) else ranks.no_sync(model):
                batch = batch.to(ranks.device, _input_dtype(model))
                with precision.autocast():
                    outputs = model(batch.images)
                loss = require_loss_sum(criterion(outputs, batch.targets), _name_of(criterion))
                divisors = {term: provisional_of(provisional, term) for term in loss.terms}
                if torch.is_grad_enabled():
                    between()
                    precision.scaled(sum(t.total / divisors[term] for term, t in loss.terms.items())).backward()
            known, (names, row) = names, _flatten(loss)
            _require_same_names(known or names, names)
            sums = sums + row
            del outputs, loss  # the graph of this micro-batch ends here, before the next forward

    largest = max(map(len, micro_batches), default=0)
    done = attempt((lambda: ranks.meet(passes)) if meets else passes)
    if isinstance(done, NoRoom):
        if meets or ranks.size == 1:
            raise OutOfMemory(done.said, largest)
        part = _Part(no_room=done.said, largest=largest)
    elif ranks.size > 1 and stop():
        part = _Part(stop=True)
    else:
        part = _Part(
            names=names,
            values=tuple(sums.tolist()) if names else (),  # the window's first host synchronisation
            provisional=divisors,
            positions=tuple(position for batch in micro_batches for position in batch.positions),
            targets=sum(len(batch.targets) for batch in micro_batches),
            passes=len(micro_batches),
            touched=_touched(model) if ranks.size > 1 and not overlap else frozenset(),
            bad=tuple(each for batch in micro_batches for each in batch.bad),
        )
    return _together(ranks.gather(part), ranks.rank, overlap)


def _together(parts: Sequence[_Part], rank: int, reduced: bool) -> WindowSums:
    """What the ranks told each other, added up in their order, so that every rank has the same bits."""
    failed = [(number, part) for number, part in enumerate(parts) if part.no_room]
    if failed:
        number, part = failed[0]
        said = part.no_room if number == rank else f"rank {number}: {part.no_room}"
        raise OutOfMemory(said, max(p.largest for _, p in failed))
    if any(part.stop for part in parts):
        raise Stop
    full = [part for part in parts if part.names]
    for part in full:
        _require_same_names(full[0].names, part.names)
    values = [sum(column) for column in zip(*(part.values for part in full), strict=True)]
    images = sum(len(part.positions) for part in parts)
    return _named(
        full[0].names,
        values,
        provisional=full[0].provisional,
        images=images,
        targets=sum(part.targets for part in parts),
        micro_batches=max(part.passes for part in parts),
        passes=sum(part.passes for part in parts),
        positions=tuple(sorted(position for part in parts for position in part.positions)),
        share=len(parts[rank].positions) / images,
        behind=max(part.passes for part in parts) - parts[rank].passes,
        reduced=reduced or len(parts) == 1,
        touched=frozenset().union(*(part.touched for part in parts)),
        bad=tuple(each for part in parts for each in part.bad),
    )


def _touched(model: nn.Module) -> frozenset[int]:
    """Which of the trainable parameters have a gradient, by their number."""
    trainable = (p for p in model.parameters() if p.requires_grad)
    return frozenset(number for number, p in enumerate(trainable) if p.grad is not None)


def provisional_weights(terms: Sequence[str], targets: Targets | int, micro_batches: int) -> dict[str, float]:
    """First provisional weight of each term: the boxes of one micro-batch, to the nearest power of two."""
    boxes = targets if isinstance(targets, int) else len(targets)
    return {term: power_of_two(boxes / micro_batches) for term in terms}


def power_of_two(value: float) -> float:
    """The power of two nearest to ``value`` (in the exponent), at least 1."""
    return 2.0 ** round(math.log2(max(value, 1.0)))


def check_terms(
    model: nn.Module, criterion: Criterion, batch: Batch, reach: Mapping[str, Sequence[nn.Parameter]]
) -> None:
    """Prove by autograd that each term reaches only the parameters that ``reach`` gives to it.

    Raises:
        ConfigError: a term reaches a parameter that is not given to it: one multiplier cannot serve two weights.
        TypeError: as ``accumulate_window``.
    """
    loss = require_loss_sum(criterion(model(batch.images), batch.targets), _name_of(criterion))
    names = {id(p): name for name, p in model.named_parameters()}
    trainable = [p for p in model.parameters() if p.requires_grad]
    for term, value in loss.terms.items():
        if not value.total.requires_grad:  # all that it reaches is frozen
            continue
        allowed = {id(p) for p in reach.get(term, ())}
        gradients = torch.autograd.grad(value.total, trainable, allow_unused=True, retain_graph=True)
        strays = [
            names[id(p)] for p, g in zip(trainable, gradients, strict=True) if g is not None and id(p) not in allowed
        ]
        if strays:
            raise ConfigError(
                f"loss term {term!r} reaches {len(strays)} parameters of another term, {strays[0]} first. Each term "
                "divides by its own weight, so a parameter that two terms reach has no exact gradient in one pass. "
                "Detach the features of one term, or give both terms one weight (one Term); or let term_parameters() give "
                "the parameters to both terms: then each window runs twice, once for its weights, once for its gradient."
            )


def provisional_of(provisional: Mapping[str, float] | float, term: str) -> float:
    """The provisional weight of a term; one number serves all."""
    return provisional.get(term, 1.0) if isinstance(provisional, Mapping) else provisional


def _require_same_names(known: Sequence[tuple[str, ...]], names: Sequence[tuple[str, ...]]) -> None:
    """Sums are added up by their places."""
    if names != known:
        one, other = (", ".join(" ".join(name) for name in each) for each in (known, names))
        raise ConfigError(
            f"the loss gave ({one}) for one micro-batch and ({other}) for another. A term that comes and goes cannot be summed"
            " over a window: return all of them each time, in one order; where there is nothing, x[mask].sum() is zero and"
            " keeps the graph."
        )


def _name_of(criterion: Criterion) -> str:
    return getattr(criterion, "__name__", type(criterion).__name__)


def _input_dtype(model: nn.Module) -> torch.dtype:
    return next((p.dtype for p in model.parameters()), torch.float32)


def _flatten(loss: LossSum) -> tuple[tuple[tuple[str, ...], ...], Tensor]:
    """Names and detached float64 values of everything in a LossSum, in one order."""
    named: list[tuple[tuple[str, ...], Tensor]] = []
    for term, value in loss.terms.items():
        named += [(("total", term), value.total.detach()), (("weight", term), value.weight.detach())]
        named += [(("part", term, part), v.detach()) for part, v in loss.parts.get(term, {}).items()]
    return tuple(name for name, _ in named), torch.stack([value.double() for _, value in named])


def _named(names: Sequence[tuple[str, ...]], values: Sequence[float], **rest: Any) -> WindowSums:
    totals: dict[str, float] = {}
    weights: dict[str, float] = {}
    parts: dict[str, dict[str, float]] = {}
    for (kind, term, *part), value in zip(names, values, strict=True):
        if kind == "part":
            parts.setdefault(term, {})[part[0]] = value
        else:
            (totals if kind == "total" else weights)[term] = value
    return WindowSums(totals, weights, parts, **rest)
