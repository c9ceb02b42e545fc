"""The tool on a small network; what it measures is said in docs/models.md."""

from __future__ import annotations

from tools.crowded_picture import once


def test_peak_and_seconds_of_a_window(narrow):
    peak, seconds = once("yoloxn", 20, 64)
    assert 50 < peak < 20_000 and seconds > 0  # megabytes of a process that has torch
