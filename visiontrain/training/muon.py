"""Muon for the matrices of a network, SGD for everything else, as one optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from visiontrain.nn.head import Predictor

ROLE = "matrices"  # of the parameter group that is orthogonalised
STEPS = 5
QUINTIC = (3.4445, -4.7750, 2.0315)  # of the iteration x -> a x + b x^3 + c x^5 on the singular values
SMALLEST = 1e-7  # norm below which a momentum is taken as it is


class Muon(torch.optim.SGD):
    """Moves each matrix along the orthogonal matrix nearest to its momentum; parameters of other roles by SGD with Nesterov momentum.

    Weights (c_out, c_in, k, k) are matrices (c_out, c_in k k). The step of a matrix A x B is lr * sqrt(max(1, A / B)), and its
    decay is decoupled: lr * weight_decay. In bfloat16 on CUDA, in float32 on the CPU, where bfloat16 is mostly emulated.

    Args:
        groups: each with ``role``; those of role ``matrices`` are orthogonalised.
        lr, momentum: of all groups.

    Source:
        Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024 (kellerjordan.github.io/posts/muon);
        Liu et al., Muon is Scalable for LLM Training, arXiv:2502.16982.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; the gradients of matrices are gone afterwards."""
        for group in self.param_groups:
            if group["role"] == ROLE:
                self._move(group)
        return super().step(closure)

    def _move(self, group: dict[str, Any]) -> None:
        """Momentum of all, directions of all, then weights of all: nothing is allocated while weights change."""
        matrices = [p for p in group["params"] if p.grad is not None]
        gradients = [p.grad for p in matrices]
        buffers = [self._momentum(p) for p in matrices]
        torch._foreach_mul_(buffers, group["momentum"])
        torch._foreach_add_(buffers, gradients)
        if group["nesterov"]:
            torch._foreach_add_(gradients, buffers, alpha=group["momentum"])
        else:
            torch._foreach_copy_(gradients, buffers)
        for gradient in gradients:
            gradient.copy_(orthogonal(gradient))
        torch._foreach_mul_(gradients, [-group["lr"] * stretch(p) for p in matrices])
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(matrices, gradients)
        for parameter in matrices:
            parameter.grad = None

    def _momentum(self, parameter: nn.Parameter) -> Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        buffer: Tensor = state["momentum_buffer"]
        return buffer


def stretch(parameter: Tensor) -> float:
    """What the step of a matrix A x B is multiplied by: sqrt(max(1, A / B))."""
    return math.sqrt(max(1.0, len(parameter) / parameter[0].numel()))


def orthogonal(gradient: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """About U V^T of U S V^T: singular values become 0.7 to 1.2, by five steps of a Newton-Schulz iteration.

    Args:
        gradient: (A, ...) of any shape, taken as a matrix A x B.
        dtype: computed in; None: bfloat16 on CUDA, else float32, or float64 of float64.

    Returns:
        the same shape.
    """
    own = torch.promote_types(gradient.dtype, torch.float32)
    dtype = dtype or (torch.bfloat16 if gradient.is_cuda else own)
    matrix = gradient.flatten(1).to(dtype)
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=SMALLEST)
    a, b, c = QUINTIC
    for _ in range(STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.T if tall else x).reshape(gradient.shape)


def matrices_of(model: nn.Module) -> set[int]:
    """ids of the weights that Muon moves: of hidden layers that mix channels.

    Not kernels of groups, depth-wise ones among them, whose rows of two groups have nothing to do with each other, nor the last
    convolutions of a head, whose rows are classes and distances.
    """
    return {
        id(layer.weight)
        for layer in model.modules()
        if isinstance(layer, nn.Conv2d | nn.Linear)
        and not isinstance(layer, Predictor)
        and getattr(layer, "groups", 1) == 1  # linear layers have none
    }
