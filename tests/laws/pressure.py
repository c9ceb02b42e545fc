"""Memory that runs out where a test wants it to: allocations fail at chosen passes through named places of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import nn

from visiontrain.losses import DetectionLoss
from visiontrain.losses.assign import TaskAlignedAssigner
from visiontrain.training import run as recipe
from visiontrain.training import start as beginning
from visiontrain.training.precision import Precision

PLACES = ("forward", "assigner", "loss", "backward")


def cuda_says() -> Exception:
    return torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 4.00 GiB"
    )


def cudnn_says() -> Exception:
    return RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR")


@dataclass
class Pressure:
    """Fails at passes through places, counted from 1: ``Pressure({"backward": [3, 4]})``.

    ``passes`` counts them, ``failed`` those that failed. ``positions`` would be the trainer's own word; ``images`` counts
    what really went through forward and backward of micro-batches.
    """

    at: dict[str, Iterable[int]] = field(default_factory=dict)
    error: Callable[[], Exception] = cuda_says
    passes: Counter = field(default_factory=Counter)
    failed: Counter = field(default_factory=Counter)

    def at_place(self, place: str) -> None:
        self.passes[place] += 1
        if self.passes[place] in self.at.get(place, ()):
            self.failed[place] += 1
            raise self.error()

    def __deepcopy__(self, memo):
        return self  # the averaged model is a copy of the live one, hooks included


@dataclass
class _Hook:
    pressure: Pressure

    def __call__(self, module, inputs, output=None):
        self.pressure.at_place("forward" if module.training else "validation")


class Pressed(DetectionLoss):
    """The detection loss with an allocator that fails."""

    def __init__(self, gains, pressure: Pressure) -> None:
        super().__init__(gains, _PressedAssigner(pressure))
        self.pressure = pressure

    def __call__(self, output, targets):
        output.scores.register_hook(lambda gradient: self.pressure.at_place("backward"))
        loss = super().__call__(output, targets)
        self.pressure.at_place("loss")
        return loss


class _PressedAssigner:
    def __init__(self, pressure: Pressure) -> None:
        self.pressure, self.inner = pressure, TaskAlignedAssigner()

    def __call__(self, *arguments):
        self.pressure.at_place("assigner")
        return self.inner(*arguments)


def install(monkeypatch, pressure: Pressure, dtype: torch.dtype = torch.float32) -> None:
    """Let the next runs train in ``dtype`` under ``pressure``."""
    start = beginning.starting_model

    def starting_model(config, names):
        model = start(config, names).to(dtype)
        convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
        convolutions[len(convolutions) // 2].register_forward_hook(_Hook(pressure))
        return model

    monkeypatch.setattr(beginning, "starting_model", starting_model)
    monkeypatch.setattr(recipe, "choose_precision", lambda device, amp: Precision(device, dtype))
    monkeypatch.setitem(recipe.LOSSES, "detection", lambda gains: Pressed(gains, pressure))
    recipe.LOSSES["detection"].part_names = DetectionLoss.part_names
