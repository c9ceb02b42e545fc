"""One reading of the data for all ranks, and one copy in memory where they are on one host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from visiontrain.data.index import Index, mapped
from visiontrain.distributed import Ranks


def read_for_all(ranks: Ranks, read: Callable[[], Sequence[Index]]) -> list[Index]:
    """Rank 0 reads. Ranks that see what it kept map the same files, all others are sent the columns.

    Args:
        ranks: of the run.
        read: what rank 0 does, however long it takes.

    Raises:
        VisionTrainError: what ``read`` raised, on every rank.
        RankLost: another rank did not come.
    """
    mine: list[Index] = []

    def kept() -> list[tuple[Path, str] | None]:
        mine.extend(read())
        return [index.place for index in mine]

    places = ranks.first(kept)
    again = (mapped(place) for place in places if place)
    here = mine or [index for index in again if index is not None]
    if all(ranks.gather(len(here) == len(places))):
        return here
    whole = ranks.first(lambda: [replace(index) for index in mine])  # without its place, so that it is sent
    return here if len(here) == len(places) else whole
