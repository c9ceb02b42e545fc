"""YOLOX's head: classes, boxes and objectness from branches of their own; boxes are offsets and logarithms of sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from visiontrain.boxes import at_least_float32, xywh_to_xyxy
from visiontrain.nn.conv import Conv, SeparableConv
from visiontrain.nn.head import DetectorOutput, OffsetOutput, Predictor, cell_centres, rows

PRIOR = 0.01  # probability of class and objectness that a fresh head gives


class DecoupledHead(nn.Module):
    """On feature maps of strides 8, 16, 32: training gives OffsetOutput, evaluation DetectorOutput.

    Args:
        nc: classes.
        channels: of the feature maps.
        width: channels inside the branches.
        depthwise: the 3x3 convolutions are separable.

    Source:
        Ge et al., YOLOX, arXiv:2107.08430, section 2.1.
    """

    def __init__(
        self,
        nc: int,
        channels: Sequence[int],
        width: int,
        depthwise: bool = False,
        strides: Sequence[int] = (8, 16, 32),
    ) -> None:
        super().__init__()
        self.nc, self.class_width, self.strides = nc, width, tuple(strides)
        conv = SeparableConv if depthwise else Conv

        def branches() -> nn.ModuleList:
            return nn.ModuleList(nn.Sequential(conv(width, width, 3), conv(width, width, 3)) for _ in channels)

        def predictors(count: int) -> nn.ModuleList:
            return nn.ModuleList(Predictor(width, count, 1) for _ in channels)

        self.stems = nn.ModuleList(Conv(c, width) for c in channels)
        self.cls_convs, self.reg_convs = branches(), branches()
        self.cls_preds, self.reg_preds, self.obj_preds = predictors(nc), predictors(4), predictors(1)
        for predictor in (*self.cls_preds, *self.obj_preds):
            nn.init.constant_(predictor.bias, math.log(PRIOR / (1 - PRIOR)))

    def forward(self, features: Sequence[Tensor]) -> OffsetOutput | DetectorOutput:
        raw = self.head_output(features)
        return raw if self.training else self.decoded(raw)

    def class_tensors(self) -> list[str]:
        """Names of the tensors with one row for each class."""
        return [f"cls_preds.{level}.{kind}" for level in range(len(self.strides)) for kind in ("weight", "bias")]

    def head_output(self, features: Sequence[Tensor]) -> OffsetOutput:
        """What the branches say."""
        scores, offsets, objectness = [], [], []
        for level, x in enumerate(features):
            x = self.stems[level](x)
            of_boxes = self.reg_convs[level](x)
            scores.append(rows(self.cls_preds[level](self.cls_convs[level](x))))
            offsets.append(rows(self.reg_preds[level](of_boxes)))
            objectness.append(rows(self.obj_preds[level](of_boxes)))
        anchors, strides = cell_centres([x.shape[-2:] for x in features], self.strides, offsets[0])
        return OffsetOutput(
            torch.cat(offsets, 1), torch.cat(objectness, 1).squeeze(-1), torch.cat(scores, 1), anchors, strides
        )

    def decoded(self, raw: OffsetOutput) -> DetectorOutput:
        """Boxes in pixels; a score is the probability of an object times that of its class."""
        boxes = offsets_to_boxes(at_least_float32(raw.offsets), raw.anchors, raw.strides)
        scores = at_least_float32(raw.scores).sigmoid() * at_least_float32(raw.objectness).sigmoid().unsqueeze(-1)
        return DetectorOutput(boxes, scores, raw)


def offsets_to_boxes(offsets: Tensor, anchors: Tensor, strides: Tensor) -> Tensor:
    """(..., 4) offsets -> (..., 4) xyxy pixels.

    Args:
        offsets: of the centre from the upper left corner of its cell, in cells; logarithms of width and height in cells.
        anchors: (..., 2) centres of the cells, in cells.
        strides: (..., 1) pixels per cell.
    """
    middle = offsets[..., :2] + anchors - 0.5
    return xywh_to_xyxy(torch.cat((middle, offsets[..., 2:].exp()), -1) * strides)


def boxes_to_offsets(boxes: Tensor, anchors: Tensor, strides: Tensor) -> Tensor:
    """The inverse; a side of no length counts as 1e-8 of a cell."""
    low, high = boxes[..., :2] / strides, boxes[..., 2:] / strides
    return torch.cat(((low + high) / 2 - anchors + 0.5, (high - low + 1e-8).log()), -1)
