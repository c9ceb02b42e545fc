"""What a report is made of: the files of one run folder, read in a time that does not grow with the run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from visiontrain.record.files import read_epochs, read_rows
from visiontrain.record.run_folder import read_run

MOST_ROWS = 1200  # of updates.jsonl
TAIL = 1 << 14  # bytes; the last whole line of updates.jsonl lies in them


@dataclass(frozen=True, slots=True)
class Source:
    """``record`` is run.json, ``epochs`` metrics.csv, ``validated`` each validation of epochs and between, in order.

    ``updates`` are rows of updates.jsonl, evenly spaced where there are too many, the last one always; ``ramp`` are those of the
    warm-up where windows grow. ``curves`` is curves.json, ``findings`` the lines of data_findings.txt.
    """

    folder: Path
    record: dict[str, Any]
    epochs: list[dict[str, Any]]
    validated: list[dict[str, Any]]
    updates: list[dict[str, Any]]
    ramp: list[dict[str, Any]]
    curves: dict[str, Any] | None
    findings: list[str]

    @property
    def settings(self) -> dict[str, Any]:
        """As resolved."""
        values: dict[str, Any] = self.record["given"]["settings"]
        return values

    @property
    def computed(self) -> dict[str, Any]:
        """The computed section."""
        section: dict[str, Any] = self.record["computed"]
        return section

    @property
    def measured(self) -> dict[str, Any]:
        """The measured section."""
        section: dict[str, Any] = self.record["measured"]
        return section

    @property
    def running(self) -> bool:
        """No end was recorded; a run that was killed looks the same."""
        return bool(self.record["outcome"] == "running")

    @property
    def images_seen(self) -> int:
        """As the last line of updates.jsonl has it: run.json is written less often."""
        rows = [row["images_seen"] for row in self.updates[-1:]]
        return int(max([self.measured["images_seen"], *rows]))

    @property
    def best(self) -> dict[str, Any]:
        """Epoch and metrics of the best validation, empty before the first."""
        found: dict[str, Any] = self.measured["metrics"]["best"]
        return found

    @property
    def began(self) -> float:
        """Seconds since 1970 when the last process of the run began."""
        times = [self.record["started"], *(resume["time"] for resume in self.measured["resumes"])]
        return datetime.fromisoformat(times[-1]).timestamp()


def read_source(folder: str | Path) -> Source:
    """Read a run folder.

    Raises:
        ConfigError: it is none, or it was written by another version of the contracts.
    """
    run = read_run(folder)
    epochs, between = read_epochs(run.folder), read_rows(run.folder / "validations.csv")
    scored = [row for row in (*epochs, *between) if "metrics/ap" in row]
    ramp = run.record["computed"].get("ramp", {"from": 1, "to": 1, "images": 0})
    curves, findings = run.folder / "curves.json", run.folder / "data_findings.txt"
    updates = run.folder / "updates.jsonl"
    return Source(
        run.folder,
        run.record,
        epochs,
        sorted(scored, key=lambda row: row["images_seen"]),
        sampled(updates, MOST_ROWS),
        list(_beginning(updates, 1.25 * ramp["images"])) if ramp["from"] != ramp["to"] else [],
        json.loads(curves.read_text("utf-8")) if curves.exists() else None,
        findings.read_text("utf-8").splitlines() if findings.exists() else [],
    )


def sampled(path: Path, most: int) -> list[dict[str, Any]]:
    """Whole rows of a file of JSON lines: all, or about ``most`` evenly spaced ones, the last one among them."""
    if not path.exists():
        return []
    size = path.stat().st_size
    with path.open("rb") as file:
        length = max(len(line) for line in islice(file, 20)) if size else 1
        if size <= 1.5 * most * length:
            file.seek(0)
            return list(_rows(file))
        found: list[dict[str, Any]] = []
        for place in range(most):
            file.seek(place * size // most)
            if place:
                file.readline()  # the rest of the line in which we are
            found += _rows([file.readline()])
        file.seek(size - TAIL)
        found += list(_rows(file))[-1:]
    unique = {row["updates_attempted"]: row for row in found}
    return [unique[key] for key in sorted(unique)]


def _beginning(path: Path, images: float) -> Iterator[dict[str, Any]]:
    """The first rows, up to so many images seen."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for row in _rows(islice(file, MOST_ROWS)):
            if row["images_seen"] > images:
                return
            yield row


def _rows(lines: Any) -> Iterator[dict[str, Any]]:
    """Those that are whole: a run may be writing the last one, a power cut leaves half a line or zeros."""
    for line in lines:
        with suppress(ValueError):
            yield json.loads(line)
