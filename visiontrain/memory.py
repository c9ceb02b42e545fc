"""Memory: that it ran out, how to go on from there, and how much was used in each phase of a run."""

from __future__ import annotations

import gc
import os
import re
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from visiontrain.errors import VisionTrainError, empty_frames

T = TypeVar("T")

# What RuntimeErrors say that come from an allocation which failed; the libraries below torch have words of their own.
SAYINGS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "cudnn_status_alloc_failed",
    "cudnn_status_internal_error",
    "cudnn_status_not_initialized",
    "cublas_status_alloc_failed",
    "cublas_status_internal_error",
    "cublas_status_not_initialized",
    "unable to find an engine to execute",
    "unable to find a valid cudnn algorithm",
    "no valid execution plan",
)


_CGROUPS = (  # limit, usage, statistics, and the line there for file cache that can be given back
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Memory ran out; ``said`` is what the failing call told."""

    said: str


def is_out_of_memory(error: BaseException) -> bool:
    """Did an allocation fail? Backends report it in several ways, of which only one has a type of its own.

    An internal error of cuDNN or cuBLAS counts: mostly it is a workspace that found no room, and where it is not, it
    comes back at a micro-batch of one image and is reported with its words.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if not isinstance(error, RuntimeError) or isinstance(error, VisionTrainError):
        return False
    return any(saying in str(error).lower() for saying in SAYINGS)


def attempt(work: Callable[[], T]) -> T | NoRoom:
    """Do what may run out of memory; if it does, the frames that failed, which hold activations, are empty afterwards.

    What ``work`` left behind elsewhere (gradients) is the caller's to drop, and then to ``release``.
    """
    try:
        return work()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        said = _in_a_line(error)
        empty_frames(error)
    return NoRoom(said)


def release(device: torch.device) -> None:
    """Give back what nobody holds any more: cycles to the collector, cached blocks to the device."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def halved(size: int, failed: int) -> int:
    """Halve ``size`` until it is below ``failed``, the images that were too many; 0: nothing smaller is left."""
    while size >= failed:
        size //= 2
    return size


def peak_bytes(device: torch.device) -> int:
    """Peak so far: allocated by torch on CUDA, resident memory of this process on CPU (workers not counted)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def peak_is_of(device: torch.device) -> str:
    """What ``peak_bytes`` measures, in words for the record."""
    return "allocated by torch on the device" if device.type == "cuda" else "resident memory of the training process"


class Phases:
    """What each phase of a run needed at the most. A phase ends where ``close`` names it, and there the next begins.

    On CUDA peak, allocated, reserved and free are the allocator's and the driver's; on CPU peak and resident are those of
    this process, interpreter and libraries included. ``peak`` is the highest of all phases: closing one sets the
    counters of the device back.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.figures: dict[str, dict[str, int]] = {}
        self._highest = peak_bytes(device)
        self._set_back = _set_back(device)

    @property
    def peak(self) -> int:
        """Bytes, the peak so far."""
        self._highest = max(self._highest, peak_bytes(self.device))
        return self._highest

    @property
    def are(self) -> str:
        """What the figures are, in words for the record."""
        if self.device.type == "cuda":
            return (
                "bytes of torch's allocator (peak, allocated at the end, reserved at the most) and free on the device"
            )
        if self._set_back:
            return "bytes of the training process: highest resident memory of the phase, and resident at its end"
        return "bytes of the training process: resident memory sampled at the end of each phase"

    def close(self, name: str, **more: int) -> None:
        """End the phase that is running; of several with one name the highest figures stay (of ``free`` the lowest)."""
        highest, now = self.peak, self._read() | more
        known = self.figures.get(name, now)
        self.figures[name] = {k: (min if k == "free" else max)(v, known.get(k, v)) for k, v in now.items()}
        self._highest, self._set_back = highest, _set_back(self.device)

    def forget(self, *names: str) -> None:
        """Measure these phases anew."""
        for name in names:
            self.figures.pop(name, None)

    def facts(self) -> dict[str, Any]:
        """For run.json: figures by device and phase, and what they are."""
        return {"memory": {"phases": {str(self.device): dict(self.figures)}, "phases_are": self.are}}

    def sentence(self) -> str:
        """The phases so far in a line, peaks in GB."""
        peaks = ", ".join(f"{name} {figures['peak'] / 1e9:.2f}" for name, figures in self.figures.items())
        return f"Memory in GB: {peaks} ({peak_is_of(self.device)}, highest in each phase)."

    def _read(self) -> dict[str, int]:
        if self.device.type == "cuda":
            return {
                "peak": torch.cuda.max_memory_allocated(self.device),
                "allocated": torch.cuda.memory_allocated(self.device),
                "reserved": torch.cuda.max_memory_reserved(self.device),
                "free": torch.cuda.mem_get_info(self.device)[0],
            }
        resident = resident_bytes()
        return {"peak": peak_bytes(self.device) if self._set_back else resident, "resident": resident}


def resident_bytes() -> int:
    """Resident memory of this process now; where the system does not tell, the highest so far."""
    try:
        status = Path("/proc/self/status").read_text("ascii", "replace")
    except OSError:
        return peak_bytes(torch.device("cpu"))
    return 1024 * int(re.findall(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[0])


def available_bytes(device: torch.device) -> int:
    """What this process may hold: what it holds now and what can still be had; on CUDA within the fraction set for it."""
    held = torch.cuda.memory_allocated(device) if device.type == "cuda" else resident_bytes()
    return held + free_bytes(device)


def free_bytes(device: torch.device, system: Path = Path("/")) -> int:
    """Memory that can still be had: of the GPU, else of the machine or of the container this runs in; where the system
    tells nothing, half of all there is.

    Args:
        system: where /proc and /sys are looked for.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        allowed = int(total * torch.cuda.get_per_process_memory_fraction(device))
        return min(allowed, free + torch.cuda.memory_reserved(device)) - torch.cuda.memory_allocated(device)
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


def _set_back(device: torch.device) -> bool:
    """Let the peak begin anew from what is used now; whether that is possible here."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        Path("/proc/self/clear_refs").write_text("5")  # Linux: VmHWM, which getrusage reports, becomes VmRSS
    except OSError:
        return False
    return True


def _in_a_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:200]}" if text else type(error).__name__
