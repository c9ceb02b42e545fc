"""Boxes of many images as columns: what is there, or what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Objects:
    """Boxes of many images as columns, in original pixels.

    ``image`` (N,) int64 position in the split, ``boxes`` (N, 4) float64 xyxy, ``classes`` (N,) int64,
    ``scores`` (N,) float64 (ones for ground truth).
    """

    image: np.ndarray
    boxes: np.ndarray
    classes: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.image)

    @property
    def areas(self) -> np.ndarray:
        """(N,) square pixels."""
        return (self.boxes[:, 2:] - self.boxes[:, :2]).prod(1)

    def of(self, image: int) -> Objects:
        """The boxes of one image, in the order held."""
        return self.where(self.image == image)

    def where(self, chosen: np.ndarray) -> Objects:
        """The rows that ``chosen``, (N,) bool or row numbers, names."""
        return Objects(self.image[chosen], self.boxes[chosen], self.classes[chosen], self.scores[chosen])

    @staticmethod
    def join(parts: Sequence[Objects]) -> Objects:
        """One table of many; without any, an empty one."""
        none = Objects(np.zeros(0, np.int64), np.zeros((0, 4)), np.zeros(0, np.int64), np.zeros(0))
        columns = zip(*((p.image, p.boxes, p.classes, p.scores) for p in (none, *parts)), strict=True)
        return Objects(*(np.concatenate(column) for column in columns))
