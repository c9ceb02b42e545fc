"""GroupNorm sees one image at a time: a window is one batch, exactly, with no layer frozen. BatchNorm's inequality shows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from laws.toys import TOLERANCE, Narrow, cut, gradient_by_hand, relative, run_window

from visiontrain.models.detector import Detector
from visiontrain.models.yolov8 import YOLOv8
from visiontrain.nn.norm import swap_norms


@dataclass
class Normalised(Narrow):
    """The narrow detector with a normalisation that trains."""

    norm: str = "group"

    def model(self) -> Detector:
        torch.manual_seed(0)
        model = YOLOv8("yolov8n", ["a", "b", "c"], depth=0.33, width=0.0625, widest=1024)
        swap_norms(model, self.norm)
        return model.to(self.dtype).train()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("sizes", [[1] * 16, [5, 8, 3]], ids=["single", "ragged"])
def test_a_window_is_one_batch(dtype, sizes):
    world = Normalised(dtype)
    batch = world.batch()
    outcome = run_window(world, cut(batch, sizes), provisional=64.0)
    assert relative(outcome.gradient, gradient_by_hand(world, batch)) <= TOLERANCE[dtype]


def test_batch_norm_is_not():
    world = Normalised(norm="batch")
    batch = world.batch()
    outcome = run_window(world, batch.split(2))
    assert relative(outcome.gradient, gradient_by_hand(world, batch)) > 0.01
