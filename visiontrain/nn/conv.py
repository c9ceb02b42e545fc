"""Convolution, normalisation, activation: the brick of every family here."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCHNORM_EPS = 1e-3
BATCHNORM_MOMENTUM = 0.03


class Conv(nn.Module):
    """Convolution without bias, BatchNorm, SiLU or with ``activation=False`` nothing: (B, c_in, H, W) -> (B, c_out, H / stride, W / stride)."""

    def __init__(
        self, c_in: int, c_out: int, kernel: int = 1, stride: int = 1, groups: int = 1, *, activation: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(c_out, eps=BATCHNORM_EPS, momentum=BATCHNORM_MOMENTUM)
        self.act: nn.Module = nn.SiLU(inplace=True) if activation else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


class SeparableConv(nn.Module):
    """A depth-wise convolution, then a 1x1 one, each as Conv: (B, c_in, H, W) -> (B, c_out, H / stride, W / stride).

    Source:
        Howard et al., MobileNets, arXiv:1704.04861.
    """

    def __init__(self, c_in: int, c_out: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.dconv = Conv(c_in, c_in, kernel, stride, groups=c_in)
        self.pconv = Conv(c_in, c_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.pconv(self.dconv(x))


class Focus(Conv):
    """Each 2x2 block of pixels as channels, then Conv: (B, c_in, H, W) in 0..1 -> (B, c_out, H / 2, W / 2).

    ``white`` is what the weights know white as: 1 of our own, 255 of those that were trained on pixels in 0..255. It is
    no part of the weights, for weights 255 times as large would learn 255 ^ 2 times as slowly.
    """

    white: Tensor

    def __init__(self, c_in: int, c_out: int, kernel: int) -> None:
        super().__init__(4 * c_in, c_out, kernel)
        self.register_buffer("white", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pixel_unshuffle(x * self.white, 2))
