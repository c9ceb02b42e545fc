"""A picture on its way into another tree, and how numbers are written there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from visiontrain.data.labels import Labels

# Fractions with 15 digits and pixels with 11: what double precision gets wrong is rounded away, so that 260 stays 260
# and 0.276562 stays 0.276562 through any number of conversions.
_FRACTION, _PIXEL = 15, 11


@dataclass(frozen=True, slots=True)
class Placed:
    """A picture at ``name`` (with / between folders) below those of its split, its sides in pixels, and its labels."""

    name: str
    source: str
    height: int
    width: int
    labels: Labels

    def corners(self, boxes: np.ndarray) -> list[list[float]]:
        """x1 y1 x2 y2 in pixels of (N, 4) boxes as fractions."""
        scale = np.array((self.width, self.height) * 2, np.float64)
        half = boxes[:, 2:] / 2
        corners = np.concatenate((boxes[:, :2] - half, boxes[:, :2] + half), 1) * scale
        rounded = corners.clip(0, scale).round(_PIXEL) + 0.0  # no -0
        return [[float(value) for value in row] for row in rounded]


def fraction(value: float) -> str:
    """A fraction of the picture as decimal text."""
    return _text(value, _FRACTION)


def pixels(value: float) -> str:
    """Pixels as decimal text; whole ones without a point."""
    return _text(value, _PIXEL)


def rounded(value: float) -> float:
    """Pixels as a number."""
    return round(value, _PIXEL)


def _text(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


def write_new(file: Path, text: str) -> None:
    """Write a file that is not there, and the folders above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("x", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
