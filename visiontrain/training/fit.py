"""The loop: windows of an epoch, evaluation, the best so far, a checkpoint."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import islice
from typing import Any

from visiontrain.errors import RankLost
from visiontrain.record.events import Checkpointed, EpochEnded, EpochStarted, FactsChanged, Validated
from visiontrain.training.average import forget_others, keep_top
from visiontrain.training.checkpoint import save_training
from visiontrain.training.interrupt import Stop
from visiontrain.training.job import Job
from visiontrain.training.judging import evaluated, judge, keep_best, out_of_patience, validation_due, wait_on
from visiontrain.training.transaction import save_for_all, train_window


def fit(job: Job) -> str:
    """Train until the epochs are done or patience ends; the outcome in a word or two.

    Raises:
        TrainingStopped: ten windows in a row were not finite, or a position of an epoch was not dealt exactly once.
        OutOfMemory: a micro-batch of one image does not fit.
        RankLost: another rank did not come; last.pt has been written by one that is left.
        Stop: a signal asked to, this rank or another; last.pt has been written.
    """
    try:
        while job.state.epoch < job.plan.epochs:
            train_epoch(job)
            stop_together(job)
            with job.interrupt.may_stop():
                metrics = job.evaluate() if evaluated(job) else {}
            stop_together(job)
            if metrics:
                job.phases.close("validation")
            close_epoch(job, metrics)
            if out_of_patience(job):
                return "stopped early"
    except Stop:
        job.tick()
        with suppress(RankLost):  # nobody leaves while rank 0 writes: a launcher soon ends those who are left
            job.ranks.first(lambda: checkpoint(job, "interrupted"))
        raise
    except RankLost as error:
        job.tick()
        raise survive(job, error) from error
    return "finished"


def train_epoch(job: Job) -> None:
    """Run the windows that are left of the open epoch."""
    state, plan = job.state, job.plan
    started = time.monotonic()
    windows = plan.windows_from(state.epoch, state.position)
    job.trained_images = sum(stop - start for start, stop in windows)
    job.record(EpochStarted(state.epoch + 1, plan.epochs, state.position + job.trained_images, state.position))
    state.model.train()
    for start, stop in windows:
        if validation_due(job):
            started += validate_inside(job)
        save_between(job)
        with job.interrupt.may_stop():
            micro_batches = list(islice(job.micro_batches, len(plan.shares(start, stop, job.ranks.rank))))
        for batch in micro_batches:
            job.show(batch)
        train_window(job, micro_batches, (start, stop))
        state.position = stop
    save_between(job)
    state.model.eval()
    job.training_seconds = time.monotonic() - started


def validate_inside(job: Job) -> float:
    """Score the averaged weights between two windows, and keep them where they are the best; returns the seconds it took.

    last.pt follows best.pt, so that a run that is killed never takes worse weights for the best.
    """
    started = time.monotonic()
    with job.interrupt.may_stop():
        metrics = job.evaluate()
    stop_together(job)
    job.phases.close("validation")
    best = judge(job, metrics)
    took = time.monotonic() - started
    job.record(Validated(job.state.epoch + 1, job.tick(), job.state.counters(), metrics, best, took))
    if best:
        keep_best(job, metrics)
        checkpoint(job, "validated")
    return time.monotonic() - started


def save_between(job: Job) -> None:
    """Write last.pt where save_minutes or save_updates have passed since the last time; after a validation that is due."""
    output = job.config.output
    late = time.monotonic() - job.saved_at > 60 * output.save_minutes
    if late or 0 < output.save_updates <= job.state.updates_applied - job.saved_updates:
        job.tick()
        checkpoint(job, "minutes" if late else "updates")


def stop_together(job: Job) -> None:
    """Where one of several ranks was asked to stop, all do, at the same place; a single one is stopped at any moment.

    Raises:
        Stop: one was asked to.
    """
    if job.ranks.size > 1 and any(job.ranks.gather(bool(job.interrupt.heard))):
        raise Stop


def survive(job: Job, error: RankLost) -> RankLost:
    """After losing a rank: the first one left writes last.pt, unless the lost one did before it went."""
    left = [rank for rank in range(job.ranks.size) if rank not in error.lost]
    if error.saved:
        return error
    if job.ranks.rank != left[0]:
        first = job.ranks.group.who(left[0]) if job.ranks.group else ""
        return RankLost(
            f"{error}. Unless it is gone too, {first} has written last.pt; go on from there with: "
            f"visiontrain train resume={job.last}",
            error.lost,
        )
    if not job.last.parent.is_dir():  # another host's disk
        return RankLost(
            f"{error}. The run's folder is not on this host; its last.pt is as old as the last save.", error.lost
        )
    save_for_all(job)
    return RankLost(
        f"{error}. Nothing is lost; go on with: visiontrain train resume={job.last}", error.lost, saved=True
    )


def close_epoch(job: Job, metrics: dict[str, float]) -> None:
    """Judge the epoch, write its row, then its checkpoint: a kill in between repeats the epoch's end, bit for bit.

    Raises:
        TrainingStopped: a position of the epoch was never dealt.
    """
    state = job.state
    close_ledger(job)
    best = bool(metrics) and judge(job, metrics)
    if metrics:
        wait_on(job)
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
        keep_best(job, metrics)
    if metrics:
        keep_top(job, metrics)
    state.epoch, state.position = state.epoch + 1, 0
    state.epoch_losses, state.epoch_images = {}, 0
    checkpoint(job, "epoch")
    forget_others(job)
    period = job.config.output.save_period
    if job.ranks.main and period > 0 and state.epoch % period == 0:
        save_training(job.folder / "weights" / f"epoch{state.epoch}.pt", state, job.about)


def close_ledger(job: Job) -> None:
    """Every position of the epoch is accounted for, those that the policy leaves out included."""
    memory = memory_facts(job)  # first: a rank may be gone, and what is closed below could not be opened again
    ledger, images = job.state.ledger, job.plan.images
    if job.plan.last_window == "drop":
        ledger.close(range(ledger.position, images), "left out (last_window=drop)")
    ledger.close_epoch(images)
    job.record(FactsChanged({"positions": dict(ledger.closed), **memory}))


def memory_facts(job: Job) -> dict[str, Any]:
    """What each phase needed, by device; each rank's stands for itself, nothing is added up."""
    ranks = job.ranks
    if ranks.size == 1:
        return job.phases.facts()
    found = ranks.gather((f"rank {ranks.rank}, {ranks.device}", dict(job.phases.figures)))
    return {"memory": {"phases": dict(found), "phases_are": job.phases.are}}


def checkpoint(job: Job, why: str) -> None:
    """Write last.pt, between windows only; rank 0 does it for all."""
    job.saved_at, job.saved_updates = time.monotonic(), job.state.updates_applied
    if not job.ranks.main:
        return
    save_training(job.last, job.state, job.about)
    job.record(Checkpointed(job.last, why))
