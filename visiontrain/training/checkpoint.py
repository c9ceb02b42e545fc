"""What must survive a crash, and how it is written and read: between windows only, atomically."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from visiontrain.errors import TrainingStopped, WeightsError
from visiontrain.models.archive import write_archive
from visiontrain.models.detector import Detector
from visiontrain.models.weights import SCHEMA_VERSION, fill
from visiontrain.record.events import Counters
from visiontrain.record.files import write_atomic
from visiontrain.training.ema import EMA
from visiontrain.training.ledger import Ledger
from visiontrain.training.precision import Precision


@dataclass(slots=True)
class TrainState:
    """Everything that training changes. ``epoch`` counts closed epochs; ``position`` images of the open one dealt.

    ``micro_batch`` (images of a forward pass on each rank) and ``validation_batch`` shrink when memory runs out, and
    ``shrinks`` says when; 0 stands for what the settings say.
    """

    model: Detector
    ema: EMA
    optimizer: Optimizer
    precision: Precision
    provisional: dict[str, float] = field(default_factory=dict)
    epoch: int = 0
    position: int = 0
    progress_images: int = 0  # of applied windows
    micro_batches: int = 0
    updates_attempted: int = 0
    updates_applied: int = 0
    images_seen: int = 0
    targets_seen: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    clipped: int = 0
    skips_in_a_row: int = 0
    best_fitness: float = -1.0
    best_epoch: int = 0
    best_metrics: dict[str, float] = field(default_factory=dict)
    epochs_without_improvement: int = 0
    patience_from: int = 0  # the epoch after which patience began to count: the run was extended there
    validated_updates: int = 0  # updates_applied at the last validation
    top: list[list[float]] = field(default_factory=list)  # [epoch, fitness] of the best ones kept, best first
    epoch_losses: dict[str, float] = field(default_factory=dict)  # images-weighted sums of the open epoch
    epoch_images: int = 0
    seconds: float = 0.0
    micro_batch: int = 0
    validation_batch: int = 0
    shrinks: list[dict[str, Any]] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)

    def counters(self) -> Counters:
        return Counters(
            self.micro_batches,
            self.updates_attempted,
            self.updates_applied,
            self.images_seen,
            self.targets_seen,
            self.epoch + 1,
        )


# Every plain field; these have entries of their own in a checkpoint.
OWN = ("model", "ema", "optimizer", "precision", "skipped", "ledger")
PLAIN = tuple(f.name for f in fields(TrainState) if f.name not in OWN)
# Older checkpoints of version 1 have no such keys: nothing had shrunk or been extended when they were written.
ADDED = ("micro_batch", "validation_batch", "shrinks", "patience_from", "validated_updates", "top")


@dataclass(frozen=True, slots=True)
class About:
    """What a checkpoint says of its run besides the state."""

    settings: dict[str, Any]
    given: list[str]
    plan: dict[str, Any]
    data_fingerprint: str


def save_training(path: Path, state: TrainState, about: About) -> None:
    """Write ``last.pt``: all that is needed to go on bit for bit.

    Raises:
        TrainingStopped: a weight is not finite, or the disk is full; the file that is there stays.
    """
    require_finite({"weights": state.model, "averaged weights": state.ema.model}, path)
    scaler = state.precision.scaler
    content = header("training", state.model, about) | {
        "weights": state.model.state_dict(),
        "ema": state.ema.model.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "scaler": scaler.state_dict() if scaler else {},
        "plan": about.plan,
        "skipped": dict(state.skipped),
        "ledger": state.ledger.content(),
        "state": {name: getattr(state, name) for name in PLAIN},
    }
    _write(path, content)


def save_model(path: Path, model: Detector, about: About, metrics: dict[str, float], epoch: int) -> None:
    """Write ``best.pt``, or one like it: averaged weights and what is needed to use them.

    Raises:
        TrainingStopped: as ``save_training``.
    """
    require_finite({"averaged weights": model}, path)
    content = header("model", model, about) | {"weights": model.state_dict(), "metrics": metrics, "epoch": epoch}
    _write(path, content)


def _write(path: Path, content: dict[str, Any]) -> None:
    try:
        write_atomic(path, lambda file: write_archive(content, file))
    except OSError as error:
        raise TrainingStopped(
            f"{path} cannot be written ({error.strerror or error}); the checkpoints before it stand. Make room, then go on "
            f"with: visiontrain train resume={path.with_name('last.pt')}"
        ) from error


def header(kind: str, model: Detector, about: About) -> dict[str, Any]:
    """What every checkpoint begins with: kind, model, settings, data, versions."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "model": model.description() | {"imgsz": about.settings["imgsz"]},
        "settings": about.settings,
        "given": about.given,
        "data_fingerprint": about.data_fingerprint,
        "versions": versions(),
    }


def restore(state: TrainState, content: dict[str, Any], path: Path) -> None:
    """Fill a freshly built state from a checkpoint; what is missing or does not fit is an error.

    Raises:
        WeightsError: not a training checkpoint, or of another model, optimizer or precision.
    """
    if content["kind"] != "training":
        raise WeightsError(f"{path}: holds finished weights only and cannot be resumed; give the run's last.pt.")
    fill(state.model, content["weights"], path)
    fill(state.ema.model, content["ema"], path)
    try:
        state.optimizer.load_state_dict(content["optimizer"])
    except ValueError as error:
        raise WeightsError(
            f"{path}: its optimizer state does not fit this version's parameter groups ({error}). "
            "The weights can still be used: val model=... works, training starts anew."
        ) from error
    if (
        state.precision.scaler and content["scaler"]
    ):  # trained without, on another kind of device: the scale starts anew
        state.precision.scaler.load_state_dict(content["scaler"])
    state.skipped = Counter(content["skipped"])
    plain = content["state"]
    for name in PLAIN:
        if name in plain or name not in ADDED:
            setattr(state, name, plain[name])
    state.ledger = (
        Ledger.of(content["ledger"])
        if "ledger" in content
        else Ledger.of_position(plain["position"], plain["images_seen"])
    )


def require_finite(models: Mapping[str, Detector], path: Path) -> None:
    """Never replace a good checkpoint by a bad one.

    Raises:
        TrainingStopped: a weight, average or statistic is not finite.
    """
    for what, model in models.items():
        tensors = [t for t in model.state_dict().values() if t.is_floating_point()]
        if not torch.stack(torch._foreach_norm(tensors, float("inf"))).isfinite().all():
            raise TrainingStopped(
                f"the {what} are not finite, so {path} was not written and the checkpoint before it stands. "
                "Try a lower lr0, or amp=false."
            )


def versions() -> dict[str, str]:
    """Versions of what computes."""
    names = ("visiontrain", "torch", "torchvision", "numpy")
    return {name: version(name) for name in names} | {"python": platform.python_version()}
