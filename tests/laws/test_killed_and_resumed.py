"""Law 11: a run killed at any moment and resumed ends with the same bits as one that was never killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import torch

from visiontrain.models.weights import read_checkpoint


def start(*words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "visiontrain", "train", *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def lines(path):
    return path.read_text().count("\n") if path.exists() else 0


def kill_after_rows(process, folder, rows):
    """kill -9 a little after the update with this number was written: most likely inside the next window."""
    deadline = time.monotonic() + 120
    while lines(folder / "updates.jsonl") < rows and time.monotonic() < deadline:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.005)
    time.sleep(random.uniform(0, 0.2))
    assert process.poll() is None, "the run ended before it could be killed"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def state(path):
    """Everything that training goes on from, as tensors."""
    content = read_checkpoint(path)
    flat = {f"{part}.{k}": t for part in ("weights", "ema") for k, t in content[part].items()}
    for number, values in content["optimizer"]["state"].items():
        flat |= {f"optimizer.{number}.{k}": torch.as_tensor(v) for k, v in values.items()}
    return flat, {k: v for k, v in content["state"].items() if k != "seconds"}


def test_killed_twice_at_random_and_resumed_it_ends_bit_equal(tiny, tmp_path):
    common = [
        f"data={tiny}",
        f"project={tmp_path}",
        "device=cpu",
        "workers=1",
        "epochs=4",
        "batch=2",
        "nbs=4",
        "norm=batch",
    ]
    common += ["imgsz=64", "warmup_epochs=1", "close_mosaic=2", "plots=false", "save_minutes=0.0001", "optimizer=SGD"]
    whole = start(*common, "name=whole")
    cut = start(*common, "name=cut")
    folder = tmp_path / "cut"
    last = folder / "weights" / "last.pt"
    kill_after_rows(cut, folder, random.randint(2, 8))
    done = lines(folder / "updates.jsonl")
    kill_after_rows(start(f"resume={last}"), folder, done + random.randint(1, 6))
    resumed = start(f"resume={last}")
    assert resumed.wait(timeout=200) == 0, resumed.stderr.read()
    assert whole.wait(timeout=200) == 0, whole.stderr.read()
    (mine, my_plain), (theirs, their_plain) = state(last), state(tmp_path / "whole" / "weights" / "last.pt")
    assert mine.keys() == theirs.keys()
    assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []
    assert my_plain == their_plain
    assert lines(folder / "updates.jsonl") == lines(tmp_path / "whole" / "updates.jsonl")
