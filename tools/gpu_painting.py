"""Checks of augment_device=gpu: what CUDA paints against what the CPU does, and the loader's speed with both settings.

The functions take any device; tools/gpu_check.py runs them on CUDA, the tests on the CPU. Not run on CUDA.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from visiontrain.batch import Batch, collate
from visiontrain.config.groups import AugmentConfig
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.data.loader import Loader, worker_count
from visiontrain.data.pixels import room
from visiontrain.data.sampler import WindowSampler
from visiontrain.memory import release

KINDS = {
    "defaults": {},
    "warped": {"degrees": 20.0, "shear": 8.0},
    "perspective": {"perspective": 0.0008},
    "mixup and flips": {"mixup": 1.0, "flipud": 0.5},
}
MOST_MEAN = 0.05  # 1/255: fused multiplications round another way, and now and then a colour with them
BATCH = 16


def painting(device: torch.device | str, data: str = "shapes", size: int = 320, images: int = 32) -> str:
    """What a device paints is close to what the CPU paints of the same pieces, and the same bits each time."""
    told = []
    index = read_split(load_description(data), "train")
    for name, settings in KINDS.items():
        samples = TrainSet(index, size, AugmentConfig(augment_device="gpu", **settings), 0, 100)
        batch = collate([samples[0, position % len(index)] for position in range(images)])
        painted = batch.painted(device).images
        assert torch.equal(painted, batch.painted(device).images), f"{name}: another picture each time"
        assert painted.is_contiguous(memory_format=torch.channels_last)
        apart = (painted.cpu().int() - batch.painted("cpu").images.int()).abs()
        mean, rare = float(apart.float().mean()), float((apart > 2).float().mean())
        assert mean < MOST_MEAN and rare < 1e-4, (name, mean, rare, int(apart.max()))
        told.append(f"{name} mean {mean:.4f} most {int(apart.max())}")
    return f"in 1/255: {', '.join(told)}"


def speed(device: torch.device | str, data: str = "shapes", size: int = 640, epochs: int = 4) -> str:
    """Images per second that arrive on the device as float, with the samples painted by the workers and by the device."""
    index, workers = read_split(load_description(data), "train"), worker_count(-1)
    device, told = torch.device(device), []
    for kind in ("cpu", "gpu"):
        release(device)
        samples = TrainSet(
            index, size, AugmentConfig(augment_device=kind), 0, 100, kept=room((size, size), max(workers, 1))
        )
        with Loader(samples, workers, pin=device.type == "cuda") as loader:
            for epoch in range(epochs + 1):
                if epoch == 1:  # the first one decodes every picture and starts the workers
                    began = time.perf_counter()
                for batch in loader.run(WindowSampler([(0, len(index))], BATCH, epoch)):
                    moved = batch.to(device)
                finished(moved)
            seconds = time.perf_counter() - began
        told.append(f"augment_device={kind} {epochs * len(index) / seconds:.0f} images/s")
    return f"{', '.join(told)}, {workers} workers, {size} px"


def finished(batch: Batch) -> float:
    """Wait until its pixels are there: their mean."""
    return float(batch.images.mean())


CHECKS: dict[str, Callable[[], str]] = {
    "painting on the device against the CPU": lambda: painting("cuda"),
    "loader with augment_device=cpu and gpu": lambda: speed("cuda"),
}
