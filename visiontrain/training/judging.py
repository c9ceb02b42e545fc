"""When the averaged weights are validated, which of them are the best, and when patience ends."""

from __future__ import annotations

import time

from visiontrain.record.events import Checkpointed
from visiontrain.training.checkpoint import save_model
from visiontrain.training.job import Job


def validation_due(job: Job) -> bool:
    """Between two windows: have val_updates or val_minutes passed since the last validation? Rank 0's clock is that of all."""
    judging, state = job.config.judging, job.state
    if not job.config.val:
        return False
    if 0 < judging.val_updates <= state.updates_applied - state.validated_updates:
        return True
    late = time.monotonic() - job.validated_at >= 60 * judging.val_minutes
    return judging.val_minutes > 0 and job.ranks.gather(late)[0]


def evaluated(job: Job) -> bool:
    """Is the open epoch evaluated at its end? As val and val_period say, or where a validation is due; the last one always."""
    epoch = job.state.epoch + 1
    if epoch == job.plan.epochs:
        return True
    return job.config.val and (epoch % job.config.judging.val_period == 0 or validation_due(job))


def judge(job: Job, metrics: dict[str, float]) -> bool:
    """Are these the best so far? What ``best_after`` leaves out is the best only as long as there is nothing else."""
    state, judging = job.state, job.config.judging
    job.validated_at, state.validated_updates = time.monotonic(), state.updates_applied
    epoch, fitness = state.epoch + 1, metrics[judging.fitness]
    outdated = state.best_epoch <= judging.best_after < epoch
    if not outdated and fitness <= state.best_fitness:
        return False
    state.best_fitness, state.best_epoch, state.best_metrics = fitness, epoch, dict(metrics)
    return True


def keep_best(job: Job, metrics: dict[str, float]) -> None:
    """Write best.pt; rank 0 does it for all."""
    if job.ranks.main:
        path = job.folder / "weights" / "best.pt"
        save_model(path, job.state.ema.model, job.about, metrics, job.state.epoch + 1)
        job.record(Checkpointed(path, "best"))


def wait_on(job: Job) -> None:
    """Count the epochs since the best one, once the open epoch was validated; an extended run begins to count anew."""
    state = job.state
    begun = max(state.best_epoch, job.config.judging.best_after, state.patience_from)
    state.epochs_without_improvement = max(state.epoch + 1 - begun, 0)


def out_of_patience(job: Job) -> bool:
    """Have ``patience`` epochs passed without a better score, with epochs still to go?"""
    patience, state = job.config.patience, job.state
    return 0 < patience <= state.epochs_without_improvement and state.epoch < job.plan.epochs
