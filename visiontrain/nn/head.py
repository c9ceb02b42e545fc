"""The anchor-free head: class scores and box distances on three levels, and how they become boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
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
    With reg_max 1 they are distances themselves.
    ``anchors`` (A, 2) x y of the cell centres in cells; ``strides`` (A, 1) pixels per cell; ``size`` (height, width) of the
    network input, pixels.
    """

    distances: Tensor
    scores: Tensor
    anchors: Tensor
    strides: Tensor
    size: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class DualOutput:
    """What the two heads of one detector say; ``one_to_one`` saw features without gradient. Anchors are the same tensors."""

    one_to_many: HeadOutput
    one_to_one: HeadOutput


@dataclass(frozen=True, slots=True)
class OffsetOutput:
    """What a head with objectness says before decoding (nn/decoupled.py).

    ``offsets`` (B, A, 4) of the centre in cells, then logarithms of width and height; ``objectness`` (B, A) and ``scores``
    (B, A, nc) logits; ``anchors`` and ``strides`` as in HeadOutput.
    """

    offsets: Tensor
    objectness: Tensor
    scores: Tensor
    anchors: Tensor
    strides: Tensor


@dataclass(frozen=True, slots=True)
class AuxiliaryOutput:
    """What a detector and the head that helps in training alone say; both learn from features with gradient."""

    main: HeadOutput
    auxiliary: HeadOutput


# What a detector gives in training.
TrainingOutput = HeadOutput | DualOutput | AuxiliaryOutput | OffsetOutput


@dataclass(frozen=True, slots=True)
class DetectorOutput:
    """Decoded: ``boxes`` (B, A, 4) xyxy pixels of the network input, ``scores`` (B, A, nc) in 0..1, ``raw`` what they came from,
    None where an exported file does not tell.

    ``end_to_end``: the head gives each object one box, so there is nothing to suppress.
    """

    boxes: Tensor
    scores: Tensor
    raw: HeadOutput | OffsetOutput | None = None
    end_to_end: bool = False


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
    """Decoupled head on feature maps of strides 8, 16, 32: training gives HeadOutput, evaluation DetectorOutput.

    Args:
        nc: classes.
        channels: of the feature maps.
        reg_max: bins of a distance; with 1 it is predicted as a number.
        depthwise: the class branch is of depth-wise and 1x1 convolutions.
        class_width: channels inside the class branch; None: as fits the classes.
        groups: of the box branch after its first convolution; with 4 each side of a box has its own.
    """

    def __init__(
        self,
        nc: int,
        channels: Sequence[int],
        strides: Sequence[int] = (8, 16, 32),
        reg_max: int = 16,
        depthwise: bool = False,
        class_width: int | None = None,
        groups: int = 1,
    ) -> None:
        super().__init__()
        self.nc, self.reg_max, self.strides = nc, reg_max, tuple(strides)
        self.class_width = class_width = class_width or max(channels[0], min(nc, 100))
        box_width = max(16, channels[0] // 4, 4 * reg_max)
        class_branch = _depthwise_branch if depthwise else _branch
        self.cv2 = nn.ModuleList(_branch(c, box_width, 4 * reg_max, groups) for c in channels)
        self.cv3 = nn.ModuleList(class_branch(c, class_width, nc) for c in channels)
        self.dfl: nn.Module = Projection(reg_max) if reg_max > 1 else nn.Identity()
        initialise_biases(self.cv2, self.cv3, nc, self.strides)

    def forward(self, features: Sequence[Tensor]) -> HeadOutput | DualOutput | DetectorOutput:
        raw = self.head_output(features, self.cv2, self.cv3)
        return raw if self.training else self.decoded(raw)

    def class_tensors(self) -> list[str]:
        """Names of the tensors with one row for each class."""
        return [
            f"{name}.{level}.{len(branch) - 1}.{kind}"
            for name, branches in self.named_children()
            if name.endswith("cv3")
            for level, branch in enumerate(branches)
            for kind in ("weight", "bias")
        ]

    def head_output(
        self, features: Sequence[Tensor], boxes: nn.ModuleList, classes: nn.ModuleList, like: HeadOutput | None = None
    ) -> HeadOutput:
        """What two lists of branches say; ``like`` is another head's output on the same maps, whose anchors are shared."""
        distances = torch.cat([rows(branch(x)) for branch, x in zip(boxes, features, strict=True)], 1)
        scores = torch.cat([rows(branch(x)) for branch, x in zip(classes, features, strict=True)], 1)
        if like:
            return HeadOutput(distances, scores, like.anchors, like.strides, like.size)
        anchors, strides = cell_centres([x.shape[-2:] for x in features], self.strides, distances)
        height, width = (side * self.strides[0] for side in features[0].shape[-2:])
        return HeadOutput(distances, scores, anchors, strides, (height, width))

    def decoded(self, raw: HeadOutput, end_to_end: bool = False) -> DetectorOutput:
        """Boxes in pixels and probabilities."""
        boxes = distances_to_boxes(self.dfl(at_least_float32(raw.distances)), raw.anchors) * raw.strides
        return DetectorOutput(boxes, at_least_float32(raw.scores).sigmoid(), raw, end_to_end)


class DualDetect(Detect):
    """Two heads: one learns from many cells for each object, the other, a copy that sees features without gradient, from one.

    Training gives DualOutput; evaluation DetectorOutput of the second, which needs no suppression, or with ``nms`` of the first.

    Source:
        Wang et al., YOLOv10, NeurIPS 2024, arXiv:2405.14458, section 3.1.
    """

    def __init__(self, nc: int, channels: Sequence[int], class_width: int | None = None) -> None:
        super().__init__(nc, channels, reg_max=1, depthwise=True, class_width=class_width)
        self.nms = False
        self.one2one_cv2 = deepcopy(self.cv2)
        self.one2one_cv3 = deepcopy(self.cv3)

    def forward(self, features: Sequence[Tensor]) -> DualOutput | DetectorOutput:
        if not self.training:
            if self.nms:
                return self.decoded(self.head_output(features, self.cv2, self.cv3))
            return self.decoded(self.head_output(features, self.one2one_cv2, self.one2one_cv3), end_to_end=True)
        many = self.head_output(features, self.cv2, self.cv3)
        alone = [x.detach() for x in features]
        return DualOutput(many, self.head_output(alone, self.one2one_cv2, self.one2one_cv3, like=many))

    def one_to_one_parameters(self) -> list[nn.Parameter]:
        """Of the second head."""
        return [*self.one2one_cv2.parameters(), *self.one2one_cv3.parameters()]


def initialise_biases(boxes: nn.ModuleList, classes: nn.ModuleList, nc: int, strides: Sequence[int]) -> None:
    """Boxes start two cells wide on each side; about five objects are expected in a picture of 640 x 640.

    Bins get the geometric distribution of that mean. With equal biases, whatever their value, all bins are equally
    likely and boxes start 7.5 cells wide on each side: small objects overlap them by nothing, so they are no targets.
    """
    for box, cls, stride in zip(boxes, classes, strides, strict=True):
        bins = len(box[-1].bias) // 4
        start = torch.arange(bins) * math.log(START / (START + 1)) if bins > 1 else torch.tensor([START])
        box[-1].bias.data.copy_(start.repeat(4))
        nn.init.constant_(cls[-1].bias, math.log(5 / nc / (640 / stride) ** 2))


class Predictor(nn.Conv2d):
    """A 1x1 convolution whose bias is added after it: (B, c_in, H, W) -> (B, c_out, H, W).

    Inside a convolution the gradient of the bias is a running sum over all cells of the batch, in float32 some 1e-4
    off; as an addition it is reduced pairwise and right to 1e-7, however the batch is split.
    """

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, self.weight, None) + self.bias.view(1, -1, 1, 1)


def _branch(c_in: int, hidden: int, c_out: int, groups: int = 1) -> nn.Sequential:
    first, second = Conv(c_in, hidden, 3), Conv(hidden, hidden, 3, groups=groups)
    return nn.Sequential(first, second, Predictor(hidden, c_out, 1, groups=groups))


def _depthwise_branch(c_in: int, hidden: int, c_out: int) -> nn.Sequential:
    first = nn.Sequential(Conv(c_in, c_in, 3, groups=c_in), Conv(c_in, hidden))
    second = nn.Sequential(Conv(hidden, hidden, 3, groups=hidden), Conv(hidden, hidden))
    return nn.Sequential(first, second, Predictor(hidden, c_out, 1))


def rows(x: Tensor) -> Tensor:
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
