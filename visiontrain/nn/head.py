"""The anchor-free head: class scores and box distances on three levels, and how they become boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from visiontrain.boxes import at_least_float32
from visiontrain.nn.conv import Conv

START = 2.0  # cells from the centre to each side of a fresh head's boxes


@dataclass(frozen=True, slots=True)
class HeadOutput:
    """What the head says before decoding.

    ``distances`` (B, A, 4 * reg_max) logits of left, top, right, bottom in cells; ``scores`` (B, A, nc) logits;
    ``anchors`` (A, 2) x y of the cell centres in cells; ``strides`` (A, 1) pixels per cell.
    """

    distances: Tensor
    scores: Tensor
    anchors: Tensor
    strides: Tensor


@dataclass(frozen=True, slots=True)
class DetectorOutput:
    """Decoded: ``boxes`` (B, A, 4) xyxy pixels of the network input, ``scores`` (B, A, nc) in 0..1, ``raw`` what they came from."""

    boxes: Tensor
    scores: Tensor
    raw: HeadOutput


class Projection(nn.Module):
    """Expected value of a discrete distribution over 0..bins-1: (..., 4 * bins) logits -> (..., 4) cells.

    The bins stand in a fixed convolution weight because published checkpoints store them so.

    Source:
        Li et al., Generalized Focal Loss, NeurIPS 2020, arXiv:2006.04388.
    """

    def __init__(self, bins: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(bins, 1, 1, bias=False).requires_grad_(False)
        self.conv.weight.data[:] = torch.arange(bins, dtype=torch.float).view(1, bins, 1, 1)

    def forward(self, logits: Tensor) -> Tensor:
        logits = at_least_float32(logits)
        bins = self.conv.weight.view(-1).to(logits.dtype)
        return logits.unflatten(-1, (4, len(bins))).softmax(-1) @ bins


class Detect(nn.Module):
    """Decoupled head on feature maps of strides 8, 16, 32: training gives HeadOutput, evaluation DetectorOutput."""

    def __init__(
        self, nc: int, channels: Sequence[int], strides: Sequence[int] = (8, 16, 32), reg_max: int = 16
    ) -> None:
        super().__init__()
        self.nc, self.reg_max, self.strides = nc, reg_max, tuple(strides)
        box_width = max(16, channels[0] // 4, 4 * reg_max)
        class_width = max(channels[0], min(nc, 100))
        self.cv2 = nn.ModuleList(_branch(c, box_width, 4 * reg_max) for c in channels)
        self.cv3 = nn.ModuleList(_branch(c, class_width, nc) for c in channels)
        self.dfl = Projection(reg_max)
        self.initialise_biases()

    def initialise_biases(self) -> None:
        """Boxes start two cells wide on each side; about five objects are expected in a picture of 640 x 640.

        The bins get the geometric distribution of that mean. With equal biases, whatever their value, all bins are equally
        likely and boxes start 7.5 cells wide on each side: small objects overlap them by nothing, so they are no targets.
        """
        start = torch.arange(self.reg_max) * math.log(START / (START + 1))
        for box, cls, stride in zip(self.cv2, self.cv3, self.strides, strict=True):
            box[-1].bias.data.copy_(start.repeat(4))
            nn.init.constant_(cls[-1].bias, math.log(5 / self.nc / (640 / stride) ** 2))

    def forward(self, features: Sequence[Tensor]) -> HeadOutput | DetectorOutput:
        distances = torch.cat([_rows(branch(x)) for branch, x in zip(self.cv2, features, strict=True)], 1)
        scores = torch.cat([_rows(branch(x)) for branch, x in zip(self.cv3, features, strict=True)], 1)
        anchors, strides = cell_centres([x.shape[-2:] for x in features], self.strides, distances)
        raw = HeadOutput(distances, scores, anchors, strides)
        if self.training:
            return raw
        boxes = distances_to_boxes(self.dfl(distances), raw.anchors) * raw.strides
        return DetectorOutput(boxes, at_least_float32(scores).sigmoid(), raw)


class Predictor(nn.Conv2d):
    """A 1x1 convolution whose bias is added after it: (B, c_in, H, W) -> (B, c_out, H, W).

    Inside a convolution the gradient of the bias is a running sum over all cells of the batch, in float32 some 1e-4
    off; as an addition it is reduced pairwise and right to 1e-7, however the batch is split.
    """

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, self.weight, None) + self.bias.view(1, -1, 1, 1)


def _branch(c_in: int, hidden: int, c_out: int) -> nn.Sequential:
    return nn.Sequential(Conv(c_in, hidden, 3), Conv(hidden, hidden, 3), Predictor(hidden, c_out, 1))


def _rows(x: Tensor) -> Tensor:
    """(B, C, H, W) -> (B, H * W, C); a view of a channels-last tensor."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)


def cell_centres(shapes: Sequence[Sequence[int]], strides: Sequence[int], like: Tensor) -> tuple[Tensor, Tensor]:
    """Centres of all cells, level by level, rows of a level from top to bottom.

    Args:
        shapes: (height, width) of each level, in cells.
        strides: pixels per cell of each level.
        like: gives the device, and the dtype where it is at least float32.

    Returns:
        (A, 2) x y in cells and (A, 1) pixels per cell.
    """
    kind = {"device": like.device, "dtype": torch.float64 if like.dtype == torch.float64 else torch.float32}
    centres, sizes = [], []
    for (height, width), stride in zip(shapes, strides, strict=True):
        y, x = torch.meshgrid(torch.arange(height, **kind) + 0.5, torch.arange(width, **kind) + 0.5, indexing="ij")
        centres.append(torch.stack((x, y), -1).view(-1, 2))
        sizes.append(torch.full((height * width, 1), float(stride), **kind))
    return torch.cat(centres), torch.cat(sizes)


def distances_to_boxes(distances: Tensor, anchors: Tensor) -> Tensor:
    """(..., 4) left top right bottom from (..., 2) anchors -> (..., 4) xyxy, all in cells."""
    return torch.cat((anchors - distances[..., :2], anchors + distances[..., 2:]), -1)
