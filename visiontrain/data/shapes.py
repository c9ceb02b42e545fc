"""The embedded data set: circles, triangles, squares and stars on textured grounds, drawn into the user's cache.

Its labels follow from the outlines that are drawn, so they are exact, and its random numbers from the picture's number
alone, so that every machine has the same data. The outline tells the class; so does the hue, as a rule: a run
of a few minutes has to learn it, and a mistake in the order of colours or in their variation has to show.
"""

from __future__ import annotations

import math
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from visiontrain.data.shapes_paint import ground, paint_shape, strokes
from visiontrain.errors import DataError

CLASSES = ("circle", "triangle", "square", "star")
COUNTS = {"train": 240, "val": 60}
SIDES = ((400, 300), (300, 400), (320, 320), (416, 312), (384, 256), (352, 352), (256, 384))  # width, height
_SEED = 20240501
_SMALL, _LARGE, _TINY = 40.0, 180.0, 14.0  # pixels across
_TINY_SHARE = 0.02
_ANY_HUE = 0.05
_OVERLAP = 0.35  # of the smaller of two boxes


@dataclass(frozen=True, slots=True)
class Shape:
    """One object: class number and outline, (K, 2) float64 corners in pixels (many for a circle)."""

    number: int
    outline: np.ndarray

    def box(self, width: int, height: int) -> np.ndarray:
        """(4,) xyxy in pixels, clipped to the picture."""
        corners = np.concatenate((self.outline.min(axis=0), self.outline.max(axis=0)))
        return corners.clip(0, (width, height, width, height))


def generate(root: Path) -> None:
    """Draw the data set into ``root`` unless it is there; safe for several processes at once.

    Raises:
        DataError: the folder cannot be written, or is there but not complete.
    """
    if not root.is_dir():
        try:
            _write(root)
        except OSError as error:
            raise DataError(
                f"{root}: the shapes cannot be drawn there: {error.strerror}; set VISIONTRAIN_CACHE to a folder with 50 MB free"
            ) from error
    for split, count in COUNTS.items():
        there = len(list((root / "images" / split).glob("*.jpg")))
        if there != count:
            raise DataError(
                f"{root}: {there} of {count} {split} pictures are there; remove this folder, it is drawn again"
            )


def _write(root: Path) -> None:
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".drawing-", dir=root.parent) as temporary:
        made = Path(temporary) / root.name
        for split in COUNTS:
            (made / "images" / split).mkdir(parents=True)
            (made / "labels" / split).mkdir(parents=True)
        jobs = [(made, split, number) for split, count in COUNTS.items() for number in range(count)]
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            list(pool.map(lambda job: _write_one(*job), jobs))
        try:
            made.rename(root)
        except OSError:
            if not root.is_dir():  # else another process was first, with the same pictures
                raise


def _write_one(folder: Path, split: str, number: int) -> None:
    picture, shapes = draw(split, number)
    encoded = cv2.imencode(".jpg", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 93])[1]
    (folder / "images" / split / f"{number:04d}.jpg").write_bytes(encoded.tobytes())
    height, width = picture.shape[:2]
    rows = [_row(shape, width, height) for shape in shapes]
    (folder / "labels" / split / f"{number:04d}.txt").write_text("".join(rows), encoding="ascii", newline="\n")


def _row(shape: Shape, width: int, height: int) -> str:
    left, top, right, bottom = shape.box(width, height) / (width, height, width, height)
    return f"{shape.number} {(left + right) / 2:.6f} {(top + bottom) / 2:.6f} {right - left:.6f} {bottom - top:.6f}\n"


def draw(split: str, number: int) -> tuple[np.ndarray, list[Shape]]:
    """Picture ``number`` of a split: (H, W, 3) uint8 RGB, and what is in it from back to front."""
    rng = np.random.default_rng([_SEED, list(COUNTS).index(split), number])
    width, height = SIDES[rng.integers(len(SIDES))]
    shapes = compose(rng, width, height)
    canvas = ground(rng, width, height)
    strokes(rng, canvas)
    for shape in shapes:
        paint_shape(rng, canvas, shape.outline, _hue(rng, shape.number))
    # A little grain, so that flat fills do not tell the drawn from the photographed.
    grain = rng.standard_normal((height, width, 1), np.float32) * np.float32(rng.uniform(2, 7))
    return np.rint(canvas + grain).clip(0, 255).astype(np.uint8), shapes


def compose(rng: np.random.Generator, width: int, height: int) -> list[Shape]:
    """Three to eight shapes that overlap a little and stick out of the picture by less than a third."""
    shapes: list[Shape] = []
    boxes: list[np.ndarray] = []
    wanted = int(rng.integers(3, 9))
    for _ in range(30 * wanted):
        if len(shapes) == wanted:
            break
        shape = _shape(rng, width, height)
        box = shape.box(width, height)
        whole = np.concatenate((shape.outline.min(axis=0), shape.outline.max(axis=0)))
        if _area(box) > 0.7 * _area(whole) and all(_shared(box, other) < _OVERLAP for other in boxes):
            shapes.append(shape)
            boxes.append(box)
    return shapes


def _shape(rng: np.random.Generator, width: int, height: int) -> Shape:
    number = int(rng.integers(len(CLASSES)))
    tiny = rng.random() < _TINY_SHARE
    low, high = (_TINY, _SMALL) if tiny else (_SMALL, min(_LARGE, 0.55 * min(width, height)))
    across = math.exp(rng.uniform(math.log(low), math.log(high)))
    corners = _unit_outline(rng, CLASSES[number])
    turn = rng.uniform(0, 2 * math.pi)
    cos, sin = math.cos(turn), math.sin(turn)
    corners = (corners * (rng.uniform(0.82, 1.0), 1.0)) @ np.array(((cos, sin), (-sin, cos)))
    corners *= across / (corners.max(axis=0) - corners.min(axis=0)).max()
    middle = (corners.max(axis=0) + corners.min(axis=0)) / 2
    return Shape(number, corners - middle + rng.uniform((0, 0), (width, height)))


def _hue(rng: np.random.Generator, number: int) -> float | None:
    """The class's own hue, give or take 25 degrees; one in twenty has any."""
    if rng.random() < _ANY_HUE:
        return None
    return 2 * math.pi * number / len(CLASSES) + rng.uniform(-0.44, 0.44)


def _unit_outline(rng: np.random.Generator, name: str) -> np.ndarray:
    if name == "star":
        radii = np.tile((1.0, rng.uniform(0.38, 0.48)), 5)
        return _ring(10, radii)
    return _ring({"circle": 120, "triangle": 3, "square": 4}[name], np.ones(1))


def _ring(corners: int, radii: np.ndarray) -> np.ndarray:
    angles = np.arange(corners) * (2 * math.pi / corners)
    return np.stack((np.cos(angles), np.sin(angles)), axis=1) * radii[:, None]


def _area(box: np.ndarray) -> float:
    return float(np.prod(np.maximum(box[2:] - box[:2], 0)))


def _shared(one: np.ndarray, other: np.ndarray) -> float:
    """Common area over that of the smaller box."""
    common = np.concatenate((np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])))
    return _area(common) / min(_area(one), _area(other))
