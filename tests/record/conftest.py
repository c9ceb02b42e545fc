from __future__ import annotations

import json
import shutil
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


HOSTILE = ("<script>alert(1)</script>", "\"&'")


@pytest.fixture(scope="session")
def hostile_run(tiny, tmp_path_factory):
    """The folder of a real run of two epochs with pictures, whose classes and folder have names that try to be markup."""
    import torch

    from visiontrain import models
    from visiontrain.config.build import build
    from visiontrain.config.schema import TrainConfig
    from visiontrain.training.run import train

    root, threads = tmp_path_factory.mktemp("hostile"), torch.get_num_threads()
    (root / "data.yaml").write_text(
        json.dumps({"path": str(tiny.parent), "train": "images/train", "val": "images/val", "names": list(HOSTILE)})
    )
    settings = {
        "data": str(root / "data.yaml"),
        "project": str(root / "<b>&"),
        "device": "cpu",
        "workers": 0,
        "epochs": 2,
    }
    settings |= {"batch": 2, "nbs": 4, "imgsz": 64, "warmup_epochs": 1, "close_mosaic": 0}
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
        folder = train(build(TrainConfig, settings)).folder
    torch.set_num_threads(threads)
    return folder


@pytest.fixture
def changed_run(hostile_run, tmp_path):
    """A copy of that run: ``changed_run({"outcome": "failed"}, without=["metrics.csv"])`` changes run.json and takes files away."""

    def copy(record=(), without=()):
        folder = shutil.copytree(hostile_run, tmp_path / "copy", ignore=lambda *_: ["weights"])
        content = json.loads((folder / "run.json").read_text("utf-8"))
        (folder / "run.json").write_text(json.dumps({**content, **dict(record)}), "utf-8")
        for pattern in ("report.html", *without):
            for path in folder.glob(pattern):
                path.unlink()
        return folder

    return copy


@pytest.fixture(scope="session")
def runs(tiny, tmp_path_factory):
    """``long`` has 3 epochs at A=2, ``short`` 2 epochs at A=1 with another lr0: two kinds of difference at once."""
    import torch

    from visiontrain import models
    from visiontrain.config.build import build
    from visiontrain.config.schema import TrainConfig
    from visiontrain.training.run import train

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("runs")
    known = {"data": str(tiny), "project": str(root), "device": "cpu", "workers": 0, "imgsz": 64, "nbs": 4}
    known |= {"plots": False, "close_mosaic": 0, "optimizer": "AdamW"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
        train(build(TrainConfig, {**known, "name": "long", "epochs": 3, "batch": 2}))
        train(build(TrainConfig, {**known, "name": "short", "epochs": 2, "batch": 4, "lr0": 0.002}))
    yield root
    torch.set_num_threads(threads)


@pytest.fixture
def copy(runs, tmp_path):
    """A copy of ``long`` whose run.json is changed: ``copy(name, **{"measured.data.fingerprint": ...})``; None takes a key out."""

    def make(name: str, **changes):
        folder = shutil.copytree(runs / "long", tmp_path / name)
        record = json.loads((folder / "run.json").read_text())
        for path, value in changes.items():
            *parents, key = path.split("/")
            section = record
            for parent in parents:
                section = section[parent]
            if value is None:
                del section[key]
            else:
                section[key] = value
        (folder / "run.json").write_text(json.dumps(record))
        return folder

    return make


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
