from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from visiontrain.record.events import (
    Counters,
    EpochEnded,
    EpochStarted,
    EvaluationProgress,
    EvaluationStarted,
    MicroBatchDone,
    RunEnded,
    RunStarted,
    WindowClosed,
)

IMAGES, WINDOWS = 64, 3  # images per window, windows per epoch


def started(folder, **changes):
    facts = {"batch": 8, "nbs": 64, "weight_decay": 5e-4, "seed": 0, "settings": {"lr0": 0.01}, "accumulate": 8}
    known = {"plan": ("8 images x 8 micro-batches x 1 rank = 64 images per update (nbs 64)",), "epochs": 3}
    parts = ("box_loss", "cls_loss", "dfl_loss")
    given = {"facts": facts, "images_per_epoch": IMAGES * WINDOWS, "part_names": parts, **known, **changes}
    return RunStarted(folder=folder, **given)


def counters(window: int, epoch: int) -> Counters:
    return Counters(8 * window, window, window, IMAGES * window, 200 * window, epoch)


def window(number: int, **changes):
    """The window with this number, counted from 1 over the run."""
    epoch = (number - 1) // WINDOWS + 1
    losses = {"box_loss": 1 / 3 + number, "cls_loss": 2.0, "dfl_loss": 0.1}
    fixed = {"images": IMAGES, "targets": 200, "micro_batches": 8, "losses": losses, "weight": {"detection": 33.25}}
    plain = {"gradient_norm": 3.5, "clipped": False, "lr": 0.01 / 3, "momentum": 0.9, "ema_decay": 0.99, "scale": 1.0}
    end = {"applied": True, "reason": "", "progress": number / 9, "seconds": 0.5, "memory": 10**9 + number}
    return WindowClosed(epoch=epoch, counters=counters(number, epoch), **{**fixed, **plain, **end, **changes})


def epoch_ended(epoch: int, **changes):
    ap = 0.1 + 0.2 * epoch  # not representable: must still come back the same
    metrics = {"ap": ap, "ap50": ap + 0.1, "ap75": ap, "ap_max_det": ap, "precision": 0.7, "recall": 0.6}
    losses = {"box_loss": 1 / epoch, "cls_loss": 2 / 3, "dfl_loss": 1e-17}
    known = {"seconds": 10.1 * epoch, "losses": losses, "metrics": metrics, "lr": 0.01 / 3, "best": True}
    more = {"counters": counters(WINDOWS * epoch, epoch), "images_per_second": 38.7, "memory": 10**9}
    return EpochEnded(epoch=epoch, **{**known, **more, **changes})


def epoch(number: int):
    """All events of one epoch."""
    yield EpochStarted(number, 3, IMAGES * WINDOWS)
    for index in range(WINDOWS):
        yield from [MicroBatchDone(8)] * 8
        yield window((number - 1) * WINDOWS + index + 1)
    yield EvaluationStarted(20)
    yield EvaluationProgress(20)
    yield epoch_ended(number)


def whole_run(folder):
    """All events of a run of three epochs."""
    yield started(folder)
    for number in (1, 2, 3):
        yield from epoch(number)
    yield RunEnded("finished", "all 3 epochs")


@pytest.fixture
def make():
    """Makes events."""
    return SimpleNamespace(
        started=started, window=window, epoch_ended=epoch_ended, epoch=epoch, run=whole_run, counters=counters
    )


OF_LOGGERS = ("WANDB_SERVICE", "WANDB_MODE", "WANDB_API_KEY", "WANDB_ERROR_REPORTING", "WANDB_CACHE_DIR")
OF_LOGGERS += ("MLFLOW_TRACKING_URI", "MLFLOW_ALLOW_FILE_STORE", "MLFLOW_DISABLE_TELEMETRY")


def keep_out(patch: pytest.MonkeyPatch, home: Path) -> None:
    """No login, no service of another test; what a library leaves in the environment is gone after the test."""
    for name in OF_LOGGERS:
        patch.setenv(name, "")  # so that it is put back as it was
        patch.delenv(name)
    patch.setenv("HOME", str(home))


@pytest.fixture(scope="session")
def apart():
    """``keep_out``, for fixtures of a module."""
    return keep_out


@pytest.fixture
def nobody_logged_in(monkeypatch, tmp_path_factory):
    """A fresh user for loggers."""
    keep_out(monkeypatch, tmp_path_factory.mktemp("home"))
