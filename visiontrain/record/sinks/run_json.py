"""run.json: what was asked for, what followed from it, and what really happened."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from visiontrain.record.events import (
    Checkpointed,
    Counters,
    EpochEnded,
    Event,
    FactsChanged,
    Notice,
    RunEnded,
    RunStarted,
    Validated,
    WindowClosed,
)
from visiontrain.record.files import SCHEMAS, read_epochs, write_json

AXIS = "images_seen"  # of every curve
METRIC = "ap (COCO, 100 detections)"  # by which best.pt is chosen
GIVEN = ("batch", "nbs", "weight_decay", "seed", "settings", "names")
MEASURED = (
    "data",
    "versions",
    "device",
    "places",
    "batch_auto",
    "average_best",
)  # and NOTHING_YET; every other fact was computed
HOW = {
    "given": "asked for, defaults included",
    "computed": "decided or calculated from what was given, before it happened",
    "measured": "counted, clocked or read from the machine and the files",
}


class RunJson:
    """Keeps run.json true: written at the start, after each epoch, at the end, and at most every ``every`` seconds else.

    A run that goes on (run.json is there; ``trim`` has cut the rows past the checkpoint) keeps its beginning, and counts
    what was skipped and clipped from the rows that are left.
    """

    name = "run.json"

    def __init__(self, folder: Path, every: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._every, self._clock = folder, every, clock
        self._path = folder / self.name
        self._written = float("-inf")
        self._record: dict[str, Any] = {}

    def __call__(self, event: Event) -> None:
        """Take the event into the record, and write it when it is time."""
        if isinstance(event, RunStarted):
            self._start(event)
        elif not self._record:
            return  # an event outside a run: nothing to write it into
        elif isinstance(event, WindowClosed):
            self._window(event)
        elif isinstance(event, EpochEnded):
            self._epoch(event)
        elif isinstance(event, Validated):
            self._score(event.epoch, event.metrics, event.best)
            self._write()
        elif isinstance(event, FactsChanged):
            self._merge(event.facts)
            self._write()
        elif isinstance(event, Notice) and event.level == "warning":
            self._record["warnings"] = list(dict.fromkeys([*self._record["warnings"], event.text]))
        elif isinstance(event, Checkpointed):
            self._record["measured"]["checkpoint"] = {"file": _inside(event.path, self._folder), "why": event.why}
        elif isinstance(event, RunEnded):
            self._end(event)

    def _start(self, event: RunStarted) -> None:
        changes = event.facts.get("changes", [])
        before = json.loads(self._path.read_text(encoding="utf-8")) if self._path.exists() else None
        self._record = _new_record(event.plan)
        if before is not None:
            self._go_on(before, changes)
        self._merge({key: value for key, value in event.facts.items() if key != "changes"})
        self._write()

    def _go_on(self, before: dict[str, Any], changes: list[str]) -> None:
        """Take over what this run already was, as far as the trimmed files vouch for it."""
        record, measured = self._record, self._record["measured"]
        record["started"], record["phase"] = before["started"], "attempt"
        record["warnings"] = before["warnings"]
        rows, epochs = list(_windows(self._folder)), read_epochs(self._folder)
        if rows:
            measured.update({key: rows[-1][key] for key in asdict(Counters()) if key != "epoch"})
            measured["clipped"] = sum(row["clipped"] for row in rows)
            measured["skipped"] = dict(Counter(row["reason"] for row in rows if not row["applied"]))
        if epochs:
            measured["epochs"], measured["seconds"] = epochs[-1]["epoch"], epochs[-1]["time"]
            measured["metrics"] = {"best": _best(epochs), "last": _scores(epochs[-1])}
        attempted = measured["updates_attempted"]
        for key in ("resumes", "shrinks"):  # what happened after the checkpoint did not happen to this run
            measured[key] = [fact for fact in before["measured"][key] if fact["updates_attempted"] <= attempted]
        measured["resumes"].append({"time": _now(), "updates_attempted": attempted, "changes": changes})
        measured["memory"] = before["measured"]["memory"]

    def _window(self, event: WindowClosed) -> None:
        measured = self._record["measured"]
        self._record["phase"] = "attempt"
        self._count(event.counters, event.memory)
        measured["clipped"] += event.clipped
        if not event.applied:
            measured["skipped"][event.reason] = measured["skipped"].get(event.reason, 0) + 1
        if self._clock() - self._written >= self._every:
            self._write()

    def _epoch(self, event: EpochEnded) -> None:
        measured = self._record["measured"]
        self._count(event.counters, event.memory)
        measured["epochs"], measured["seconds"] = event.epoch, event.seconds
        measured["images_per_second"] = event.images_per_second
        if event.metrics:
            self._score(event.epoch, event.metrics, event.best)
        self._write()

    def _score(self, epoch: int, metrics: dict[str, float], best: bool) -> None:
        known, scores = self._record["measured"]["metrics"], {"epoch": epoch, **metrics}
        self._record["measured"]["metrics"] = {"best": scores if best else known["best"], "last": scores}

    def _end(self, event: RunEnded) -> None:
        self._record.update(outcome=event.outcome, reason=event.reason, ended=_now())
        if event.outcome in ("finished", "stopped early"):
            self._record["phase"] = "accepted"
        self._merge(event.facts)
        self._write()

    def _count(self, counters: Counters, memory: int) -> None:
        measured = self._record["measured"]
        measured.update({key: value for key, value in asdict(counters).items() if key != "epoch"})
        measured["memory"]["peak"] = max(measured["memory"]["peak"], memory)

    def _merge(self, facts: dict[str, Any]) -> None:
        for key, value in facts.items():
            section = "given" if key in GIVEN else "measured" if key in (*MEASURED, *NOTHING_YET) else "computed"
            known = self._record[section].get(key)
            both = isinstance(known, dict) and isinstance(value, dict)
            self._record[section][key] = {**known, **value} if both else value

    def _write(self) -> None:
        self._record["updated"] = _now()
        write_json(self._path, self._record)
        self._written = self._clock()


NOTHING_YET: dict[str, Any] = {
    **{key: value for key, value in asdict(Counters()).items() if key != "epoch"},
    "epochs": 0,
    "clipped": 0,
    "skipped": {},
    "shrinks": [],
    "unreadable": [],
    "positions": {},
    "resumes": [],
    "seconds": 0.0,
    "images_per_second": 0.0,
    "metrics": {"best": {}, "last": {}},
    "memory": {"peak": 0},
    "checkpoint": {},
    "per_class": {},
}


def _new_record(plan: tuple[str, ...]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMAS["run.json"],
        "schemas": SCHEMAS,
        "axis": AXIS,
        "metric": METRIC,
        "phase": "preparation",
        "outcome": "running",
        "reason": "",
        "started": _now(),
        "updated": _now(),
        "ended": None,
        "plan": list(plan),
        "how": HOW,
        "given": {},
        "computed": {},
        "measured": json.loads(json.dumps(NOTHING_YET)),  # a deep copy
        "warnings": [],
    }


def _windows(folder: Path) -> Iterator[dict[str, Any]]:
    path = folder / "updates.jsonl"
    if path.exists():
        with path.open(encoding="utf-8") as file:
            yield from map(json.loads, file)


def _scores(row: dict[str, Any]) -> dict[str, Any]:
    metrics = {key.removeprefix("metrics/"): value for key, value in row.items() if key.startswith("metrics/")}
    return {"epoch": row["epoch"], **metrics} if metrics else {}


def _best(epochs: list[dict[str, Any]]) -> dict[str, Any]:
    scored = [row for row in epochs if "metrics/ap" in row]
    return _scores(max(scored, key=lambda row: row["metrics/ap"])) if scored else {}


def _inside(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
