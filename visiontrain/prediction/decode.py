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
    boxes, scores = boxes.float(), scores.float()
    finite = (scores.sum(-1) + boxes.sum(-1)).isfinite()  # one number that is not finite spoils its sum
    best = None
    if not multi_label:
        values, best = scores.max(-1)
        scores = values.unsqueeze(-1)
    wanted = (scores > conf) & finite.unsqueeze(-1)
    rows = wanted.view(-1).nonzero().squeeze(1)
    *counts, non_finite = torch.cat((wanted.flatten(1).sum(1), (~finite).sum().view(1))).tolist()

    per_image, labels = scores[0].numel(), scores.shape[-1]
    rows = rows[_by_image_then_score(rows // per_image, scores.view(-1)[rows])]
    if max(counts, default=0) > max_candidates:
        rows = torch.cat([part[:max_candidates] for part in rows.split(counts)])
    anchors = rows // labels
    return Candidates(
        boxes=boxes.reshape(-1, 4)[anchors],
        scores=scores.view(-1)[rows],
        classes=rows % labels if best is None else best.view(-1)[anchors],
        counts=tuple(min(count, max_candidates) for count in counts),
        capped=sum(max(count - max_candidates, 0) for count in counts),
        non_finite=non_finite,
    )


def _by_image_then_score(image: Tensor, scores: Tensor) -> Tensor:
    order = scores.argsort(descending=True, stable=True)
    return order[image[order].argsort(stable=True)]
