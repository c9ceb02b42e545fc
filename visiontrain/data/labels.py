"""What a format says about one picture, and the verdicts on what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

ROUNDING = 1e-5  # written with six digits, a box that fills the picture sticks out by less
OVERSHOOT = 1e-2  # a box may be drawn this far over the border; more is named as such
_NO_BOXES, _NO_CLASSES = np.empty((0, 4)), np.empty(0, np.int64)  # shared: a million pictures may have none


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault in the data: its kind, where it stands (line 0: the whole file), what is wrong and what was done."""

    kind: str
    file: str
    line: int
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.message}"


def found_at(kind: str, file: str, unit: str, number: int, message: str) -> Finding:
    """A finding about a row: a ``unit`` that is no line (an annotation of a JSON) stands in the message."""
    return (
        Finding(kind, file, number, message)
        if unit == "line"
        else Finding(kind, file, 0, f"{unit} {number}: {message}")
    )


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of one picture: ``boxes`` (N, 4) float64 cx cy w h as fractions of the picture, ``classes`` (N,) int64.

    ``lines`` are the N lines in ``file`` that the boxes come from (``unit`` says what else they count), ``found`` is whether the picture has labels at all (an empty file counts), ``file`` where they are or should be,
    ``unknown`` the findings that make the data unusable: classes that the description does not name. ``ignored`` (M, 4) and
    ``ignored_classes`` (M,) are objects that nobody is to learn or to be scored on (crowd, difficult), ``outlines`` is
    how many objects have an outline of which only the box is kept.
    """

    boxes: np.ndarray
    classes: np.ndarray
    file: str
    found: bool
    beside: bool = False
    rows: int = 0
    findings: Sequence[Finding] = ()
    unknown: Sequence[Finding] = ()
    lines: Sequence[int] = ()
    unit: str = "line"
    ignored: np.ndarray = field(default_factory=lambda: _NO_BOXES)
    ignored_classes: np.ndarray = field(default_factory=lambda: _NO_CLASSES)
    outlines: int = 0


def no_labels(file: str) -> Labels:
    """Of a picture without a label file; ``file`` is where it should be."""
    return Labels(_NO_BOXES, _NO_CLASSES, file, found=False)


class PixelRows:
    """Gathers the objects of one picture whose format gives corners in pixels.

    Args:
        file: where they stand.
        size: (height, width) of the picture in pixels.
        unit: what the numbers of rows count, ``line`` where they are lines of ``file``.
    """

    def __init__(self, file: str, size: tuple[int, int], unit: str = "line") -> None:
        self.file = file
        self.height, self.width = size
        self.unit = unit
        self.rows = self.outlines = 0
        self.findings: list[Finding] = []
        self.unknown: list[Finding] = []
        self._seen: dict[tuple[object, ...], int] = {}
        self._kept: dict[bool, list[tuple[int, int, list[float]]]] = {False: [], True: []}  # by whether it is ignored

    def fault(self, kind: str, number: int, message: str) -> None:
        """Note what is wrong with a row."""
        self.findings.append(found_at(kind, self.file, self.unit, number, message))

    def stop(self, kind: str, number: int, message: str) -> None:
        """Note what is wrong with a row and makes the data unusable."""
        self.unknown.append(found_at(kind, self.file, self.unit, number, message))

    def add(
        self, number: int, klass: int, corners: Sequence[float], row: str, ignored: bool = False, area: float = 0.0
    ) -> None:
        """Take x1 y1 x2 y2 in pixels, or note why not.

        Args:
            row: what is written, for the message.
            ignored: nobody is to learn it or to be scored on it.
            area: of the outline, if there is one: two objects may have one box.
        """
        x1, y1, x2, y2 = corners
        if not all(map(math.isfinite, corners)):
            self.fault("row_number", number, f"nan, infinite or no number, dropped: {row}")
        elif x2 <= x1 or y2 <= y1:
            self.fault("row_size", number, f"width {x2 - x1:g} and height {y2 - y1:g} must be above 0, dropped: {row}")
        elif (first := self._seen.get(key := (klass, ignored, area, *corners))) is not None:
            self.fault("row_duplicate", number, f"same as {self.unit} {first}, dropped: {row}")
        elif box := self._inside(number, x1, y1, x2, y2, row):
            self._seen[key] = number
            self._kept[ignored].append((number, klass, box))

    def _inside(self, number: int, x1: float, y1: float, x2: float, y2: float, row: str) -> list[float]:
        over = max(-x1 / self.width, -y1 / self.height, x2 / self.width - 1, y2 / self.height - 1)
        x1, y1, x2, y2 = max(x1, 0.0), max(y1, 0.0), min(x2, float(self.width)), min(y2, float(self.height))
        if x2 <= x1 or y2 <= y1:
            text = f"nothing of the box lies in the picture of {self.width} x {self.height} pixels, dropped: {row}"
            self.fault("row_outside", number, text)
            return []
        if over > ROUNDING:
            self.fault(
                overshoot_kind(over), number, f"reaches {over:.2g} of the picture over its border, clipped: {row}"
            )
        return [
            (x1 + x2) / 2 / self.width,
            (y1 + y2) / 2 / self.height,
            (x2 - x1) / self.width,
            (y2 - y1) / self.height,
        ]

    def labels(self) -> Labels:
        """What was gathered."""
        (lines, classes, boxes), (_, ignored_classes, ignored) = (
            tuple(zip(*kept, strict=True)) or ((), (), ()) for kept in (self._kept[False], self._kept[True])
        )
        return Labels(
            np.array(boxes, np.float64).reshape(-1, 4),
            np.array(classes, np.int64),
            self.file,
            found=True,
            rows=self.rows,
            findings=self.findings,
            unknown=self.unknown,
            lines=lines,
            unit=self.unit,
            ignored=np.array(ignored, np.float64).reshape(-1, 4),
            ignored_classes=np.array(ignored_classes, np.int64),
            outlines=self.outlines,
        )


def overshoot_kind(over: float) -> str:
    """The kind of finding of a box that was clipped, ``over`` the fraction of the picture that it stuck out."""
    return "row_clipped" if over <= OVERSHOOT else "row_outside"
