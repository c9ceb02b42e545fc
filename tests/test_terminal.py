"""What a terminal is shown, and what a file: colours, width, letters."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import time

import pytest

from visiontrain import cli
from visiontrain.terminal import PLAIN, READABLE, USUAL, Look, colours, columns, look_of

WORDS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """An environment that says nothing about colours and width."""
    for name in WORDS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(
    ("said", "terminal", "file"),
    [
        ({}, True, False),
        ({"NO_COLOR": ""}, True, False),  # empty says nothing (no-color.org)
        ({"NO_COLOR": "0"}, False, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"FORCE_COLOR": ""}, True, False),
        ({"CLICOLOR_FORCE": "1"}, True, True),
        ({"CLICOLOR": "0"}, False, False),
        ({"CLICOLOR": "1"}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
    ],
)
def test_colours_are_shown_where_they_are_wanted(said, terminal, file, monkeypatch):
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert (colours(Terminal()), colours(io.StringIO())) == (terminal, file)


@pytest.mark.parametrize(("named", "wide"), [("40", 40), ("300", 300), ("0", USUAL), ("-5", USUAL), ("wide", USUAL)])
def test_columns_are_those_that_are_named(named, wide, monkeypatch):
    monkeypatch.setenv("COLUMNS", named)
    assert columns(io.StringIO()) == columns(Terminal()) == wide


def test_a_file_has_whole_sentences_and_a_terminal_lines_that_fit(monkeypatch):
    sentence = "one file " * 30 + "/a/path/with-hyphens/" + "x" * 50
    monkeypatch.setenv("COLUMNS", "50")
    assert look_of(io.StringIO()).fold(sentence) == [sentence]
    *lines, last = look_of(Terminal()).fold(sentence, "  ", "    ")
    assert max(map(len, lines)) <= 50 and last == "    /a/path/with-hyphens/" + "x" * 50  # to be copied
    monkeypatch.setenv("COLUMNS", "400")
    assert max(map(len, look_of(Terminal()).fold(sentence))) <= READABLE
    assert Look(columns=5).fold("a word", "", " " * 10)  # narrower than what is set in


def test_only_the_word_before_a_sentence_is_painted():
    assert (
        Look(True, 24).led("warning: ", "yellow", "two lines of text") == "\x1b[33mwarning: \x1b[0mtwo lines of\ntext"
    )
    assert PLAIN.led("warning: ", "yellow", "text") == "warning: text"


@pytest.mark.parametrize("wide", [40, 60, 100, 250])
@pytest.mark.parametrize("words", [["help"], ["help", "train"], ["help", "learning"], ["help", "conf"]])
def test_help_fits_the_width(words, wide, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(wide))
    assert cli.main(words) == 0
    text = [line for line in capsys.readouterr().out.splitlines() if "visiontrain" not in line]  # what is to be copied
    assert max(map(len, text)) <= min(wide, READABLE) and "\x1b" not in "".join(text)


def test_help_in_colours_is_the_same_text(capsys, monkeypatch):
    cli.main(["help", "train"])
    plain = capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")  # as before | less -R
    cli.main(["help", "train"])
    painted = capsys.readouterr().out
    assert "\x1b[36mlr0\x1b[0m=0.01" in painted and "\x1b[1mOptimizer\x1b[0m" in painted
    for style in ("1", "36", "0"):
        painted = painted.replace(f"\x1b[{style}m", "")
    assert painted == plain


def test_an_error_on_a_terminal_is_folded_and_led_in_red(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    cli.main(["train", "data=d", "epochs=0", "batch=0"])
    piped = capsys.readouterr().err.splitlines()
    assert len(piped) == 2 and piped[0].startswith("visiontrain: epochs=0") and piped[1].startswith("batch=0")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    cli.main(["train", "data=d", "epochs=0", "batch=0"])
    shown = capsys.readouterr().err
    assert shown.startswith("\x1b[31mvisiontrain: \x1b[0mepochs=0") and "\n  batch=0" in shown
    assert max(len(line) for line in shown.replace("\x1b[31m", "").replace("\x1b[0m", "").splitlines()) <= 60


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_name_that_the_output_has_no_letters_for_is_no_fault(encoding, tmp_path, monkeypatch):
    folder = tmp_path / "caf\u00e9 \u732b"
    for part in ("images/train", "labels/train"):
        (folder / part).mkdir(parents=True)
    (folder / "images" / "train" / "\u732b.jpg").write_bytes(b"no picture")
    file = folder / "d.yaml"
    file.write_text("train: images/train\nval: images/train\nnames: [cat]\n", encoding="utf-8")
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    assert cli.main(["check", f"data={file}", "preflight=false"]) == 3
    said = out.buffer.getvalue().decode(encoding)
    assert ("\u732b" in said) == (encoding == "utf-8") and ("\\u732b" in said) == (encoding != "utf-8")
    assert "1 fault in the data, the preflight was not run (preflight=false)" in said  # and no picture at all


def test_a_real_terminal(monkeypatch):
    """Its own width, in colours."""
    ours, theirs = pty.openpty()
    subprocess.run(["stty", "cols", "50", "rows", "20"], stdin=theirs, check=True)
    command = [sys.executable, "-m", "visiontrain", "plan", "images=100", "batch=8"]
    result = subprocess.run([*command, "batch=9"], stdin=theirs, stdout=theirs, stderr=theirs)
    subprocess.run(command, stdin=theirs, stdout=theirs, stderr=theirs, check=True)
    os.close(theirs)
    shown = _read(ours)
    assert result.returncode == 2 and "\x1b[31mvisiontrain: \x1b[0mbatch=9" in shown
    assert all(len(line) <= 50 for line in shown.replace("\x1b[31m", "").replace("\x1b[0m", "").splitlines())
    assert "64 images per update" in " ".join(shown.split())


def _read(terminal: int) -> str:
    text, began = b"", time.monotonic()
    while time.monotonic() - began < 10:
        try:
            text += os.read(terminal, 65536)
        except OSError:  # Linux says so at the end
            break
    return text.decode()
