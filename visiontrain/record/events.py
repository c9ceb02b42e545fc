"""What happens in a run, as frozen facts: numbers, text and paths, never tensors. Sinks read them and answer nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the run began (never of one process)."""

    micro_batches: int = 0
    updates_attempted: int = 0
    updates_applied: int = 0
    images_seen: int = 0
    targets_seen: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class RunStarted:
    """``plan`` are the sentences of the plan; ``facts`` is what run.json holds before the first window."""

    folder: Path
    plan: tuple[str, ...]
    facts: dict[str, Any]
    epochs: int
    images_per_epoch: int
    part_names: tuple[str, ...]  # box_loss, cls_loss, dfl_loss
    resumed_epoch: int = 0  # epochs already closed when this process began
    counters: Counters = field(default_factory=Counters)  # as they stood then


@dataclass(frozen=True, slots=True)
class EpochStarted:
    """Images of this epoch are about to be dealt."""

    epoch: int  # 1-based for people
    epochs: int
    images: int  # of this epoch
    images_done: int = 0  # > 0 after a resume inside the epoch


@dataclass(frozen=True, slots=True)
class WindowClosed:
    """One window ended, applied or not. ``losses`` are the means that were optimised; ``reason`` is set where it was not applied."""

    epoch: int
    counters: Counters
    images: int
    targets: int
    micro_batches: int
    losses: dict[str, float]
    weight: dict[str, float]
    gradient_norm: float  # before clipping
    clipped: bool
    lr: float
    momentum: float
    ema_decay: float
    scale: float  # GradScaler's, 1.0 without
    applied: bool
    reason: str
    progress: float
    seconds: float
    memory: int  # bytes, peak so far of the device (of the process on CPU)


@dataclass(frozen=True, slots=True)
class MicroBatchDone:
    """For the bar only."""

    images: int


@dataclass(frozen=True, slots=True)
class EvaluationStarted:
    """A split is about to be evaluated."""

    images: int


@dataclass(frozen=True, slots=True)
class EvaluationProgress:
    """One batch of it was evaluated."""

    images: int  # of this batch


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """``metrics`` has ap, ap50, ap75, ap_max_det, precision, recall (empty where the epoch was not evaluated)."""

    epoch: int
    seconds: float  # wall time of the run so far, over all processes
    counters: Counters
    losses: dict[str, float]  # images-weighted mean over the epoch's applied windows
    metrics: dict[str, float]
    lr: float
    best: bool
    images_per_second: float  # of the training part
    memory: int


@dataclass(frozen=True, slots=True)
class Validated:
    """The averaged weights were scored inside an epoch (val_updates, val_minutes); ``metrics`` as in ``EpochEnded``."""

    epoch: int
    seconds: float  # wall time of the run so far, over all processes
    counters: Counters
    metrics: dict[str, float]
    best: bool
    took: float  # seconds


@dataclass(frozen=True, slots=True)
class Pictures:
    """Pictures to draw: ``images`` (H, W, 3) uint8 RGB each, boxes (N, 4) xyxy pixels, classes (N,), scores (N,) or None."""

    name: str  # file stem, for example train_batch0
    images: tuple[np.ndarray, ...]
    boxes: tuple[np.ndarray, ...]
    classes: tuple[np.ndarray, ...]
    scores: tuple[np.ndarray, ...] | None
    class_names: tuple[str, ...]
    captions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves of one evaluation, per class: recall grid (101,), precision (classes, 101), f1/p/r over confidence (classes, 101), confusion (nc+1, nc+1)."""

    class_names: tuple[str, ...]
    precision: np.ndarray
    confidence_precision: np.ndarray
    confidence_recall: np.ndarray
    confidence_f1: np.ndarray
    confusion: np.ndarray


@dataclass(frozen=True, slots=True)
class FactsChanged:
    """Facts that became known during the run (a shrink, ids left out, memory of a phase): run.json takes them key by key."""

    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the person; ``level`` is info or warning."""

    text: str
    level: str = "info"


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A checkpoint is on disk."""

    path: Path
    why: str  # epoch, minutes, updates, interrupted, extended, validated, averaged, best


@dataclass(frozen=True, slots=True)
class RunEnded:
    """``outcome`` is finished, stopped early, interrupted, failed; ``metrics`` are those of best.pt, scored once more at the end."""

    outcome: str
    reason: str
    facts: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


Event = (
    RunStarted
    | EpochStarted
    | WindowClosed
    | MicroBatchDone
    | EvaluationStarted
    | EvaluationProgress
    | EpochEnded
    | Validated
    | Pictures
    | Curves
    | FactsChanged
    | Notice
    | Checkpointed
    | RunEnded
)
