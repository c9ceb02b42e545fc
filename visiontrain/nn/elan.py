"""Blocks of generalised efficient layer aggregation (GELAN), and how it halves a map.

Source:
    Wang, Yeh and Liao, YOLOv9, arXiv:2402.13616; Wang et al., ELAN, arXiv:2211.04800.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from visiontrain.nn.conv import Conv
from visiontrain.nn.csp import Bottleneck, C3k
from visiontrain.nn.head import Predictor


class RepConv(nn.Module):
    """A 3x3 and a 1x1 convolution side by side, each with its BatchNorm, summed, SiLU: (B, c, H, W) -> the same.

    Source:
        Ding et al., RepVGG, CVPR 2021, arXiv:2101.03697; without its identity path.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cv1 = Conv(channels, channels, 3, activation=False)
        self.cv2 = Conv(channels, channels, activation=False)
        self.act = nn.SiLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.cv1(x) + self.cv2(x))


class RepNBottleneck(Bottleneck):
    """Bottleneck whose first convolution is a RepConv: (B, c, H, W) -> the same."""

    def __init__(self, channels: int, shortcut: bool = True) -> None:
        super().__init__(channels, shortcut)
        self.cv1 = RepConv(channels)


class RepNCSP(C3k):
    """C3k of RepNBottlenecks: (B, c, H, W) -> the same."""

    def block(self, channels: int, shortcut: bool) -> nn.Module:
        return RepNBottleneck(channels, shortcut)


class ELAN(nn.Module):
    """Two halves, two links chained on the second, all concatenated: (B, c_in, H, W) -> (B, c_out, H, W).

    Args:
        part: channels of both halves together; a link has as many as a half.
    """

    def __init__(self, c_in: int, c_out: int, part: int) -> None:
        super().__init__()
        self.cv1 = Conv(c_in, part)
        self.cv2, self.cv3 = (self.link(part // 2) for _ in range(2))
        self.cv4 = Conv(2 * part, c_out)

    def link(self, channels: int) -> nn.Module:
        """One link of the chain: (B, channels, H, W) -> the same."""
        return Conv(channels, channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.cv1(x).chunk(2, 1))
        for link in (self.cv2, self.cv3):
            parts.append(link(parts[-1]))
        return self.cv4(torch.cat(parts, 1))


class RepNCSPELAN(ELAN):
    """ELAN whose links are a RepNCSP of ``repeats`` and a 3x3 convolution: (B, c_in, H, W) -> (B, c_out, H, W)."""

    def __init__(self, c_in: int, c_out: int, part: int, repeats: int) -> None:
        self.repeats = repeats
        super().__init__(c_in, c_out, part)

    def link(self, channels: int) -> nn.Module:
        return nn.Sequential(RepNCSP(channels, repeats=self.repeats), Conv(channels, channels, 3))


class AConv(nn.Module):
    """Mean of 2x2 cells, then a 3x3 convolution of stride 2: (B, c_in, H, W) -> (B, c_out, H / 2, W / 2)."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.conv = Conv(c_in, c_out, 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.avg_pool2d(x, 2, 1))


class ADown(nn.Module):
    """Mean of 2x2 cells; half of the channels convolved, of the others the largest: (B, c_in, H, W) -> (B, c_out, H / 2, W / 2)."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.cv1 = Conv(c_in // 2, c_out // 2, 3, 2)
        self.cv2 = Conv(c_in // 2, c_out // 2)

    def forward(self, x: Tensor) -> Tensor:
        first, second = F.avg_pool2d(x, 2, 1).chunk(2, 1)
        return torch.cat((self.cv1(first), self.cv2(F.max_pool2d(second, 3, 2, 1))), 1)


class CBLinear(nn.Module):
    """A 1x1 convolution with bias whose channels are dealt to several levels: (B, c_in, H, W) -> (B, c, H, W) each.

    Source:
        Liang et al., CBNet, TIP 2022, arXiv:2107.00420.
    """

    def __init__(self, c_in: int, *c_out: int) -> None:
        super().__init__()
        self.c_out = list(c_out)
        self.conv = Predictor(c_in, sum(c_out), 1)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.conv(x).split(self.c_out, 1)
