"""The preflight: a few real windows of the training that was asked for, watched, compared and timed. Nothing is written."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import islice

import torch

from visiontrain.batch import Batch, collate
from visiontrain.checks import verdicts
from visiontrain.checks.equality import Pieces, one_batch_rows, split_rows
from visiontrain.checks.room import bytes_per_image
from visiontrain.checks.rows import FAIL, NOTE, Row, duration, megabytes, merged
from visiontrain.checks.together import Places, one_process_row, same_on_all
from visiontrain.checks.trial import Seen, Window, full_windows, growth, observe
from visiontrain.config.image_size import ImageSize
from visiontrain.config.schema import TrainConfig
from visiontrain.data.dataset import EvalSet
from visiontrain.data.index import Index
from visiontrain.data.loader import evaluation_loader
from visiontrain.data.window_size import largest_size
from visiontrain.distributed import ALONE, Ranks
from visiontrain.evaluation.evaluator import evaluate
from visiontrain.memory import free_bytes, peak_is_of
from visiontrain.models.detector import Detector
from visiontrain.nn.norm import alone, norm_of, swap_norms
from visiontrain.record.events import Event
from visiontrain.training.determinism import reproducible
from visiontrain.training.interrupt import Interrupt
from visiontrain.training.job import Job
from visiontrain.training.run import arrange, job_of, new_state
from visiontrain.training.setup import Setup, device_of
from visiontrain.training.telling import sentences
from visiontrain.training.two_pass import accumulator

MEASURED = 3  # windows: the first one and two later ones
SMALL = 224  # pixels: side of the pictures of the comparison in float64
FEW = 8  # pictures of it
SHARE_OF_FREE = 0.5  # of the memory that is free, for the comparison with one batch
PHASE = "preparation"  # of the work: what is learned here is thrown away

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Epoch:
    """Time and memory that one epoch will take, computed from ``windows`` measured windows with ``images`` images.

    ``seconds`` are those of training, ``validation_seconds`` come from ``validation_images`` measured pictures; ``peak`` is
    in bytes, ``of`` says of what.
    """

    seconds: float
    validation_seconds: float
    images_per_second: float
    peak: int
    of: str
    windows: int
    images: int
    validation_images: int
    epochs: int

    def sentence(self) -> str:
        """For a person, marked as computed."""
        one = self.seconds + self.validation_seconds
        return (
            f"One epoch will take {duration(one)} ({duration(self.seconds)} of training at {self.images_per_second:.1f}"
            f" images a second, {duration(self.validation_seconds)} of validation), {self.epochs} epochs"
            f" {duration(one * self.epochs)}, with a memory peak of {megabytes(self.peak)} ({self.of})."
            f" Computed from {self.windows} measured windows ({self.images} images) and {self.validation_images} measured"
            " validation pictures."
        )


@dataclass(frozen=True, slots=True)
class Preflight:
    """``plan`` in sentences, the rows of the table, what an epoch will take, and how long all this took."""

    plan: tuple[str, ...]
    rows: list[Row]
    epoch: Epoch
    seconds: float

    @property
    def failed(self) -> list[Row]:
        """Rows that did not pass; notes are not among them."""
        return [row for row in self.rows if row.verdict == FAIL]


def preflight(
    config: TrainConfig,
    train: Index,
    val: Index,
    plan_told: Callable[[Sequence[str]], None],
    say: Say,
    ranks: Ranks = ALONE,
) -> Preflight:
    """Run and judge a few windows.

    Args:
        config: settings of the training.
        train, val: its pictures.
        plan_told: called with the plan's sentences before anything is run.
        say: called with what is being done now.
        ranks: who shares the windows; all of them get the same answer.

    Raises:
        ConfigError: settings that contradict each other or this machine.
        WeightsError: the checkpoint to start from cannot be used.
        RankLost: another rank did not come.
    """
    began = time.monotonic()
    ranks = ranks.on(device_of(config, ranks.place))
    tried = at_largest(config, train)
    setup = arrange(tried, ranks, train, val, None)
    with ExitStack() as stack:
        stack.callback(setup.val_loader.close)
        stack.enter_context(reproducible(setup.deterministic))
        state = new_state(setup)
        plan = sentences(setup, state.model)
        if tried != config:
            plan += (f"Tried at {tried.imgsz} pixels, the largest size of a window: most take less time and memory.",)
        plan_told(plan)
        windows = full_windows(setup.plan, MEASURED)
        state.epoch, state.position = windows[0].epoch, windows[0].start
        job = job_of(setup, state, _unheard, Interrupt())
        stack.callback(job.micro_batches.close)
        places = Places.of(setup.ranks)
        rows, epoch, first = _trial(setup, job, windows, places, say)
        job.micro_batches.close()
        say("one window against one batch")
        rows += _equality(setup, job, windows[0], first, places)
    return Preflight(plan, rows, epoch, time.monotonic() - began)


def at_largest(config: TrainConfig, train: Index) -> TrainConfig:
    """The same training with windows all of the largest size that rect and multi_scale give."""
    sampling = config.sampling
    size = largest_size(config.imgsz, sampling.multi_scale, sampling.rect, train.sizes)
    return replace(config, imgsz=size, sampling=replace(sampling, rect=False, multi_scale=0.0))


def _trial(
    setup: Setup, job: Job, windows: Sequence[Window], places: Places, say: Say
) -> tuple[list[Row], Epoch, list[Batch]]:
    """Measured windows and what they show; this rank's micro-batches of the first are kept for what follows."""
    ranks, plan = setup.ranks, job.plan
    say(f"{len(windows)} windows as training runs them")
    seen, first = observe(job, windows)
    by_rank = ranks.gather(seen)
    say("validation")
    seconds, pictures = _validation(setup, job)
    job.phases.close("validation")
    epochs = ranks.gather(_epoch(setup, seen, seconds, pictures, job.phases.peak))
    made_again = all(ranks.gather(not first or _made_again(setup, windows[0], first[0])))
    memory = verdicts.memory(dict(job.phases.figures), peak_is_of(ranks.device))
    say("what windows leave behind")
    start, stop = windows[0].start, windows[0].stop
    left = verdicts.kept_tensors(growth(job, first[:1], (start, min(start + plan.batch, stop))))
    rows = [
        *verdicts.of_windows(by_rank, plan, job.schedule, made_again, places.words),
        *([same_on_all(by_rank, places, plan.reduction)] if ranks.size > 1 else []),
        *merged(ranks.gather([memory, left]), places.words),
    ]
    return rows, _slowest(epochs, places.words), first


def _validation(setup: Setup, job: Job) -> tuple[float, int]:
    """Seconds that one batch of validation takes, and its pictures. A fresh loader without workers: nothing is prepared."""
    config = setup.config
    batch = 2 * config.batch // setup.ranks.size
    with closing(evaluation_loader(EvalSet(setup.val, config.imgsz), batch)) as loader:
        began = time.monotonic()
        result = evaluate(
            job.state.ema.model,
            islice(loader, 1),
            device=setup.ranks.device,
            scoring=config.scoring,
            class_names=setup.val.names,
            index=setup.val,
            autocast=setup.precision.autocast,
        )
        return time.monotonic() - began, result.images


def _epoch(setup: Setup, seen: Sequence[Seen], validation: float, pictures: int, peak: int) -> Epoch:
    """Later windows tell what a window takes; the first one also fills caches and starts the workers. Ranks share val."""
    later = seen[1:] or seen
    images, seconds = sum(s.images for s in later), sum(s.seconds for s in later)
    return Epoch(
        seconds=seconds / images * setup.plan.images_per_epoch,
        validation_seconds=validation / pictures * math.ceil(len(setup.val) / setup.ranks.size)
        if setup.config.val
        else 0.0,
        images_per_second=images / seconds,
        peak=peak,
        of=peak_is_of(setup.ranks.device),
        windows=len(later),
        images=images,
        validation_images=pictures,
        epochs=setup.config.epochs,
    )


def _slowest(epochs: Sequence[Epoch], places: Sequence[str]) -> Epoch:
    """The slowest rank tells how long, the fullest how much memory."""
    if len(epochs) == 1:
        return epochs[0]
    slow = max(range(len(epochs)), key=lambda rank: epochs[rank].seconds + epochs[rank].validation_seconds)
    full = max(range(len(epochs)), key=lambda rank: epochs[rank].peak)
    of = f"{epochs[full].of}, of the fullest, {places[full]}; the slowest is {places[slow]}"
    return replace(epochs[slow], peak=epochs[full].peak, of=of)


def _made_again(setup: Setup, window: Window, batch: Batch) -> bool:
    """Whether a micro-batch of the loader is the same, bit for bit, when it is made here."""
    again = collate([setup.samples()[window.epoch, p] for p in batch.positions])
    pairs = zip(
        (batch.painted().images, batch.targets.boxes, batch.targets.classes),
        (again.painted().images, again.targets.boxes, again.targets.classes),
        strict=True,
    )
    return all(torch.equal(a.cpu(), b) for a, b in pairs)


def _equality(setup: Setup, job: Job, window: Window, first: Sequence[Batch], places: Places) -> list[Row]:
    """Is the sum divided once, and is the window the gradient of one batch? Each rank asks itself, then all together."""
    ranks = job.ranks
    few = range(window.start, min(window.start + FEW, window.stop))
    small = setup.samples(ImageSize(*(min(side, SMALL) for side in setup.config.imgsz)))
    samples = sorted((small[window.epoch, p] for p in few), key=lambda sample: len(sample.classes))
    model = _waiting_for_nobody(job.state.model)
    local = Pieces(job.criterion, Ranks(ranks.device), accumulator(model.term_parameters()))
    rows = split_rows(local, model, collate(samples)) if len(samples) >= 4 else []
    rows += _one_batch(setup, local, model, window, _statistics_over(setup, window, first), places)
    rows = merged(ranks.gather(rows), places.words)
    if ranks.size > 1:
        rows.append(one_process_row(replace(local, ranks=ranks), model, collate(samples), setup.plan))
    return rows


def _waiting_for_nobody(model: Detector) -> Detector:
    """The model, or, where it takes its statistics of all ranks, a copy that takes them of what it is given."""
    if norm_of(model) != "sync":
        return model
    copied = copy.deepcopy(model)
    swap_norms(copied, alone("sync"))
    return copied


def _statistics_over(setup: Setup, window: Window, first: Sequence[Batch]) -> list[Batch]:
    """The micro-batches that statistics are taken of: this rank's, or with norm=sync those of all, which rank 0 makes."""
    ranks, plan = setup.ranks, setup.plan
    if ranks.size == 1 or plan.normalisation.norm != "sync":
        return list(first)
    samples = setup.samples()
    cuts = plan.micro_batches(window.start, window.stop) if ranks.main else []
    return [collate([samples[window.epoch, p] for p in range(*cut)]) for cut in cuts]


def _one_batch(
    setup: Setup, pieces: Pieces, model: Detector, window: Window, first: Sequence[Batch], places: Places
) -> list[Row]:
    """What this rank has of the window, as planned against one batch; nothing where it has no image."""
    if len(first) == 1:
        meaning = "accumulate is 1: a window is one micro-batch, and equals one batch by itself"
        return [Row("one batch", NOTE, "A = 1", meaning)]
    if not first:
        return []
    budget = SHARE_OF_FREE * free_bytes(setup.ranks.device) / places.sharers(setup.ranks.rank)
    part, of = fitting_part(setup, pieces, model, window, first, budget)
    return one_batch_rows(pieces, model, part, setup.precision, of)


def fitting_part(
    setup: Setup, pieces: Pieces, model: Detector, window: Window, first: Sequence[Batch], budget: float
) -> tuple[list[Batch], str]:
    """As many whole micro-batches as fit as one batch into ``budget`` bytes, two at least, and what they are in words.

    Where not even two fit, their pictures are made smaller for this comparison, and the words say so.
    """
    each = bytes_per_image(model, pieces.criterion, first[0], setup.precision)
    batch, total = len(first[0]), sum(map(len, first))
    count = min(int(budget / each) // batch, len(first))
    size = setup.config.imgsz
    if count < 2:
        size = size.shrunk((budget / (2 * batch * each)) ** 0.5)
        samples, count = setup.samples(size), 2
        first = [collate([samples[window.epoch, p] for p in micro.positions]) for micro in first[:2]]
    images = sum(map(len, first[:count]))
    all_of_it = total == window.stop - window.start
    whole = f"the window's {total} images" if all_of_it else f"this rank's {total} images of the window"
    of = whole if images == total else f"{images} of {whole}"
    if images < total:
        of += f" ({megabytes(each)} each, {megabytes(budget)} to spend)"
    if size != setup.config.imgsz:
        of += f" at {size} px, because two micro-batches at {setup.config.imgsz} px do not fit"
    return list(first[:count]), of


def _unheard(event: Event) -> None:
    """Nothing of the trial is recorded."""
