"""Pictures and curves into the run folder."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from visiontrain.record.events import Curves, EpochEnded, Event, Pictures, RunEnded
from visiontrain.record.plots.curves import draw_confidence_curves, draw_confusion, draw_pr_curve, draw_results
from visiontrain.record.plots.ink import write_picture
from visiontrain.record.plots.pictures import draw_pictures


class PicturesSink:
    """Draws each ``Pictures`` event into NAME.jpg."""

    name = "pictures"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, event: Event) -> None:
        """Draw a sheet of pictures."""
        if isinstance(event, Pictures):
            _write(self._folder, event)


class PlotsSink:
    """Draws results.png from metrics.csv (the one truth, also after a resume), and the curves of an evaluation.

    A short epoch must not pay for its picture: between two drawings of results.png pass at least ``every`` seconds, the
    last one comes when the run ends.
    """

    name = "plots"

    def __init__(self, folder: Path, every: float = 20.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._every, self._clock = folder, every, clock
        self._drawn = float("-inf")

    def __call__(self, event: Event) -> None:
        """Draw what the event makes new."""
        if isinstance(event, Curves):
            _write(self._folder, event)
        elif isinstance(event, RunEnded) or (
            isinstance(event, EpochEnded) and self._clock() - self._drawn >= self._every
        ):
            self._draw_results()

    def _draw_results(self) -> None:
        rows = read_metrics(self._folder / "metrics.csv")
        if rows:
            write_picture(self._folder / "results.png", draw_results(rows))
        self._drawn = self._clock()


def drawn(event: Event) -> dict[str, np.ndarray]:
    """What an event of pictures or curves looks like: (H, W, 3) uint8 RGB by file name; of other events nothing."""
    if isinstance(event, Pictures):
        return {f"{event.name}.jpg": draw_pictures(event)} if event.images else {}
    if isinstance(event, Curves):
        return {
            "pr_curve.png": draw_pr_curve(event),
            "confidence_curves.png": draw_confidence_curves(event),
            "confusion_matrix.png": draw_confusion(event),
        }
    return {}


def _write(folder: Path, event: Event) -> None:
    for name, picture in drawn(event).items():
        write_picture(folder / name, picture)


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The rows of metrics.csv as numbers, empty cells as not a number; none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: float(text or "nan") for key, text in row.items()} for row in csv.DictReader(file)]
