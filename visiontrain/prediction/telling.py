"""What a person sees of a prediction: a line for each picture where they are few, else a bar; and where things are."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from visiontrain.inline import bar
from visiontrain.prediction.results import Results
from visiontrain.prediction.sources import Item
from visiontrain.terminal import look_of, say

FEW = 20  # pictures that have a line each
PLAIN_EVERY = 30.0  # seconds between lines where a bar cannot move


def warn(sentence: str) -> None:
    """On standard error: standard output may be read by a program."""
    tqdm.write(look_of(sys.stderr).led("warning: ", "yellow", sentence), file=sys.stderr)


class Teller:
    """Tells of results as they come.

    Args:
        items: of the source.
        lines: whether pictures may have lines of their own; without, there is a bar where it takes long.
    """

    def __init__(self, items: Sequence[Item], lines: bool) -> None:
        self._done, self._boxes = 0, 0
        self._moves = any(item.moves for item in items)
        self._total = 0 if self._moves else len(items)
        self._lines = lines and len(items) <= FEW and not any(item.kind in ("video", "camera") for item in items)
        delay = 0 if lines else 1
        self._bar: Any = None
        if not self._lines:
            self._bar = bar(total=self._total or None, unit=" img", leave=False, delay=delay, disable=None)
        self.silent = not lines
        self._told = time.monotonic()

    def __call__(self, result: Results) -> None:
        self._done += 1
        self._boxes += len(result)
        if self._lines:
            print(self._line(result), flush=True)
            return
        if result.frame == 0 and result.video and result.video.frames and self._bar.total is None:
            self._bar.total = result.video.frames
        self._bar.update()
        if self._bar.disable and not self.silent and time.monotonic() - self._told > PLAIN_EVERY:
            self._told = time.monotonic()
            print(f"{self._done} pictures{f' of {self._total}' if self._total else ''}", flush=True)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()

    def sum_up(self, seconds: Mapping[str, float], folder: Path | None) -> None:
        """How long each stage took for a picture, and where things are."""
        if not self._done:
            return
        stages = ", ".join(f"{stage} {1000 * spent / self._done:.1f}" for stage, spent in seconds.items())
        say(f"{self._done} pictures, {self._boxes} boxes; milliseconds for a picture: {stages}")
        if folder:
            print(f"Saved in {folder}")

    def _line(self, result: Results) -> str:
        height, width = result.orig_shape
        total = f"/{self._total}" if self._total else ""
        spent = sum(result.speed.values())
        found = look_of(sys.stdout).paint(result.verbose(), "bold" if len(result) else "dim")
        return f"image {self._done}{total} {result.path}: {height}x{width} {found}, {spent:.1f} ms"
