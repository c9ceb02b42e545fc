"""average_best: the best epochs of a run are kept while it goes, and at its end their mean is tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from visiontrain.models.detector import Detector
from visiontrain.models.weights import load_model, read_checkpoint
from visiontrain.record.events import Checkpointed, FactsChanged, Notice
from visiontrain.training.checkpoint import save_model
from visiontrain.training.job import Job


def keep_top(job: Job, metrics: dict[str, float]) -> None:
    """Keep the averaged weights of the open epoch, if it is one of the best; best_after leaves out the first ones."""
    judging, state, epoch = job.config.judging, job.state, job.state.epoch + 1
    if not judging.average_best or epoch <= judging.best_after:
        return
    ranked = sorted([*state.top, [epoch, metrics[judging.fitness]]], key=lambda kept: -kept[1])
    state.top = ranked[: judging.average_best]
    if job.ranks.main and any(kept == epoch for kept, _ in state.top):
        path = _path(job, epoch)
        path.parent.mkdir(exist_ok=True)
        save_model(path, state.ema.model, job.about, metrics, epoch)


def forget_others(job: Job) -> None:
    """Remove the kept weights that are not among the best any more, once last.pt says so."""
    folder = _path(job, 0).parent
    if job.ranks.main and folder.is_dir():
        wanted = {_path(job, int(epoch)) for epoch, _ in job.state.top}
        for path in set(folder.glob("epoch*.pt")) - wanted:
            path.unlink()
        if not wanted:
            folder.rmdir()


def try_average(job: Job, score: Callable[[Detector], dict[str, float]], save: Callable[[Job, str], None]) -> None:
    """Score the mean of the weights of the best epochs; it becomes best.pt where it is better.

    Args:
        score: gives the metrics of a model, on every rank.
        save: writes last.pt, and why.
    """
    state, fitness = job.state, job.config.judging.fitness
    epochs = [int(epoch) for epoch, _ in state.top]
    if len(epochs) > 1:
        model = job.ranks.first(lambda: mean_of([_path(job, epoch) for epoch in epochs]))
        with job.interrupt.may_stop():
            metrics = score(model.to(job.ranks.device, memory_format=torch.channels_last))
        before, after = state.best_fitness, metrics[fitness]
        kept = after > before
        if kept:
            _make_best(job, model, metrics)
        told = f"The mean of the weights of epochs {', '.join(map(str, epochs))} has {fitness} {after:.4f}, best.pt {before:.4f}"
        job.record(Notice(f"{told}: {'it is best.pt now' if kept else 'it does not help, and best.pt stays'}."))
        job.record(FactsChanged({"average_best": {"epochs": epochs, "mean": after, "best": before, "kept": kept}}))
    if epochs:
        state.top = []
        save(job, "averaged")
    forget_others(job)


def mean_of(paths: Sequence[Path]) -> Detector:
    """The model whose weights and running statistics are the mean of the checkpoints', taken in float64; whole numbers are
    those of the first.

    Raises:
        WeightsError: a checkpoint cannot be read.
    """
    model = load_model(paths[0])
    others = [read_checkpoint(path)["weights"] for path in paths[1:]]
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.stack([tensor.double(), *(other[name].double() for other in others)]).mean(0))
    return model


def _make_best(job: Job, model: Detector, metrics: dict[str, float]) -> None:
    state = job.state
    state.best_fitness, state.best_metrics = metrics[job.config.judging.fitness], dict(metrics)
    if job.ranks.main:
        path = job.folder / "weights" / "best.pt"
        save_model(path, model, job.about, metrics, state.best_epoch)
        job.record(Checkpointed(path, "best"))


def _path(job: Job, epoch: int) -> Path:
    return job.folder / "weights" / "top" / f"epoch{epoch}.pt"
