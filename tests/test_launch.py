"""Several ranks from one call, as guests of torchrun, lost, interrupted and started again: real processes, on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
import torch

import visiontrain
from visiontrain import cli
from visiontrain.errors import ConfigError, Interrupted, RankFailed
from visiontrain.models.weights import read_checkpoint
from visiontrain.record.events import EpochEnded, RunEnded, RunStarted, WindowClosed

ODD = "it's ${local_rank} $$ of two"  # the agent has a meaning for some of these signs
OURS = ("VISIONTRAIN_HOME", "PYTHONPATH", "OMP_NUM_THREADS", "TORCH_CPP_LOG_LEVEL")


@pytest.fixture
def family(monkeypatch):
    """A word in the environment by which all descendants of this test are found, however they were started."""
    word = uuid.uuid4().hex
    monkeypatch.setenv("VISIONTRAIN_TEST", word)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def living() -> list[int]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # ended meanwhile, or another's
                zombie = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                if word.encode() in (folder / "environ").read_bytes() and not zombie:
                    found.append(int(folder.name))
        return [pid for pid in found if pid != os.getpid()]

    return living


@pytest.fixture
def settings(tiny, tmp_path):
    """A run of two ranks: 2 epochs of 4 windows."""
    return {
        "data": str(tiny),
        "project": str(tmp_path),
        "device": "cpu,cpu",
        "workers": 0,
        "epochs": 2,
        "batch": 4,
        "nbs": 4,
        "norm": "batch",
        "imgsz": 64,
        "warmup_epochs": 0,
        "plots": False,
        "timeout": 120,
    }


def words(settings):
    return [f"{name}={value}" for name, value in settings.items()]


def all_gone(family, seconds=60):
    """Whether no descendant is left; how long it takes is the machine's affair."""
    deadline = time.monotonic() + seconds
    while family() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not family()


def state(path):
    """Everything that training goes on from, as tensors."""
    content = read_checkpoint(path)
    flat = {f"{part}.{k}": t for part in ("weights", "ema") for k, t in content[part].items()}
    for number, values in content["optimizer"]["state"].items():
        flat |= {f"optimizer.{number}.{k}": torch.as_tensor(v) for k, v in values.items()}
    return flat, {k: v for k, v in content["state"].items() if k != "seconds"}


def processes(event):
    return [place["process"] for place in event.facts["places"]]


class Watch:
    """A callback with a memory: keeps events, and at the end of a window does something to the ranks once."""

    def __init__(self, window=0, act=None):
        self.events, self.window, self.act, self.ranks = [], window, act, []

    def __call__(self, event):
        self.events.append(event)
        if isinstance(event, RunStarted):
            self.ranks = processes(event)
        if isinstance(event, WindowClosed) and event.counters.updates_attempted == self.window and self.act:
            act, self.act = self.act, None
            act(self.ranks)

    def seen(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


def test_a_lost_rank_starts_again_and_the_run_ends_as_that_of_guests_who_lost_nobody(
    settings, tmp_path, family, capsys
):
    """From a call, with a closure; and by torchrun: the same words, the same bits (DDP-05, DDP-14 of the known failures)."""
    settings["epochs"] = 1
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    guest = ["-m", "visiontrain", "train", *words({**settings, "name": "whole", "device": "cpu"})]
    guests = subprocess.Popen([*launcher, *guest], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    before = {name: os.environ.get(name) for name in OURS}
    cut = Watch(window=2, act=lambda ranks: os.kill(ranks[1], signal.SIGKILL))
    run = visiontrain.YOLO("yolov8n").train(callbacks=[cut], name=ODD, max_restarts=1, **settings)
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert {name: os.environ.get(name) for name in OURS} == before
    said = capsys.readouterr().out
    assert "2 ranks on 1 host" in said and "Finished" in said  # the console is this process's
    assert "All ranks were started again (start 1 of at most 1" in said and "rank 1" in said
    assert run.outcome == "finished" and run.metrics.map >= 0 and run.best.is_file() and run.folder == tmp_path / ODD
    assert len(cut.seen(RunStarted)) == 2 and len(set(cut.ranks)) == 2 and os.getpid() not in cut.ranks
    assert [e.epoch for e in cut.seen(EpochEnded)] == [1] and cut.seen(RunEnded)[-1].outcome == "finished"

    printed, error = guests.communicate(timeout=250)
    assert guests.returncode == 0, error
    assert "2 ranks on 1 host" in printed and printed.count("Finished") == 1  # rank 0 has the console
    assert sorted(p.name for p in tmp_path.iterdir()) == [ODD, "whole"]
    for folder in tmp_path.iterdir():
        files = {"args.yaml", "curves.json", "metrics.csv", "report.html", "run.json", "updates.jsonl", "weights"}
        assert {p.name for p in folder.iterdir()} == files
        rows = [json.loads(line) for line in (folder / "updates.jsonl").open()]
        assert [row["images_seen"] for row in rows] == [4, 8, 12, 13]
    (mine, my_plain), (theirs, their_plain) = state(run.last), state(tmp_path / "whole" / "weights" / "last.pt")
    assert mine.keys() == theirs.keys()
    assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []
    assert my_plain == their_plain
    assert all_gone(family)


def test_one_rank_is_asked_to_stop_and_all_do(settings, tmp_path, family):
    stop = Watch(window=2, act=lambda ranks: os.kill(ranks[1], signal.SIGTERM))
    with pytest.raises(Interrupted, match="go on with: visiontrain train resume=") as caught:
        visiontrain.train(callbacks=[stop], max_restarts=3, **settings)
    assert caught.value.exit_code == 130
    assert len(stop.seen(RunStarted)) == 1  # nobody was started again
    assert stop.seen(RunEnded)[0].outcome == "interrupted"
    assert 2 <= state(tmp_path / "run" / "weights" / "last.pt")[1]["updates_attempted"] < 8
    assert all_gone(family)


def test_this_process_is_asked_to_stop_and_all_ranks_do(settings, tmp_path, family, capsys):
    from visiontrain import actions

    settings["workers"] = 1  # their processes have to go as well
    stop = Watch(window=2, act=lambda ranks: os.kill(os.getpid(), signal.SIGTERM))
    original = actions.run_training
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actions, "run_training", lambda config: original(config, [stop]))
        assert cli.main(["train", *words(settings)]) == 130
    error = capsys.readouterr().err
    assert error.startswith("visiontrain: SIGTERM; go on with: visiontrain train resume=") and error.count("\n") == 1
    assert state(tmp_path / "run" / "weights" / "last.pt")[1]["updates_attempted"] < 8
    assert all_gone(family)


PLANTED = """
import os
if os.environ.get("RANK") == "1":
    from visiontrain.training import fit
    def planted(job):
        raise ZeroDivisionError("planted")
    fit.close_ledger = planted
"""


def test_an_exception_on_one_rank_ends_all_and_shows_its_traceback(settings, tmp_path, family, monkeypatch, capfd):
    (tmp_path / "plant").mkdir()
    (tmp_path / "plant" / "sitecustomize.py").write_text(PLANTED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "plant"))
    with pytest.raises(RankFailed) as caught:
        visiontrain.train(**{**settings, "timeout": 1000})
    said = str(caught.value)
    assert said.startswith("rank 1 failed.\nTraceback") and said.count("ZeroDivisionError: planted") >= 1
    assert said.count("Traceback (most recent call last)") == 1
    assert f"go on with: visiontrain train resume={tmp_path}/run/weights/last.pt" in said  # rank 0 saved
    assert "Traceback" not in capfd.readouterr().err
    assert state(tmp_path / "run" / "weights" / "last.pt")[1]["updates_attempted"] == 4
    assert all_gone(family)


def test_when_the_parent_is_killed_nothing_is_left_but_a_checkpoint(settings, tmp_path, family):
    script = tmp_path / "no guard.py"  # as people write them
    script.write_text(
        f"from visiontrain import YOLO\nYOLO('yolov8n').train(**{ {**settings, 'epochs': 500, 'workers': 1}!r})\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    updates = tmp_path / "run" / "updates.jsonl"
    deadline = time.monotonic() + 240
    while not (updates.exists() and updates.read_text().count("\n") >= 6) and time.monotonic() < deadline:
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    assert all_gone(family)
    assert state(tmp_path / "run" / "weights" / "last.pt")[1]["updates_attempted"] >= 6


def test_a_device_that_is_not_there_is_answered_before_anything_starts(settings, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="torch sees no CUDA device"):
        visiontrain.train(**{**settings, "device": [0, 1]})


def test_restarts_without_ranks_to_start_are_refused(settings, monkeypatch):
    with pytest.raises(ConfigError, match="max_restarts=2: starts the ranks of several devices"):
        visiontrain.train(**{**settings, "device": "cpu", "max_restarts": 2})
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    with pytest.raises(ConfigError, match="torchrun --max-restarts=2"):
        visiontrain.train(**{**settings, "max_restarts": 2})
