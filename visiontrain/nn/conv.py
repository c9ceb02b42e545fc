"""Convolution, normalisation, activation: the brick of every family here."""

from __future__ import annotations

from torch import Tensor, nn

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
