"""Pooling blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from visiontrain.nn.conv import Conv


class SPPF(nn.Module):
    """Three chained max pools, concatenated with their input: (B, c_in, H, W) -> (B, c_out, H, W).

    Args:
        activation: after the first convolution.
        shortcut: the input is added; c_in and c_out are the same.

    Source:
        He et al., Spatial Pyramid Pooling, TPAMI 2015, arXiv:1406.4729 (here with chained small pools).
    """

    def __init__(
        self, c_in: int, c_out: int, kernel: int = 5, *, activation: bool = True, shortcut: bool = False
    ) -> None:
        super().__init__()
        hidden = c_in // 2
        self.shortcut = shortcut
        self.cv1 = Conv(c_in, hidden, activation=activation)
        self.cv2 = Conv(4 * hidden, c_out)
        self.m = nn.MaxPool2d(kernel, stride=1, padding=kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(self.m(parts[-1]))
        y = self.cv2(torch.cat(parts, 1))
        return x + y if self.shortcut else y


def sppf_activation(model: nn.Module) -> bool | None:
    """Whether the first convolution of a model's SPPF has an activation; None: it has no SPPF."""
    return next((not isinstance(m.cv1.act, nn.Identity) for m in model.modules() if isinstance(m, SPPF)), None)


def set_sppf_activation(model: nn.Module, on: bool | None) -> None:
    """Give the first convolution of a model's SPPF an activation or none: published weights have it both ways.

    None, as ``sppf_activation`` says of a model without one, changes nothing.
    """
    if on is None:
        return
    for module in model.modules():
        if isinstance(module, SPPF):
            module.cv1.act = nn.SiLU(inplace=True) if on else nn.Identity()
