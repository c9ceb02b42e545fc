"""Knowing that memory ran out, letting go, and reading how much is used."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from visiontrain import memory
from visiontrain.errors import OutOfMemory
from visiontrain.memory import (
    NoRoom,
    Phases,
    attempt,
    available_bytes,
    free_bytes,
    halved,
    is_out_of_memory,
    resident_bytes,
)
from visiontrain.record.sinks.table import gigabytes

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        MemoryError(),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes."),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 4 bytes."),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("FIND was unable to find an engine to execute this computation"),
        RuntimeError("Unable to find a valid cuDNN algorithm to run convolution"),
    ],
)
def test_every_way_in_which_backends_say_it(error):
    def fail():
        raise error

    assert is_out_of_memory(error)
    assert isinstance(attempt(fail), NoRoom)


def test_torch_really_says_it_so_on_this_machine():
    assert isinstance(attempt(lambda: torch.empty(2**60)), NoRoom)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("shape '[2, 3]' is invalid for input of size 5"),
        OutOfMemory("one image does not fit: CUDA out of memory"),
        ValueError("out of memory"),
        KeyboardInterrupt(),
    ],
)
def test_everything_else_passes(error):
    def fail():
        raise error

    assert not is_out_of_memory(error)
    with pytest.raises(type(error)) as caught:
        attempt(fail)
    assert caught.value is error


def test_the_frames_that_failed_hold_nothing_afterwards():
    """Even where somebody keeps the error, as a debugger or a callback might, and for the errors it came from."""
    kept, alive = [], []

    def inner(activations):
        held = activations * 2
        alive.append(weakref.ref(held))
        raise RuntimeError("out of memory")

    def outer():
        held = torch.ones(8)
        alive.append(weakref.ref(held))
        try:
            inner(held)
        except RuntimeError as error:
            kept.append(error)
            raise MemoryError from error

    assert attempt(outer) == NoRoom("MemoryError")
    assert len(kept) == 1 and [reference() for reference in alive] == [None, None]


@pytest.mark.parametrize(("size", "failed", "left"), [(8, 8, 4), (8, 3, 2), (5, 5, 2), (3, 3, 1), (2, 2, 1), (1, 1, 0)])
def test_halving_goes_below_what_failed(size, failed, left):
    assert halved(size, failed) == left


def test_a_phase_has_its_own_peak_and_the_highest_stays():
    gc.collect()
    phases = Phases(CPU)
    phases.close("before")
    block = torch.ones(64 << 18)  # 64 MB of float32, touched
    phases.close("large", micro_batch=4)
    during = phases.peak
    del block
    phases.close("after")
    phases.close("later")
    phases.close("later")
    figures = phases.figures
    assert figures["large"]["micro_batch"] == 4
    assert figures["large"]["peak"] - figures["before"]["peak"] > 50 << 20
    assert figures["large"]["peak"] - figures["later"]["peak"] > 50 << 20  # what was before does not count
    assert phases.peak >= during >= figures["large"]["peak"]  # but the run's peak never falls
    assert phases.facts()["memory"]["phases"]["cpu"] == figures
    assert "large" in phases.sentence()


def test_a_gigabyte_is_that_of_the_epoch_s_line():
    phases = Phases(CPU)
    phases.figures["first forward"] = {"peak": 1_436_811_264}
    assert f"first forward {gigabytes(1_436_811_264)}".removesuffix(" GB") in phases.sentence()


def test_where_the_peak_cannot_be_set_back_the_figures_say_so(monkeypatch):
    monkeypatch.setattr(memory, "_set_back", lambda device: False)
    phases = Phases(CPU)
    phases.close("baseline")
    assert "sampled" in phases.are
    assert phases.figures["baseline"]["peak"] == phases.figures["baseline"]["resident"]


def test_what_is_within_reach_is_more_than_what_is_held():
    assert available_bytes(CPU) > resident_bytes() > 10 << 20


def system(tmp_path, **files):
    for name, text in files.items():
        path = tmp_path / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


MEMINFO = "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n"


def test_the_machine_tells_what_is_available(tmp_path):
    assert free_bytes(CPU, system(tmp_path, proc__meminfo=MEMINFO)) == 8_000_000 * 1024


def test_a_container_has_what_its_limit_leaves_and_gets_its_file_cache_back(tmp_path):
    folder = "sys__fs__cgroup__"
    files = {"memory_dot_max": "3000000000\n", "memory_dot_current": "2500000000\n"}
    files["memory_dot_stat"] = "anon 500000000\ninactive_file 1000000000\n"
    root = system(tmp_path, proc__meminfo=MEMINFO, **{folder + name: text for name, text in files.items()})
    assert free_bytes(CPU, root) == 1_500_000_000


def test_a_container_without_limit_has_what_the_machine_has(tmp_path):
    root = system(tmp_path, proc__meminfo=MEMINFO, sys__fs__cgroup__memory_dot_max="max\n")
    assert free_bytes(CPU, root) == 8_000_000 * 1024


def test_where_nothing_is_told_half_of_the_memory_is_taken(tmp_path):
    assert free_bytes(CPU, tmp_path) > 0
