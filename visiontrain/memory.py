"""How much memory a device, or on CPU this process, has used."""

from __future__ import annotations

import resource
import sys

import torch


def peak_bytes(device: torch.device) -> int:
    """Peak so far: allocated by torch on CUDA, resident memory of this process on CPU (workers not counted)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def peak_is_of(device: torch.device) -> str:
    """What ``peak_bytes`` measures, in words for the record."""
    return "allocated by torch on the device" if device.type == "cuda" else "resident memory of the training process"
