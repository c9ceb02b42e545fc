"""Label formats: one file each, and its line in FORMATS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from visiontrain.data.description import Description
from visiontrain.data.formats import yolo
from visiontrain.data.labels import Finding, Labels


class Format(Protocol):
    """How one split of a data set is read; ``labels`` is called from several threads."""

    def pictures(self) -> list[str]:
        """The paths of the split's pictures, sorted, each once."""

    def labels(self, picture: str, size: tuple[int, int]) -> Labels:
        """Labels of a picture of ``size`` (height, width)."""

    def conclude(self, read: Sequence[Labels]) -> list[Finding]:
        """Verdicts on the split as a whole; raises DataError where it cannot be used."""

    def strays(self, pictures: Sequence[str]) -> list[str]:
        """Label files near those of ``pictures`` that belong to no picture on the disk."""


FORMATS: dict[str, Callable[[Description, str], Format]] = {"yolo": yolo.YoloSplit}
