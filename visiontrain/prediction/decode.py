"""From dense scores to the candidates worth suppressing: a threshold, a cap, an order. Anchors are decoded in nn/head.py."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Candidates:
    """Boxes above the threshold, image after image, best score first.

    ``boxes`` (N, 4) float32 xyxy pixels of the network input, ``scores`` (N,) float32, ``classes`` (N,) int64,
    ``counts`` rows of each image. ``capped`` counts candidates that the cap left out, ``non_finite`` predictions
    (anchors) that were dropped because a number of theirs is not finite.
    """

    boxes: Tensor
    scores: Tensor
    classes: Tensor
    counts: tuple[int, ...]
    capped: int
    non_finite: int


def select(
    boxes: Tensor, scores: Tensor, conf: float, max_candidates: int = 30000, multi_label: bool = True
) -> Candidates:
    """Keep what scores above ``conf``, at most ``max_candidates`` per image, the best by score.

    Args:
        boxes: (B, A, 4) xyxy pixels of the network input, any floating dtype.
        scores: (B, A, C) probabilities; compared and returned as float32, since half precision ties too often.
        conf: a candidate scores more than this.
        max_candidates: per image; what it leaves out is counted in ``Candidates.capped``.
        multi_label: an anchor may be a candidate for each class it scores; False takes its best class only.
    """
    boxes, scores = boxes.float().reshape(-1, 4), scores.float()
    images, per_image, labels = scores.shape
    scores = scores.reshape(-1, labels)
    top = scores.amax(-1)
    finite = (top + boxes.sum(-1)).isfinite()  # one bad number spoils the largest, or its sum
    # Few anchors have a score that counts: one pass finds them, and only their classes are looked at.
    anchors = ((top > conf) & finite).nonzero().squeeze(1)
    if multi_label:
        row, classes = (scores.index_select(0, anchors) > conf).nonzero().unbind(1)
        anchors = anchors[row]
        values = scores[anchors, classes]
    else:
        values, classes = scores[anchors].max(-1)
    ends = torch.searchsorted(anchors, torch.arange(1, images + 1, device=anchors.device) * per_image)
    *edges, non_finite = torch.cat((ends, (~finite).sum().view(1))).tolist()
    found = [end - start for start, end in zip([0, *edges], edges, strict=False)]
    counts = tuple(min(count, max_candidates) for count in found)
    order = _by_image_then_score(anchors // per_image, values)
    if max(found) > max_candidates:
        order = torch.cat([best[:max_candidates] for best in order.split(found)])
    return Candidates(
        boxes=boxes[anchors[order]],
        scores=values[order],
        classes=classes[order],
        counts=counts,
        capped=sum(found) - sum(counts),
        non_finite=non_finite,
    )


def _by_image_then_score(image: Tensor, scores: Tensor) -> Tensor:
    order = scores.argsort(descending=True, stable=True)
    return order[image[order].argsort(stable=True)]
