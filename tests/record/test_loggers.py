"""TensorBoard, W&B (offline) and MLflow (files), written by real runs and read back with what the three bring along."""

from __future__ import annotations

import csv
import json
import re
import struct
import subprocess
import sys
from importlib.machinery import PathFinder
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from visiontrain import cli
from visiontrain.config.build import build
from visiontrain.config.loggers import LOGGERS
from visiontrain.config.parse import parse_keywords
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError
from visiontrain.record.events import Notice
from visiontrain.record.sinks.loggers import logger_class
from visiontrain.record.sinks.wandb import online

ALL = "tensorboard,wandb,mlflow"
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


pytestmark = pytest.mark.usefixtures("nobody_logged_in")


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
def logged(tiny, tmp_path_factory, apart):
    """A run killed at update 7, epoch 1 logged, after the checkpoint of update 5; gone on with here; then another one in this process."""
    root = tmp_path_factory.mktemp("logged")
    with pytest.MonkeyPatch.context() as patch:
        (root / "home").mkdir()
        apart(patch, root / "home")
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


@pytest.mark.parametrize(
    ("setting", "login", "expected"),
    [
        ({}, "", False),
        ({"WANDB_MODE": "online"}, "", True),
        ({"WANDB_API_KEY": "k"}, "", True),
        ({"WANDB_API_KEY": "k", "WANDB_MODE": "offline"}, "", False),
        ({}, "machine api.wandb.ai login user password k", True),
        ({}, "machine github.com login user password k", False),
        ({"WANDB_BASE_URL": "https://own.example:8080"}, "machine api.wandb.ai login user password k", False),
        ({"WANDB_BASE_URL": "https://own.example:8080"}, "machine own.example:8080 login user password k", True),
    ],
)
def test_wandb_is_online_only_where_the_user_asked_for_it(setting, login, expected, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text(login + "\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    assert online() is expected
    assert ("offline" in logger_class("wandb").look(tmp_path).split("(")[0]) is not expected


# The page


def test_the_logger_and_the_callback_of_the_page_work(checkout, short_run, narrow, monkeypatch, capsys):
    callback, logger = re.findall(
        r"^```python\n(.*?)^```$", (checkout / "docs" / "loggers.md").read_text("utf-8"), re.M | re.S
    )
    [line] = re.findall(r'^    "(lines)": "([\w.]+)",$', (checkout / "docs" / "loggers.md").read_text("utf-8"), re.M)
    module = ModuleType(line[1].rpartition(".")[0])
    exec(compile(logger, module.__name__, "exec"), vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(LOGGERS, *line)
    settings = "\n".join(f"settings[{key!r}] = {value!r}" for key, value in short_run.items())
    code = callback.replace('data="shapes", epochs=2, imgsz=64, device="cpu"', "loggers='lines', **settings")
    namespace = {"settings": {}}
    exec(compile(f"{settings}\n{code}", "docs/loggers.md", "exec"), namespace)
    assert "1 13 " in capsys.readouterr().out
    assert (namespace["run"].folder / "lines.txt").read_text() == "1 13\n"


def test_the_page_names_every_logger_its_extra_and_what_is_in_pyproject(checkout):
    page, project = ((checkout / name).read_text("utf-8") for name in ("docs/loggers.md", "pyproject.toml"))
    for name in LOGGERS:
        assert f'`pip install "visiontrain[{name}]"`' in page and f"\n{name} = [" in project
