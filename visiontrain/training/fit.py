"""The loop: windows of an epoch, evaluation, the best so far, a checkpoint; and what a window's end means."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from visiontrain.batch import Batch, regroup
from visiontrain.config.schema import TrainConfig
from visiontrain.distributed import Ranks
from visiontrain.errors import OutOfMemory, TrainingStopped
from visiontrain.memory import NoRoom, Phases, attempt, release
from visiontrain.nn.norm import running_statistics
from visiontrain.record.events import (
    Checkpointed,
    EpochEnded,
    EpochStarted,
    Event,
    FactsChanged,
    MicroBatchDone,
    Notice,
    WindowClosed,
)
from visiontrain.training.checkpoint import About, TrainState, save_model, save_training
from visiontrain.training.interrupt import Interrupt, Stop
from visiontrain.training.ledger import APPLIED
from visiontrain.training.optimizer import set_schedule
from visiontrain.training.plan import Plan
from visiontrain.training.recovery import half_done, nothing_smaller, shrink_micro_batch
from visiontrain.training.schedule import Horizon, Schedule
from visiontrain.training.update import Update, apply_update
from visiontrain.training.window import Criterion, WindowSums, accumulate_window, power_of_two, provisional_weights

MOST_SKIPS_IN_A_ROW = 10


@dataclass(slots=True)
class Job:
    """What the loop works with; ``state`` changes, the rest stays.

    ``micro_batches`` yields those of all windows that are left, over the epochs, so that loading does not pause between
    them; ``evaluate()`` scores the averaged weights; ``show`` draws the first micro-batches.
    """

    config: TrainConfig
    plan: Plan
    schedule: Schedule
    horizon: Horizon
    ranks: Ranks
    criterion: Criterion
    state: TrainState
    micro_batches: Generator[Batch, None, None]
    evaluate: Callable[[], dict[str, float]]
    show: Callable[[Batch], None]
    record: Callable[[Event], None]
    interrupt: Interrupt
    about: About
    folder: Path
    phases: Phases
    saved_at: float = field(default_factory=time.monotonic)
    clock: float = field(default_factory=time.monotonic)
    training_seconds: float = 0.0  # of the open epoch, in this process
    trained_images: int = 0

    @property
    def last(self) -> Path:
        return self.folder / "weights" / "last.pt"

    def tick(self) -> float:
        """Add the time since the last call to the run's seconds; returns the run's."""
        now = time.monotonic()
        self.state.seconds += now - self.clock
        self.clock = now
        return self.state.seconds


def fit(job: Job) -> str:
    """Train until the epochs are done or patience ends; the outcome in a word or two.

    Raises:
        TrainingStopped: ten windows in a row were not finite, or a position of an epoch was not dealt exactly once.
        OutOfMemory: a micro-batch of one image does not fit.
        Stop: a signal asked to; last.pt has been written.
    """
    try:
        while job.state.epoch < job.plan.epochs:
            train_epoch(job)
            with job.interrupt.may_stop():
                metrics = job.evaluate() if evaluated(job) else {}
            if metrics:
                job.phases.close("validation")
            close_epoch(job, metrics)
            if out_of_patience(job):
                return "stopped early"
    except Stop:
        job.tick()
        checkpoint(job, "interrupted")
        raise
    return "finished"


def train_epoch(job: Job) -> None:
    """Run the windows that are left of the open epoch."""
    state, plan = job.state, job.plan
    started = time.monotonic()
    windows = [window for window in plan.windows(state.epoch) if window[0] >= state.position]
    images = sum(stop - start for start, stop in plan.windows(state.epoch))
    job.record(EpochStarted(state.epoch + 1, plan.epochs, images, state.position))
    state.model.train()
    job.trained_images = sum(stop - start for start, stop in windows)
    for start, stop in windows:
        with job.interrupt.may_stop():
            micro_batches = list(islice(job.micro_batches, len(plan.micro_batches(start, stop))))
        for batch in micro_batches:
            job.show(batch)
        train_window(job, micro_batches)
        state.position = stop
        if time.monotonic() - job.saved_at > 60 * job.config.output.save_minutes:
            job.tick()
            checkpoint(job, "minutes")
    state.model.eval()
    job.training_seconds = time.monotonic() - started


def train_window(job: Job, micro_batches: Sequence[Batch]) -> None:
    """One window as a transaction: applied, or skipped with a reason and nothing changed.

    An overflow with a finite loss lowers the gradient scale and runs the same images again; running out of memory halves
    the micro-batch and does too.
    """
    state = job.state
    statistics = running_statistics(state.model)
    before = [t.clone() for t in statistics]
    while True:
        started = time.monotonic()
        scale = state.precision.scale
        pieces = regroup(micro_batches, state.micro_batch)
        try:
            with job.interrupt.may_stop():
                sums = forward_backward(job, pieces)
        except (Stop, OutOfMemory) as end:
            state.optimizer.zero_grad(set_to_none=True)
            _restore(statistics, before)
            if isinstance(end, Stop):
                raise
            smaller_micro_batches(job, pieces, str(end))
            continue
        images = state.progress_images + sums.images
        lr, momentum = set_schedule(state.optimizer, job.schedule, images)
        decay = job.horizon.decay(sums.images, images)
        update = step(job, sums, decay)
        again = update.reason == "gradient overflow" and scale > 1
        count(job, sums, update, closed=not again)
        if not update.applied:
            _restore(statistics, before)
        job.record(_window_closed(job, sums, update, lr, momentum, decay, scale, time.monotonic() - started))
        if not again:
            fate = APPLIED if update.applied else f"skipped: {update.reason}"
            state.ledger.close([position for piece in pieces for position in piece.positions], fate)
            return _mind_skips(job, update, micro_batches)


def step(job: Job, sums: WindowSums, decay: float) -> Update:
    """The update of a window and, where it is applied, of the averaged weights; all they need was allocated before.

    Raises:
        OutOfMemory: even so; weights may be half updated, so nothing is saved and last.pt stands.
    """
    state = job.state

    def work() -> Update:
        update = apply_update(state.optimizer, sums, state.model.term_parameters(), state.precision)
        if update.applied:
            state.ema.update(state.model, decay)
        return update

    update = attempt(work)
    if isinstance(update, NoRoom):
        raise half_done(update.said, job.last)
    if "first update" in job.phases.figures:
        measure(job, "later windows")
    elif update.applied:
        measure(job, "first update")
        job.record(FactsChanged(job.phases.facts()))
        job.record(Notice(job.phases.sentence()))
    return update


def smaller_micro_batches(job: Job, pieces: Sequence[Batch], said: str) -> None:
    """After a window ran out of memory, its gradients dropped: halve the micro-batch, say so, keep it in the record.

    Raises:
        OutOfMemory: it was one image.
    """
    peak = job.phases.peak
    release(job.ranks.device)
    largest = max(map(len, pieces))
    if largest == 1:
        raise nothing_smaller(job.state, job.config, job.phases, said, job.last)
    told = shrink_micro_batch(job.state, job.plan, largest, sum(map(len, pieces)), peak, said)
    job.phases.forget(*OF_WINDOWS)
    job.record(FactsChanged({"shrinks": list(job.state.shrinks)}))
    job.record(Notice(told, "warning"))


# Phases that depend on the micro-batch; after a shrink they are measured anew.
OF_WINDOWS = ("first forward", "first backward", "rest of the first window", "first update", "later windows")


def forward_backward(job: Job, micro_batches: Sequence[Batch]) -> WindowSums:
    """Accumulate a window; randomness in the model depends on (seed, epoch, first position) of a micro-batch alone."""
    state, figures = job.state, job.phases.figures

    def before(batch: Batch) -> None:
        if "first forward" in figures:
            measure(job, "first backward", once=True)
        key = (job.config.seed, state.epoch, batch.positions[0])
        torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1))
        job.record(MicroBatchDone(len(batch)))

    if not state.provisional:
        boxes = sum(len(b.targets) for b in micro_batches)
        state.provisional = provisional_weights(state.model.loss_terms, boxes, len(micro_batches))
    sums = accumulate_window(
        state.model,
        job.criterion,
        micro_batches,
        ranks=job.ranks,
        precision=state.precision,
        provisional=state.provisional,
        before=before,
        between=lambda: measure(job, "first forward", once=True),
    )
    measure(job, "rest of the first window" if "first backward" in figures else "first backward", once=True)
    return sums


def measure(job: Job, phase: str, *, once: bool = False) -> None:
    """End a phase that depends on the micro-batch, and note what it needed."""
    if not (once and phase in job.phases.figures):
        job.phases.close(phase, micro_batch=job.state.micro_batch)


def count(job: Job, sums: WindowSums, update: Update, *, closed: bool) -> None:
    """Move the counters: attempts always, images when the window is done, progress only where it was applied."""
    state = job.state
    state.micro_batches += sums.micro_batches
    state.updates_attempted += 1
    if closed:
        state.images_seen += sums.images
        state.targets_seen += sums.targets
    if not update.applied:
        state.skipped[update.reason] += 1
        return
    state.updates_applied += 1
    state.progress_images += sums.images
    state.clipped += update.clipped
    state.provisional = {t: power_of_two(w / sums.micro_batches) for t, w in sums.weights.items()}
    state.epoch_images += sums.images
    for name, value in sums.part_means.items():
        state.epoch_losses[name] = state.epoch_losses.get(name, 0.0) + value * sums.images


def _mind_skips(job: Job, update: Update, micro_batches: Sequence[Batch]) -> None:
    state = job.state
    state.skips_in_a_row = 0 if update.applied else state.skips_in_a_row + 1
    if update.applied:
        return
    first, last = micro_batches[0].positions[0], micro_batches[-1].positions[-1]
    where = f"epoch {state.epoch + 1}, positions {first} to {last}"
    job.record(Notice(f"Window skipped, nothing was changed: {update.reason} ({where}).", "warning"))
    if state.skips_in_a_row >= MOST_SKIPS_IN_A_ROW:
        raise TrainingStopped(
            f"{MOST_SKIPS_IN_A_ROW} windows in a row were not finite ({update.reason}; the last in {where}). "
            f"The last good checkpoint is {job.last}. Try a lower lr0, or amp=false; look at the pictures of these positions."
        )


def _window_closed(
    job: Job, sums: WindowSums, update: Update, lr: float, momentum: float, decay: float, scale: float, seconds: float
) -> WindowClosed:
    state = job.state
    return WindowClosed(
        epoch=state.epoch + 1,
        counters=state.counters(),
        images=sums.images,
        targets=sums.targets,
        micro_batches=sums.micro_batches,
        losses=sums.part_means,
        weight=sums.weights,
        gradient_norm=update.gradient_norm,
        clipped=update.clipped,
        lr=lr,
        momentum=momentum,
        ema_decay=decay,
        scale=scale,
        applied=update.applied,
        reason=update.reason,
        progress=state.progress_images / job.plan.images_planned,
        seconds=seconds,
        memory=job.phases.peak,
    )


def evaluated(job: Job) -> bool:
    """Is the open epoch evaluated at its end? Every one with val, the last one always."""
    return job.config.val or job.state.epoch + 1 == job.plan.epochs


def close_epoch(job: Job, metrics: dict[str, float]) -> None:
    """Judge the epoch, write its row, then its checkpoint: a kill in between repeats the epoch's end, bit for bit.

    Raises:
        TrainingStopped: a position of the epoch was never dealt.
    """
    state = job.state
    close_ledger(job)
    best = bool(metrics) and metrics["ap"] > state.best_fitness
    if best:
        state.best_fitness, state.best_epoch, state.best_metrics = metrics["ap"], state.epoch + 1, dict(metrics)
    if metrics:
        state.epochs_without_improvement = 0 if best else state.epochs_without_improvement + 1
    losses = {name: value / max(state.epoch_images, 1) for name, value in state.epoch_losses.items()}
    seconds = job.tick()
    job.record(
        EpochEnded(
            epoch=state.epoch + 1,
            seconds=seconds,
            counters=state.counters(),
            losses=losses,
            metrics=metrics,
            lr=job.schedule.learning_rate(max(state.progress_images, 1)),
            best=best,
            images_per_second=job.trained_images / max(job.training_seconds, 1e-9),
            memory=job.phases.peak,
        )
    )
    if best:
        path = job.folder / "weights" / "best.pt"
        save_model(path, state, job.about, metrics)
        job.record(Checkpointed(path, "best"))
    state.epoch, state.position = state.epoch + 1, 0
    state.epoch_losses, state.epoch_images = {}, 0
    checkpoint(job, "epoch")
    period = job.config.output.save_period
    if period > 0 and state.epoch % period == 0:
        save_training(job.folder / "weights" / f"epoch{state.epoch}.pt", state, job.about)


def close_ledger(job: Job) -> None:
    """Every position of the epoch is accounted for, those that the policy leaves out included."""
    ledger, images = job.state.ledger, job.plan.images
    if job.plan.last_window == "drop":
        ledger.close(range(ledger.position, images), "left out (last_window=drop)")
    ledger.close_epoch(images)
    job.record(FactsChanged({"positions": dict(ledger.closed), **job.phases.facts()}))


def out_of_patience(job: Job) -> bool:
    """Have ``patience`` epochs passed without a better AP, with epochs still to go?"""
    patience, state = job.config.patience, job.state
    return 0 < patience <= state.epochs_without_improvement and state.epoch < job.plan.epochs


def checkpoint(job: Job, why: str) -> None:
    """Write last.pt, between windows only."""
    save_training(job.last, job.state, job.about)
    job.saved_at = time.monotonic()
    job.record(Checkpointed(job.last, why))


def _restore(tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
