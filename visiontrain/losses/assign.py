"""Task-aligned assignment: which anchors answer for which object, and how strongly."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from visiontrain.boxes import complete_iou

SMALLEST_SIDE = 16.0  # pixels, the stride of the middle level: smaller objects would hold no anchor
PAIRS_AT_ONCE = 1 << 24  # object-anchor pairs held at a time; bounds the memory on crowded pictures


@dataclass(frozen=True, slots=True)
class Assignment:
    """The positive anchors of a batch, P of them.

    ``image`` (P,), ``anchor`` (P,) and ``target`` (P,) are indices into the batch, the anchors and the targets;
    ``score`` (P,) is the soft target of the object's class at that anchor.
    """

    image: Tensor
    anchor: Tensor
    target: Tensor
    score: Tensor


@dataclass(frozen=True, slots=True)
class TaskAlignedAssigner:
    """Alignment t = score^alpha * max(CIoU, 0)^beta chooses the ``top_k`` anchors inside each object.

    Of those that an object has to itself then, the best ``keep`` stay; None: all.

    Source:
        Feng et al., TOOD: Task-aligned One-stage Object Detection, ICCV 2021, arXiv:2108.07755.
    """

    top_k: int = 10
    alpha: float = 0.5
    beta: float = 6.0
    keep: int | None = None

    @torch.no_grad()
    def __call__(
        self, scores: Tensor, boxes: Tensor, centres: Tensor, image: Tensor, classes: Tensor, truth: Tensor
    ) -> Assignment:
        """Assign anchors to objects, image by image or in chunks of images: memory stays bounded.

        Args:
            scores: (B, A, nc) probabilities.
            boxes: (B, A, 4) predicted xyxy, pixels.
            centres: (A, 2) anchor centres, pixels.
            image: (N,) image of each object, sorted.
            classes: (N,) class of each object.
            truth: (N, 4) xyxy, pixels.
        """
        chunk = max(PAIRS_AT_ONCE // len(centres), 1)
        pieces = []
        start = 0
        while start < len(image):
            stop = _end_of_chunk(image, start, chunk)
            rows = slice(start, stop)
            piece = self._assign(scores, boxes, centres, image[rows], classes[rows], truth[rows])
            pieces.append(Assignment(piece.image, piece.anchor, piece.target + start, piece.score))
            start = stop
        if len(pieces) == 1:
            return pieces[0]
        none = image.new_zeros(0)
        pieces.append(Assignment(none, none, none, boxes.new_zeros(0)))
        return Assignment(
            *(torch.cat([getattr(p, name) for p in pieces]) for name in ("image", "anchor", "target", "score"))
        )

    def _assign(
        self, scores: Tensor, boxes: Tensor, centres: Tensor, image: Tensor, classes: Tensor, truth: Tensor
    ) -> Assignment:
        objects, anchors = len(truth), len(centres)
        g, a = inside(centres, truth).nonzero(as_tuple=True)  # candidate pairs
        overlap = complete_iou(boxes[image[g], a], truth[g]).clamp_(min=0)
        alignment = scores[image[g], a, classes[g]] ** self.alpha * overlap**self.beta

        dense = alignment.new_zeros(objects, anchors)
        dense[g, a] = alignment
        best = dense.topk(min(self.top_k, anchors)).indices
        chosen = torch.zeros_like(dense, dtype=torch.bool).scatter_(1, best, True)[g, a]
        chosen &= alignment > 0  # zeros tie: which of them fill the top k is chance, and must not contest an anchor

        slot = image[g] * anchors + a  # one number for each anchor of each image
        slots = len(scores) * anchors
        claims = torch.zeros(slots, dtype=torch.int32, device=slot.device)
        claims.index_add_(0, slot, chosen.int())
        contested = claims[slot] > 1
        winner = _best_of_each_slot(slot, overlap, g, slots, objects)
        positive = (chosen & ~contested) | (contested & winner)

        if self.keep is not None:
            positive &= _best_of_each_object(dense, alignment * positive, g, a, self.keep)

        g, a, alignment, overlap = g[positive], a[positive], alignment[positive], overlap[positive]
        most_aligned = alignment.new_zeros(objects).scatter_reduce_(0, g, alignment, "amax")
        most_overlap = overlap.new_zeros(objects).scatter_reduce_(0, g, overlap, "amax")
        score = alignment * most_overlap[g] / (most_aligned[g] + 1e-9)
        return Assignment(image[g], a, g, score)


def inside(centres: Tensor, truth: Tensor, margin: float = 1e-9) -> Tensor:
    """(N, A): is the anchor's centre strictly inside the object, sides below 16 px widened to 16 px?

    Args:
        centres: (A, 2) pixels.
        truth: (N, 4) xyxy pixels.
    """
    middle = (truth[:, :2] + truth[:, 2:]) / 2
    half = (truth[:, 2:] - truth[:, :2]).clamp(min=SMALLEST_SIDE) / 2
    low, high = middle - half, middle + half
    x, y = centres.T
    return (
        (x - low[:, :1] > margin) & (y - low[:, 1:] > margin) & (high[:, :1] - x > margin) & (high[:, 1:] - y > margin)
    )


def _best_of_each_slot(slot: Tensor, overlap: Tensor, g: Tensor, slots: int, objects: int) -> Tensor:
    """Which pair has the highest overlap at its slot; of equals the first object."""
    highest = overlap.new_full((slots,), -1.0).scatter_reduce_(0, slot, overlap, "amax")
    top = overlap == highest[slot]
    first = g.new_full((slots,), objects).scatter_reduce_(0, slot[top], g[top], "amin")
    return top & (g == first[slot])


def _best_of_each_object(dense: Tensor, alignment: Tensor, g: Tensor, a: Tensor, keep: int) -> Tensor:
    """Which pair is among the ``keep`` best of its object.

    Args:
        dense: (N, A), which is written over.
        alignment: of each pair, 0 where it does not count.
    """
    dense.zero_()
    dense[g, a] = alignment
    best = dense.topk(min(keep, dense.shape[1])).indices
    return torch.zeros_like(dense, dtype=torch.bool).scatter_(1, best, True)[g, a]


def _end_of_chunk(image: Tensor, start: int, most: int) -> int:
    """Whole images, at most ``most`` objects where one image alone does not hold more."""
    if len(image) - start <= most:
        return len(image)
    borders = (image[1:] != image[:-1]).nonzero().flatten() + 1
    reachable = borders[(borders > start) & (borders <= start + most)]
    if len(reachable):
        return int(reachable[-1])
    later = borders[borders > start]
    return int(later[0]) if len(later) else len(image)
