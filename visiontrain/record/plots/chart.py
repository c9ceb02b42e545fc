"""One chart: axes with round ticks, a light grid, smooth lines, a legend. Drawn at twice the size and reduced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from visiontrain.record.plots.ink import BLACK, GREY, GRID, Colour, fit_text, put_text, put_text_up, text_size

SCALE = 2
_SHIFT = 4  # OpenCV takes coordinates in 1/16 pixel


@dataclass(frozen=True, slots=True)
class Line:
    """``x`` and ``y`` (N,); not finite values are left out. ``label`` empty: not in the legend."""

    x: np.ndarray
    y: np.ndarray
    colour: Colour
    label: str = ""
    width: float = 1.6
    marks: bool = False


@dataclass(frozen=True, slots=True)
class Axes:
    """What stands around the lines; a range of None is fitted to them."""

    title: str
    x_label: str
    y_label: str = ""
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None


def draw_chart(
    axes: Axes, lines: Sequence[Line], size: tuple[int, int] = (480, 340), side_legend: int = 0
) -> np.ndarray:
    """Draw one chart.

    Args:
        axes: title, labels and ranges.
        lines: drawn in order, the last on top.
        size: (width, height) in pixels, without the legend at the side.
        side_legend: pixels added at the right for the legend; 0 puts it inside, where the lines leave room.

    Returns:
        (height, width, 3) uint8 RGB.
    """
    size = (size[0] + side_legend, size[1])
    width, height = size[0] * SCALE, size[1] * SCALE
    canvas = np.full((height, width, 3), 255, np.uint8)
    lines = [_finite(line) for line in lines]
    x_range = axes.x_range or _span([line.x for line in lines], 0.0)
    y_range = axes.y_range or _span([line.y for line in lines], 0.06)
    left, top, right, bottom = 66 * SCALE, 40 * SCALE, width - (20 + side_legend) * SCALE, height - 52 * SCALE
    frame = _Frame(left, top, right, bottom, x_range, y_range)
    _draw_axes(canvas, axes, frame)
    for line in lines:
        _draw_line(canvas, line, frame)
    _draw_legend(canvas, [line for line in lines if line.label], frame, lines, side_legend * SCALE)
    return cv2.resize(canvas, size, interpolation=cv2.INTER_AREA)


def tile(charts: Sequence[np.ndarray], columns: int) -> np.ndarray:
    """Charts of one size beside and below each other, on white."""
    height, width = charts[0].shape[:2]
    rows = math.ceil(len(charts) / columns)
    sheet = np.full((rows * height, min(columns, len(charts)) * width, 3), 255, np.uint8)
    for index, chart in enumerate(charts):
        y, x = index // columns * height, index % columns * width
        sheet[y : y + height, x : x + width] = chart
    return sheet


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) inside [low, high], about ``wanted`` of them."""
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    distance = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.9)
    first = math.ceil(low / distance - 1e-9)
    last = math.floor(high / distance + 1e-9)
    return [index * distance for index in range(first, last + 1)]


def number_text(value: float) -> str:
    """A tick's label: 12k, 1.5M, 0.05, 2e-05."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g}{letter}"
    return f"{round(value, 10):.4g}"


@dataclass(frozen=True, slots=True)
class _Frame:
    """The plotting area in canvas pixels, and the ranges it shows."""

    left: int
    top: int
    right: int
    bottom: int
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def points(self, x: np.ndarray | float, y: np.ndarray | float) -> np.ndarray:
        u = (np.asarray(x, float) - self.x_range[0]) / (self.x_range[1] - self.x_range[0])
        v = (np.asarray(y, float) - self.y_range[0]) / (self.y_range[1] - self.y_range[0])
        return np.stack((self.left + u * (self.right - self.left), self.bottom - v * (self.bottom - self.top)), -1)


def _draw_axes(canvas: np.ndarray, axes: Axes, frame: _Frame) -> None:
    s = SCALE
    for value in ticks(*frame.x_range):
        x = round(float(frame.points(value, frame.y_range[0])[0]))
        cv2.line(canvas, (x, frame.top), (x, frame.bottom), GRID, s)
        put_text(canvas, number_text(value), (x, frame.bottom + 16 * s), 8 * s, GREY, anchor="middle")
    for value in ticks(*frame.y_range):
        y = round(float(frame.points(frame.x_range[0], value)[1]))
        cv2.line(canvas, (frame.left, y), (frame.right, y), GRID, s)
        put_text(canvas, number_text(value), (frame.left - 7 * s, y + 4 * s), 8 * s, GREY, anchor="right")
    cv2.rectangle(canvas, (frame.left, frame.top), (frame.right, frame.bottom), (176, 180, 186), s)
    middle = (frame.left + frame.right) / 2
    put_text(canvas, axes.title, (frame.left, frame.top - 12 * s), 11 * s, bold=True)
    put_text(canvas, axes.x_label, (middle, frame.bottom + 36 * s), 9 * s, anchor="middle")
    if axes.y_label:
        put_text_up(canvas, axes.y_label, (24 * s, (frame.top + frame.bottom) / 2), 9 * s)


def _draw_line(canvas: np.ndarray, line: Line, frame: _Frame) -> None:
    if not len(line.x):
        return
    points = np.round(frame.points(line.x, line.y) * 2**_SHIFT).astype(np.int32)
    inside = canvas[frame.top : frame.bottom + 1, frame.left : frame.right + 1]  # clips what leaves the frame
    points = points - np.array([frame.left, frame.top]) * 2**_SHIFT
    thickness = max(1, round(line.width * SCALE))
    points = points.astype(np.int32)
    cv2.polylines(inside, [points.reshape(-1, 1, 2)], False, line.colour, thickness, cv2.LINE_AA, _SHIFT)
    if line.marks or len(points) == 1:
        for x, y in points:
            radius = round(2.4 * SCALE * 2**_SHIFT)
            cv2.circle(inside, (int(x), int(y)), radius, line.colour, -1, cv2.LINE_AA, _SHIFT)


def _draw_legend(canvas: np.ndarray, entries: list[Line], frame: _Frame, lines: list[Line], side: int) -> None:
    if not entries:
        return
    s, row, size = SCALE, 17 * SCALE, 8.5 * SCALE
    room = side - 40 * s if side else (frame.right - frame.left) // 2
    labels = [fit_text(line.label, size, room) for line in entries]
    width, height = max(text_size(label, size)[0] for label in labels) + 40 * s, row * len(entries) + 8 * s
    if side:
        x, y = frame.right + 4 * s, frame.top
    else:
        x, y = _emptiest(frame, lines, width, height)
        ground = canvas[y : y + height, x : x + width]
        ground[:] = (ground * 0.15 + 255 * 0.85).astype(np.uint8)
    for index, (line, label) in enumerate(zip(entries, labels, strict=True)):
        middle = y + 4 * s + row * index + row // 2
        cv2.line(
            canvas, (x + 8 * s, middle), (x + 26 * s, middle), line.colour, max(2, round(line.width * s)), cv2.LINE_AA
        )
        put_text(canvas, label, (x + 32 * s, middle + 4 * s), size, BLACK)


def _emptiest(frame: _Frame, lines: list[Line], width: int, height: int) -> tuple[int, int]:
    """The corner with the fewest points under the legend; the upper right one where all are alike."""
    gap = 8 * SCALE
    ys = (frame.top + gap, frame.bottom - gap - height)
    corners = [(x, y) for y in ys for x in (frame.right - gap - width, frame.left + gap)]
    dense = [np.stack((np.interp(np.linspace(0, 1, 200), np.linspace(0, 1, len(p)), p[:, 0]),
                       np.interp(np.linspace(0, 1, 200), np.linspace(0, 1, len(p)), p[:, 1])), -1)
             for p in (frame.points(line.x, line.y) for line in lines) if len(p)]  # fmt: skip
    points = np.concatenate(dense) if dense else np.empty((0, 2))

    def covered(corner: tuple[int, int]) -> int:
        low, high = np.array(corner), np.array(corner) + (width, height)
        return int(((points >= low) & (points <= high)).all(-1).sum())

    return min(corners, key=covered)


def _finite(line: Line) -> Line:
    good = np.isfinite(line.x) & np.isfinite(line.y)
    return Line(line.x[good], line.y[good], line.colour, line.label, line.width, line.marks)


def _span(values: list[np.ndarray], margin: float) -> tuple[float, float]:
    joined = np.concatenate(values) if values else np.empty(0)
    low, high = (float(joined.min()), float(joined.max())) if len(joined) else (0.0, 1.0)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        half = abs(low) * 0.5 or 0.5
        return low - half, high + half
    return low - margin * (high - low), high + margin * (high - low)
