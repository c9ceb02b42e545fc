"""metrics.csv: a row per epoch; validations.csv: a row per validation inside an epoch."""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path

from visiontrain.record.events import EpochEnded, Event, RunStarted, Validated

METRICS = ("precision", "recall", "ap50", "ap")
MORE_METRICS = ("ap75", "ap_max_det")


class MetricsCsv:
    """Appends a row when an epoch ends. The file is opened for each row: nothing is held, nothing is lost by a kill."""

    name = "metrics.csv"

    def __init__(self, folder: Path) -> None:
        self._path = folder / self.name
        self._parts: tuple[str, ...] = ()

    def __call__(self, event: Event) -> None:
        """Write the row of an ``EpochEnded``; the columns of the losses come from ``RunStarted``."""
        if isinstance(event, RunStarted):
            self._parts = event.part_names
        elif isinstance(event, EpochEnded):
            append(self._path, metrics_row(event, self._parts or tuple(event.losses)))


class ValidationsCsv:
    """The same for validations inside epochs; there is no file where there are none."""

    name = "validations.csv"

    def __init__(self, folder: Path) -> None:
        self._path = folder / self.name

    def __call__(self, event: Event) -> None:
        """Write the row of a ``Validated``."""
        if isinstance(event, Validated):
            append(self._path, validation_row(event))


def append(path: Path, row: dict[str, object]) -> None:
    """Add a row, under a header where the file is new."""
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(row)
        writer.writerow(row.values())


def validation_row(event: Validated) -> dict[str, object]:
    """Columns and values, named as in metrics.csv."""
    counters = asdict(event.counters) | {"epoch": event.epoch}
    metrics = {f"metrics/{key}": event.metrics[key] for key in (*METRICS, *MORE_METRICS)}
    return {"epoch": counters.pop("epoch"), "time": event.seconds, **counters, **metrics, "best": int(event.best)}


def metrics_row(event: EpochEnded, parts: tuple[str, ...]) -> dict[str, object]:
    """Columns and values of one epoch; numbers are written so that reading gives the same number, absent ones empty."""
    counters = asdict(event.counters)
    del counters["epoch"]
    losses = {f"train/{part}": event.losses.get(part, "") for part in parts}
    metrics = {f"metrics/{key}": event.metrics.get(key, "") for key in METRICS}
    more = {f"metrics/{key}": event.metrics.get(key, "") for key in MORE_METRICS}
    row: dict[str, object] = {"epoch": event.epoch, "time": event.seconds, **counters, **losses, **metrics}
    return {**row, "lr": event.lr, **more, "images_per_second": event.images_per_second, "memory": event.memory}
