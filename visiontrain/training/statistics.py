"""BatchNorm's running statistics under accumulation: how far back they look, and measuring them anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from visiontrain.batch import Batch
from visiontrain.boxes import at_least_float32
from visiontrain.nn.norm import batch_norms


@dataclass(frozen=True, slots=True)
class BatchNormPolicy:
    """What may be done to the statistics beyond what torch does; the default is nothing.

    ``nominal_images``: running statistics look as many images back as with batches of this size; 0: as many passes back,
    whatever a pass holds. ``reestimate_images``: before each evaluation the statistics of the averaged weights are
    measured over so many training images, ``reestimate_batch`` at a time; 0: they stay the average of the model's.
    """

    nominal_images: int = 0
    reestimate_images: int = 0
    reestimate_batch: int = 16


AS_IT_IS = BatchNormPolicy()


def statistics_momentum(momentum: float, images: int, nominal: int) -> float:
    """Share of the newest pass in the running statistics, so that ``nominal`` images weigh ``momentum`` together.

    (1 - m') ^ (nominal / images) = 1 - momentum: after as many images as much of the old is left, however they are cut.

    Args:
        momentum: as meant for passes of ``nominal`` images, in 0..1.
        images: what a pass holds.
        nominal: images of the pass that ``momentum`` was made for.
    """
    return 1 - (1 - momentum) ** (images / nominal)


def scale_momentum(model: nn.Module, images: int, nominal: int) -> None:
    """Give every BatchNorm the momentum for passes of ``images`` in place of ``nominal`` ones."""
    for norm in batch_norms(model):
        norm.momentum = statistics_momentum(norm.momentum, images, nominal)


@torch.no_grad()
def reestimate(
    model: nn.Module,
    batches: Iterable[Batch],
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> None:
    """Set the running statistics of every BatchNorm to mean and variance of what it gets over all batches.

    Each pass normalises with its own batch, as in training, so what a layer gets depends on the batch size: batches
    should be larger than those of training. Weights stay, and so does the count of training passes.

    Args:
        model: in evaluation mode, and so it is left.
        batches: images as in training.
        device: where the model is.
        autocast: makes the context of the forward pass.

    Source:
        Wu and Johnson, Rethinking "Batch" in BatchNorm, arXiv:2105.07576, section 3.
    """
    sums = {norm: _Sums() for norm in batch_norms(model)}
    handles = [norm.register_forward_pre_hook(total.add) for norm, total in sums.items()]
    try:
        for norm in sums:
            norm.training, norm.track_running_stats = True, False
        for batch in batches:
            with autocast():
                model(batch.to(device).images)
    finally:
        for norm, handle in zip(sums, handles, strict=True):
            norm.training, norm.track_running_stats = False, True
            handle.remove()
    for norm, total in sums.items():
        total.write(norm)


class _Sums:
    """Count, sum and sum of squares by channel over everything that a layer gets, summed in float64."""

    def __init__(self) -> None:
        self.count = 0
        self.values: Tensor | float = 0.0
        self.squares: Tensor | float = 0.0

    def add(self, norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x = at_least_float32(inputs[0])
        self.count += x.numel() // x.shape[1]
        self.values = self.values + x.sum((0, 2, 3), dtype=torch.float64)
        self.squares = self.squares + x.square().sum((0, 2, 3), dtype=torch.float64)

    def write(self, norm: _BatchNorm) -> None:
        mean: Tensor = self.values / self.count
        norm.running_mean.copy_(mean)
        norm.running_var.copy_((self.squares / self.count - mean.square()).clamp(min=0))
