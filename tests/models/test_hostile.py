"""Checkpoints that want to do harm are refused by name and reason: nothing runs, and little memory is taken (SEC-02)."""

from __future__ import annotations

import json
import random
import re
import resource
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from models import hostile

from visiontrain import cli
from visiontrain.errors import WeightsError
from visiontrain.models import build_model
from visiontrain.models.weights import load_model

ROOM = 250 << 20  # bytes that reading may take beyond what torch has taken
CASES = {f"{name}.pt": case for name, case in hostile.archives("TRACE").items()}
CASES |= {f"{name}.safetensors": case for name, case in hostile.safetensors().items()}
READER = f"""
import json, resource, sys, time
from visiontrain.errors import WeightsError
from visiontrain.models.weights import read_checkpoint
taken = int(open("/proc/self/statm").read().split()[0]) * {resource.getpagesize()}
resource.setrlimit(resource.RLIMIT_AS, (taken + {ROOM},) * 2)
for path in json.load(sys.stdin):
    began = time.process_time()
    try:
        read_checkpoint(path)
        said = ""
    except WeightsError as error:
        said = str(error)
    except MemoryError:
        said = "it took too much memory"
    print(json.dumps([path, said, time.process_time() - began]), flush=True)
"""


def write(folder, name, content):
    """The file under a name that any system takes."""
    path = folder / re.sub(r"[^\w.]+", "-", name)
    path.write_bytes(content)
    return path


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """All files, read by one process with little memory: what it said of each and how long it took; and its folder."""
    folder = tmp_path_factory.mktemp("hostile")
    paths = {str(write(folder, name, content)): name for name, (content, _) in CASES.items()}
    done = subprocess.run(
        [sys.executable, "-c", READER], input=json.dumps(list(paths)), capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {paths[path]: (path, said, seconds) for path, said, seconds in rows}, folder


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused(read, name):
    path, said, seconds = read[0][name]
    assert said.startswith(f"{path}: ") and len(said) < 700
    assert re.search(CASES[name][1], said)
    assert seconds < 30


def test_nothing_was_run(read):
    assert not (read[1] / "TRACE").exists()


def test_the_trace_is_left_where_such_a_file_is_run(tmp_path, monkeypatch):
    """The canary lives: Python's own reader runs the command."""
    monkeypatch.chdir(tmp_path)
    content, _ = hostile.archives("TRACE")["os.system alone, protocol 4"]
    torch.load(write(tmp_path, "x.pt", content), weights_only=False)
    assert Path("TRACE").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["val", "model={}", "data={data}"],
        ["train", "model={}", "data={data}"],
        ["train", "data={data}", "resume={}"],
        ["check", "model={}", "data={data}"],
        ["plan", "model={}", "images=9"],
        ["convert", "weights={}", "out=ours.pt"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_every_way_in_refuses_it(tmp_path, monkeypatch, capsys, tiny, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run" / "weights").mkdir(parents=True)
    path = write(
        tmp_path / "run" / "weights", "last.pt", hostile.archives("TRACE")["os.system in a model of theirs"][0]
    )
    assert cli.main([word.format(path, data=tiny) for word in words]) == 4
    assert str(path) in capsys.readouterr().err
    assert not Path("TRACE").exists() and not Path("ours.pt").exists()


def test_damage_anywhere_is_refused_or_harmless(tmp_path, monkeypatch):
    """Bytes changed at random, in the pickle (with a zip that fits it) and anywhere: a WeightsError, or a model as ever."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    sizes = {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}}
    monkeypatch.setattr("visiontrain.models._sizes", lambda family: sizes)
    model = build_model("yolov8n", ["a", "b"])
    content = {
        "schema_version": 1, "kind": "model", "model": model.description(), "settings": {"imgsz": 64},
        "weights": model.state_dict(),
    }  # fmt: skip
    torch.save(content, "good.pt")
    with zipfile.ZipFile("good.pt") as archive:
        records = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    program, rng, refused = records["data.pkl"], random.Random(0), 0
    for _ in range(60):
        bad = bytearray(program)
        for _ in range(rng.randrange(1, 4)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        Path("bad.pt").write_bytes(hostile.zipped(bytes(bad), {**records, "data.pkl": bytes(bad)}))
        try:
            load_model("bad.pt")
        except WeightsError:
            refused += 1
    assert 20 < refused < 60  # a changed name of a setting is harmless
    whole = Path("good.pt").read_bytes()
    for at in (rng.randrange(len(whole)) for _ in range(30)):
        Path("bad.pt").write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        with suppress(WeightsError):
            load_model("bad.pt")
    assert load_model("good.pt").description() == model.description()
