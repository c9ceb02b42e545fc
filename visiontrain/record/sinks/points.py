"""What loggers draw over images seen: the numbers of an event, by the names of metrics.csv."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from visiontrain.record.events import Counters, EpochEnded, Event, RunEnded, Validated, WindowClosed
from visiontrain.record.sinks.csv import metrics_row

OF_A_WINDOW = ("gradient_norm", "lr", "momentum", "images", "seconds", "memory")


def points(event: Event) -> dict[str, float]:
    """``update/lr`` of a window; of an epoch the columns of metrics.csv; ``best/ap`` when the run ends; else nothing."""
    if isinstance(event, WindowClosed):
        own = {key: getattr(event, key) for key in OF_A_WINDOW}
        return {f"update/{key}": float(value) for key, value in {**event.losses, **own}.items()}
    if isinstance(event, EpochEnded):
        counted = asdict(Counters()).keys() - {"epoch"}
        row: dict[str, Any] = metrics_row(event, tuple(event.losses))
        return {key: float(value) for key, value in row.items() if key not in counted and value != ""}
    if isinstance(event, Validated):
        return {f"metrics/{key}": value for key, value in event.metrics.items()}
    return best(event.metrics) if isinstance(event, RunEnded) else {}


def best(metrics: dict[str, float]) -> dict[str, float]:
    """The metrics of best.pt under names of their own: the last epoch keeps its."""
    return {f"best/{key}": value for key, value in metrics.items()}
