"""metrics.csv: a row per epoch."""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path

from visiontrain.record.events import EpochEnded, Event, RunStarted

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
            self._append(metrics_row(event, self._parts or tuple(event.losses)))

    def _append(self, row: dict[str, object]) -> None:
        with self._path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if file.tell() == 0:
                writer.writerow(row)
            writer.writerow(row.values())


def metrics_row(event: EpochEnded, parts: tuple[str, ...]) -> dict[str, object]:
    """Columns and values of one epoch; numbers are written so that reading gives the same number, absent ones empty."""
    counters = asdict(event.counters)
    del counters["epoch"]
    losses = {f"train/{part}": event.losses.get(part, "") for part in parts}
    metrics = {f"metrics/{key}": event.metrics.get(key, "") for key in METRICS}
    more = {f"metrics/{key}": event.metrics.get(key, "") for key in MORE_METRICS}
    row: dict[str, object] = {"epoch": event.epoch, "time": event.seconds, **counters, **losses, **metrics}
    return {**row, "lr": event.lr, **more, "images_per_second": event.images_per_second, "memory": event.memory}
