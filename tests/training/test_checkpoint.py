"""Saving that fails or is killed: the file before it stands, and what is said is the disk's own reason (SEC-04, SEC-05)."""

from __future__ import annotations

import errno
import io
import os
import pickle
import subprocess
import sys

import pytest
import torch
from models.hostile import Runs

from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import TrainingStopped
from visiontrain.models.archive import write_archive
from visiontrain.models.weights import read_checkpoint
from visiontrain.training import checkpoint
from visiontrain.training.run import train

KILLED = """
import os, signal, sys, time
from pathlib import Path
import torch
from visiontrain.models.archive import write_archive
from visiontrain.models.weights import read_checkpoint
from visiontrain.record.files import write_atomic
path, model = Path(sys.argv[1]), {"family": "", "name": "", "names": [], "norm": ""}
content = {"schema_version": 1, "kind": "model", "settings": {}, "model": model}

def save(number):
    weights = {"a": torch.full((300_000,), float(number))}
    write_atomic(path, lambda file: write_archive({**content, "weights": weights}, file))

save(0)
for wait in (0.004, 0.011, 0.019, 0.027, 0.053, 0.081, 0.093, 0.117):
    child = os.fork()
    for number in range(1, 10_000) if child == 0 else ():
        save(number)
    time.sleep(wait)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    weights = read_checkpoint(path)["weights"]["a"]
    assert (weights == weights[0]).all()
    print(int(weights[0]))
"""


@pytest.fixture
def settings(tiny, tmp_path, narrow):
    return {
        "data": str(tiny), "project": str(tmp_path / "runs"), "epochs": 3, "batch": 2, "nbs": 4, "imgsz": 64, "norm": "batch",
        "workers": 0, "device": "cpu", "plots": False, "val": False,
    }  # fmt: skip


class Full(io.BytesIO):
    """A disk with room for 2000 bytes."""

    def write(self, content):
        if self.tell() + len(content) > 2000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(content)


def test_of_a_full_disk_the_reason_is_the_disks():
    with pytest.raises(OSError, match="No space left"):
        write_archive({"a": torch.zeros(1000)}, Full())


def test_a_full_disk_stops_the_run_with_what_to_do_and_it_goes_on(settings, tmp_path, monkeypatch):
    saves = []

    def write(content, file):
        saves.append(content["kind"])
        if len(saves) > 1:
            file.write(b"half of a")
            raise OSError(errno.ENOSPC, "No space left on device")
        write_archive(content, file)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_archive", write)
        with pytest.raises(TrainingStopped, match=r"cannot be written \(No space left on device\).*resume=.*last.pt"):
            train(build(TrainConfig, settings))
    last = tmp_path / "runs" / "run" / "weights" / "last.pt"
    assert read_checkpoint(last)["kind"] == "training"
    assert not list(last.parent.glob(".*"))
    assert train(build(TrainConfig, {"resume": str(last)})).outcome == "finished"


def test_killed_while_it_saves_there_is_always_a_whole_file(tmp_path):
    path = tmp_path / "last.pt"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(set(done.stdout.split())) > 1  # it was killed at different saves
    assert len(list(tmp_path.iterdir())) <= 2  # at most one unfinished file, whose name the next save takes


def test_what_lies_in_a_run_folder_is_not_run(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "again"
    (folder / "weights").mkdir(parents=True)
    evil = pickle.dumps(Runs(os.system, "touch TRACE"))
    for name in ("callbacks.pkl", "callbacks.py", "state.pt", "weights/last.pt", "weights/best.pt", "optimizer.pkl"):
        (folder / name).write_bytes(evil)
    train(build(TrainConfig, {**settings, "epochs": 1, "name": "again", "exist_ok": True}))
    assert (folder / "callbacks.pkl").read_bytes() == evil
    assert read_checkpoint(folder / "weights" / "last.pt")["kind"] == "training"
    assert not (tmp_path / "TRACE").exists()
