"""Height and width of the pictures that a model sees: one type from the settings to the loader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

STRIDE = 32  # pixels: the largest stride of the models; sides are multiples of it


class ImageSize(NamedTuple):
    """Height and width in pixels; as text ``640`` for a square, else ``384,640``."""

    height: int
    width: int

    def __str__(self) -> str:
        return ",".join(map(str, self[: 1 + (self.height != self.width)]))

    @property
    def written(self) -> int | list[int]:
        """For files: one number for a square, else [height, width]."""
        return self.height if self.height == self.width else list(self)

    def gain(self, height: float, width: float) -> float:
        """The factor by which a picture fills this size and is still seen whole."""
        return min(self.height / height, self.width / width)

    def scaled(self, factor: float) -> ImageSize:
        """This size times ``factor``, to the nearest multiples of the stride, at least one."""
        return ImageSize(*(max(round(side * factor / STRIDE) * STRIDE, STRIDE) for side in self))

    def shrunk(self, factor: float) -> ImageSize:
        """This size times ``factor``, down to multiples of the stride, at least one."""
        return ImageSize(*(max(int(side * factor) // STRIDE * STRIDE, STRIDE) for side in self))


def image_size(value: int | Sequence[int]) -> ImageSize:
    """The size that one number (of a square) or a pair (height, width) stands for."""
    return ImageSize(value, value) if isinstance(value, int) else ImageSize(*value)
