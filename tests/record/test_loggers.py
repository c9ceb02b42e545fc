"""TensorBoard, W&B (offline) and MLflow (files), written by real runs and read back with what the three bring along."""

from __future__ import annotations

import csv
import struct
import subprocess
import sys
import time
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from visiontrain import cli
from visiontrain.config.build import build
from visiontrain.config.loggers import LOGGERS
from visiontrain.config.parse import parse_keywords
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError
from visiontrain.record.beside import Beside
from visiontrain.record.events import EpochEnded, Notice, RunEnded, WindowClosed
from visiontrain.record.run import Recorder
from visiontrain.record.sinks.loggers import logger_class, make_loggers

ALL = "tensorboard,wandb,mlflow"
KEPT_OUT = ("WANDB_SERVICE", "WANDB_MODE", "WANDB_API_KEY", "WANDB_ERROR_REPORTING", "WANDB_CACHE_DIR")
CUT = """
import os, signal, sys, time
import torch
from visiontrain import Callback, models, train
torch.set_num_threads(1)
models._sizes = lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}}
class Cut(Callback):
    def on_epoch_ended(self, event):  # of update 7; its checkpoint is still to come
        time.sleep(3)  # the loggers write beside, and W&B a second late
        os.kill(os.getpid(), signal.SIGKILL)
train(callbacks=[Cut()], **eval(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def nobody_logged_in(monkeypatch, tmp_path_factory):
    """No login, no service of another test, nothing that a library leaves in the environment."""
    for name in (*KEPT_OUT, "MLFLOW_TRACKING_URI", "MLFLOW_ALLOW_FILE_STORE", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "")  # so that it is put back as it was
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path_factory.getbasetemp()))


def rows(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return [{key: float(text) for key, text in row.items() if text} for row in csv.DictReader(file)]


def curves(folder):
    """What TensorBoard has: (step, value) of each scalar, tags of the pictures."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    events.Reload()
    tags = events.Tags()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags["scalars"]}, tags["images"]


def records(path):
    """The records of an offline file of W&B: its own messages, in the log format of LevelDB (blocks of 32 KiB)."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield Record.FromString(whole)
            whole = b""


def history(folder):
    """What W&B has: rows by step, the later of two with one step; the summary; the ids of its runs; all records."""
    import json

    found = [list(records(path)) for path in sorted((folder / "wandb").glob("*run-*/*.wandb"))]
    said = [record for segment in found for record in segment]
    by_step, summary = {}, {}
    for record in said:
        if record.HasField("history"):
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            by_step[record.history.step.num] = row
        if record.HasField("summary"):
            summary |= {
                "/".join([*item.nested_key] or [item.key]): json.loads(item.value_json)
                for item in record.summary.update
            }
    ids = [record.run.run_id for record in said if record.HasField("run")]
    return SimpleNamespace(rows=by_step, summary=summary, ids=ids, segments=len(found), said=said)


def noted(folder):
    """What MLflow has: its one run, and (step, value) of each metric."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=(folder / "mlflow").as_uri())
    [run] = client.search_runs([client.get_experiment_by_name("visiontrain").experiment_id])
    numbers = {key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
    files = [file.path for file in client.list_artifacts(run.info.run_id)]
    return (
        run,
        {key: [(m.step, m.value) for m in sorted(found, key=lambda m: m.step)] for key, found in numbers.items()},
        files,
    )


@pytest.fixture(scope="module")
def logged(tiny, tmp_path_factory):
    """A run killed at update 7, epoch 1 logged, after the checkpoint of update 5; gone on with here; then another one in this process."""
    root = tmp_path_factory.mktemp("logged")
    with pytest.MonkeyPatch.context() as patch:
        for name in KEPT_OUT:
            patch.setenv(name, "")
            patch.delenv(name)
        patch.setenv("HOME", str(root / "home"))
        (root / "home").mkdir()
        patch.chdir(root / "home")
        yield _logged(tiny, root, patch)


def _logged(tiny, root, patch):
    import torch

    from visiontrain import models, train

    settings = {
        "data": str(tiny), "project": str(root / "runs"), "name": "cut", "device": "cpu", "workers": 0, "epochs": 2,
        "batch": 2, "nbs": 2, "imgsz": 64, "warmup_epochs": 0, "close_mosaic": 0, "val_updates": 5, "loggers": ALL,
    }  # fmt: skip
    ended = subprocess.run([sys.executable, "-c", CUT, repr(settings)], capture_output=True, text=True)
    assert ended.returncode == -9, ended.stderr
    patch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seen = []
    cut = train(resume=str(root / "runs" / "cut" / "weights" / "last.pt"), callbacks=[seen.append])
    again = train(**{**settings, "name": "again", "epochs": 1, "plots": False})
    torch.set_num_threads(threads)
    return SimpleNamespace(cut=cut.folder, again=again.folder, metrics=cut.metrics, seen=seen, home=root / "home")


CLOCKED = ("time", "images_per_second", "memory")  # of an epoch that was closed twice, they differ


def test_tensorboard_has_every_update_and_every_column_of_metrics_csv_once(logged):
    """LOG-03: no point twice, none missing, over images seen; LOG-02: the last point is the last row."""
    scalars, pictures = curves(logged.cut)
    images = [2, 4, 6, 8, 10, 12, 13, 15, 17, 19, 21, 23, 25, 26]
    assert [step for step, _ in scalars["update/lr"]] == images
    for row in rows(logged.cut):
        at = {tag: [value for step, value in points if step == row["images_seen"]] for tag, points in scalars.items()}
        for tag in row.keys() & at.keys():
            assert at[tag] == [np.float32(row[tag])], tag
    last = rows(logged.cut)[-1]
    assert scalars["metrics/ap"][-1] == (26, np.float32(last["metrics/ap"]))
    assert [step for step, _ in scalars["metrics/ap"]] == [10, 13, 23, 26]
    assert scalars["best/ap"] == [(26, np.float32(logged.metrics["ap"]))]
    assert {"train_batch0", "pr_curve", "confusion_matrix", "val_predictions"} <= set(pictures)


def test_wandb_has_the_same_bit_for_bit_and_one_run_over_the_resume(logged):
    seen = history(logged.cut)
    assert set(seen.ids) == {(logged.cut / "wandb" / "id.txt").read_text()}
    assert seen.segments == 2
    assert sorted(seen.rows) == list(range(15))
    assert [seen.rows[step]["images_seen"] for step in range(1, 15)] == [
        2,
        4,
        6,
        8,
        10,
        12,
        13,
        15,
        17,
        19,
        21,
        23,
        25,
        26,
    ]
    for row in rows(logged.cut):
        logged_row = seen.rows[int(row["updates_attempted"])]
        assert {key: row[key] for key in row.keys() & logged_row.keys()} == {
            key: logged_row[key] for key in row.keys() & logged_row.keys()
        }
        assert {"metrics/ap", "train/box_loss", "lr", "time"} <= logged_row.keys()
    last = rows(logged.cut)[-1]
    assert (seen.summary["metrics/ap"], seen.summary["best/ap"]) == (last["metrics/ap"], logged.metrics["ap"])


def test_mlflow_has_the_same_bit_for_bit_and_the_small_files(logged):
    run, numbers, files = noted(logged.cut)
    assert run.info.status == "FINISHED"
    assert run.data.params["nbs"] == "2" and run.data.params["loggers"] == ALL
    assert [step for step, _ in numbers["epoch"]] == [13, 26]
    assert [step for step, _ in numbers["metrics/ap"]] == [10, 13, 23, 26]
    first, last = rows(logged.cut)
    for key, points in numbers.items():
        if key in last:
            assert points[-1] == (26, last[key]), key
        if key in first and key not in CLOCKED:
            assert dict(points)[13] == first[key], key
    assert numbers["best/ap"] == [(26, logged.metrics["ap"])]
    assert {"run.json", "args.yaml", "metrics.csv", "results.png"} <= set(files) and not any("pt" in f for f in files)


def test_the_next_training_of_the_process_has_runs_of_its_own(logged):
    """LOG-04."""
    cut, again = history(logged.cut), history(logged.again)
    assert set(again.ids) != set(cut.ids) and sorted(again.rows) == list(range(1, 8))
    assert len(curves(logged.again)[0]["update/lr"]) == 7
    assert noted(logged.again)[0].info.run_id != noted(logged.cut)[0].info.run_id


def test_the_files_of_wandb_tell_nothing_of_the_machine_and_none_lies_elsewhere(logged):
    seen = history(logged.again)
    told = b"".join(record.SerializeToString() for record in seen.said)
    for secret in (sys.executable, str(logged.home), "requirements.txt", "git"):
        assert secret.encode() not in told, secret
    assert not any(record.HasField("environment") for record in seen.said)
    assert list(logged.home.rglob("*")) == []


def test_the_console_says_how_to_look(logged):
    said = [event.text for event in logged.seen if isinstance(event, Notice)]
    assert any(f"tensorboard --logdir {logged.cut / 'tensorboard'}" in text for text in said)
    assert any("W&B: offline" in text and "wandb sync" in text for text in said)
    assert any("mlflow ui --backend-store-uri" in text for text in said)
    assert not [event.text for event in logged.seen if isinstance(event, Notice) and "left out" in event.text]


# What is asked for, and what is not there


def test_unknown_loggers_are_told_with_the_nearest(capsys):
    assert cli.main(["train", "data=shapes", "loggers=tensorbord"]) == 2
    assert "did you mean 'tensorboard'?" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="twice"):
        build(TrainConfig, {"loggers": "wandb,wandb"})
    assert (
        parse_keywords(TrainConfig, {"data": "shapes", "loggers": ["wandb", "mlflow"]}).output.loggers == "wandb,mlflow"
    )
    assert parse_keywords(TrainConfig, {"data": "shapes", "loggers": "none"}).output.loggers == ""


@pytest.mark.parametrize("name", LOGGERS)
def test_a_package_that_is_not_there_is_told_before_anything_is_trained(name, short_run, monkeypatch, capsys, tmp_path):
    """A folder of that name, as W&B leaves one where it runs, is no package."""
    package = logger_class(name).needs
    (tmp_path / package).mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    real = PathFinder.find_spec

    def find(name, path=None, target=None):
        """As where it is not installed: only the folder is found."""
        return real(name, [str(tmp_path)] if name == package else path, target)

    monkeypatch.setattr(PathFinder, "find_spec", find)
    monkeypatch.delitem(sys.modules, package, raising=False)
    assert cli.main(["train", *(f"{key}={value}" for key, value in short_run.items()), f"loggers={name}"]) == 2
    assert f'pip install "visiontrain[{name}]"' in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


# A logger that fails, at each place where it can


class Planted:
    """A logger as a user writes one: it takes the run folder and events, and fails as it is told to."""

    at, error = "", RuntimeError("planted")

    def __init__(self, folder):
        self.fail("start")

    def __call__(self, event):
        self.fail(type(event).__name__)

    def close(self):
        self.fail("close")

    def fail(self, where):
        if where == self.at:
            raise self.error


def notices(sinks, events):
    """The warnings of a run whose events come at the pace of one that trains."""
    seen = []
    with Recorder([*sinks, seen.append]) as recorder:
        for event in events:
            recorder(event)
            time.sleep(0.02 if isinstance(event, WindowClosed | EpochEnded) else 0)
    return [event.text for event in seen if isinstance(event, Notice)], seen


@pytest.mark.parametrize("at", ["start", "RunStarted", "EpochEnded", "RunEnded", "close"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SystemExit(3), KeyError("x")], ids=str)
def test_a_logger_that_fails_anywhere_is_told_once_and_the_run_goes_on(at, error, tmp_path, make, monkeypatch):
    monkeypatch.setattr(Planted, "at", at)
    monkeypatch.setattr(Planted, "error", error)
    told, seen = notices([Beside("planted", lambda: Planted(tmp_path))], make.run(tmp_path))
    assert len(told) == 1 and told[0].startswith("planted ")
    assert "wanted to end the program" in told[0] if isinstance(error, SystemExit) else str(error) in told[0]
    assert sum(isinstance(event, WindowClosed) for event in seen) == 9 and any(isinstance(e, RunEnded) for e in seen)


@pytest.mark.parametrize(
    ("kind", "words"), [("RunStarted", "not ready after 0.2 s"), ("WindowClosed", "3 events behind")]
)
def test_a_logger_that_hangs_keeps_no_window_waiting(kind, words, tmp_path, make):
    def hang(event):
        if type(event).__name__ == kind:
            time.sleep(2)

    started = time.monotonic()
    told, _ = notices([Beside("slow", lambda: hang, patience=0.2, behind=3)], make.run(tmp_path))
    assert len(told) == 1 and words in told[0]
    assert time.monotonic() - started < 1.5


@pytest.mark.parametrize("name", LOGGERS)
def test_a_file_in_the_way_of_its_folder_leaves_a_logger_out(name, tmp_path, make):
    (tmp_path / name).write_text("of the user's")
    told, seen = notices(make_loggers(name, tmp_path), make.run(tmp_path))
    assert len(told) == 1 and told[0].startswith(f"{name} failed at RunStarted and is left out")
    assert (tmp_path / name).read_text() == "of the user's"


def test_a_full_disk_and_a_folder_that_is_gone_leave_out_who_needs_them(tmp_path, make):
    tensorboard, mlflow = (logger_class(name)(tmp_path) for name in ("tensorboard", "mlflow"))
    events = [make.started(tmp_path), *make.epoch(1)]
    for sink in (tensorboard, mlflow):
        sink(events[0])
    tensorboard._file = tensorboard._records._writer = Path("/dev/full").open("wb")
    (tmp_path / "mlflow").rename(tmp_path / "away")
    told, _ = notices([tensorboard, mlflow], events[1:])
    assert [text.split(" failed at ")[0] for text in told[:2]] == ["tensorboard", "mlflow"]
    assert "No space left on device" in told[0]


@pytest.mark.parametrize("at", ["start", "WindowClosed", "close"])
def test_training_goes_on_without_a_logger_that_fails(at, short_run, narrow, monkeypatch):
    from visiontrain import train

    monkeypatch.setattr(Planted, "at", at)
    monkeypatch.setattr(Planted, "error", SystemExit(1))
    monkeypatch.setitem(LOGGERS, "planted", f"{__name__}.Planted")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Planted.__module__])
    seen = []
    run = train(loggers="planted", callbacks=[seen.append], **short_run)
    assert run.outcome == "finished"
    assert sum(isinstance(e, Notice) and e.text.startswith("planted ") for e in seen) == 1
