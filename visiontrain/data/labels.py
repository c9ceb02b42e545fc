"""What a format says about one picture, and the verdicts on what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of one picture: ``boxes`` (N, 4) float64 cx cy w h as fractions of the picture, ``classes`` (N,) int64.

    ``lines`` are the N lines in ``file`` that the boxes come from, ``found`` is whether the picture has labels at all (an empty file counts), ``file`` where they are or should be,
    ``unknown`` the findings that make the data unusable: classes that the description does not name.
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
