"""Terms of detection losses, as sums over what they are given: no mean, no clamp of a weight."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from visiontrain.boxes import at_least_float32, complete_iou


def classification_sum(logits: Tensor, targets: Tensor, class_weights: Tensor | None = None) -> Tensor:
    """Binary cross-entropy summed over all anchors and classes: (B, A, nc) logits and targets in 0..1 -> scalar.

    Args:
        class_weights: (nc,) what each class counts; None: all 1.
    """
    return F.binary_cross_entropy_with_logits(at_least_float32(logits), targets, class_weights, reduction="sum")


def box_sum(predicted: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Sum of weight * (1 - CIoU): (P, 4) xyxy in one unit, (P,) weights -> scalar."""
    return ((1 - complete_iou(predicted, target)) * weights).sum()


def distribution_sum(logits: Tensor, distances: Tensor, weights: Tensor) -> Tensor:
    """Distribution focal loss: cross-entropy to the two bins around the true distance, mean of the four sides.

    Args:
        logits: (P, 4 * bins).
        distances: (P, 4) true distances in cells; clamped into the bins.
        weights: (P,).

    Returns:
        Scalar sum of weight * loss.

    Source:
        Li et al., Generalized Focal Loss, NeurIPS 2020, arXiv:2006.04388.
    """
    log_probabilities = at_least_float32(logits).unflatten(-1, (4, -1)).log_softmax(-1)
    bins = log_probabilities.shape[-1]
    distances = distances.clamp(0, bins - 1 - 0.01)
    lower = distances.floor()
    share = distances - lower  # of the upper bin
    index = lower.long().unsqueeze(-1)
    at_lower = log_probabilities.gather(-1, index).squeeze(-1)
    at_upper = log_probabilities.gather(-1, index + 1).squeeze(-1)
    per_side = -torch.lerp(at_lower, at_upper, share)
    return (per_side.mean(-1) * weights).sum()


def distance_sum(
    predicted: Tensor, distances: Tensor, strides: Tensor, size: tuple[int, int], weights: Tensor
) -> Tensor:
    """Absolute error of the distances as fractions of the picture's side, mean of the four sides.

    Args:
        predicted, distances: (P, 4) left top right bottom in cells.
        strides: (P, 1) pixels of a cell.
        size: (height, width) of the picture, pixels.
        weights: (P,).

    Returns:
        Scalar sum of weight * error.
    """
    sides = distances.new_tensor((size[1], size[0], size[1], size[0]))
    return (((predicted - distances).abs() * strides / sides).mean(-1) * weights).sum()
