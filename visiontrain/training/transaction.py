"""What a window's end means: applied, or skipped with a reason, or abandoned with nothing changed."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from visiontrain.batch import Batch, empty_batch, regroup
from visiontrain.errors import OutOfMemory, RankLost, TrainingStopped
from visiontrain.losses.sums import at_progress
from visiontrain.memory import NoRoom, attempt, release
from visiontrain.nn.norm import running_statistics
from visiontrain.record.events import FactsChanged, MicroBatchDone, Notice, WindowClosed
from visiontrain.training import unreadable
from visiontrain.training.checkpoint import save_training
from visiontrain.training.interrupt import Stop
from visiontrain.training.job import Job
from visiontrain.training.ledger import APPLIED
from visiontrain.training.optimizer import set_schedule
from visiontrain.training.recovery import half_done, nothing_smaller, shrink_micro_batch
from visiontrain.training.two_pass import accumulator
from visiontrain.training.update import Update, apply_update
from visiontrain.training.window import WindowSums, power_of_two, provisional_weights

MOST_SKIPS_IN_A_ROW = 10


def train_window(job: Job, micro_batches: Sequence[Batch], window: tuple[int, int] | None = None) -> None:
    """One window as a transaction: applied, or skipped with a reason and nothing changed.

    An overflow with a finite loss lowers the gradient scale and runs the same images again; running out of memory halves
    the micro-batch, on all ranks, and does too.

    Args:
        micro_batches: what this rank has of the window.
        window: its positions [start, stop) over all ranks; None: those of ``micro_batches``.

    Raises:
        Stop, RankLost: the window was abandoned and nothing of it is left: a checkpoint can be written.
        OutOfMemory: one image does not fit; or the other ranks cannot be told and the run has to be started again.
    """
    state = job.state
    images = window[1] - window[0] if window else sum(map(len, micro_batches))
    statistics = running_statistics(state.model)
    before = [t.clone() for t in statistics]

    def abandon() -> None:
        state.optimizer.zero_grad(set_to_none=True)
        _restore(statistics, before)

    while True:
        started = time.monotonic()
        scale = state.precision.scale
        pieces = cut(job, micro_batches, window)
        try:
            with job.interrupt.may_stop():
                sums = forward_backward(job, pieces, images)
        except (Stop, RankLost):
            abandon()
            raise
        except OutOfMemory as error:
            abandon()
            smaller_micro_batches(job, error.largest, images, str(error), agreed=not job.reduction.meets(images))
            continue
        progress = state.progress_images + sums.images
        lr, momentum = set_schedule(state.optimizer, job.schedule, progress)
        decay = job.horizon.decay(sums.images, progress)
        try:
            update = step(job, sums, decay)
        except RankLost:
            abandon()
            raise
        again = update.reason == "gradient overflow" and scale > 1
        count(job, sums, update, closed=not again)
        if not update.applied:
            _restore(statistics, before)
        job.record(_window_closed(job, sums, update, lr, momentum, decay, scale, time.monotonic() - started))
        if not again:
            state.ledger.close(sums.positions, APPLIED if update.applied else f"skipped: {update.reason}")
            unreadable.mind(job, sums.bad)
            return _mind_skips(job, sums, update)


def cut(job: Job, micro_batches: Sequence[Batch], window: tuple[int, int] | None) -> list[Batch]:
    """What this rank has of a window, as micro-batches of the size that fits.

    Where statistics are synchronised every rank runs as many passes as the one that has most, with nothing in the last.
    """
    pieces = regroup(micro_batches, job.state.micro_batch) if micro_batches else []
    if window and job.reduction.synchronised:
        missing = job.plan.passes(*window, job.state.micro_batch) - len(pieces)
        pieces += [empty_batch(*job.config.imgsz)] * missing
    return pieces


def step(job: Job, sums: WindowSums, decay: float) -> Update:
    """The update of a window and, where it is applied, of the averaged weights; all they need was allocated before.

    Raises:
        RankLost: before anything of this rank was changed.
        OutOfMemory: even so; weights may be half updated, so nothing is saved and last.pt stands.
    """
    state = job.state

    def work() -> Update:
        reach = state.model.term_parameters()
        update = apply_update(state.optimizer, sums, reach, state.precision, reduce=job.reduction.reduce)
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


def smaller_micro_batches(job: Job, largest: int, images: int, said: str, *, agreed: bool = True) -> None:
    """After a window ran out of memory, its gradients dropped: halve the micro-batch, say so, keep it in the record.

    Args:
        largest: images of the micro-batch that was too large.
        images: of the window.
        said: what the failing call told.
        agreed: every rank knows. Otherwise they wait in a reduction, so this one saves what all would have saved and ends.

    Raises:
        OutOfMemory: it was one image; or nothing could be agreed.
    """
    peak = job.phases.peak
    release(job.ranks.device)
    if largest == 1:
        raise nothing_smaller(job.state, job.config, job.phases, said, job.last)
    told = shrink_micro_batch(job.state, job.plan, largest, images, peak, said)
    if not agreed:
        save_for_all(job)
        raise OutOfMemory(
            f"rank {job.ranks.rank}: {told} The other ranks wait inside a reduction and cannot follow, so the run ends here; "
            f"go on, with the smaller micro-batches, with: visiontrain train resume={job.last}"
        )
    job.phases.forget(*OF_WINDOWS)
    job.record(FactsChanged({"shrinks": list(job.state.shrinks)}))
    job.record(Notice(told, "warning"))


def save_for_all(job: Job) -> None:
    """Write last.pt from this rank, whichever it is: weights, optimizer and statistics are equal on all between windows."""
    save_training(job.last, job.state, job.about)
    if job.ranks.group:
        job.ranks.group.farewell("", saved=True)


# Phases that depend on the micro-batch; after a shrink they are measured anew.
OF_WINDOWS = ("first forward", "first backward", "rest of the first window", "first update", "later windows")


def forward_backward(job: Job, micro_batches: Sequence[Batch], images: int) -> WindowSums:
    """Accumulate a window; randomness in the model depends on (seed, epoch, first position) of a micro-batch alone.

    Args:
        micro_batches: of this rank.
        images: of the window, over all ranks.
    """
    state, figures, ranks = job.state, job.phases.figures, job.ranks

    def before(batch: Batch) -> None:
        if "first forward" in figures:
            measure(job, "first backward", once=True)
        key = (job.config.seed, state.epoch, *batch.positions[:1])
        torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1))
        if torch.is_grad_enabled():  # else it is the pass for the weights alone
            job.record(MicroBatchDone(len(batch) * ranks.size))

    if not state.provisional:
        known = ranks.gather((sum(len(b.targets) for b in micro_batches), len(micro_batches)))
        boxes, passes = (sum(column) for column in zip(*known, strict=True))
        state.provisional = provisional_weights(state.model.loss_terms, boxes, passes)
    sums = accumulator(state.model.term_parameters())(
        job.reduction.module,
        at_progress(job.criterion, state.progress_images / job.plan.images_planned),
        micro_batches,
        ranks=ranks,
        precision=state.precision,
        provisional=state.provisional,
        before=before,
        between=lambda: measure(job, "first forward", once=True),
        overlap=job.reduction.overlaps(images),
        meets=job.reduction.meets(images),
        stop=lambda: bool(job.interrupt.heard),
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
    state.provisional = {t: power_of_two(w / sums.passes) for t, w in sums.weights.items()}
    state.epoch_images += sums.images
    for name, value in sums.part_means.items():
        state.epoch_losses[name] = state.epoch_losses.get(name, 0.0) + value * sums.images


def _mind_skips(job: Job, sums: WindowSums, update: Update) -> None:
    state = job.state
    state.skips_in_a_row = 0 if update.applied else state.skips_in_a_row + 1
    if update.applied:
        return
    where = f"epoch {state.epoch + 1}, positions {sums.positions[0]} to {sums.positions[-1]}"
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


def _restore(tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
