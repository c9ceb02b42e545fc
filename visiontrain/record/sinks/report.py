"""report.html, kept fresh while a run goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from visiontrain.record.events import EpochEnded, Event, RunEnded, RunStarted, Validated, WindowClosed
from visiontrain.record.report.run import REPORT, write_report
from visiontrain.record.sinks.run_json import RunJson

SHARE = 50  # a page that takes a second is made again after fifty at the earliest: two hundredths of the time at most


class Report:
    """Writes the page when a run starts and ends, and in between at most every ``every`` seconds.

    It reads the files that the other sinks wrote, so it stands behind them and is as true after a resume as they are.
    """

    name = REPORT

    def __init__(self, folder: Path, every: float = 20.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._every, self._clock = folder, every, clock
        self._next = float("-inf")

    def __call__(self, event: Event) -> None:
        """Write the page, if it is time."""
        now = isinstance(event, RunStarted | RunEnded)
        if (now or (isinstance(event, _NEWS) and self._clock() >= self._next)) and (
            self._folder / RunJson.name
        ).exists():
            began = self._clock()
            write_report(self._folder)
            self._next = self._clock() + max(self._every, SHARE * (self._clock() - began))


_NEWS = (WindowClosed, EpochEnded, Validated)
