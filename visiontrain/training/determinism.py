"""The same bits twice, where that is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def reproducible(wanted: bool) -> Iterator[None]:
    """Deterministic kernels inside, torch's settings as they were afterwards."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filled, benchmark = torch.utils.deterministic.fill_uninitialized_memory, torch.backends.cudnn.benchmark
    if wanted:
        # cuBLAS reads this when it is first used; without it matrix products may differ from run to run.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(wanted, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # costs time and guards against nothing we do
    torch.backends.cudnn.benchmark = not wanted
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.utils.deterministic.fill_uninitialized_memory, torch.backends.cudnn.benchmark = filled, benchmark
