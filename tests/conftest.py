from __future__ import annotations

import os
from pathlib import Path

import pytest

# Small tensors gain nothing from many threads. By environment: tests of the settings need no torch, and children inherit it.
os.environ.setdefault("OMP_NUM_THREADS", str(min(2, os.cpu_count() or 1)))

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the repository."""
    return CHECKOUT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The project's folder of real pictures and reference values; it lies beside the checkout and is not part of it."""
    folder = Path(os.environ.get("VISIONTRAIN_SHARED") or CHECKOUT.parent / "shared")
    if not folder.is_dir():
        pytest.skip(f"needs the shared data: no folder {folder} (set VISIONTRAIN_SHARED to another place)")
    return folder


@pytest.fixture
def user_cache(tmp_path, monkeypatch) -> Path:
    """A fresh user cache for one test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("VISIONTRAIN_CACHE", str(folder))
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    if not any(item.get_closest_marker("gpu") for item in items):
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
