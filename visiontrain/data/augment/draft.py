"""What passes through the augmentations: a sample in the making, and what each of them may draw on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from visiontrain.config.image_size import ImageSize

if TYPE_CHECKING:
    from visiontrain.config.schema import AugmentConfig
    from visiontrain.data.index import Index


@dataclass(frozen=True, slots=True)
class Tile:
    """A picture laid on the canvas: canvas pixel = picture pixel * ``gain`` + (``left``, ``top``).

    ``index`` is the picture's number in the index, ``canvas`` the (height, width) beyond which nothing of it is seen.
    """

    index: int
    gain: float
    left: float
    top: float
    canvas: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Draft:
    """A sample in the making.

    ``index`` is the picture it is about. The mosaic fills ``tiles``; the affine turns them into ``image`` (H, W, 3)
    uint8 RGB with ``boxes`` (N, 4) float64 xyxy in its pixels and ``classes`` (N,).
    """

    index: int
    tiles: tuple[Tile, ...] = ()
    image: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 3), np.uint8))
    boxes: np.ndarray = field(default_factory=lambda: np.empty((0, 4)))
    classes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Context:
    """Of one sample: its random numbers, the settings, the ``size`` of the result, and more pictures.

    ``pick`` draws another position of the epoch with ``rng`` and gives the number of the picture there; ``closed`` is
    true in the last epochs, which see single pictures.
    """

    rng: np.random.Generator
    settings: AugmentConfig
    size: ImageSize
    pictures: Index
    pick: Callable[[], int]
    closed: bool = False
