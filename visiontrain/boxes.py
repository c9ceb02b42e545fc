"""Boxes are xyxy in pixels inside the house; other forms are converted at the doors."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def xywh_to_xyxy(boxes: Tensor) -> Tensor:
    """(..., 4) centre x, centre y, width, height -> (..., 4) x1 y1 x2 y2, same unit."""
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat((centre - half, centre + half), -1)


def xyxy_to_xywh(boxes: Tensor) -> Tensor:
    """(..., 4) x1 y1 x2 y2 -> (..., 4) centre x, centre y, width, height, same unit."""
    low, high = boxes[..., :2], boxes[..., 2:]
    return torch.cat(((low + high) / 2, high - low), -1)


def complete_iou(predicted: Tensor, target: Tensor, eps: float = 1e-7) -> Tensor:
    """Complete IoU of boxes taken pair by pair.

    CIoU = IoU - d^2 / c^2 - alpha * v: d is the distance of the centres, c the diagonal of the smallest box around
    both, v the squared difference of the aspect angles scaled to [0, 1], alpha = v / (1 - IoU + v) without gradient.

    Args:
        predicted: (..., 4) xyxy, in any unit shared with ``target``; x2 >= x1 is not required.
        target: same shape; x2 >= x1 and y2 >= y1.
        eps: keeps the quotients finite for boxes without area.

    Returns:
        (...,) in (-1.5, 1], at least float32: half precision loses small boxes.

    Raises:
        ValueError: the shapes differ, or the last dimension is not 4.

    Source:
        Zheng et al., Distance-IoU Loss, AAAI 2020, arXiv:1911.08287.
    """
    if predicted.shape != target.shape or predicted.shape[-1:] != (4,):
        raise ValueError(
            f"complete_iou needs two (..., 4) tensors, got {tuple(predicted.shape)}, {tuple(target.shape)}"
        )
    p, t = at_least_float32(predicted), at_least_float32(target)
    p_lt, p_rb, t_lt, t_rb = p[..., :2], p[..., 2:], t[..., :2], t[..., 2:]
    (p_w, p_h), (t_w, t_h) = (p_rb - p_lt).unbind(-1), (t_rb - t_lt).unbind(-1)
    p_h, t_h = p_h + eps, t_h + eps
    overlap = (torch.minimum(p_rb, t_rb) - torch.maximum(p_lt, t_lt)).clamp(min=0).prod(-1)
    iou = overlap / (p_w * p_h + t_w * t_h - overlap + eps)
    hull = (torch.maximum(p_rb, t_rb) - torch.minimum(p_lt, t_lt)).square().sum(-1) + eps
    distance = (p_lt + p_rb - t_lt - t_rb).square().sum(-1) / 4
    v = (4 / math.pi**2) * (torch.atan(t_w / t_h) - torch.atan(p_w / p_h)).square()
    with torch.no_grad():
        alpha = v / (v - iou + (1 + eps))
    return iou - distance / hull - alpha * v


def plain_iou(predicted: Tensor, target: Tensor) -> Tensor:
    """Intersection over union of boxes taken pair by pair: (..., 4) xyxy, broadcast together -> (...,) in 0..1; 0 without area."""
    p, t = at_least_float32(predicted), at_least_float32(target)
    low, high = torch.maximum(p[..., :2], t[..., :2]), torch.minimum(p[..., 2:], t[..., 2:])
    overlap = (high - low).clamp(min=0).prod(-1)
    areas = (p[..., 2:] - p[..., :2]).prod(-1) + (t[..., 2:] - t[..., :2]).prod(-1)
    return overlap / (areas - overlap + 1e-16)


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor itself in float32 or float64, a float32 copy of anything narrower."""
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
