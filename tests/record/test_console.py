from __future__ import annotations

import io
import os
import re
import subprocess
import sys

import pytest

from visiontrain.record.events import EpochStarted, Notice
from visiontrain.record.sinks.console import Console, Progress
from visiontrain.record.sinks.table import Table, clock

PARTS = ("box_loss", "cls_loss", "dfl_loss")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(events, stream, now=lambda: 0.0):
    console = Console(stream, now)
    for event in events:
        console(event)
    return stream.getvalue()


@pytest.fixture
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_without_a_terminal_the_plan_and_a_line_per_epoch_are_plain(tmp_path, make):
    text = shown(make.run(tmp_path), io.StringIO())
    lines = text.splitlines()
    assert "64 images per update (nbs 64)" in lines[0]
    assert lines[1].split() == [
        "epoch",
        "box",
        "cls",
        "dfl",
        "P",
        "R",
        "AP50",
        "AP",
        "lr",
        "images/s",
        "memory",
        "time",
        "left",
    ]
    assert [line.split()[0] for line in lines[2:5]] == ["1/3", "2/3", "3/3"]
    assert lines[-1].startswith("Finished after 0:00")
    assert "best AP 0.700 (AP50 0.800) in epoch 3" in lines[-1]
    assert "\x1b" not in text
    assert "\r" not in text


def test_a_slow_epoch_prints_a_line_now_and_then(tmp_path, make):
    time = iter(range(0, 10_000, 12))  # every look at the clock is 12 seconds later
    text = shown([make.started(tmp_path), *make.epoch(1)], io.StringIO(), lambda: float(next(time)))
    said = [line for line in text.splitlines() if line.startswith("epoch 1/3: ")]
    assert 1 <= len(said) < 3
    assert re.search(r"/192 images, [\d.]+ images/s, box .* cls 2 dfl 0.1, 1.00 GB, \d+:\d\d left", said[0])


def test_a_fast_epoch_prints_its_line_only(tmp_path, make):
    assert "epoch 1/3: " not in shown([make.started(tmp_path), *make.epoch(1)], io.StringIO())


def test_a_terminal_gets_a_bar_and_colours(tmp_path, make, wide):
    text = shown(make.run(tmp_path), Terminal())
    assert "epoch 2/3" in text
    assert "validation" in text
    assert "\x1b[32m" in text  # the best epoch


def test_no_color_is_honoured(tmp_path, make, wide, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown([*make.run(tmp_path), Notice("careful", "warning")], Terminal())
    assert "\x1b[3" not in text
    assert "\x1b[1m" not in text
    assert "warning: careful" in text


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 200])
def test_the_table_fits_the_terminal(make, columns):
    table = Table(PARTS, 1000, columns, colours=False)
    for epoch in (1, 1000):
        for line in table.lines(make.epoch_ended(epoch), 12345.0):
            assert len(line) <= columns
            assert "AP50" in line or re.search(rf"\b{epoch}/1000\b", line)


def test_columns_stay_under_their_titles(make):
    header, first = Table(PARTS, 60, 120, colours=False).lines(make.epoch_ended(1, best=False), 60.0)
    ends = [[match.end() for match in re.finditer(r"\S+(?: GB)?", line)] for line in (header, first)]
    assert ends[0] == ends[1]


def test_the_header_comes_back_now_and_then(make):
    table = Table(PARTS, 60, 120, colours=False)
    headers = [len(table.lines(make.epoch_ended(epoch), 0.0)) - 1 for epoch in range(1, 42)]
    assert [index for index, one in enumerate(headers) if one] == [0, 20, 40]


def test_an_epoch_that_was_not_evaluated_shows_dashes(make):
    line = Table(PARTS, 3, 120, colours=False).lines(make.epoch_ended(1, metrics={}, best=False), 0.0)[1]
    assert line.split()[4:8] == ["-"] * 4


@pytest.mark.parametrize("width", [80, 100, 120])
def test_what_stands_behind_the_bar_leaves_room_for_the_rest(make, width):
    progress = Progress(EpochStarted(10, 100, 11_111), 0.0)
    progress.images = 9_999
    progress.add(make.window(1))
    text = progress.parts(10**9, width)
    around = f"epoch 10/100 100%  10063/11111, 1234.56 img/s, {text}, 00:00 left"
    assert len(around) + (0 if width < 100 else 12) <= width
    assert "box" in text or width == 80


def test_losses_of_a_skipped_window_are_not_shown(make):
    progress = Progress(EpochStarted(1, 3, 192), 0.0)
    progress.add(make.window(1, losses={"box_loss": 1.0}))
    progress.add(make.window(2, losses={"box_loss": float("nan")}, applied=False, reason="not finite"))
    assert progress.losses() == "box 1"
    assert progress.images == 128


def test_clock():
    assert [clock(s) for s in (0.4, 59.6, 3599, 3600, 86_400)] == ["0:00", "1:00", "59:59", "1:00:00", "24:00:00"]


def test_the_recorder_costs_no_torch():
    code = "import visiontrain.record.run, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout == "False\n"
