"""Exponential moving average of the weights: what is evaluated and saved as the result."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class EMA:
    """A second set of weights that follows the model's.

    Floating tensors (weights and running statistics) move towards the model's; whole numbers are copied.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module, decay: float) -> None:
        """average = decay * average + (1 - decay) * model, once per applied update."""
        average, current = _tensors(self.model), _tensors(model)
        moving = [(a, c) for a, c in zip(average, current, strict=True) if a.is_floating_point()]
        torch._foreach_lerp_([a for a, _ in moving], [c for _, c in moving], 1 - decay)
        for a, c in zip(average, current, strict=True):
            if not a.is_floating_point():
                a.copy_(c)


def _tensors(model: nn.Module) -> list[Tensor]:
    return list(model.state_dict().values())
