"""The curves of runs over images seen, in one picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from visiontrain.record.compare import Comparison
from visiontrain.record.plots.chart import Axes, Line, draw_chart, tile
from visiontrain.record.plots.ink import class_colour, write_picture


def write_curves(comparison: Comparison, path: Path) -> None:
    """Draw the curves of all runs into a PNG file."""
    write_picture(path, draw_comparison(comparison))


def draw_comparison(comparison: Comparison) -> np.ndarray:
    """AP and AP50 of all runs over images seen, side by side (H, W, 3) uint8 RGB."""
    charts = [_chart(comparison, *which) for which in (("ap", "AP50-95"), ("ap50", "AP50"))]
    return tile(charts, 2)


def _chart(comparison: Comparison, key: str, title: str) -> np.ndarray:
    lines, end = [], 1.0
    for number, (run, name, label) in enumerate(
        zip(comparison.runs, comparison.letters, comparison.labels, strict=True)
    ):
        x = np.array([point.images_seen for point in run.curve], float)
        y = np.array([getattr(point, key) for point in run.curve], float)
        lines.append(Line(x, y, class_colour(number), f"{name}: {label}", 1.8, marks=len(x) <= 40))
        end = float(x.max(initial=end))
    axes = Axes(title, comparison.runs[0].record["axis"].replace("_", " "), x_range=(0, 1.03 * end), y_range=(0, 1.02))
    return draw_chart(axes, lines, (560, 420))
