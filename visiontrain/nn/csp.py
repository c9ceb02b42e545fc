"""Cross-stage-partial blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from visiontrain.nn.attention import PSABlock
from visiontrain.nn.conv import Conv, SeparableConv


class Bottleneck(nn.Module):
    """Two 3x3 convolutions and, with ``shortcut``, the input added: (B, c, H, W) -> (B, c, H, W).

    Source:
        He et al., Deep Residual Learning, CVPR 2016, arXiv:1512.03385.
    """

    def __init__(self, channels: int, shortcut: bool = True, expansion: float = 1.0) -> None:
        super().__init__()
        hidden = int(channels * expansion)
        self.cv1: nn.Module = Conv(channels, hidden, 3)
        self.cv2: nn.Module = Conv(hidden, channels, 3)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = self.cv2(self.cv1(x))
        return x + y if self.shortcut else y


class C2f(nn.Module):
    """Split, a chain of bottlenecks on one half, everything concatenated: (B, c_in, H, W) -> (B, c_out, H, W).

    Source:
        Wang et al., CSPNet, CVPR-W 2020, arXiv:1911.11929; Wang et al., ELAN, arXiv:2211.04800.
    """

    def __init__(self, c_in: int, c_out: int, repeats: int = 1, shortcut: bool = False, expansion: float = 0.5) -> None:
        super().__init__()
        self.hidden = int(c_out * expansion)
        self.cv1 = Conv(c_in, 2 * self.hidden)
        self.cv2 = Conv((2 + repeats) * self.hidden, c_out)
        self.m = nn.ModuleList(self.block(shortcut) for _ in range(repeats))

    def block(self, shortcut: bool) -> nn.Module:
        """One link of the chain: (B, hidden, H, W) -> the same."""
        return Bottleneck(self.hidden, shortcut)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.cv1(x).split(self.hidden, 1))
        for block in self.m:
            parts.append(block(parts[-1]))
        return self.cv2(torch.cat(parts, 1))


class C3(nn.Module):
    """``repeats`` bottlenecks beside a 1x1 convolution, concatenated: (B, c_in, H, W) -> (B, c_out, H, W).

    The first convolution of a bottleneck is 1x1.

    Args:
        depthwise: the 3x3 convolutions are separable.

    Source:
        Wang et al., CSPNet, CVPR-W 2020, arXiv:1911.11929.
    """

    def __init__(self, c_in: int, c_out: int, repeats: int, shortcut: bool = False, depthwise: bool = False) -> None:
        super().__init__()
        self.depthwise = depthwise
        hidden = c_out // 2
        self.cv1 = Conv(c_in, hidden)
        self.cv2 = Conv(c_in, hidden)
        self.cv3 = Conv(2 * hidden, c_out)
        self.m = nn.Sequential(*(self.block(hidden, shortcut) for _ in range(repeats)))

    def block(self, channels: int, shortcut: bool) -> nn.Module:
        """One bottleneck: (B, channels, H, W) -> the same."""
        bottleneck = Bottleneck(channels, shortcut)
        conv = SeparableConv if self.depthwise else Conv
        bottleneck.cv1, bottleneck.cv2 = Conv(channels, channels), conv(channels, channels, 3)
        return bottleneck

    def forward(self, x: Tensor) -> Tensor:
        return self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))


class C3k(C3):
    """C3 of bottlenecks with two 3x3 convolutions: (B, c, H, W) -> (B, c, H, W)."""

    def __init__(self, channels: int, shortcut: bool = True, repeats: int = 2) -> None:
        super().__init__(channels, channels, repeats, shortcut)

    def block(self, channels: int, shortcut: bool) -> nn.Module:
        return Bottleneck(channels, shortcut)


class C3k2(C2f):
    """C2f whose links are thin bottlenecks, C3k blocks, or a bottleneck with attention after it: (B, c_in, H, W) -> (B, c_out, H, W).

    Args:
        link: plain, c3k or attention.
    """

    def __init__(self, c_in: int, c_out: int, repeats: int = 1, link: str = "plain", expansion: float = 0.5) -> None:
        self.link = link
        super().__init__(c_in, c_out, repeats, shortcut=True, expansion=expansion)

    def block(self, shortcut: bool) -> nn.Module:
        if self.link == "c3k":
            return C3k(self.hidden, shortcut)
        bottleneck = Bottleneck(self.hidden, shortcut, expansion=0.5)
        return nn.Sequential(bottleneck, PSABlock(self.hidden)) if self.link == "attention" else bottleneck
