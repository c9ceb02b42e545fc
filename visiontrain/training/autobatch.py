"""batch=auto: the largest micro-batch that fits, found by running real windows. Nothing is extrapolated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from visiontrain.batch import Batch, Targets
from visiontrain.config.image_size import ImageSize
from visiontrain.config.schema import TrainConfig
from visiontrain.data.index import Index
from visiontrain.data.window_size import largest_size
from visiontrain.distributed import Ranks
from visiontrain.errors import OutOfMemory
from visiontrain.losses import LOSSES
from visiontrain.memory import NoRoom, Phases, attempt, available_bytes, release
from visiontrain.models.detector import Detector
from visiontrain.prediction.decode import select
from visiontrain.training.determinism import reproducible
from visiontrain.training.ema import EMA
from visiontrain.training.optimizer import allocate_state, build_optimizer
from visiontrain.training.precision import choose_precision
from visiontrain.training.two_pass import accumulator
from visiontrain.training.update import apply_update
from visiontrain.training.window import provisional_weights

ON_CPU = 16
MARGIN = 0.1  # of what is within reach stays free: for fragments, and for batches that are more crowded still


@dataclass(frozen=True, slots=True)
class Tried:
    """A batch and the bytes it needed at the most; ``said`` is set where it ran out of memory before its end."""

    batch: int
    peak: int
    said: str = ""


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """The batch that batch=auto stands for, and what it rests on: batches tried, bytes ``within`` reach."""

    batch: int
    within: int = 0
    tried: tuple[Tried, ...] = ()

    @property
    def largest(self) -> bool:
        """Whether memory would have had room for more."""
        return self.batch == self.tried[-1].batch

    def sentence(self) -> str:
        """For the plan."""
        if not self.tried:
            return f"batch=auto finds the largest batch that fits on CUDA and has no meaning on the CPU: {self.batch} is used."
        told = ", ".join(
            f"{t.batch} needs {'more than there is' if t.said else f'{t.peak / 1e9:.2f} GB'}" for t in self.tried[-3:]
        )
        return (
            f"batch=auto: {self.batch} (measured windows, crowded pictures: {told}; {self.within / 1e9:.2f} GB are within "
            f"reach, {MARGIN:.0%} of them stay free{'; larger ones would be more than nbs or the data' * self.largest})."
        )

    def facts(self) -> dict[str, Any]:
        """For run.json."""
        tried = [{"batch": t.batch, "peak": t.peak, "error": t.said} for t in self.tried]
        return {"batch": self.batch, "within_reach": self.within, "margin": MARGIN, "tried": tried}


def find_batch(
    config: TrainConfig, index: Index, ranks: Ranks, build: Callable[[], Detector], *, deterministic: bool
) -> BatchChoice:
    """The largest batch of which a window and a validation batch fit on the device; on the CPU 16.

    Args:
        config: of the run; its batch does not matter.
        index: the training split, for its most crowded pictures.
        ranks: who shares a batch, and this one's device; the rank with the least room decides.
        build: makes the model of the run.
        deterministic: whether the run allows deterministic kernels alone.

    Raises:
        OutOfMemory: nothing fits.
    """
    if ranks.device.type == "cpu":
        return BatchChoice(ON_CPU)
    with reproducible(deterministic):
        choice = search(config, index, ranks, build)
    return min(ranks.gather(choice), key=lambda found: found.batch)


def search(config: TrainConfig, index: Index, ranks: Ranks, build: Callable[[], Detector]) -> BatchChoice:
    """Measure on this device, whatever it is; torch's random state is as before afterwards.

    Raises:
        OutOfMemory: nothing fits.
    """
    release(ranks.device)
    within = available_bytes(ranks.device)
    with torch.random.fork_rng([ranks.device] if ranks.device.type == "cuda" else []):
        tried = try_all(candidates(config.nbs, len(index), ranks.size), Probe(config, index, ranks, build), within)
    release(ranks.device)
    return choose(tried, within, f"imgsz={config.imgsz} and model={config.model}")


def candidates(nbs: int, images: int, ranks: int = 1) -> list[int]:
    """Batches worth trying, ascending: the divisors of nbs, with which an update takes nbs images and no more; multiples of
    ``ranks``, and none larger than the data set where there is a smaller one."""
    sizes = [n for n in range(ranks, nbs + 1, ranks) if nbs % n == 0] or [ranks]
    return [n for n in sizes if n <= images] or sizes[:1]


def try_all(sizes: Sequence[int], try_batch: Callable[[int], int | NoRoom], within: int) -> list[Tried]:
    """Try batches in ascending order up to the first that does not fit: a larger one would not either."""
    tried = []
    for size in sizes:
        peak = try_batch(size)
        tried.append(Tried(size, 0, peak.said) if isinstance(peak, NoRoom) else Tried(size, peak))
        if not _fits(tried[-1], within):
            break
    return tried


def choose(tried: Sequence[Tried], within: int, of: str) -> BatchChoice:
    """The largest that fits.

    Raises:
        OutOfMemory: none does.
    """
    fitting = [t.batch for t in tried if _fits(t, within)]
    if fitting:
        return BatchChoice(max(fitting), within, tuple(tried))
    needs = tried[0].said or f"it needs {tried[0].peak / 1e6:.0f} MB"
    raise OutOfMemory(
        f"batch=auto: with {of} not even batch={tried[0].batch} fits into {within / 1e6:.0f} MB, of which {MARGIN:.0%} "
        f"stay free ({needs}). Use a smaller imgsz or a smaller model, close other programs on this device, or give "
        "batch= yourself to try without the margin."
    )


def _fits(tried: Tried, within: int) -> bool:
    return not tried.said and tried.peak <= (1 - MARGIN) * within


class Probe:
    """Runs a real window and a validation batch of a size, on a model, optimizer and average of its own.

    Two micro-batches, because only the second meets gradients that are there already, then the update; then twice as many
    pictures in evaluation, as the trainer does. Pictures are noise, as large as the run's largest; boxes are those of
    the most crowded pictures of the data set.
    """

    def __init__(self, config: TrainConfig, index: Index, ranks: Ranks, build: Callable[[], Detector]) -> None:
        self.config, self.index, self.ranks = config, index, ranks
        device = ranks.device
        self.model = build().to(device, memory_format=torch.channels_last).train()
        self.ema = EMA(self.model)
        # Where the kind is still open, the one that keeps more.
        optim = replace(config.optim, optimizer="AdamW") if config.optim.optimizer == "auto" else config.optim
        self.optimizer = build_optimizer(self.model, optim, optim.weight_decay)
        allocate_state(self.optimizer)
        self.criterion = LOSSES[self.model.loss](config.loss)
        self.precision = choose_precision(device, config.amp)

    def __call__(self, batch: int) -> int | NoRoom:
        """Bytes needed at the most for ``batch`` images over all ranks, or that they do not fit."""
        phases = Phases(self.ranks.device)
        each = batch // self.ranks.size

        def both() -> None:
            self.window(each)
            self.validation(2 * each)

        ran = attempt(both)
        self.optimizer.zero_grad(set_to_none=True)
        if isinstance(ran, NoRoom):
            release(self.ranks.device)
            return ran
        phases.close("window")
        release(self.ranks.device)
        return phases.figures["window"]["peak"]

    def window(self, images: int) -> None:
        """A window of two micro-batches and its update."""
        augment = self.config.augment
        together = (4 if augment.mosaic else 1) * (2 if augment.mixup else 1)
        sampling = self.config.sampling
        size = largest_size(self.config.imgsz, sampling.multi_scale, sampling.rect, self.index.sizes)
        micro_batches = [crowded(self.index, images, size, together)] * 2
        reach = self.model.term_parameters()
        sums = accumulator(reach)(
            self.model,
            self.criterion,
            micro_batches,
            ranks=Ranks(self.ranks.device),  # each for itself: one may have no room
            precision=self.precision,
            provisional=provisional_weights(self.model.loss_terms, micro_batches[0].targets, 1),
        )
        apply_update(self.optimizer, sums, reach, self.precision)
        self.ema.update(self.model, 0.5)

    @torch.no_grad()
    def validation(self, images: int) -> None:
        """The averaged model on pictures of evaluation, which have a margin."""
        batch = crowded(self.index, images, ImageSize(*(side + self.model.stride for side in self.config.imgsz)), 1).to(
            self.ranks.device
        )
        with self.precision.autocast():
            output = self.ema.model(batch.images)
        select(output.boxes, output.scores, self.config.scoring.conf)


def crowded(index: Index, images: int, size: ImageSize, together: int) -> Batch:
    """Noise with the boxes of the most crowded pictures: the first image has those of the ``together`` most crowded ones,
    the next those of the following, beginning anew after the last picture.

    Args:
        index: a split.
        images: how many.
        size: of the images.
        together: pictures whose boxes lie on one image; 4 for a mosaic. Boxes are as large as on the whole picture.
    """
    order = np.argsort(-np.diff(index.box_ends, prepend=0), kind="stable")
    groups = [[int(order[(i * together + j) % len(order)]) for j in range(together)] for i in range(images)]
    boxes = [np.concatenate([index.boxes(n) for n in group]) * ((size.width, size.height) * 2) for group in groups]
    classes = np.concatenate([index.classes(n) for group in groups for n in group])
    rows = np.concatenate(boxes)
    corners = np.concatenate((rows[:, :2] - rows[:, 2:] / 2, rows[:, :2] + rows[:, 2:] / 2), 1)
    pixels = np.random.default_rng(0).integers(0, 256, (images, 3, *size), np.uint8)
    targets = Targets(
        torch.from_numpy(np.repeat(np.arange(images), [len(b) for b in boxes])),
        torch.from_numpy(classes.astype(np.int64)),
        torch.from_numpy(corners.astype(np.float32)),
    )
    return Batch(torch.from_numpy(pixels), targets, tuple(range(images)))
