"""Pictures kept decoded for a run, once on each host, whichever of its ranks and loader processes comes first."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from visiontrain.data.cache import Cache, close, in_memory, on_disk
from visiontrain.data.pixels import sides
from visiontrain.errors import ConfigError
from visiontrain.memory import free_bytes
from visiontrain.training.setup import Setup

LEFT_FREE = 0.1  # of the memory that can be had now


@contextmanager
def kept_pictures(setup: Setup) -> Iterator[Cache | None]:
    """The cache that ``cache=`` asks for, shared by the ranks of a host; None without.

    Raises:
        ConfigError: the pictures need more memory than there is.
        DataError: the user's cache cannot be written, or the disk has too little room.
    """
    kind, ranks = setup.config.cache, setup.ranks
    if not kind:
        yield None
        return
    size = setup.config.imgsz
    heights, widths = sides(setup.train, size)
    own = None
    if ranks.place.local == 0:
        own = on_disk(setup.train, size, heights, widths) if kind == "disk" else _in_memory(heights, widths)
    host = socket.gethostname()
    places = ranks.gather((host, own.path if own else ""))
    path = next(path for name, path in places if name == host and path)
    try:
        yield own or Cache(path, heights, widths, lasting=kind == "disk")
    finally:
        if own:
            close(own)


def told(cache: Cache) -> str:
    """What is kept, in a sentence."""
    where = f"in {cache.path}, also for later runs" if cache.lasting else "in memory"
    return (
        f"Training pictures are kept decoded {where}: {cache.pictures_bytes / 1e9:.2f} GB for all {len(cache.heights)}."
    )


def _in_memory(heights: np.ndarray, widths: np.ndarray) -> Cache:
    needed, free = int((heights.astype(np.int64) * widths).sum()) * 3, free_bytes(torch.device("cpu"))
    if needed > (1 - LEFT_FREE) * free:
        raise ConfigError(
            f"cache=ram: {len(heights)} pictures take {needed / 1e9:.1f} GB at training size, and {free / 1e9:.1f} GB of memory "
            "can be had; use cache=disk, a smaller imgsz, or leave cache out"
        )
    return in_memory(heights, widths)
