"""What is done to normalisation layers of a whole model."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """Every BatchNorm of the model, in order."""
    return [m for m in model.modules() if isinstance(m, _BatchNorm)]


def freeze_batch_norm(model: nn.Module) -> nn.Module:
    """Put every BatchNorm into evaluation mode: running statistics are used and stay as they are."""
    for norm in batch_norms(model):
        norm.eval()
    return model


def running_statistics(model: nn.Module) -> list[Tensor]:
    """The buffers that a forward pass in training mode changes: mean, variance and count of each BatchNorm."""
    return [buffer for norm in batch_norms(model) for buffer in norm.buffers(recurse=False)]
