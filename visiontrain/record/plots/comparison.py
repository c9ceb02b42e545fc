"""The curves of two runs over images seen, in one picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from visiontrain.errors import ConfigError
from visiontrain.record.compare import Comparison
from visiontrain.record.plots.chart import Axes, Line, draw_chart, tile
from visiontrain.record.plots.ink import class_colour, write_picture


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Draw the curves of both runs into a PNG file that is not there yet.

    Raises:
        ConfigError: the file is there, or its folder is not.
    """
    if path.exists():
        raise ConfigError(f"out={path}: is there already, and nothing is overwritten; choose another name")
    if not path.parent.is_dir():
        raise ConfigError(f"out={path}: there is no folder {path.parent}; make it, or choose another")
    write_picture(path, draw_comparison(comparison))


def draw_comparison(comparison: Comparison) -> np.ndarray:
    """AP and AP50 of both runs over images seen, side by side (H, W, 3) uint8 RGB."""
    charts = [_chart(comparison, *which) for which in (("ap", "AP50-95"), ("ap50", "AP50"))]
    return tile(charts, 2)


def _chart(comparison: Comparison, key: str, title: str) -> np.ndarray:
    lines, end = [], 1.0
    for number, run in enumerate((comparison.a, comparison.b)):
        x = np.array([point.images_seen for point in run.curve], float)
        y = np.array([getattr(point, key) for point in run.curve], float)
        label = f"{'AB'[number]}: {run.folder.name}"
        lines.append(Line(x, y, class_colour(number), label, 1.8, marks=len(x) <= 40))
        end = float(x.max(initial=end))
    axes = Axes(title, comparison.a.record["axis"].replace("_", " "), x_range=(0, 1.03 * end), y_range=(0, 1.02))
    return draw_chart(axes, lines, (560, 420))
