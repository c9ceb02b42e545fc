"""The arithmetic of windows: which positions of an epoch make an update, and what follows. Numbers alone, no torch."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from visiontrain.errors import ConfigError
from visiontrain.inline import Told
from visiontrain.training.footprint import Footprint, choose_reduction, reduction_sentence
from visiontrain.training.normalisation import BATCH_NORM, Normalisation


def accumulate(nbs: int, batch: int) -> int:
    """Micro-batches in a window: round(nbs / batch), half to even, at least 1.

    Args:
        nbs: images that one update should see.
        batch: images of a micro-batch over all ranks.
    """
    return max(round(nbs / batch), 1)


def ramp(full: int, dealt: int, warmup_images: float) -> int:
    """Micro-batches of the window that starts after ``dealt`` images: from 1 to ``full`` over the warm-up.

    Args:
        full: micro-batches after the warm-up.
        dealt: images dealt before the window, over all epochs.
        warmup_images: length of the warm-up in images; 0: none.
    """
    if warmup_images <= 0:
        return full
    return round(1 + (full - 1) * min(dealt / warmup_images, 1.0))


def decay_used(weight_decay: float, batch: int, full: int, nbs: int) -> float:
    """Weight decay at the images a window really holds; once per run, with the nominal ``full``."""
    return weight_decay * (batch * full) / nbs


def windows_of_epoch(
    images: int, batch: int, full: int, dealt_before: int, warmup_images: float, last_window: str
) -> list[tuple[int, int]]:
    """Positions [start, stop) of each window of an epoch; together they are the epoch, each position once.

    Args:
        images: positions of the epoch.
        batch: images of a micro-batch over all ranks.
        full: micro-batches of a window after the warm-up.
        dealt_before: images dealt over all earlier epochs.
        warmup_images: length of the warm-up in images.
        last_window: ``use`` keeps the short window at the end, ``drop`` leaves it and its positions out.
    """
    stretches = _stretches(images, batch, full, dealt_before, warmup_images, last_window)
    return [window for stretch in stretches for window in stretch.windows()]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """``count`` windows of ``size`` images in a row: what makes long epochs quick to count."""

    start: int
    size: int
    count: int

    @property
    def stop(self) -> int:
        return self.start + self.size * self.count

    def windows(self) -> Iterator[tuple[int, int]]:
        return ((start, start + self.size) for start in range(self.start, self.stop, self.size))


def _stretches(
    images: int, batch: int, full: int, dealt_before: int, warmup_images: float, last_window: str, start: int = 0
) -> list[_Stretch]:
    found = []
    while start < images:
        micro_batches = ramp(full, dealt_before + start, warmup_images)
        size = batch * micro_batches
        whole = (images - start) // size
        if whole == 0:
            if last_window == "use":
                found.append(_Stretch(start, images - start, 1))
            break
        count = _alike(whole, size, full, dealt_before + start, warmup_images)
        found.append(_Stretch(start, size, count))
        start += size * count
    return found


def _alike(most: int, size: int, full: int, dealt: int, warmup_images: float) -> int:
    """How many of the next ``most`` windows have as many micro-batches as the first. The ramp never falls: bisect."""
    first = ramp(full, dealt, warmup_images)
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        if ramp(full, dealt + (middle - 1) * size, warmup_images) == first:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, repr=False)
class Plan(Told):
    """What a run will do, known before its first window. ``images`` is 0 where it is not known.

    ``batch`` counts images over all ``ranks``; ``images_per_update`` is ``batch * accumulate``;
    ``warmup_images`` is the length of the ramp; ``weight_decay_used`` is what the optimizer gets; ``normalisation`` was
    decided from the configured batch, and nothing decides it again. ``reduce`` is the setting; ``footprint`` tells bytes.
    """

    batch: int
    nbs: int
    ranks: int
    accumulate: int
    images_per_update: int
    images: int
    epochs: int
    weight_decay: float
    weight_decay_used: float
    warmup_epochs: float
    warmup_images: float
    last_window: str
    normalisation: Normalisation = BATCH_NORM
    reduce: str = "auto"
    footprint: Footprint | None = None

    @property
    def reduction(self) -> str:
        """How the ranks sum gradients: none, window or ddp; the same all through a run."""
        return choose_reduction(self.reduce, self.accumulate, self.ranks)

    def windows(self, epoch0: int) -> list[tuple[int, int]]:
        """Positions [start, stop) of each window of an epoch, counted from 0."""
        return list(self.each_window(epoch0))

    def each_window(self, epoch0: int) -> Iterator[tuple[int, int]]:
        """``windows`` one after the other, without a list."""
        return (window for stretch in self._epoch(epoch0) for window in stretch.windows())

    def windows_from(self, epoch0: int, position: int) -> list[tuple[int, int]]:
        """The windows that are left of an epoch; ``position`` may come of another plan, before batch or nbs were changed."""
        left = self._deal(self.dealt_before(epoch0), position)
        return [window for stretch in left for window in stretch.windows()]

    def micro_batches(self, start: int, stop: int) -> list[tuple[int, int]]:
        """A window cut into micro-batches of ``batch`` consecutive positions; the last may be smaller."""
        return [(at, min(at + self.batch, stop)) for at in range(start, stop, self.batch)]

    def shares(self, start: int, stop: int, rank: int) -> list[tuple[int, int]]:
        """What one rank gets of a window: a slice of each micro-batch; those without an image are left out."""
        cut = [_slice(at, end, rank, self.ranks) for at, end in self.micro_batches(start, stop)]
        return [(at, end) for at, end in cut if end > at]

    def passes(self, start: int, stop: int, micro_batch: int) -> int:
        """Forward passes of the rank that gets most of a window (rank 0), at so many images each."""
        return math.ceil(sum(end - at for at, end in self.shares(start, stop, 0)) / micro_batch)

    @property
    def updates_per_epoch(self) -> int:
        """Updates of an epoch after the warm-up."""
        return sum(stretch.count for stretch in self._after_ramp)

    @property
    def micro_batches_per_epoch(self) -> int:
        """Micro-batches of an epoch after the warm-up."""
        return sum(stretch.count * math.ceil(stretch.size / self.batch) for stretch in self._after_ramp)

    @property
    def images_per_epoch(self) -> int:
        """Images dealt in an epoch after the warm-up."""
        return sum(stretch.count * stretch.size for stretch in self._after_ramp)

    @property
    def updates(self) -> int:
        """Updates of the whole run, the warm-up's more numerous ones included."""
        early = sum(stretch.count for epoch in self._ramp_epochs for stretch in epoch)
        return early + (self.epochs - len(self._ramp_epochs)) * self.updates_per_epoch

    @property
    def images_planned(self) -> int:
        """Images dealt over the whole run; windows left out by last_window=drop do not count."""
        return self._dealt_in_ramp + (self.epochs - len(self._ramp_epochs)) * self.images_per_epoch

    def dealt_before(self, epoch0: int) -> int:
        """Images dealt over all epochs before this one, counted from 0."""
        early = self._ramp_epochs[:epoch0]
        dealt = sum(stretch.count * stretch.size for epoch in early for stretch in epoch)
        return dealt + (epoch0 - len(early)) * self.images_per_epoch

    def sentences(self) -> tuple[str, ...]:
        """The plan as sentences that a person can check."""
        told = [
            self._headline(),
            self._why_not_nbs(),
            self._ramp_sentence(),
            self._tail_sentence(),
            reduction_sentence(self.reduce, self.accumulate, self.ranks),
            *(self.footprint.sentences(self.ranks, self.normalisation.norm, self.images) if self.footprint else ()),
            self.normalisation.sentence(self.batch // self.ranks, self.accumulate, self.ranks),
        ]
        return tuple(sentence for sentence in told if sentence)

    def facts(self) -> dict[str, Any]:
        """The plan as numbers, for JSON. ``weight_decay`` is the one used; what follows from images is None without them."""
        known = self.images > 0
        return {
            "batch": self.batch,
            "ranks": self.ranks,
            "images_per_rank": self.batch // self.ranks,
            "accumulate": self.accumulate,
            "images_per_update": self.images_per_update,
            "nbs": self.nbs,
            "images": self.images if known else None,
            "epochs": self.epochs,
            "micro_batches_per_epoch": self.micro_batches_per_epoch if known else None,
            "updates_per_epoch": self.updates_per_epoch if known else None,
            "updates": self.updates if known else None,
            "images_planned": self.images_planned if known else None,
            "weight_decay": self.weight_decay_used,
            "weight_decay_given": self.weight_decay,
            "warmup_epochs": self.warmup_epochs,
            "warmup_images": self.warmup_images if known else None,
            "last_window": self.last_window,
            "images_left_out_per_epoch": self.images - self.images_per_epoch if known else None,
            "normalisation": self.normalisation.facts(),
            "reduction": self.reduction,
            **(self.footprint.facts(self.ranks, self.normalisation.norm, self.images) if self.footprint else {}),
        }

    @functools.cached_property
    def _ramp_epochs(self) -> list[list[_Stretch]]:
        """The epochs that begin before the warm-up has ended; all later ones are alike."""
        found: list[list[_Stretch]] = []
        dealt = 0
        while len(found) < self.epochs and dealt < self.warmup_images:
            epoch = self._deal(dealt)
            found.append(epoch)
            dealt += sum(stretch.count * stretch.size for stretch in epoch)
            if not epoch:  # nothing dealt: no later epoch differs
                break
        return found

    @functools.cached_property
    def _dealt_in_ramp(self) -> int:
        return sum(stretch.count * stretch.size for epoch in self._ramp_epochs for stretch in epoch)

    @functools.cached_property
    def _after_ramp(self) -> list[_Stretch]:
        return self._deal(math.ceil(self.warmup_images))

    def _deal(self, dealt_before: int, start: int = 0) -> list[_Stretch]:
        ramp_and_tail = self.accumulate, dealt_before, self.warmup_images, self.last_window
        return _stretches(self.images, self.batch, *ramp_and_tail, start)

    def _epoch(self, epoch0: int) -> list[_Stretch]:
        return self._ramp_epochs[epoch0] if epoch0 < len(self._ramp_epochs) else self._after_ramp

    def _headline(self) -> str:
        window = (
            f"{counted(self.batch // self.ranks, 'image')} x {counted(self.accumulate, 'micro-batch')}"
            f" x {counted(self.ranks, 'rank')} = {counted(self.images_per_update, 'image')} per update (nbs {self.nbs})"
        )
        epoch = (
            f"; {counted(self.images, 'image')} = {counted(self.micro_batches_per_epoch, 'micro-batch')}"
            f" = {counted(self.updates_per_epoch, 'update')} per epoch"
        )
        decay = f"; weight decay {self.weight_decay:g} x {self.images_per_update}/{self.nbs}"
        return window + (epoch if self.images else "") + decay

    def _why_not_nbs(self) -> str:
        if self.images_per_update == self.nbs:
            return ""
        if self.accumulate == 1:
            why = f"batch {self.batch} is nearest to nbs {self.nbs} without accumulation"
        else:
            why = f"batch {self.batch} does not divide nbs {self.nbs}"
        says = f"An update sees {counted(self.images_per_update, 'image')}, not {self.nbs}: {why}"
        if not self.images:
            return says + "."
        at_nbs = replace(self, batch=self.nbs, ranks=1, accumulate=1, images_per_update=self.nbs)
        return (
            f"{says}; {counted(self.updates_per_epoch, 'update')} per epoch, at {self.nbs} {at_nbs.updates_per_epoch}."
        )

    def _ramp_sentence(self) -> str:
        if self.accumulate == 1 or self.warmup_epochs == 0:
            return ""
        span = f"over the first {counted(self.warmup_epochs, 'epoch')}"
        grow = f"Windows grow from {self.batch} to {self.images_per_update} images {span}"
        if not self.images:
            return grow + "."
        if self.warmup_epochs >= self.epochs:
            grow += f", which the run of {counted(self.epochs, 'epoch')} does not outlast"
        return f"{grow}; the whole run has {counted(self.updates, 'update')}."

    def _tail_sentence(self) -> str:
        if not self.images or not (rest := self.images % self.images_per_update):
            return ""
        if self.last_window == "drop":
            return f"The last {counted(rest, 'image')} of an epoch's order are left out (last_window=drop)."
        if self.images < self.images_per_update:
            return f"An epoch has fewer images than a window: its one update sees {counted(rest, 'image')}."
        return f"The last window of an epoch holds {counted(rest, 'image')} and is exact for them (last_window=use)."


def make_plan(
    *,
    batch: int,
    nbs: int,
    images: int,
    epochs: int,
    weight_decay: float,
    warmup_epochs: float,
    last_window: str = "use",
    ranks: int = 1,
    normalisation: Normalisation = BATCH_NORM,
    reduce: str = "auto",
    footprint: Footprint | None = None,
) -> Plan:
    """Plan a run.

    Args:
        batch: images of a micro-batch over all ranks.
        nbs: images that one update should see.
        images: training images; 0: not known.
        epochs: passes over them.
        weight_decay: as set, at nbs images per update.
        warmup_epochs: length of the warm-up.
        last_window: use or drop.
        ranks: data-parallel processes.
        normalisation: as chosen (``choose_norm``).
        reduce: auto, window or ddp.
        footprint: what is known of model and data, where the plan is to tell their bytes.

    Raises:
        ConfigError: a number that must be positive is not, batch is not divisible by ranks, or drop leaves nothing.
    """
    for name, value in {"batch": batch, "nbs": nbs, "epochs": epochs, "ranks": ranks}.items():
        if value < 1:
            raise ConfigError(f"{name}={value}: must be at least 1")
    _check_ranks(batch, ranks)
    full = accumulate(nbs, batch)
    plan = Plan(
        batch=batch,
        nbs=nbs,
        ranks=ranks,
        accumulate=full,
        images_per_update=batch * full,
        images=images,
        epochs=epochs,
        weight_decay=weight_decay,
        weight_decay_used=decay_used(weight_decay, batch, full, nbs),
        warmup_epochs=warmup_epochs,
        warmup_images=warmup_epochs * images,
        last_window=last_window,
        normalisation=normalisation,
        reduce=reduce,
        footprint=footprint,
    )
    _check_drop(plan)
    return plan


def _slice(start: int, stop: int, rank: int, ranks: int) -> tuple[int, int]:
    """One of ``ranks`` slices of consecutive positions; where they do not divide, earlier ranks get one more."""
    images = stop - start
    return start + math.ceil(rank * images / ranks), start + math.ceil((rank + 1) * images / ranks)


def _check_ranks(batch: int, ranks: int) -> None:
    if batch % ranks == 0:
        return
    lower = batch // ranks * ranks
    nearest = f"{lower} and {lower + ranks}" if lower else f"{ranks}"
    raise ConfigError(
        f"batch={batch}: {ranks} ranks cannot share it evenly, and nothing is rounded silently; nearest valid: {nearest}"
    )


def _check_drop(plan: Plan) -> None:
    """Windows never shrink, so if the last epoch has one, all have."""
    if plan.images and plan.last_window == "drop" and not plan._epoch(plan.epochs - 1):
        smaller = replace(plan, last_window="use")
        raise ConfigError(
            f"last_window=drop: an epoch of {counted(plan.images, 'image')} is shorter than a window of"
            f" {plan.images_per_update}, so nothing would be left to train on; use last_window=use"
            f" ({counted(smaller.updates_per_epoch, 'update')} per epoch) or a smaller nbs"
        )


def counted(number: float, noun: str) -> str:
    """``1 image``, ``2 images``."""
    plural = noun + ("es" if noun.endswith("ch") and noun != "epoch" else "s")
    return f"{number:.15g} {noun if number == 1 else plural}"
