"""What is done to normalisation layers of a whole model."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class FrozenBatchNorm(nn.Module):
    """BatchNorm that uses its running statistics and leaves them as they are, in training too.

    (B, C, H, W) -> the same. Scale and shift still learn. It is written as a product and a sum because torch reduces
    their gradients pairwise; inside batch_norm they are running sums, in float32 some 1e-4 off over a large batch.
    """

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        self.eps = norm.eps
        self.weight, self.bias = norm.weight, norm.bias
        for name, buffer in norm.named_buffers(recurse=False):
            self.register_buffer(name, buffer)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        shift = self.bias - self.running_mean * scale
        scale, shift = (t.to(x.dtype).view(1, -1, 1, 1) for t in (scale, shift))
        return torch.addcmul(shift, x, scale)


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """Every BatchNorm of the model that is not frozen, in order."""
    return [m for m in model.modules() if isinstance(m, _BatchNorm)]


def freeze_batch_norm(model: nn.Module) -> nn.Module:
    """Replace every BatchNorm inside the model by a frozen one with the same tensors; names in the state dict stay."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm):
                setattr(parent, name, FrozenBatchNorm(child))
    return model


def running_statistics(model: nn.Module) -> list[Tensor]:
    """The buffers that a forward pass in training mode changes: mean, variance and count of each BatchNorm."""
    return [buffer for norm in batch_norms(model) for buffer in norm.buffers(recurse=False)]
