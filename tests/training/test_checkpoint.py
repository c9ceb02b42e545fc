"""Saving that fails or is killed: the file before it stands, and what is said is the disk's own reason (SEC-04, SEC-05)."""

from __future__ import annotations

import errno
import io
import os
import pickle
import signal
import subprocess
import sys
import time

import pytest
import torch
from models.hostile import Runs

from visiontrain.config.schema import TrainConfig, build
from visiontrain.errors import TrainingStopped
from visiontrain.models.archive import write_archive
from visiontrain.models.weights import read_checkpoint
from visiontrain.training import checkpoint
from visiontrain.training.run import train

SAVES = """
import sys
from pathlib import Path
import torch
from visiontrain.models.archive import write_archive
from visiontrain.record.files import write_atomic
model = {"family": "", "name": "", "names": [], "norm": ""}
content = {"schema_version": 1, "kind": "model", "settings": {}, "model": model}
for number in range(100_000):
    weights = {"a": torch.full((300_000,), float(number))}
    write_atomic(Path(sys.argv[1]), lambda file: write_archive({**content, "weights": weights}, file))
    print(number, flush=True)
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
        if len(saves) > 4:
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
    path, rounds = tmp_path / "last.pt", set()
    for wait in (0.0, 0.003, 0.007, 0.011, 0.019):
        process = subprocess.Popen([sys.executable, "-c", SAVES, str(path)], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        weights = read_checkpoint(path)["weights"]["a"]
        assert (weights == weights[0]).all()
        rounds.add(float(weights[0]))
    assert len(list(tmp_path.iterdir())) <= 2  # at most one unfinished file, that the next save takes the name of


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
