"""The charts of a run: over images seen, over recall and confidence, and memory as bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from visiontrain.record.amounts import gigabytes
from visiontrain.record.report.markup import Html, join
from visiontrain.record.report.page import bars, grid, heading, panel
from visiontrain.record.report.source import MOST_ROWS, Source
from visiontrain.record.report.svg import COLOURS, MOST_POINTS, Series, chart, thinned

MOST_LINES = 100  # of classes in one chart
_GRID = np.linspace(0, 1, 101)

Rows = Sequence[dict[str, Any]]


def training_charts(source: Source) -> Html:
    """All that is measured over images seen."""
    epochs, updates, end = source.epochs, source.updates, (0.0, float(max(source.images_seen, 1)))
    parts = [key.removeprefix("train/") for key in (epochs[0] if epochs else {}) if key.startswith("train/")]
    parts = parts or list(updates[0]["losses"] if updates else {})
    taken = (
        "each update"
        if len(updates) < MOST_ROWS
        else f"{len(updates):,} of {updates[-1]['updates_attempted']:,} updates"
    )
    band = f"{taken}; mean and range of neighbours" if len(updates) > MOST_POINTS else taken
    precise = {"metrics/precision": "precision", "metrics/recall": "recall"}
    return grid(
        [
            chart("Average precision", _lines(source.validated, {"metrics/ap": "AP", "metrics/ap50": "AP50"}), x_range=end,
                  note="averaged weights on the validation images"),
            chart("Precision and recall", _lines(source.validated, precise), x_range=end, y_range=(0, 1), note="at the best F1, IoU 0.5"),
            chart("Loss by epoch", _lines(epochs, {f"train/{part}": short(part) for part in parts}), x_range=end,
                  note="mean of the epoch's images"),
            chart("Loss of updates", [_of_updates(updates, short(part), lambda row, part=part: row["losses"].get(part), place + 1)
                  for place, part in enumerate(parts)], x_range=end, note=band),
            chart("Gradient norm", [_of_updates(updates, "before clipping", lambda row: row["gradient_norm"])], x_range=end, note=band,
                  log=True),
            chart("Learning rate", [_of_updates(updates, "", lambda row: row["lr"])] if updates else _lines(epochs, {"lr": ""}),
                  x_range=end),
            _window_sizes(source, end),
            chart("Objects per update", [_of_updates(updates, "", lambda row: row["window_targets"])], x_range=end, note=band),
            chart("Images per second", _lines(epochs, {"images_per_second": ""}), x_range=end, note="of the training part of each epoch"),
        ]
    )  # fmt: skip


def _window_sizes(source: Source, end: tuple[float, float]) -> Html:
    """Images of each update: those of the warm-up where windows grow, else of the whole run."""
    ramp = source.computed["ramp"]
    note = (
        f"the warm-up: from {ramp['from']} to {ramp['to']} micro-batches"
        if source.ramp
        else "a window short at the end of an epoch dips"
    )
    rows, reach = (source.ramp, None) if source.ramp else (source.updates, end)
    return chart(
        "Images per update", [_of_updates(rows, "", lambda row: row["window_images"])], x_range=reach, note=note
    )


def scoring_charts(curves: dict[str, Any]) -> list[Html]:
    """Precision over recall, and F1 over confidence, of best.pt."""
    f1 = curves["over_confidence"]["f1"]
    known = [row for row in f1 if row is not None]
    mean = np.mean(known, axis=0) if known else np.zeros(101)
    best = f"F1 is {mean.max():.3f} at confidence {_GRID[int(mean.argmax())]:.2f}, the mean over classes"
    return [
        chart("Precision over recall", _of_classes(curves["names"], curves["precision_over_recall"], np.mean),
              x_label="recall", x_range=(0, 1), y_range=(0, 1.02), note="IoU 0.5; the number is AP50"),
        chart("F1 over confidence", _of_classes(curves["names"], f1, np.max), x_label="confidence", x_range=(0, 1), y_range=(0, 1.02),
              note=best),
    ]  # fmt: skip


def memory_bars(source: Source) -> Html:
    """The peak of each phase on each device."""
    memory = source.measured["memory"]
    shown = [
        (heading(device) if len(memory["phases"]) > 1 else Html(""))
        + bars(_phases(phases), phases.get("baseline", {}).get("peak", 0))
        for device, phases in memory.get("phases", {}).items()
    ]
    return panel(join(shown)) if shown else Html("")


def _phases(phases: dict[str, dict[str, Any]]) -> Iterable[tuple[str, float, str]]:
    for name, figures in phases.items():
        batch = f", {figures['micro_batch']} images" if "micro_batch" in figures else ""
        yield f"{name}{batch}", figures["peak"], gigabytes(figures["peak"])


def short(part: str) -> str:
    """``box_loss`` is ``box``."""
    return part.removesuffix("_loss")


def _lines(rows: Rows, names: dict[str, str]) -> list[Series]:
    """A line for each column."""
    images = [row["images_seen"] for row in rows]
    return [
        thinned(name, images, [row.get(key, np.nan) for row in rows], place + 1)
        for place, (key, name) in enumerate(names.items())
    ]


def _of_updates(rows: Rows, name: str, value: Any, colour: int = 1) -> Series:
    """What ``value`` finds in each row; None is no value."""
    found = [np.nan if (v := value(row)) is None else v for row in rows]
    return thinned(name, [row["images_seen"] for row in rows], found, colour)


def _of_classes(names: Sequence[str], rows: Sequence[list[float] | None], figure: Any) -> list[Series]:
    """A line for each class that has labels, grey where there are many, and their mean on top."""
    known = [(name, np.array(row)) for name, row in zip(names, rows, strict=True) if row is not None]
    if not known:
        return []
    many = len(known) > COLOURS
    lines = [
        Series(name, _GRID, row, 0 if many else place + 1, style="thin", told=f"{figure(row):.3f}", quiet=many)
        for place, (name, row) in enumerate(known[:MOST_LINES])
    ]
    mean = np.mean([row for _, row in known], axis=0)
    told = f"mean of {len(known)} classes" if len(known) > 1 else names[0]
    line = Series(told, _GRID, mean, 9 if len(known) > 1 else 1, told=f"{figure(mean):.3f}", style="strong")
    return [*lines, line] if len(known) > 1 else [line]
