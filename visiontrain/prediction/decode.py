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
    finite = (scores.sum(-1) + sum(boxes.unbind(-1))).isfinite().view(-1)  # one bad number spoils its sum
    best = None
    if not multi_label:
        values, best = scores.max(-1)
        scores = values.unsqueeze(-1)
    labels, flat = scores.shape[-1], scores.reshape(-1)
    rows = (flat > conf).nonzero().squeeze(1)
    rows = rows[finite[rows // labels]]
    per_image = scores[0].numel()
    ends = torch.searchsorted(rows, torch.arange(1, len(scores) + 1, device=rows.device) * per_image)
    *edges, non_finite = torch.cat((ends, (~finite).sum().view(1))).tolist()
    found = [end - start for start, end in zip([0, *edges], edges, strict=False)]
    counts = tuple(min(count, max_candidates) for count in found)
    if max(found) > max_candidates:
        rows = torch.cat([_best(part, flat, max_candidates) for part in rows.split(found)])
    rows = rows[_by_image_then_score(rows // per_image, flat[rows])]
    anchors = rows // labels
    return Candidates(
        boxes=boxes.reshape(-1, 4)[anchors],
        scores=flat[rows],
        classes=rows % labels if best is None else best.view(-1)[anchors],
        counts=counts,
        capped=sum(found) - sum(counts),
        non_finite=non_finite,
    )


def _best(rows: Tensor, scores: Tensor, limit: int) -> Tensor:
    return rows if len(rows) <= limit else rows[scores[rows].topk(limit).indices]


def _by_image_then_score(image: Tensor, scores: Tensor) -> Tensor:
    order = scores.argsort(descending=True, stable=True)
    return order[image[order].argsort(stable=True)]
