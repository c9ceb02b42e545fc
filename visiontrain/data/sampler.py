"""Which picture stands at which position of an epoch, and which positions make a micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np


def permutation(seed: int, epoch: int, n: int) -> np.ndarray:
    """The order of an epoch: (n,) int64, the picture at each position; a function of its arguments alone."""
    # Seeds are padded with zeros, so the 1 keeps this stream apart from that of the sample at position 0.
    return np.random.default_rng([seed, epoch, 0, 1]).permutation(n)


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
