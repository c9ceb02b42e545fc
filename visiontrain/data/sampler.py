"""Which picture stands at which position of an epoch, and which positions make a micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from visiontrain.data.shuffle import Shuffle

LISTED = 2**24  # pictures: up to here the order of an epoch is a list, of 128 MiB at the most


def permutation(seed: int, epoch: int, n: int, listed: int = LISTED) -> np.ndarray | Shuffle:
    """The order of an epoch: ``order[position]`` is the picture at a position, or the pictures at an array of them.

    A function of its arguments alone. Up to ``listed`` pictures it is an array, (n,) int64; above, no list is kept.
    """
    # Seeds are padded with zeros, so the 1 keeps this stream apart from that of the sample at position 0.
    entropy = (seed, epoch, 0, 1)
    return np.random.default_rng(entropy).permutation(n) if n <= listed else Shuffle(entropy, n)


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
