"""The pictures of a split at training size, decoded once: as long as samples near by need them, or for good in a cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from visiontrain.data import image
from visiontrain.data.bad import BadPicture
from visiontrain.data.cache import Cache
from visiontrain.data.index import Index
from visiontrain.data.sampler import APART, BACK, BLOCK

MOST = 2**30  # bytes of pictures that the loader processes of a rank keep together


class Pixels:
    """Pictures by number: (h, w, 3) uint8 RGB, not to be written to, none larger than ``size``.

    Whatever draws a picture starts from these pixels, so where they come from (a file, memory, a cache) changes no bit.

    Args:
        index: of the split.
        size: (height, width) that a picture is shrunk to fit; smaller ones stay as they are.
        kept: bytes of the pictures decoded last that stay in memory.
        cache: keeps all of them; ``kept`` is not needed then.
    """

    def __init__(self, index: Index, size: tuple[int, int], kept: int = MOST, cache: Cache | None = None) -> None:
        self.index = index
        self.size = size
        self.kept = kept
        self.cache = cache
        self._own: dict[int, np.ndarray] = {}  # oldest first
        self._guests: dict[int, np.ndarray] = {}  # came as another's partner and were not there
        self._bytes = 0

    def begin(self, number: int) -> None:
        """Have a picture that a sample is about, and that later ones will draw from; where it is bad, drawing it tells."""
        if self.cache is None:
            try:
                picture = self[number]
            except BadPicture:
                return
            for kept in (self._own, self._guests):
                kept.pop(number, None)
            self._own[number] = picture

    def __getitem__(self, number: int) -> np.ndarray:
        """The pixels of a picture.

        Raises:
            BadPicture: it was readable when the index was made and is not any more.
        """
        if self.cache is not None:
            picture = self.cache.get(number)
            if picture is None:
                picture = read(self.index, number, self.size)
                self.cache.put(number, picture)
            return picture
        for kept in (self._own, self._guests):
            if number in kept:
                return kept[number]
        picture = self._guests[number] = read(self.index, number, self.size)
        self._bytes += picture.nbytes
        while self._bytes > self.kept and len(self._own) + len(self._guests) > 1:
            self._drop_one(number)
        return picture

    def _drop_one(self, but: int) -> None:
        """The oldest guest, else the oldest of all."""
        kept = self._guests if len(self._guests) > 1 else self._own
        oldest = next(number for number in kept if number != but)
        self._bytes -= kept.pop(oldest).nbytes

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which keeps its own."""
        return {**self.__dict__, "_own": {}, "_guests": {}, "_bytes": 0}


def room(size: tuple[int, int], makers: int = 1, ranks: int = 1) -> int:
    """Bytes of pictures that one of the processes that make samples keeps: the blocks that its own draw from, and its own.

    Args:
        size: (height, width) of a picture, pixels.
        makers: processes of a rank that make samples.
        ranks: that share an epoch.
    """
    blocks = BACK * math.ceil(APART / BLOCK / (makers * ranks)) + 1
    return min(blocks * BLOCK * size[0] * size[1] * 3, MOST // makers)


def fitted(height: int, width: int, size: tuple[int, int]) -> tuple[int, int]:
    """(height, width) in whole pixels of a picture shrunk to fit into ``size``."""
    gain = min(size[0] / height, size[1] / width, 1.0)
    return max(round(height * gain), 1), max(round(width * gain), 1)


def sides(index: Index, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The heights and the widths, (n,) each, of all pictures of a split as ``fitted`` gives them."""
    gains = np.minimum(np.minimum(size[0] / index.sizes[:, 0], size[1] / index.sizes[:, 1]), 1.0)
    high, wide = (np.maximum(np.rint(index.sizes[:, side] * gains).astype(np.int64), 1) for side in (0, 1))
    return high, wide


def read(index: Index, number: int, size: tuple[int, int]) -> np.ndarray:
    """A picture from its file, shrunk to fit into ``size``: JPEG at 1/2, 1/4 or 1/8 where no more is needed."""
    height, width = index.size(number)
    high, wide = fitted(height, width, size)
    path, reduce = index.path(number), 1
    while image.reducible(path) and reduce < 8 and max(high / height, wide / width) * reduce * 2 <= 1:
        reduce *= 2
    return image.resize(image.read(path, reduce, (height, width)), wide, high)
