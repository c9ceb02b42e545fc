"""The one output that exported files have, as the post-processing of the field reads it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from visiontrain.boxes import xyxy_to_xywh
from visiontrain.models.detector import Detector
from visiontrain.models.exported.metadata import Metadata


class Layout(nn.Module):
    """A detector with the output of its file: images (B, 3, H, W) float32 RGB 0..1 -> output0.

    Without NMS (B, 4 + classes, A): centre x, centre y, width and height in pixels of the input, then scores. Else
    (B, max_det, 6): x1, y1, x2, y2, score, class, best first; rows of zeros are empty.
    """

    def __init__(self, model: Detector, metadata: Metadata) -> None:
        super().__init__()
        self.model, self.metadata = model, metadata

    def forward(self, images: Tensor) -> Tensor:
        found, inside = self.model(images), self.metadata
        if inside.max_det is None:
            return torch.cat((xyxy_to_xywh(found.boxes), found.scores), -1).transpose(1, 2)
        scores = found.scores
        if inside.nms:
            scores = surviving(found.boxes, scores, inside.conf, inside.iou, inside.max_det)
        return best_rows(found.boxes, scores, inside.max_det)


def best_rows(boxes: Tensor, scores: Tensor, count: int) -> Tensor:
    """(B, A, 4) boxes and (B, A, C) scores -> (B, count, 6) x1 y1 x2 y2 score class, best first, zeros where there are fewer."""
    classes = scores.shape[-1]
    best, places = F.pad(scores.flatten(1), (0, count)).topk(count)
    there = best > 0
    places = torch.where(there, places, 0)
    anchors = torch.div(places, classes, rounding_mode="floor")
    corners = boxes.gather(1, anchors.unsqueeze(-1).expand(-1, -1, 4))
    kinds = (places - anchors * classes).to(best.dtype)
    return torch.cat((corners, best.unsqueeze(-1), kinds.unsqueeze(-1)), -1) * there.unsqueeze(-1)


@torch.library.custom_op("visiontrain::surviving", mutates_args=())
def surviving(boxes: Tensor, scores: Tensor, conf: float, iou: float, max_det: int) -> Tensor:
    """Scores (B, A, C), zero where at most ``conf`` or suppressed by a better box of the class; exporters/onnx.py has it in ONNX."""
    raise NotImplementedError("visiontrain::surviving stands for ONNX's NonMaxSuppression")


@surviving.register_fake
def _(boxes: Tensor, scores: Tensor, conf: float, iou: float, max_det: int) -> Tensor:
    return torch.empty_like(scores)
