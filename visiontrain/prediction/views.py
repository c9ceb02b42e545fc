"""The ways in which one picture is looked at: as validation does, in several sizes, mirrored, and in tiles; and back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from visiontrain.batch import Sample
from visiontrain.config.image_size import ImageSize
from visiontrain.data.image import letterbox

VARIANTS = ((1.0, False), (0.83, True), (0.67, False))  # of test-time augmentation: size, and whether mirrored
CUT = 2.0  # pixels: a box that ends so near the border of a tile goes on beyond it
_NOTHING = np.zeros((0, 4), np.float32), np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class View:
    """A piece of a picture as the network sees it, in ``sample``; ``corner`` (x, y) is where it begins in the picture.

    ``inner`` says which of its borders left, top, right and bottom lie inside the picture.
    """

    sample: Sample
    corner: tuple[int, int] = (0, 0)
    inner: tuple[bool, bool, bool, bool] = (False, False, False, False)
    mirrored: bool = False
    tile: bool = False

    def in_picture(self, boxes: np.ndarray) -> np.ndarray:
        """(N, 4) xyxy pixels of the piece -> of the picture."""
        if self.mirrored:
            width = self.sample.original[1]
            boxes = np.stack((width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]), 1)
        return boxes + np.tile(self.corner, 2)

    def whole(self, boxes: np.ndarray) -> np.ndarray:
        """Which boxes, in pixels of the piece, no inner border of it cuts, (N,) bool."""
        height, width = self.sample.original
        room = np.concatenate((boxes[:, :2], (width, height) - boxes[:, 2:]), 1)
        return ~((room < CUT) & np.array(self.inner)).any(1)


@dataclass(frozen=True, slots=True)
class Views:
    """How pictures are looked at.

    Args:
        imgsz: that a picture fits into.
        stride, canvas: of the network, as ``letterbox`` takes them.
        augment: in several sizes too, one mirrored.
        tile: side of tiles, pixels; 0: none.
        overlap: share of a tile that its neighbour has too, at least.
    """

    imgsz: ImageSize
    stride: int = 32
    canvas: tuple[int, int] | None = None
    augment: bool = False
    tile: int = 0
    overlap: float = 0.2

    @property
    def single(self) -> bool:
        """Whether each picture is looked at once."""
        return not (self.augment or self.tile)

    def of(self, image: np.ndarray) -> Iterator[View]:
        """Of (H, W, 3) uint8 RGB, one after another: a large picture has many tiles."""
        for factor, mirrored in VARIANTS if self.augment else VARIANTS[:1]:
            size = self.imgsz if factor == 1 else self.imgsz.scaled(factor)
            yield View(self._seen(image[:, ::-1] if mirrored else image, size), mirrored=mirrored)
        if self.tile and max(image.shape[:2]) > self.tile:
            yield from self._tiles(image)

    def _tiles(self, image: np.ndarray) -> Iterator[View]:
        """As they are: a pixel of the picture is a pixel of the network's input, but where its size is fixed."""
        height, width = image.shape[:2]
        for top in starts(height, self.tile, self.overlap):
            for left in starts(width, self.tile, self.overlap):
                piece = image[top : top + self.tile, left : left + self.tile]
                right, bottom = left + piece.shape[1], top + piece.shape[0]
                inner = (left > 0, top > 0, right < width, bottom < height)
                yield View(self._seen(piece, ImageSize(*piece.shape[:2])), (left, top), inner, tile=True)

    def _seen(self, piece: np.ndarray, size: ImageSize) -> Sample:
        image, scale, pad = letterbox(np.ascontiguousarray(piece), size, self.stride, self.canvas)
        boxes, classes = _NOTHING
        return Sample(image, classes, boxes, 0, original=piece.shape[:2], scale=scale, pad=pad)


def starts(length: int, tile: int, overlap: float) -> list[int]:
    """Where tiles begin along a side, evenly spread: the first at its start, the last at its end."""
    if length <= tile:
        return [0]
    count = math.ceil((length - tile) / (tile * (1 - overlap))) + 1
    return [round(at) for at in np.linspace(0, length - tile, count)]
