"""Every command and every block of Python in README.md and docs/ is run, or marked in the page with why it is not.

Without a mark a command is run, in a folder of its own, on what ``world`` lays there, with what SMALLER and ADDED replace.
``<!-- parsed: WHY -->`` before it: its words are read by what reads them, and nothing else. ``<!-- not run: WHY -->``:
nothing is done. ``pytest`` commands name tests of this suite, which runs them: they are looked up. ``visiontrain VERB`` alone
names a verb, and ``visiontrain VERB ... name=value`` is a form: the verb and the values are checked.
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
from narrow import narrow_families

from visiontrain.cli import main
from visiontrain.config.build import check
from visiontrain.config.help import VERBS
from visiontrain.config.parse import parse_words
from visiontrain.config.schema import TrainConfig
from visiontrain.config.sizes import family_named
from visiontrain.config.values import leaves_of

CHECKOUT = Path(__file__).resolve().parents[1]
PIECES = [piece for page in pages(CHECKOUT) for piece in pieces(page)]

# What a command is run with in place of what it says. Beside that, data have 13 pictures of 64 px, whatever they are called,
# and networks are a sixteenth as wide.
SMALLER = {
    "imgsz": "64",
    "epochs": "1",
    "nbs": "8",
    "images": "8",
    "samples": "8",
    "windows": "2",
    "pictures": "8",
    "read": "8",
}
# What it is run with where it says nothing of it; the first two in train and check alone.
ADDED = {"imgsz": "64", "epochs": "1", "workers": "0", "device": "cpu"}
DATA = ("mine.yaml", "my.yaml", "coco128.yaml", "bccd/data.yaml", "coco128/data.yaml")
FOUND_FAULTS = 3  # what check says of these pictures: some are nearly the same

done: Counter[str] = Counter()
ran: set[str] = set()  # a command that several pages have is run once


@pytest.fixture(scope="module")
def world(tiny, tmp_path_factory):
    """A folder with what the pages speak of: descriptions, pictures, two runs, checkpoints, found boxes, a settings file."""
    import cv2
    import torch

    root = tmp_path_factory.mktemp("world")
    shutil.copytree(tiny.parent, root / "set")
    for name in DATA:
        describe(root, name)
    shutil.copytree(root / "set" / "images" / "val", root / "pictures")
    cv2.imwrite(str(root / "street.jpg"), cv2.imread(str(root / "pictures" / "1.png")))
    settings = next(piece.text for piece in PIECES if piece.text.startswith("# mine_cfg.yaml"))
    (root / "mine_cfg.yaml").write_text(settings)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        narrow_families(patch)
        patch.chdir(root)
        for seed in (0, 1):
            words = f"train data=mine.yaml imgsz=64 epochs=2 batch=4 nbs=8 workers=0 device=cpu seed={seed}"
            assert main(words.split()) == 0
        best = "runs/train/run/weights/best.pt"
        for name in ("best.pt", "theirs.pt"):  # theirs is one of ours: tests/models reads files of others
            shutil.copy(best, name)
        assert main(f"val model={best} save_json=true plots=false workers=0".split()) == 0
        shutil.move("runs/val/val/predictions.json", "found.json")
        yield root
    torch.set_num_threads(threads)


def describe(root: Path, name: str) -> None:
    """Write a description of the small data set under a name that pages use."""
    (root / name).parent.mkdir(exist_ok=True)
    path = os.path.relpath(root / "set", (root / name).parent)
    splits = f"path: {path}\ntrain: images/train\nval: images/val\ntest: images/val\n"
    (root / name).write_text(f"{splits}names: [RBC, Platelets]\n")


@pytest.fixture
def place(world, tmp_path, monkeypatch) -> Path:
    """A copy of the world to work in."""
    shutil.copytree(world, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def registries():
    """What pages add to the dicts of the package is taken out again."""
    from visiontrain.data.augment import AUGMENTATIONS
    from visiontrain.losses import LOSSES
    from visiontrain.record.sinks import SINKS

    before = [(registry, dict(registry)) for registry in (AUGMENTATIONS, LOSSES, SINKS)]
    yield
    for registry, entries in before:
        registry.clear()
        registry.update(entries)


def test_no_command_stands_where_it_cannot_be_marked():
    found = {page.name: lines for page in pages(CHECKOUT) if (lines := unfenced(page))}
    assert not found, f"write these between ```sh and ```: {found}"


def test_marks_and_languages_are_known():
    for piece in PIECES:
        assert piece.mark in ("", "parsed", "not run"), f"{piece}: {piece.mark!r} is no mark"
        assert not piece.mark or len(piece.reason) >= 8, f"{piece}: the mark says no reason"
        assert piece.language in (*SHELL, *SHOWN, "python"), f"{piece}: a block of {piece.language!r}"


@pytest.mark.parametrize("piece", [p for p in PIECES if p.language in SHELL], ids=str)
def test_what_to_type(piece, request, capsys):
    if piece.language == "console":
        request.getfixturevalue("world")
        capsys.readouterr()  # what making it said
    for command in piece.commands:
        what = do(command, piece, request)
        done[what] += 1
        if piece.language == "console" and not piece.mark:
            expected = piece.text.split(f"$ {command}\n", 1)[1].split("\n$ ")[0].splitlines()
            assert capsys.readouterr().out.splitlines()[: len(expected)] == expected


def do(command: str, piece: Piece, request) -> str:
    """Run, parse or leave a command; returns which."""
    if piece.mark == "not run":
        return piece.mark
    words = inside(words_of(command))
    if words[:3] == ["python", "-m", "visiontrain"]:
        words = ["visiontrain", *words[3:]]
    if words[0] == "pytest":
        look_up(words[1:])
        return "test of this suite"
    if words[0] == "visiontrain":
        if what := read_words(words[1:]):
            return what
        commands = [["visiontrain", *w] for w in map(smaller, alternatives(words[1:]))]
    elif words[0] == "python" and words[1].startswith("tools/"):
        read_tool(words[1:])
        commands = [["python", *w] for w in map(smaller_tool, alternatives(words[1:]))]
    else:
        assert piece.mark, f"{piece}: nothing here can run {command!r}; say why: <!-- not run: ... --> before it"
        assert words[0] != "pip" or extras(words) <= EXTRAS, f"{piece}: pyproject.toml lacks one of {extras(words)}"
    if not piece.mark:
        request.getfixturevalue("place")
        for one in commands:
            run(one, once=len(piece.commands) == 1 and piece.language != "console")
    return piece.mark or "run"


def run(words: list[str], once: bool) -> None:
    """Run a command in this process."""
    if once and " ".join(words) in ran:
        return
    if words[0] == "visiontrain":
        assert main(words[1:]) in ((0, FOUND_FAULTS) if words[1] == "check" else (0,))
    else:
        run_tool(words[1:])
    ran.add(" ".join(words))


def run_tool(words: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", words)
        try:
            runpy.run_path(str(CHECKOUT / words[0]), run_name="__main__")
        except SystemExit as end:
            assert not end.code, end.code


def alternatives(words: list[str]) -> list[list[str]]:
    """``format=onnx|openvino`` stands for two commands."""
    split = [re.match(r"([^=]*=)?(.*)", word, re.DOTALL).groups("") for word in words]
    return [list(one) for one in itertools.product(*([name + v for v in value.split("|")] for name, value in split))]


def smaller(words: list[str]) -> list[str]:
    """The words of a visiontrain command as they are run here; what trains and finds nothing is as it stands."""
    verb = words[0]
    if verb == "plan" or VERBS[verb][0] is None or any(word.startswith("predictions=") for word in words):
        return words
    if any(word.startswith("resume=") for word in words):  # of a run that has two epochs
        return [re.sub(r"epochs=(\+?)\d+", lambda m: f"epochs={m[1] or ''}{1 if m[1] else 3}", word) for word in words]
    given = {word.partition("=")[0] for word in words}
    own = leaves_of(VERBS[verb][0]).keys() & (ADDED if verb in ("train", "check") else {"workers", "device"})
    return [*map(less, words), *(f"{name}={ADDED[name]}" for name in sorted(own - given))]


def smaller_tool(words: list[str]) -> list[str]:
    """The words of a tool; what takes any setting of training is given the same ones."""
    given = {word.partition("=")[0] for word in words}
    trains = "any training setting" in (CHECKOUT / words[0]).read_text("utf-8")
    return [*map(less, words), *(f"{n}={v}" for n, v in ADDED.items() if trains and n not in given)]


def less(word: str) -> str:
    name, _, value = word.partition("=")
    if name == "model" and (family := family_named(value)):
        return f"model={family}n"  # the one size that families have here
    return f"{name}={SMALLER[name]}" if value and name in SMALLER else word


def read_words(words: list[str]) -> str:
    """Read a visiontrain command with what reads it; returns what was done where there is nothing to run."""
    if words[:1] in ([], ["VERB"]):
        return "form"
    verb, *rest = words
    assert verb in VERBS, f"there is no verb {verb!r}"
    settings = VERBS[verb][0]
    if settings is None or {"--help", "-h"} & set(rest):
        return ""
    if not rest:
        return "named"
    if "..." in rest:
        for one in alternatives([word for word in rest if word != "..."]):
            wrong = check(settings, dict(word.split("=", 1) for word in one))[1]
            assert not wrong, wrong
        return "form"
    if "cfg=" not in " ".join(rest):  # the file is there when it is run
        for one in alternatives(rest):
            parse_words(settings, one)
    return ""


def read_tool(words: list[str]) -> None:
    """The tool is there, and knows each name: as a word of its own, or as a setting of training."""
    text = (CHECKOUT / words[0]).read_text("utf-8")
    for name, _, value in (word.partition("=") for word in words[1:] if "=" in word):
        if not re.search(rf"\b{name}\b", text):
            assert not check(TrainConfig, {name: value})[1], f"{words[0]} does not know {name}={value}"


def look_up(words: list[str]) -> None:
    """The files of a pytest command are there, and what -k asks for is in them."""
    wanted = words[words.index("-k") + 1] if "-k" in words else ""
    for word in [word for word in words if word.startswith("tests")]:
        files = [CHECKOUT / word] if word.endswith(".py") else sorted((CHECKOUT / word).rglob("test_*.py"))
        named = [name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.M)]
        assert any(wanted in name for name in named), f"no test {wanted!r} in {word}"


EXTRAS = set(tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])


def extras(words: list[str]) -> set[str]:
    """The extras of this package that a pip command asks for."""
    return {extra for word in words for found in re.findall(r"\[(.+)\]", word) for extra in found.split(",")}


@pytest.mark.parametrize("page", sorted({p.page for p in PIECES if p.language == "python"}))
def test_each_python_block_runs_and_prints_what_stands_under_it(page, place, registries):
    """One namespace for a page, block after block."""
    blocks = [piece for piece in PIECES if piece.page == page and piece.language in ("python", "text")]
    namespace: dict[str, object] = {}
    for block, after in itertools.zip_longest(blocks, blocks[1:]):
        if block.language != "python":
            continue
        done[block.mark or "run"] += 1
        if block.mark:
            read_python(block.text)
            continue
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(smaller_python(block.text), str(block), "exec"), namespace)
        below = after is not None and after.line - block.line - block.text.count("\n") <= 2
        if below and after.language == "text":
            assert said.getvalue().endswith(after.text)


def smaller_python(code: str) -> str:
    """As ``smaller``, in keywords."""
    code = re.sub(r"\bepochs=\d+", "epochs=1", code)
    code = code.replace('data="mine.yaml"', 'data="mine.yaml", imgsz=64, workers=0, device="cpu"')
    return code.replace(".val(", ".val(workers=0, ")


def read_python(code: str) -> None:
    """It compiles, and the keywords of its calls of verbs are settings with values that they may have."""
    for node in ast.walk(ast.parse(code)):
        name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
        if name in VERBS:
            given = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg not in ("callbacks", "stream")}
            assert not check(VERBS[name][0], given)[1]


def test_how_many_are_run():
    """Shown with -rP, where this file is run as a whole."""
    print(", ".join(f"{count} {what}" for what, count in done.most_common()))
    assert not done["parsed"] or done["run"] > done["parsed"] + done["not run"]
