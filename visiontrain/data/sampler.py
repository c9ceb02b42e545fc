"""Which picture stands at which position of an epoch, and which positions make a micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from visiontrain.data.shuffle import Shuffle

BLOCK = 16  # positions whose samples have the same partners to draw from
APART = 128  # positions between a sample and its nearest partners; loader processes that divide 128 / BLOCK decode once
BACK = 2  # blocks to draw from: those 1 and 2 times APART before
FEW = 512  # pictures: an epoch of less draws from all of it
LISTED = 2**24  # pictures: up to here the order of an epoch is a list, of 128 MiB at the most


def permutation(seed: int, epoch: int, n: int, listed: int = LISTED) -> np.ndarray | Shuffle:
    """The order of an epoch: ``order[position]`` is the picture at a position, or the pictures at an array of them.

    A function of its arguments alone. Up to ``listed`` pictures it is an array, (n,) int64; above, no list is kept.
    """
    # Seeds are padded with zeros, so the 1 keeps this stream apart from that of the sample at position 0.
    entropy = (seed, epoch, 0, 1)
    return np.random.default_rng(entropy).permutation(n) if n <= listed else Shuffle(entropy, n)


def partner(position: int, n: int, rng: np.random.Generator) -> int:
    """Another position of an epoch of ``n`` for the mosaic at ``position``: one of those that were dealt a little earlier.

    Their pictures are in memory still, so a mosaic of four decodes one. They come from other windows than the sample's
    own, since pictures that meet again in one window would make its gradient noisier. A small split has few that are
    near, and most of it is in memory anyway: there it is any position.
    """
    if n < FEW:
        return int(rng.integers(n))
    drawn = int(rng.integers(BACK * BLOCK))
    back, inside = divmod(drawn, BLOCK)
    return (position // BLOCK * BLOCK - (back + 1) * APART + inside) % n


def block_of(keys: Sequence[Any]) -> Any:
    """What the lists of keys have in common that one worker should make: (epoch, block), or each its own."""
    first = keys[0]
    return (first[0], first[1] // BLOCK) if isinstance(first, tuple) else first


class WindowSampler:
    """Deal the windows of one epoch as micro-batches of consecutive positions.

    Iterating yields one list of (epoch, position) per micro-batch; none crosses a window.
    """

    def __init__(self, windows: Iterable[tuple[int, int]], batch: int, epoch0: int) -> None:
        self.windows = windows
        self.batch = batch
        self.epoch0 = epoch0

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for start, stop in self.windows:
            for first in range(start, stop, self.batch):
                yield [(self.epoch0, position) for position in range(first, min(first + self.batch, stop))]
