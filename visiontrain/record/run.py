"""The recorder: every event goes to every sink, and no sink can stop a run."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from visiontrain.record.events import Counters, Event, Notice
from visiontrain.record.sinks import SINKS
from visiontrain.record.sinks.loggers import make_loggers

Sink = Callable[[Event], None]

RUN_JSON, METRICS_CSV, UPDATES_JSONL, VALIDATIONS_CSV = "run.json", "metrics.csv", "updates.jsonl", "validations.csv"

ATTEMPTED = 3  # the column of updates_attempted in validations.csv


class Recorder:
    """Forwards each event to its sinks, in order; a sink that fails is reported once and left out from then on.

    Args:
        sinks: callables that take an event and answer nothing; one with a ``close`` is closed at the end.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)

    def __call__(self, event: Event) -> None:
        """Tell every sink."""
        for sink in tuple(self._sinks):
            if sink not in self._sinks:  # dropped meanwhile, by the notice of another's failure
                continue
            try:
                sink(event)
            except Exception as error:  # whatever a logger does wrong, hours of training are worth more
                self._sinks.remove(sink)
                self(Notice(_farewell(sink, event, error), "warning"))

    def close(self) -> None:
        """Close what the sinks hold open (a bar, a connection); also after an error of the run."""
        for sink in tuple(self._sinks):
            close = getattr(sink, "close", None)
            try:
                if close is not None:
                    close()
            except Exception as error:  # as above
                self._sinks.remove(sink)
                self(Notice(f"{_name(sink)} could not be closed: {type(error).__name__}: {error}", "warning"))

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def default_sinks(folder: Path, plots: bool = True, loggers: str = "") -> list[Sink]:
    """The sinks that every run has: files first, so that the console speaks of what is on disk; then the loggers asked for.

    Args:
        folder: the run's, which exists.
        plots: also draw pictures and curves.
        loggers: their names, divided by commas.
    """
    always = [make(folder) for name, make in SINKS.items() if plots or name not in ("pictures", "plots")]
    return [*always, *make_loggers(loggers, folder)]


def trim(folder: Path, counters: Counters) -> None:
    """Cut the rows of metrics.csv, updates.jsonl and validations.csv that lie past ``counters``, and a last line that was half written.

    Call it before the first event of a process: with the checkpoint's counters on resume, with ``Counters()`` for a new
    run (which empties what an earlier run left in the folder). Rows come in order, so the first one past the checkpoint
    ends the file.
    """
    _cut(folder / UPDATES_JSONL, 0, lambda line: _attempted(line) <= counters.updates_attempted)
    _cut(folder / METRICS_CSV, 1, lambda line: _cell(line, 0) <= counters.epoch)
    _cut(folder / VALIDATIONS_CSV, 1, lambda line: _cell(line, ATTEMPTED) <= counters.updates_attempted)
    if counters == Counters():
        for name in (RUN_JSON, METRICS_CSV, VALIDATIONS_CSV):
            (folder / name).unlink(missing_ok=True)


def _cut(path: Path, header_lines: int, keep: Callable[[bytes], bool]) -> None:
    if not path.exists():
        return
    good = 0
    with path.open("rb") as file:
        for number, line in enumerate(file):
            if not line.endswith(b"\n") or (number >= header_lines and not keep(line)):
                break
            good += len(line)
    os.truncate(path, good)  # one call: a kill here leaves the file long or cut, never torn


def _attempted(line: bytes) -> float:
    try:
        return int(json.loads(line)["updates_attempted"])
    except ValueError:  # a power cut can leave zeros in place of a line
        return float("inf")


def _cell(line: bytes, column: int) -> float:
    try:
        return int(next(csv.reader([line.decode()]))[column])
    except (ValueError, IndexError):
        return float("inf")


def _farewell(sink: Sink, event: Event, error: Exception) -> str:
    what = f"{_name(sink)} failed at {type(event).__name__} and is left out from now on; training goes on"
    return f"{what} ({type(error).__name__}: {error})"


def _name(sink: Sink) -> str:
    return str(getattr(sink, "name", None) or getattr(sink, "__name__", None) or type(sink).__name__)
