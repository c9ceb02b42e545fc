"""The data-parallel ranks of a run. One process looks like a group of one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from visiontrain.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among the data-parallel ranks: ``rank`` of ``size``, on ``device``."""

    device: torch.device
    rank: int = 0
    size: int = 1

    def sum_(self, tensor: Tensor) -> None:
        """Sum over all ranks, in place; one rank holds the sum already."""

    def any(self, flag: bool) -> bool:
        """True on every rank if it is true on one; one rank has nobody else to ask."""
        return flag

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Keep gradients local in forward and backward; one rank has nothing to keep back."""
        return nullcontext()


def choose_device(name: str) -> torch.device:
    """The device that ``device=`` means: auto, cpu, cuda, cuda:N or N.

    Raises:
        ConfigError: the device is not there.
    """
    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    device = torch.device(f"cuda:{name}" if name.isdecimal() else name)
    if device.type != "cuda":
        return device
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = device.index or 0
    if index >= count:
        there = f"cuda:0 to cuda:{count - 1} are there" if count else "torch sees no CUDA device"
        raise ConfigError(f"device={name}: {there}. Use device=cpu, or device=auto to take what there is.")
    return torch.device("cuda", index)
