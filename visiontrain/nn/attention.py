"""Attention over the cells of a feature map."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from visiontrain.nn.conv import Conv

HEAD_WIDTH = 64  # channels of an attention head
KEY_SHARE = 0.5  # of a head's channels that queries and keys have


class Attention(nn.Module):
    """Multi-head self-attention over all cells, their place told by a depth-wise convolution: (B, c, H, W) -> (B, c, H, W).

    Source:
        Wang et al., YOLOv10, NeurIPS 2024, arXiv:2405.14458, section 3.3.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.heads = max(channels // HEAD_WIDTH, 1)
        self.value = channels // self.heads
        self.key = int(self.value * KEY_SHARE)
        self.qkv = Conv(channels, channels + 2 * self.key * self.heads, activation=False)
        self.proj = Conv(channels, channels, activation=False)
        self.pe = Conv(channels, channels, 3, groups=channels, activation=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        parts = self.qkv(x).reshape(batch, self.heads, 2 * self.key + self.value, height * width)
        query, key, value = parts.split((self.key, self.key, self.value), 2)
        shares = ((query.transpose(2, 3) @ key) * self.key**-0.5).softmax(-1)
        seen = (value @ shares.transpose(2, 3)).reshape(batch, channels, height, width)
        return self.proj(seen + self.pe(value.reshape(batch, channels, height, width)))


class PSABlock(nn.Module):
    """Attention and a feed-forward network, each added to its input: (B, c, H, W) -> (B, c, H, W)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.attn = Attention(channels)
        self.ffn = nn.Sequential(Conv(channels, 2 * channels), Conv(2 * channels, channels, activation=False))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(x)
        return x + self.ffn(x)


class C2PSA(nn.Module):
    """Attention blocks on one half of the channels, partial self-attention: (B, c, H, W) -> (B, c, H, W).

    Source:
        Wang et al., YOLOv10, NeurIPS 2024, arXiv:2405.14458, section 3.3.
    """

    def __init__(self, channels: int, repeats: int = 1) -> None:
        super().__init__()
        self.hidden = channels // 2
        self.cv1 = Conv(channels, 2 * self.hidden)
        self.cv2 = Conv(2 * self.hidden, channels)
        self.m = nn.Sequential(*(PSABlock(self.hidden) for _ in range(repeats)))

    def forward(self, x: Tensor) -> Tensor:
        kept, seen = self.cv1(x).split(self.hidden, 1)
        return self.cv2(torch.cat((kept, self.m(seen)), 1))
