"""What is done to normalisation layers of a whole model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from visiontrain.nn.conv import BATCHNORM_MOMENTUM
from visiontrain.nn.sync import SyncBatchNorm

MOST_GROUPS = 32
LEAST_IN_A_GROUP = 8  # channels; fewer tell too little of a picture


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
    _swap(model, lambda layer: isinstance(layer, _BatchNorm), FrozenBatchNorm)
    return model


def norm_of(model: nn.Module) -> str:
    """Which of NORMS the model has; one without normalisation counts as ``batch``."""
    return next((name for m in model.modules() if (name := _name(m))), "batch")


def norm_layers(model: nn.Module) -> int:
    """How many normalisation layers the model has."""
    return sum(_name(m) is not None for m in model.modules())


def swap_norms(model: nn.Module, norm: str) -> None:
    """Give the model the normalisation that ``norm`` names (of NORMS), in place; the optimizer is built afterwards.

    Scale, shift and eps are kept, running statistics where both kinds have them; new statistics are mean 0, variance 1.
    """
    _swap(model, lambda layer: _name(layer) not in (None, norm), NORMS[norm][1])


def alone(norm: str) -> str:
    """Which of NORMS computes the same on one rank without waiting for others."""
    return "batch" if norm == "sync" else norm


def groups_of(channels: int) -> int:
    """The largest number of groups that divides the channels: at most 32, at least 8 channels each; 1 below that.

    Source:
        Wu and He, Group Normalization, ECCV 2018, arXiv:1803.08494, for the 32 groups.
    """
    most = min(MOST_GROUPS, channels // LEAST_IN_A_GROUP)
    return next((groups for groups in range(most, 1, -1) if channels % groups == 0), 1)


def running_statistics(model: nn.Module) -> list[Tensor]:
    """The buffers that a forward pass in training mode changes: mean, variance and count of each BatchNorm."""
    return [buffer for norm in batch_norms(model) for buffer in norm.buffers(recurse=False)]


def _swap(model: nn.Module, which: Callable[[nn.Module], bool], make: Callable[..., nn.Module]) -> None:
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if which(child):
                setattr(parent, name, make(child).train(child.training))


def _name(layer: nn.Module) -> str | None:
    return next((name for name, (kind, _) in NORMS.items() if isinstance(layer, kind)), None)


def _batch_norm(norm: nn.Module, kind: type[nn.BatchNorm2d] = nn.BatchNorm2d) -> nn.BatchNorm2d:
    made = kind(len(norm.weight), eps=norm.eps, momentum=BATCHNORM_MOMENTUM).to(norm.weight)
    made.weight, made.bias = norm.weight, norm.bias
    for name, buffer in norm.named_buffers(recurse=False):
        made.register_buffer(name, buffer)
    return made


def _group_norm(norm: nn.Module) -> nn.GroupNorm:
    channels = len(norm.weight)
    made = nn.GroupNorm(groups_of(channels), channels, eps=norm.eps)
    made.weight, made.bias = norm.weight, norm.bias
    return made


def _frozen(norm: nn.Module) -> FrozenBatchNorm:
    return FrozenBatchNorm(norm if isinstance(norm, _BatchNorm) else _batch_norm(norm))


# The class of each normalisation, and how it is made of another's layer; a kind of BatchNorm stands before BatchNorm.
NORMS: dict[str, tuple[type[nn.Module], Callable[[nn.Module], nn.Module]]] = {
    "sync": (SyncBatchNorm, lambda norm: _batch_norm(norm, SyncBatchNorm)),
    "batch": (_BatchNorm, _batch_norm),
    "group": (nn.GroupNorm, _group_norm),
    "frozen": (FrozenBatchNorm, _frozen),
}
