"""BatchNorm whose statistics are those of all ranks together."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.modules._functions import SyncBatchNorm as OnCuda

from visiontrain.boxes import at_least_float32

PLACES = (0, 2, 3)  # what mean and variance of a channel are taken over


class SyncBatchNorm(nn.BatchNorm2d):
    """BatchNorm that in training takes mean and variance over the inputs of every rank; with one rank it is BatchNorm.

    (B, C, H, W) -> the same, B may be 0. Every rank must run every pass, forward and backward: each waits for all. The
    gradients of scale and shift are this rank's part, as those of every other parameter. State dict, evaluation and
    running statistics are BatchNorm's, the latter alike on all ranks.

    It is no torch.nn.SyncBatchNorm, because DistributedDataParallel refuses that on the CPU.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and _several_ranks()):
            return super().forward(x)
        self._check_input_dim(x)
        mean = variance = None
        if self.track_running_stats:
            self.num_batches_tracked.add_(1)
            mean, variance = self.running_mean, self.running_var
        together = OnCuda if x.is_cuda else AllReduced
        full = (
            x if len(x) else at_least_float32(x)
        )  # torch sends an empty input in its own type, and the rest in float32
        y = together.apply(
            full,
            self.weight,
            self.bias,
            mean,
            variance,
            self.eps,
            self.momentum,
            dist.group.WORLD,
            dist.get_world_size(),
        )
        return y.to(x.dtype)


class AllReduced(Function):
    """Normalise with sums over the ranks, one all-reduce in each direction; takes what torch's function for CUDA takes.

    With n values in a channel over all ranks and h = (x - mean) / sqrt(variance + eps):
    dx = scale / sqrt(variance + eps) * (dy - sum(dy) / n - h * sum(dy * h) / n).

    Source:
        Ioffe and Szegedy, Batch Normalization, arXiv:1502.03167; Peng et al., MegDet, arXiv:1711.07240, for many ranks.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        eps: float,
        momentum: float,
        group: dist.ProcessGroup,
        size: int,
    ) -> Tensor:
        exact = x.double()
        places = exact.new_full((1,), x.numel() // x.shape[1])
        sums = torch.cat((places, exact.sum(PLACES), exact.square().sum(PLACES)))
        dist.all_reduce(sums, group=group)
        count = int(sums[0])
        if count < 2:
            raise ValueError(f"BatchNorm has a variance of two values and more; on all {size} ranks it met {count}")
        mean, squares = (sums[1:] / count).chunk(2)
        variance = (squares - mean.square()).clamp(min=0)
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_((variance * count / (count - 1)).to(running_var.dtype), momentum)
        inverse = torch.rsqrt(variance + eps)
        scale = weight * inverse
        ctx.save_for_backward(x, mean, inverse, scale)
        ctx.count, ctx.group, ctx.dtype = count, group, weight.dtype
        return torch.addcmul(_wide(bias - mean * scale, x), x, _wide(scale, x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, inverse, scale = ctx.saved_tensors
        h = (x - _wide(mean, x)) * _wide(inverse, x)
        sums = torch.stack((dy.sum(PLACES, dtype=torch.float64), (dy * h).sum(PLACES, dtype=torch.float64)))
        shift_part, scale_part = sums.to(ctx.dtype, copy=True)
        dist.all_reduce(sums, group=ctx.group)
        means = sums / ctx.count
        dx = (dy - _wide(means[0], x) - h * _wide(means[1], x)) * _wide(scale, x)
        return dx, scale_part, shift_part, None, None, None, None, None, None


def _several_ranks() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _wide(channels: Tensor, x: Tensor) -> Tensor:
    """(C,) -> (1, C, 1, 1) in the type of x."""
    return channels.to(x.dtype).view(1, -1, 1, 1)
