"""Which picture stands at which position of an epoch, and which positions make a micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from visiontrain.data.shuffle import Shuffle

BLOCK = 16  # positions whose samples have the same partners to draw from
APART = 128  # positions between a sample and its first partner, and between that and the next
BACK = 3  # blocks to draw from, one for each of a mosaic's other pictures
FEW = 512  # pictures: an epoch of less draws from all of it
LISTED = 2**24  # pictures: up to here the order of an epoch is a list, of 128 MiB at the most


def permutation(seed: int, epoch: int, n: int, listed: int = LISTED) -> np.ndarray | Shuffle:
    """The order of an epoch: ``order[position]`` is the picture at a position, or the pictures at an array of them.

    A function of its arguments alone. Up to ``listed`` pictures it is an array, (n,) int64; above, no list is kept.
    """
    # Seeds are padded with zeros, so the 1 keeps this stream apart from that of the sample at position 0.
    entropy = (seed, epoch, 0, 1)
    return np.random.default_rng(entropy).permutation(n) if n <= listed else Shuffle(entropy, n)


def partners(seed: int, epoch: int, position: int, n: int, rng: np.random.Generator) -> Iterator[int]:
    """Positions of an epoch of ``n`` whose pictures the sample at ``position`` may draw, one after the other, without end.

    A small split has them anywhere. Else the first three, which a mosaic wants, come from the blocks 1, 2 and 3 times
    ``APART`` before, dealt to the samples of the block at random: their pictures are in memory still, so a mosaic of four
    decodes one; each picture is dealt three times in an epoch, and no two samples of a block, or of a window that is not
    larger than ``APART``, show the same. What is drawn beyond that is any position of these blocks.
    """
    if n < FEW:
        yield from anywhere(rng, 0, n)
    block, inside = divmod(position, BLOCK)
    dealt = _dealt(seed, epoch, block)
    for row in dealt:
        yield int(row[inside]) % n
    while True:
        yield int(dealt.flat[rng.integers(dealt.size)]) % n


def anywhere(rng: np.random.Generator, first: int, last: int) -> Iterator[int]:
    """Positions of [first, last), each as likely, without end."""
    while True:
        yield int(rng.integers(first, last))


@lru_cache(maxsize=8)
def _dealt(seed: int, epoch: int, block: int) -> np.ndarray:
    """(BACK, BLOCK) positions, below 0 at the start of an epoch: those of each sample of a block."""
    rng = np.random.default_rng((seed, epoch, block, 3))
    places = np.array([rng.permutation(BLOCK) for _ in range(BACK)])
    return block * BLOCK - APART * np.arange(1, BACK + 1)[:, None] + places


def block_of(keys: Sequence[Any]) -> Any:
    """What the lists of keys have in common that one worker should make: (epoch, block), or each its own."""
    first = keys[0]
    return (first[0], first[1] // BLOCK) if isinstance(first, tuple) else first


def stretch_of(keys: Sequence[Any]) -> tuple[int, int]:
    """(epoch, stretch) of a list of keys: the samples of the next stretch draw from this one's."""
    return keys[0][0], keys[0][1] // APART


class Orders:
    """Which picture stands at each position of an epoch: a function of seed, epoch and position, and of what is given here.

    Args:
        seed: of the run.
        n: pictures.
        factors: (n,) how often each is drawn against the others (``repeat_factors``); None: each once in an epoch.
        kinds: (n,) whole numbers: pictures of equal or near ones come together (``shape_kinds``); None: as it comes.
        block: with ``kinds``, positions in a row that get like pictures: those of a window.
    """

    def __init__(
        self, seed: int, n: int, factors: np.ndarray | None = None, kinds: np.ndarray | None = None, block: int = 1
    ) -> None:
        self.seed, self.n, self.factors, self.kinds, self.block = seed, n, factors, kinds, block

    def __call__(self, epoch: int) -> np.ndarray | Shuffle:
        """Of an epoch, counted from 0: n pictures."""
        if self.factors is None and self.kinds is None:
            return permutation(self.seed, epoch, self.n)
        order = np.asarray(permutation(self.seed, epoch, self.n, listed=self.n))
        rng = np.random.default_rng((self.seed, epoch, 0, 2))
        if self.factors is not None:
            order = drawn(order, self.factors, rng)
        return order if self.kinds is None else blocked(order, self.kinds, self.block, rng)


def drawn(order: np.ndarray, factors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """As many pictures as ``order`` has, each the whole part of n * its share of the factors times, or once more.

    Systematic sampling: marks at equal distances on the factors laid end to end in random order, then shuffled.

    Source:
        Madow and Madow, On the Theory of Systematic Sampling, Ann. Math. Statist. 15, 1944.
    """
    ends = np.cumsum(factors[order])
    marks = (np.arange(len(order)) + rng.random()) * (ends[-1] / len(order))
    return rng.permutation(order[np.searchsorted(ends, marks, side="right").clip(max=len(order) - 1)])


def blocked(order: np.ndarray, kinds: np.ndarray, block: int, rng: np.random.Generator) -> np.ndarray:
    """The pictures of ``order`` in blocks of like kinds: blocks are shuffled, and so is each of them.

    What does not fill a block stands at the end, and every picture is as likely to be there.
    """
    like = order[np.argsort(kinds[order], kind="stable")]  # equal kinds stay in random order
    rest = len(order) % block
    last = (rng.integers(len(order)) + np.arange(rest)) % len(order)
    blocks = rng.permutation(np.delete(like, last).reshape(-1, block))
    return np.concatenate((rng.permuted(blocks, axis=1).ravel(), rng.permutation(like[last])))


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
