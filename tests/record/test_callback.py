"""Callbacks with a method for each event that is wanted; with several ranks they run in the process that asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import visiontrain
from visiontrain import Callback
from visiontrain.errors import Interrupted
from visiontrain.record.callback import METHODS
from visiontrain.record.events import Notice
from visiontrain.record.run import Recorder

OF_TESTS = ("PYTEST_CURRENT_TEST", "CI", "GITHUB_ACTIONS", "MLFLOW_DISABLE_TELEMETRY")  # where MLflow is quiet anyway

# As in a notebook's cell or at a prompt: the classes are of a __main__ that no file holds.
CELL = """
import json, os, sys, threading
import visiontrain

class Mine(visiontrain.Callback):
    def __init__(self):
        self.epochs, self.where = [], set()
    def on_epoch_ended(self, event):
        self.epochs.append((event.epoch, event.counters.images_seen))
        self.where.add((os.getpid(), threading.current_thread() is threading.main_thread()))

class Faulty(visiontrain.Callback):
    def on_epoch_started(self, event):
        raise KeyError("of mine")

mine, count, told = Mine(), [], []
warn = lambda event: told.append(event.text) if getattr(event, "level", "") == "warning" else None
visiontrain.train(callbacks=[mine, Faulty(), lambda event: count.append(type(event).__name__), warn], **json.loads(sys.argv[1]))
faults = [text for text in told if "left out" in text]
print(json.dumps([mine.epochs, list(mine.where) == [(os.getpid(), True)], count.count("RunStarted"), faults]))
"""


def test_each_event_goes_to_the_method_of_its_name(tmp_path, make):
    class Mine(Callback):
        def __init__(self):
            self.got = []

        def on_epoch_ended(self, event):
            self.got.append(event.epoch)

        def on_run_ended(self, event):
            self.got.append(event.outcome)

    mine = Mine()
    for event in make.run(tmp_path):
        mine(event)
    assert mine.got == [1, 2, 3, "finished"]


def test_a_method_that_no_event_has_is_told_with_the_nearest():
    """Nobody waits for a method that is never called."""
    with pytest.raises(TypeError, match=r"Mine.on_epoch_end: no event is named so; did you mean on_epoch_ended\?"):
        type("Mine", (Callback,), {"on_epoch_end": lambda self, event: None})
    assert METHODS[Notice] == "on_notice" and len(set(METHODS.values())) == len(METHODS) >= 14


def test_a_callback_that_fails_is_told_by_its_name_and_left_out(tmp_path, make):
    class Mine(Callback):
        def on_window_closed(self, event):
            raise ValueError("mine")

    seen = []
    recorder = Recorder([Mine(), seen.append])
    for event in make.run(tmp_path):
        recorder(event)
    assert [event.text for event in seen if isinstance(event, Notice)] == [
        "Mine failed at WindowClosed and is left out from now on; training goes on (ValueError: mine)"
    ]


def test_classes_of_a_cell_and_lambdas_work_with_two_ranks_and_each_logger_has_one_run(short_run, tmp_path):
    """NB-03: events come to the process that asked; no class of its goes to the ranks. Nothing is left running."""
    settings = {
        **short_run,
        "device": "cpu,cpu",
        "loggers": "tensorboard,wandb,mlflow",
        "project": str(tmp_path / "runs"),
    }
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "VISIONTRAIN_TEST_OF": str(tmp_path)}
    for name in (*OF_TESTS, "WANDB_SERVICE", "WANDB_MODE", "WANDB_API_KEY", "MLFLOW_TRACKING_URI"):
        environment.pop(name, None)
    (tmp_path / "home").mkdir()
    ended = subprocess.run(
        [sys.executable, "-", json.dumps(settings)], input=CELL, capture_output=True, text=True, env=environment
    )
    assert ended.returncode == 0, ended.stderr
    epochs, here, starts, faults = json.loads(ended.stdout.splitlines()[-1])
    assert (epochs, here, starts) == ([[1, 13]], True, 1)
    assert len(faults) == 1 and faults[0].startswith("Faulty failed at EpochStarted") and "of mine" in faults[0]
    assert len(list((tmp_path / "runs" / "run" / "tensorboard").iterdir())) == 1
    assert len(list((tmp_path / "runs" / "run" / "wandb").glob("offline-run-*"))) == 1
    assert len(list((tmp_path / "runs" / "run" / "mlflow").glob("*/*/meta.yaml"))) == 1
    assert list((tmp_path / "home").rglob("*")) == []
    assert not _left(tmp_path)


def _left(folder):
    """Processes that descend from the test's, the service of W&B among them."""
    found = []
    for process in os.listdir("/proc"):
        try:
            with open(f"/proc/{process}/environ", "rb") as environment:
                if f"VISIONTRAIN_TEST_OF={folder}".encode() in environment.read():
                    found.append(process)
        except OSError:  # no process, ended meanwhile, or another's
            continue
    return found


def test_a_callback_ends_the_training_as_ctrl_c_does(short_run, narrow):
    """It observes and has no say; a signal to the own process is heard like that of a person: last.pt is written."""

    class Enough(Callback):
        def on_window_closed(self, event):
            if event.counters.updates_attempted == 2:
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted, match="resume="):
        visiontrain.train(callbacks=[Enough()], **short_run)
    [last] = Path(short_run["project"]).rglob("last.pt")
    assert visiontrain.train(resume=str(last)).outcome == "finished"
