"""The curves of a run over images seen, and of one evaluation over recall and confidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import cv2
import numpy as np

from visiontrain.record.events import Curves
from visiontrain.record.plots.chart import Axes, Line, draw_chart, tile
from visiontrain.record.plots.ink import (
    BLACK,
    GREY,
    class_colour,
    contrasting,
    fit_text,
    put_text,
    put_text_up,
    text_size,
)

LEGEND_CLASSES = 14  # more classes than this are drawn grey, and only the mean is named
CELL_TEXT_CLASSES = 24


def draw_results(rows: Sequence[Mapping[str, float]]) -> np.ndarray:
    """Losses, precision and recall, AP and learning rate over images seen.

    Args:
        rows: of metrics.csv in order, at least one; a value that is missing or not finite is left out of its line.

    Returns:
        (H, W, 3) uint8 RGB.
    """
    losses = [key for key in rows[0] if key.startswith("train/")]
    charts = [_over_images(rows, {key: ""}, key.removeprefix("train/").replace("_", " ")) for key in losses]
    charts.append(_over_images(rows, {"metrics/ap50": "AP50", "metrics/ap": "AP50-95"}, "average precision"))
    charts.append(
        _over_images(
            rows, {"metrics/precision": "precision", "metrics/recall": "recall"}, "precision and recall at the best F1"
        )
    )
    charts.append(_over_images(rows, {"lr": ""}, "learning rate"))
    return tile(charts, 3)


def draw_pr_curve(curves: Curves) -> np.ndarray:
    """Precision over recall at IoU 0.5, a line per class and their mean (H, W, 3) uint8 RGB."""
    recall = np.linspace(0, 1, curves.precision.shape[1])
    axes = Axes("precision over recall at IoU 0.5", "recall", "precision", (0, 1), (0, 1.02))
    lines = _class_lines(curves.class_names, recall, curves.precision, lambda row: f"{row.mean():.3f}", "all classes")
    return draw_chart(axes, lines, (640, 560), side_legend=_legend_room(lines))


def draw_confidence_curves(curves: Curves) -> np.ndarray:
    """F1, precision and recall over the confidence threshold (H, W, 3) uint8 RGB."""
    grid = np.linspace(0, 1, curves.confidence_f1.shape[1])
    room = _legend_room(
        _class_lines(curves.class_names, grid, curves.confidence_f1, lambda row: "0.00 at 0.00", "all classes")
    )

    def chart(title: str, values: np.ndarray) -> np.ndarray:
        def best(row: np.ndarray) -> str:
            return f"{row.max():.2f} at {grid[int(row.argmax())]:.2f}"

        axes = Axes(title, "confidence", "", (0, 1), (0, 1.02))
        lines = _class_lines(curves.class_names, grid, values, best, "all classes")
        return draw_chart(axes, lines, (560, 420), side_legend=room)

    named = (("F1", curves.confidence_f1), ("precision", curves.confidence_precision))
    charts = [chart(title, values) for title, values in (*named, ("recall", curves.confidence_recall))]
    return tile(charts, 1)


def draw_confusion(curves: Curves) -> np.ndarray:
    """The confusion matrix (rows predicted, columns true, background last), shaded by the share of the true class.

    Returns:
        (H, W, 3) uint8 RGB.
    """
    counts = np.asarray(curves.confusion, float)
    names = [*curves.class_names, "background"]
    share = counts / np.maximum(counts.sum(0, keepdims=True), 1)
    cell = int(np.clip(900 / len(names), 12, 84))
    height = float(np.clip(cell / 4, 8, 11))
    margin = round(min(max(text_size(name, height)[0] for name in names), 170)) + 44
    side = cell * len(names)
    canvas = np.full((side + margin + 50, side + margin + 24, 3), 255, np.uint8)
    left, top = margin, 44
    for (row, column), value in np.ndenumerate(share):
        _draw_cell(
            canvas, (left + column * cell, top + row * cell), cell, float(value), float(counts[row, column]), len(names)
        )
    cv2.rectangle(canvas, (left, top), (left + side, top + side), (176, 180, 186), 1)
    for index, name in enumerate(names):
        middle, label = round((index + 0.5) * cell), fit_text(name, height, margin - 44)
        put_text(canvas, label, (left - 8, top + middle + height / 2), height, anchor="right")
        put_text_up(canvas, label, (left + middle + height / 2, top + side + 8), height, anchor="top")
    put_text(canvas, "confusion: the colour is the share of the true class", (left, 26), 11, bold=True)
    put_text(canvas, "true", (left + side / 2, canvas.shape[0] - 8), 10, GREY, anchor="middle")
    put_text_up(canvas, "predicted", (20, top + side / 2), 10)
    return canvas


def _draw_cell(canvas: np.ndarray, at: tuple[int, int], cell: int, share: float, count: float, names: int) -> None:
    x, y = at
    shade = np.array([255, 255, 255]) + (np.array([16, 78, 158]) - 255) * min(float(share), 1.0) ** 0.7
    red, green, blue = (round(float(c)) for c in shade)
    cv2.rectangle(canvas, (x, y), (x + cell - 1, y + cell - 1), (red, green, blue), -1)
    cv2.rectangle(canvas, (x, y), (x + cell, y + cell), (236, 238, 240), 1)
    if count and names <= CELL_TEXT_CLASSES:
        size = float(np.clip(cell / 6, 7, 11))
        ink = contrasting((red, green, blue))
        put_text(canvas, f"{count:g}", (x + cell / 2, y + cell / 2 + size / 2), size, ink, anchor="middle")


def _over_images(rows: Sequence[Mapping[str, float]], labels: Mapping[str, str], title: str) -> np.ndarray:
    images = np.array([row["images_seen"] for row in rows], float)
    lines = []
    for index, (key, label) in enumerate(labels.items()):
        values = np.array([row.get(key, np.nan) for row in rows], float)
        lines.append(Line(images, values, class_colour(index), label, 1.8, marks=len(rows) <= 40))
    inside = any(key.startswith("metrics/") for key in labels)
    return draw_chart(
        Axes(
            title, "images seen", x_range=(0, max(1.03 * float(images[-1]), 1.0)), y_range=(0, 1.02) if inside else None
        ),
        lines,
    )


def _legend_room(lines: Sequence[Line]) -> int:
    return min(max((text_size(line.label, 8.5)[0] for line in lines), default=0), 260) + 58


def _class_lines(
    names: tuple[str, ...], grid: np.ndarray, values: np.ndarray, figure: Callable[[np.ndarray], str], all_label: str
) -> list[Line]:
    known = np.isfinite(values).all(1)  # a class without labels has no curve
    many = len(names) > LEGEND_CLASSES
    lines = [
        Line(grid, row, (188, 194, 202) if many else class_colour(index), "" if many else f"{name}: {figure(row)}", 1.1)
        for index, (name, row) in enumerate(zip(names, values, strict=True))
        if known[index]
    ]
    if known.any():
        mean = values[known].mean(0)
        lines.append(Line(grid, mean, BLACK if not many else class_colour(0), f"{all_label}: {figure(mean)}", 2.6))
    return lines
