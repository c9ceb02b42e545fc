"""How much memory is free, and how much an image needs: on a CPU nothing raises before the machine is in trouble."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor, nn

from visiontrain.batch import Batch
from visiontrain.memory import available_bytes
from visiontrain.training.precision import Precision
from visiontrain.training.window import Criterion

_CGROUPS = (  # limit, usage, statistics, and the line there for file cache that can be given back
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)


def free_bytes(device: torch.device, system: Path = Path("/")) -> int:
    """Memory that can still be had: of the GPU, else of the machine or of the container this runs in.

    Args:
        system: where /proc and /sys are looked for.
    """
    if device.type == "cuda":
        return available_bytes(device) - torch.cuda.memory_allocated(device)
    found = [_value(system / "proc/meminfo", "MemAvailable:") * 1024]
    for limit, usage, statistics, cache in _CGROUPS:
        folder = system / "sys/fs/cgroup"
        most = _value(folder / limit)
        if most:
            found.append(most - _value(folder / usage) + _value(folder / statistics, cache))
    known = [size for size in found if size > 0]
    return min(known) if known else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _value(file: Path, key: str = "") -> int:
    """The number after ``key`` in a file, or the file's only one; 0 where there is none."""
    try:
        text = file.read_text()
    except OSError:
        return 0
    words = text.split()
    place = (words.index(key) + 1 if key in words else len(words)) if key else 0
    return int(words[place]) if place < len(words) and words[place].isdecimal() else 0


def bytes_per_image(model: nn.Module, criterion: Criterion, batch: Batch, precision: Precision) -> float:
    """Measured: what one forward pass and its loss keep for the backward pass, parameters left out, over its images."""
    kept: dict[int, int] = {}
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    parameter = next(model.parameters())
    moved = batch.to(parameter.device, parameter.dtype)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), precision.autocast():
        loss = criterion(model(moved.images), moved.targets)
    del loss
    return sum(kept.values()) / len(batch)
