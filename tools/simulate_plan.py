"""Walk over a planned run as its ranks would: is every position dealt once, and every picture drawn once?

    python tools/simulate_plan.py batch=4096 ranks=512 images=100000000 epochs=1

Takes the words of `visiontrain plan`, and seed=. Every window of each epoch is dealt to every rank, and the order of the epoch
is asked for the pictures at the positions that the ranks got. A bit for each picture is kept, and no list. How a window is
shared is asked of the plan (Plan.shares, rank by rank) for the first of each size and every 64th after; those between are cut
as the one before them, moved along.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from visiontrain import actions
from visiontrain.config.parse import parse_words
from visiontrain.config.schema import PlanConfig
from visiontrain.data.sampler import permutation
from visiontrain.data.shuffle import Shuffle
from visiontrain.errors import ConfigError, VisionTrainError
from visiontrain.training.plan import Plan

ASKED = 64  # every so many windows the plan itself is asked how they are shared
AT_ONCE = 2**16  # positions that are looked at together: they stay in the processor's cache


class Bits:
    """A set of numbers below n, a bit for each."""

    def __init__(self, n: int) -> None:
        self._bytes = np.zeros(-(-n // 8), np.uint8)

    def add(self, numbers: np.ndarray) -> None:
        numbers = np.sort(numbers)
        places, bits = numbers >> 3, np.uint8(1) << (numbers & 7).astype(np.uint8)
        first = np.flatnonzero(np.diff(places, prepend=-1))  # of the numbers that share a byte
        self._bytes[places[first]] |= np.bitwise_or.reduceat(bits, first)

    def __len__(self) -> int:
        return int(np.bitwise_count(self._bytes).sum(dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Epoch:
    """What was seen of one: ``windows``, ``slices`` of micro-batches that ranks got, (D,) images ``of_rank``.

    Of ``asked`` windows the plan itself said how they are shared. ``places`` are the different positions among those dealt,
    ``pictures`` the different pictures at them; ``idle`` ranks got nothing of the last window.
    """

    windows: int
    asked: int
    slices: int
    of_rank: np.ndarray
    places: int
    pictures: int
    idle: int

    def problems(self, planned: int) -> list[str]:
        """What is not as it must be where ``planned`` positions are to be dealt, a sentence each."""
        dealt = int(self.of_rank.sum())
        wrong = {
            f"{planned} positions were planned, {dealt} were dealt": dealt != planned,
            f"{dealt - self.places} positions were dealt again": dealt != self.places,
            f"{dealt - self.pictures} pictures were drawn again": dealt != self.pictures,
        }
        return [sentence for sentence, holds in wrong.items() if holds]


def main(words: Sequence[str]) -> None:
    seed, rest = read_seed(words)
    plan = actions.run_plan(parse_words(PlanConfig, rest))
    if not plan.images:
        raise ConfigError("images= is missing: how many pictures the run has")
    print("\n".join(plan.sentences()), flush=True)
    for number in range(plan.epochs):
        began = time.process_time()
        epoch = walk(plan, number, permutation(seed, number, plan.images))
        if problems := epoch.problems(sum(stop - start for start, stop in plan.each_window(number))):
            raise VisionTrainError(f"epoch {number + 1}: {'; '.join(problems)}")
        print(
            f"epoch {number + 1}: {summary(epoch)}; {time.process_time() - began:.0f} s of processor time", flush=True
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"peak memory of this process {peak:.0f} MB, {2 * plan.images / 8e6:.1f} MB of it the bits")


def read_seed(words: Sequence[str]) -> tuple[int, list[str]]:
    """The seed of the run, 0 if none is given, and the other words."""
    given = [word.removeprefix("seed=") for word in words if word.startswith("seed=")]
    if given and not given[-1].isdecimal():
        raise ConfigError(f"seed={given[-1]}: takes a whole number from 0")
    return int(given[-1]) if given else 0, [word for word in words if not word.startswith("seed=")]


def walk(plan: Plan, number: int, order: np.ndarray | Shuffle) -> Epoch:
    """Deal an epoch, counted from 0, to all ranks."""
    places, pictures = Bits(plan.images), Bits(plan.images)
    of_rank = np.zeros(plan.ranks, np.int64)
    windows = asked = slices = idle = 0
    for block in blocks(plan, number):
        starts, stops, ranks = np.concatenate([rows for rows, _ in block]).T
        of_rank += np.bincount(ranks, stops - starts, plan.ranks).astype(np.int64)
        positions = between(starts, stops)
        places.add(positions)
        pictures.add(order[positions])
        windows, asked, slices = windows + len(block), asked + sum(fresh for _, fresh in block), slices + len(starts)
        idle = plan.ranks - len(np.unique(block[-1][0][:, 2]))
    return Epoch(windows, asked, slices, of_rank, len(places), len(pictures), idle)


def blocks(plan: Plan, number: int) -> Iterator[list[tuple[np.ndarray, bool]]]:
    """Some windows at a time: of each the slices, and whether the plan was asked for them."""
    block: list[tuple[np.ndarray, bool]] = []
    waiting = 0
    for rows, fresh in shared(plan, number):
        block.append((rows, fresh))
        waiting += int((rows[:, 1] - rows[:, 0]).sum())
        if waiting >= AT_ONCE:
            yield block
            block, waiting = [], 0
    if block:
        yield block


def shared(plan: Plan, number: int) -> Iterator[tuple[np.ndarray, bool]]:
    """Of each window the slices, (N, 3) start, stop and rank, and whether the plan was asked for them."""
    size, origin, cut = 0, 0, np.empty((0, 3), np.int64)
    for window, (start, stop) in enumerate(plan.each_window(number)):
        if fresh := window % ASKED == 0 or stop - start != size:
            size, origin = stop - start, start
            slices = [(*each, rank) for rank in range(plan.ranks) for each in plan.shares(start, stop, rank)]
            cut = np.array(slices, np.int64).reshape(-1, 3)
        yield cut + np.array([start - origin, start - origin, 0]), fresh


def between(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """All whole numbers from each start to before its stop, one stretch after the other."""
    lengths = stops - starts
    first = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(starts - first, lengths)


def summary(epoch: Epoch) -> str:
    least, most = epoch.of_rank.min(), epoch.of_rank.max()
    idle = f", {epoch.idle} of them without an image in the last window" if epoch.idle else ""
    return (
        f"{epoch.windows} windows ({epoch.asked} asked of the plan), {epoch.slices} slices of micro-batches to {len(epoch.of_rank)} ranks{idle}; "
        f"{least} to {most} images a rank; {epoch.places} positions dealt, each once; {epoch.pictures} pictures drawn, each once"
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except VisionTrainError as error:
        sys.exit(f"{error}")
