"""Cross-stage-partial blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from visiontrain.nn.conv import Conv


class Bottleneck(nn.Module):
    """Two 3x3 convolutions and, with ``shortcut``, the input added: (B, c, H, W) -> (B, c, H, W).

    Source:
        He et al., Deep Residual Learning, CVPR 2016, arXiv:1512.03385.
    """

    def __init__(self, channels: int, shortcut: bool = True, expansion: float = 1.0) -> None:
        super().__init__()
        hidden = int(channels * expansion)
        self.cv1 = Conv(channels, hidden, 3)
        self.cv2 = Conv(hidden, channels, 3)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = self.cv2(self.cv1(x))
        return x + y if self.shortcut else y


class C2f(nn.Module):
    """Split, a chain of bottlenecks on one half, everything concatenated: (B, c_in, H, W) -> (B, c_out, H, W).

    Source:
        Wang et al., CSPNet, CVPR-W 2020, arXiv:1911.11929; Wang et al., ELAN, arXiv:2211.04800.
    """

    def __init__(self, c_in: int, c_out: int, repeats: int = 1, shortcut: bool = False) -> None:
        super().__init__()
        self.hidden = c_out // 2
        self.cv1 = Conv(c_in, 2 * self.hidden)
        self.cv2 = Conv((2 + repeats) * self.hidden, c_out)
        self.m = nn.ModuleList(Bottleneck(self.hidden, shortcut) for _ in range(repeats))

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.cv1(x).split(self.hidden, 1))
        for block in self.m:
            parts.append(block(parts[-1]))
        return self.cv2(torch.cat(parts, 1))
