"""SimOTA: how many anchors answer for an object follows from the predictions, and which ones from their cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from visiontrain.boxes import plain_iou
from visiontrain.losses.assign import Assignment

PAIRS_AT_ONCE = 1 << 20  # object-anchor pairs held at a time; bounds the memory on crowded pictures
OUTSIDE = 1e6  # cost of an anchor that is not near the object's centre
CLEAREST = -100.0  # logarithm of a probability, at the least
FINENESS = 1024  # costs differ by 1 / 1024 at least, or are equal: rounding does not decide, which the split changes


@dataclass(frozen=True, slots=True)
class SimOTA:
    """Each object takes its k cheapest anchors, k the sum of its ``most`` highest IoUs, at least 1.

    The cost is that of class and objectness, plus ``iou_gain`` times -log IoU. Anchors are those within ``radius`` strides of the
    centre of an object, on each axis; those of other objects of the picture are the last resort. One that several
    objects take goes to the object of the picture to which it is cheapest. Of equals the first is chosen.

    Source:
        Ge et al., OTA, CVPR 2021, arXiv:2103.14259; Ge et al., YOLOX, arXiv:2107.08430, section 2.1.
    """

    most: int = 10
    radius: float = 1.5
    iou_gain: float = 3.0

    @torch.no_grad()
    def __call__(
        self,
        scores: Tensor,
        objectness: Tensor,
        boxes: Tensor,
        centres: Tensor,
        strides: Tensor,
        image: Tensor,
        classes: Tensor,
        truth: Tensor,
    ) -> Assignment:
        """Assign anchors to objects, image by image, some objects at a time: memory stays bounded.

        Args:
            scores: (B, A, nc) logits.
            objectness: (B, A) logits.
            boxes: (B, A, 4) predicted xyxy, pixels.
            centres: (A, 2) anchor centres, pixels.
            strides: (A, 1) pixels per cell.
            image: (N,) image of each object, sorted.
            classes: (N,) class of each object.
            truth: (N, 4) xyxy, pixels.

        Returns:
            the positive anchors; their soft target is the IoU with the object.
        """
        none = image.new_zeros(0)
        found = [(none, none, none)]
        stop = 0
        for number, count in enumerate(torch.bincount(image, minlength=len(scores)).tolist()):
            start, stop = stop, stop + count
            if count:
                anchor, target = self._assign(
                    scores[number],
                    objectness[number],
                    boxes[number],
                    centres,
                    strides,
                    classes[start:stop],
                    truth[start:stop],
                )
                found.append((torch.full_like(anchor, number), anchor, target + start))
        where, anchor, target = (torch.cat(each) for each in zip(*found, strict=True))
        return Assignment(where, anchor, target, plain_iou(boxes[where, anchor], truth[target]))

    def _assign(
        self,
        scores: Tensor,
        objectness: Tensor,
        boxes: Tensor,
        centres: Tensor,
        strides: Tensor,
        classes: Tensor,
        truth: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Of one image: its positive anchors in order, and the object of each."""
        near = torch.zeros_like(objectness, dtype=torch.bool)
        for rows in _chunks(len(truth), len(centres)):
            near |= self._central(centres, strides, truth[rows]).any(0)
        anchor = near.nonzero().squeeze(1)
        costs = class_costs(scores[anchor], objectness[anchor])
        choice = _Choice(anchor)
        for rows in _chunks(len(truth), len(anchor)):
            overlap = plain_iou(truth[rows, None], boxes[anchor])
            apart = ~self._central(centres[anchor], strides[anchor], truth[rows])
            cost = costs[:, classes[rows]].T - self.iou_gain * (overlap + 1e-8).log() + OUTSIDE * apart
            cost = (FINENESS * cost.double()).round_()
            choice.add(rows.start, cost, *self._cheapest(cost, overlap))
        taken, target = choice.result()
        return anchor[taken], target

    def _central(self, centres: Tensor, strides: Tensor, truth: Tensor) -> Tensor:
        """(N, A): is the anchor's centre near the object's?"""
        middle = (truth[:, None, :2] + truth[:, None, 2:]) / 2
        return ((centres - middle).abs() < self.radius * strides).all(-1)

    def _cheapest(self, cost: Tensor, overlap: Tensor) -> tuple[Tensor, Tensor]:
        """Pairs (object, anchor): of each row as many as it takes."""
        most = min(self.most, cost.shape[1])
        wanted = overlap.topk(most).values.sum(1).int().clamp(1, most)
        ranked = cost * cost.shape[1] + torch.arange(
            cost.shape[1], device=cost.device
        )  # whole numbers, exact, none twice
        best = ranked.topk(most, largest=False).indices
        g, place = (torch.arange(most, device=cost.device) < wanted[:, None]).nonzero(as_tuple=True)
        return g, best[g, place]


class _Choice:
    """Who takes each anchor of an image, and to whom it is cheapest, object after object."""

    def __init__(self, anchors: Tensor) -> None:
        self.claims = torch.zeros_like(anchors)
        self.claimer = torch.zeros_like(self.claims)
        self.owner = torch.zeros_like(self.claims)
        self.lowest = torch.full_like(anchors, torch.inf, dtype=torch.float64)

    def add(self, start: int, cost: Tensor, g: Tensor, a: Tensor) -> None:
        """Objects from number ``start`` on: what each anchor costs them, and the pairs that they take."""
        self.claims.index_add_(0, a, torch.ones_like(a))
        self.claimer[a] = g + start
        cheapest, first = cost.min(0)
        self.owner = torch.where(cheapest < self.lowest, first + start, self.owner)
        self.lowest = torch.minimum(self.lowest, cheapest)

    def result(self) -> tuple[Tensor, Tensor]:
        """The anchors that are taken, and by whom."""
        taken = self.claims.nonzero().squeeze(1)
        return taken, torch.where(self.claims[taken] > 1, self.owner[taken], self.claimer[taken])


def class_costs(scores: Tensor, objectness: Tensor) -> Tensor:
    """(A, nc): what an object of each class costs at each anchor.

    It is the binary cross-entropy, over all classes, of sqrt(class probability * objectness) to that class alone: the sum for
    no class, but for the one that is there.
    """
    joint = (F.logsigmoid(scores) + F.logsigmoid(objectness).unsqueeze(-1)) / 2  # logarithm of the probability
    there = -joint.clamp(min=CLEAREST)
    absent = -torch.log1p(-joint.exp()).clamp(min=CLEAREST)
    return absent.sum(-1, keepdim=True) - absent + there


def _chunks(objects: int, anchors: int) -> Iterator[slice]:
    """Of all objects, so many at a time."""
    most = max(PAIRS_AT_ONCE // max(anchors, 1), 1)
    return (slice(start, min(start + most, objects)) for start in range(0, objects, most))
