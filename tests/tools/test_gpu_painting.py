"""The checks of painting on a GPU, with the CPU in its place: the functions are the same."""

from __future__ import annotations

import pytest

from tools import gpu_painting
from visiontrain.data.augment import lay
from visiontrain.drawing import Drawings


def test_the_check_of_painting_passes_and_can_fail(tiny, monkeypatch):
    said = gpu_painting.painting("cpu", str(tiny), size=64, images=6)
    assert all(f"{name} mean 0.0000 most 0" in said for name in gpu_painting.KINDS)
    paint, calls = Drawings.paint, []

    def shifted(drawings, height, width, device):
        """As if the device had another convention: half a pixel aside, wherever this is asked for a third time."""
        calls.append(device)
        images = paint(drawings, height, width, device)
        return images if len(calls) % 3 else images.roll(1, -1)

    monkeypatch.setattr(Drawings, "paint", shifted)
    with pytest.raises(AssertionError, match="defaults"):
        gpu_painting.painting("cpu", str(tiny), size=64, images=6)


def test_the_loader_is_timed_with_both(tiny, monkeypatch):
    monkeypatch.setattr(gpu_painting, "worker_count", lambda workers: 0)
    laid = []
    real = lay._straight
    monkeypatch.setattr(lay, "_straight", lambda *arguments: (laid.append(1), real(*arguments))[1])
    said = gpu_painting.speed("cpu", str(tiny), size=64, epochs=1)
    assert "augment_device=cpu" in said and "augment_device=gpu" in said and said.endswith("0 workers, 64 px")
    assert len(laid) >= 2 * 13
