"""Every command and every block of code in README.md and docs/ is run, or marked in the page with why it is not.

Without a mark a command is run, in a folder of its own, on what ``world`` lays there, with what SMALLER and ADDED
replace. ``<!-- parsed: WHY -->`` before it: its words are read by what reads them, and nothing else. ``<!-- not run: WHY -->``:
nothing is done. ``pytest`` commands name tests of this suite, which runs them: they are looked up.
"""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import os
import re
import runpy
import shutil
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from documented import SHELL, SHOWN, Piece, inside, pages, pieces, unfenced, words_of

from visiontrain.cli import main
from visiontrain.config.build import check
from visiontrain.config.help import VERBS
from visiontrain.config.parse import parse_words
from visiontrain.config.schema import TrainConfig
from visiontrain.config.values import leaves_of

CHECKOUT = Path(__file__).resolve().parents[1]
PIECES = [piece for page in pages(CHECKOUT) for piece in pieces(page)]
CODE = [piece for piece in PIECES if piece.language not in SHOWN]

# What a command is run with in place of what it says: 13 pictures of 64 px, networks a sixteenth as wide, one epoch.
SMALLER = {"imgsz": "64", "epochs": "1", "images": "8", "samples": "8", "windows": "2", "pictures": "8", "read": "8"}
ADDED = {"imgsz": "64", "epochs": "1", "workers": "0", "device": "cpu"}  # where it says nothing about them
NAMES = {"bccd/data.yaml": "[Platelets, RBC, WBC]", "coco128/data.yaml": "[person, car]", "coco128.yaml": "[person, car]"}
DONE: Counter[str] = Counter()


@pytest.fixture(scope="module")
def world(tiny, tmp_path_factory):
    """A folder with the files that the pages speak of: descriptions, pictures, two runs, checkpoints."""
    import cv2
    import torch

    from visiontrain import models

    root = tmp_path_factory.mktemp("world")
    shutil.copytree(tiny.parent, root / "set")
    for name in ("mine.yaml", "my.yaml", "other.yaml", "shapes.yaml", *NAMES):
        (root / name).parent.mkdir(exist_ok=True)
        splits = f"path: {os.path.relpath(root / 'set', (root / name).parent)}\ntrain: images/train\nval: images/val\ntest: images/val\n"
        (root / name).write_text(f"{splits}names: {NAMES.get(name, '[sun, sea]')}\n")
    shutil.copytree(root / "set" / "images" / "val", root / "pictures")
    cv2.imwrite(str(root / "street.jpg"), cv2.imread(str(root / "pictures" / "1.png")))
    own = {"yolov8": {}, "yolo11": {"c3k": False}, "yolo26": {"c3k": False}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024, **own[family]}}
        )
        patch.chdir(root)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        for seed in (0, 1):
            words = f"train data=mine.yaml imgsz=64 epochs=2 batch=4 nbs=8 workers=0 device=cpu seed={seed}"
            assert main(words.split()) == 0
        best = "runs/train/run/weights/best.pt"
        for name in ("best.pt", "theirs.pt", "other.pt", "yolov8n.pt", "yolo26n.pt"):
            shutil.copy(best, name)
        assert main(f"val model={best} save_json=true plots=false workers=0 project=runs/scored".split()) == 0
        shutil.copy("runs/scored/val/predictions.json", "found.json")
        yield root
        torch.set_num_threads(threads)


@pytest.fixture
def place(world, tmp_path, monkeypatch) -> Path:
    """A copy of the world to work in."""
    shutil.copytree(world, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def smaller(body: list[str]) -> list[str]:
    """The words of a visiontrain command as they are run here."""
    settings = leaves_of(VERBS[body[0]][0])
    resumed = any(word.startswith("resume=") for word in body)
    given = {word.split("=")[0] for word in body}
    added = {} if resumed or body[0] == "plan" else {n: v for n, v in ADDED.items() if n in settings and n not in given}
    if resumed:
        return [*(re.sub(r"epochs=\d+$", "epochs=3", w).replace("epochs=+20", "epochs=+1") for w in body), *added]
    return [*map(less, body), *(f"{name}={value}" for name, value in added.items() if name not in ("imgsz", "epochs") or body[0] in ("train", "check"))]


def less(word: str) -> str:
    name, _, value = word.partition("=")
    return f"{name}={SMALLER[name]}" if value and name in SMALLER else word


def alternatives(body: list[str]) -> list[list[str]]:
    """``format=onnx|openvino`` stands for two commands."""
    choices = []
    for word in body:
        name, equals, value = word.partition("=")
        choices.append([f"{name}{equals}{one}" for one in value.split("|")] if value else [word])
    return [list(one) for one in itertools.product(*choices)]


def read_words(body: list[str]) -> str:
    """Parse a visiontrain command with what parses it; returns what was done."""
    verb, *words = body
    assert verb in VERBS, f"there is no verb {verb!r}"
    settings = VERBS[verb][0]
    if not words or settings is None:
        assert not words or words[0] in VERBS
        return "named"
    if "..." in words:
        wrong = check(settings, dict(word.split("=", 1) for word in words if word != "..."))[1]
        assert not wrong, wrong
        return "shape"
    for one in alternatives(words):
        parse_words(settings, one)
    return ""


def test_no_command_stands_where_it_cannot_be_marked():
    found = {page.name: lines for page in pages(CHECKOUT) if (lines := unfenced(page))}
    assert not found, f"write these between ```sh and ```: {found}"


@pytest.mark.parametrize("piece", PIECES, ids=str)
def test_marks_and_languages_are_known(piece):
    assert piece.mark in ("", "parsed", "not run"), f"{piece}: {piece.mark!r} is no mark"
    assert not piece.mark or len(piece.reason) >= 10, f"{piece}: says no reason"
    assert piece.language in (*SHELL, *SHOWN, "python"), f"{piece}: a block of {piece.language!r}"


@pytest.mark.parametrize("piece", [p for p in CODE if p.language != "python"], ids=str)
def test_what_to_type(piece, request, capsys):
    for command in piece.commands:
        done = do(command, piece, request)
        DONE[done] += 1
        if piece.language == "console":
            expected = piece.text.split(f"$ {command}\n", 1)[1].split("\n$ ")[0].splitlines()
            assert capsys.readouterr().out.splitlines()[: len(expected)] == expected


def do(command: str, piece: Piece, request) -> str:
    """Run, parse or leave a command; returns which."""
    words = inside(words_of(command))
    if piece.mark == "not run":
        return "not run"
    if words[0] == "visiontrain":
        if done := read_words(words[1:]):
            return done
        if not piece.mark:
            request.getfixturevalue("place")
            for one in alternatives(words[1:]):
                shown = piece.language == "console"
                assert main(one if shown else smaller(one)) == 0
    elif words[0] == "pytest":
        look_up(words[1:])
        return "test of this suite"
    elif words[0] == "pip":
        extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
        asked = {e for word in words[2:] for found in re.findall(r"\[(.*)\]", word) for e in found.split(",")}
        assert asked <= set(extras), f"pyproject.toml has no extra {asked - set(extras)}"
        assert piece.mark, f"{piece}: {command}: mark it as parsed, with why it is not run"
    elif words[0] == "python" and words[1].startswith("tools/"):
        read_tool(words[1:])
        if not piece.mark:
            request.getfixturevalue("place")
            run_tool(words[1:], request.getfixturevalue("monkeypatch"))
    else:
        pytest.fail(f"{piece}: {command}: nothing here can run this; say why it is <!-- not run: ... -->")
    return piece.mark or "run"


def look_up(words: list[str]) -> None:
    """The files of a pytest command are there, and what -k asks for is in them."""
    wanted = words[words.index("-k") + 1] if "-k" in words else ""
    for word in words:
        if word.startswith("tests"):
            files = [CHECKOUT / word] if word.endswith(".py") else sorted((CHECKOUT / word).rglob("test_*.py"))
            named = [name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.M)]
            assert any(wanted in name for name in named), f"no test {wanted!r} in {word}"


def read_tool(words: list[str]) -> None:
    """The tool is there, and knows each name: as a setting of training, or by a word of its own."""
    text = (CHECKOUT / words[0]).read_text("utf-8")
    own = {w for w in words[1:] if "=" in w and re.search(rf"\b{w.split('=')[0]}\b", text)}
    settings = {name: value for w in words[1:] if w not in own and "=" in w for name, _, value in [w.partition("=")]}
    wrong = check(TrainConfig, settings)[1]
    assert not wrong, wrong


def run_tool(words: list[str], monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", [words[0], *map(less, words[1:])])
    try:
        runpy.run_path(str(CHECKOUT / words[0]), run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code


def groups() -> list[list[Piece]]:
    """Blocks of Python of one page, which share their names, each followed by what it prints where a page shows it."""
    blocks = [piece for piece in PIECES if piece.language in ("python", "text")]
    return [list(of_page) for _, of_page in itertools.groupby(blocks, key=lambda piece: piece.page)]


@pytest.mark.parametrize("blocks", [g for g in groups() if any(p.language == "python" for p in g)], ids=lambda g: g[0].page)
def test_each_python_block_runs_and_prints_what_stands_under_it(blocks, place):
    namespace: dict[str, object] = {}
    for block, after in itertools.zip_longest(blocks, blocks[1:]):
        if block.language != "python":
            continue
        if block.mark:
            parse_python(block)
        else:
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(shrunk(block.text), str(block), "exec"), namespace)
            if after is not None and after.language == "text":
                assert said.getvalue() == after.text
        DONE[block.mark or "run"] += 1


def shrunk(code: str) -> str:
    return re.sub(r"\b(imgsz|epochs)=\d+", lambda found: f"{found[1]}={SMALLER[found[1]]}", code)


def parse_python(block: Piece) -> None:
    """It compiles, and the keywords of its calls of verbs are settings with values that they may have."""
    for node in ast.walk(ast.parse(block.text)):
        name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
        if name in VERBS:
            given = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg not in ("callbacks", "stream")}
            assert not check(VERBS[name][0], given)[1]


def test_how_many_are_run():
    """Shown with -rP. Where this file is run as a whole, most are run."""
    print(", ".join(f"{count} {what}" for what, count in DONE.most_common()))
    assert not DONE or DONE["run"] > DONE["not run"]
