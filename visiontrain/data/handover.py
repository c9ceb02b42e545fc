"""How pictures go from a loader process to the one that trains: through shared memory that both keep.

Torch makes new shared memory for every batch, and the system finds, clears and takes back each of its pages: on a virtual
machine that took 1.4 ms for a picture of 640 px, a fifth of the time that making it takes. Here each process has a few slots that
it writes one after the other; the pictures are copied out as they arrive, before the slot's turn comes again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from visiontrain.batch import Batch

SLOTS = 2  # for each process: as many tasks as torch lets it have, the one in the making among them
_NUMBERS = count()
_SEEN: dict[str, dict[tuple[int, int], Tensor]] = {}  # of each loader of this process: its workers' slots


def open_loader() -> str:
    """A name for a loader, under which the ``Slots`` of its workers hand over."""
    name = f"{os.getpid()} {next(_NUMBERS)}"
    _SEEN[name] = {}
    return name


def close_loader(name: str) -> None:
    """Give the memory of a loader's slots back; what still arrives from its workers has no pictures."""
    _SEEN.pop(name, None)


class Slots:
    """The shared memory of a loader process.

    Args:
        loader: as ``open_loader`` named it.
    """

    def __init__(self, loader: str) -> None:
        self._loader = loader
        self._slots: list[Tensor] = [torch.empty(0, dtype=torch.uint8)] * SLOTS
        self._told = [True] * SLOTS  # whether the other process has them
        self._turn = -1

    def take(self, size: int) -> Tensor:
        """The next slot, (size,) uint8 or more: its content is lost, and that of the next one stays."""
        self._turn = (self._turn + 1) % SLOTS
        if len(self._slots[self._turn]) < size:
            self._slots[self._turn] = torch.empty(size, dtype=torch.uint8).share_memory_()
            self._told[self._turn] = False
        return self._slots[self._turn]

    def hand_over(self, batch: Batch) -> HandedOver:
        """What to send for a batch whose ``images`` lie in the slot that was taken last."""
        worker, memory = get_worker_info(), None
        if not self._told[self._turn]:
            self._told[self._turn], memory = True, self._slots[self._turn]
        images = batch.images
        place = (worker.id if worker else 0, self._turn)
        layout = (images.shape, images.stride(), images.storage_offset())
        empty = torch.empty(images.shape, dtype=torch.uint8, device="meta")
        return HandedOver(self._loader, place, memory, layout, replace(batch, images=empty))


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A batch without its pictures; where it arrives, it is a Batch with them."""

    loader: str
    place: tuple[int, int]  # worker and slot
    memory: Tensor | None  # the slot, where it is new
    layout: tuple[Any, ...]  # shape, strides and first byte of the pictures
    batch: Batch

    def __reduce__(self) -> tuple[Callable[..., Batch], tuple[Any, ...]]:
        return _arrived, (self.loader, self.place, self.memory, self.layout, self.batch)


def _arrived(
    loader: str, place: tuple[int, int], memory: Tensor | None, layout: tuple[Any, ...], batch: Batch
) -> Batch:
    slots = _SEEN.get(loader)
    if slots is None:  # closed meanwhile: nobody looks at the batch
        return batch
    if memory is not None:
        slots[place] = memory
    return replace(batch, images=slots[place].as_strided(*layout).clone())
