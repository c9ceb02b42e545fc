"""What passes through the augmentations: a sample in the making, and what each of them may draw on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from visiontrain.config.image_size import ImageSize
from visiontrain.drawing import Drawing

if TYPE_CHECKING:
    from visiontrain.config.groups import AugmentConfig
    from visiontrain.data.pixels import Pixels


@dataclass(frozen=True, slots=True)
class Tile:
    """A picture laid on the canvas; ``index`` is its number in the index.

    ``left``, ``top``, ``width`` and ``height`` are canvas pixels: the canvas pixel of a fraction (u, v) of the picture is
    (left + u * width, top + v * height).
    """

    index: int
    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Draft:
    """A sample in the making.

    ``index`` is the picture it is about. The mosaic fills ``tiles`` and says how large their ``canvas`` is, (height,
    width), beyond which nothing of them is seen; the affine turns them into ``image`` (H, W, 3) uint8 RGB with ``boxes``
    (N, 4) float64 xyxy in its pixels and ``classes`` (N,). With augment_device=gpu there is a ``drawing`` and no image.
    """

    index: int
    tiles: tuple[Tile, ...] = ()
    canvas: tuple[int, int] = (0, 0)
    image: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 3), np.uint8))
    boxes: np.ndarray = field(default_factory=lambda: np.empty((0, 4)))
    classes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    drawing: Drawing | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """Of one sample: its random numbers, the settings, the ``size`` of the result, and more pictures.

    ``pick`` draws with ``rng`` the number of another picture; ``closed`` is true in the last epochs, which see single
    pictures. ``bad`` takes what is wrong with pictures that cannot be read.
    """

    rng: np.random.Generator
    settings: AugmentConfig
    size: ImageSize
    pictures: Pixels
    pick: Callable[[], int]
    closed: bool = False
    bad: list[str] = field(default_factory=list)
