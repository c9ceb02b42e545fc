"""Label formats: one file each, and its line in FORMATS."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from visiontrain.data.description import Description
from visiontrain.data.formats import coco, voc, yolo
from visiontrain.data.formats.placed import Placed
from visiontrain.data.labels import Finding, Labels
from visiontrain.errors import DataError


class Format(Protocol):
    """How one split of a data set is read and written; ``labels`` is called from several threads, after ``pictures``."""

    HOME: str  # folder of the pictures where a data set is written
    IGNORED: str  # how it says that an object is ignored; empty: it cannot, and such objects are not written

    def __init__(self, description: Description, split: str) -> None: ...

    def pictures(self) -> list[str]:
        """The paths of the split's pictures, sorted, each once."""

    def labels(self, picture: str, size: tuple[int, int]) -> Labels:
        """Labels of a picture of ``size`` (height, width)."""

    def conclude(self, read: Sequence[Labels]) -> list[Finding]:
        """Verdicts on the split as a whole; raises DataError where it cannot be used."""

    def places(self, pictures: Sequence[str]) -> set[str]:
        """Files and folders (each without those below it) that decide what ``pictures`` and ``labels`` say."""

    def strays(self, pictures: Sequence[str]) -> list[Finding]:
        """Label files near those of ``pictures`` that belong to no picture on the disk, or to one that has another."""

    @staticmethod
    def write(root: Path, split: str, pictures: Sequence[Placed], names: Sequence[str]) -> dict[str, str]:
        """Write the labels of a split under ``root``; returns what the description says of it, key by key."""


FORMATS: dict[str, type[Format]] = {"yolo": yolo.YoloSplit, "coco": coco.CocoSplit, "voc": voc.VocSplit}


def open_split(description: Description, split: str) -> Format:
    """The reader of a split.

    Raises:
        DataError: there is no such format.
    """
    if description.format not in FORMATS:
        near = difflib.get_close_matches(description.format.lower(), FORMATS, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise DataError(f"{description.file}: format is {description.format!r}, known are {', '.join(FORMATS)}{meant}")
    return FORMATS[description.format](description, split)
