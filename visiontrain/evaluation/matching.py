"""Which detection hits which object: COCO's greedy rule, solved for all images together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from visiontrain.evaluation.objects import Objects

_AT_ONCE = 2_000_000  # pairs of boxes compared at a time: bounds memory on crowded pictures


@dataclass(frozen=True, slots=True)
class Pairs:
    """A detection (``asker``, row of found) and an object (``asked``, row of truth) that overlap, (N,) each."""

    asker: np.ndarray
    asked: np.ndarray
    overlap: np.ndarray

    def where(self, chosen: np.ndarray) -> Pairs:
        """The rows that ``chosen``, (N,) bool or row numbers, names."""
        return Pairs(self.asker[chosen], self.asked[chosen], self.overlap[chosen])

    def wishes(self, rank: np.ndarray, last: np.ndarray | None = None) -> Pairs:
        """In the order of the detections, and of each the objects it would have first: of equal overlaps COCO takes the later.

        Args:
            rank: (found,) place of each detection, the best score first.
            last: (truth,) bool: objects that are taken only where no other is free.
        """
        keys = (-self.asked, -self.overlap, rank[self.asker])
        return self.where(np.lexsort(keys if last is None else (*keys[:2], last[self.asked], keys[2])))


def match(found: Objects, truth: Objects, iou: float, *, by_class: bool) -> np.ndarray:
    """The object that each detection hits, (N,) row of ``truth`` or -1; an object is hit once.

    Within an image (and class, if ``by_class``) the best score takes the free object it overlaps most, then the next.
    """
    rank = np.empty(len(found), np.int64)
    rank[np.argsort(-found.scores, kind="stable")] = np.arange(len(found))
    return settle(pairs(found, truth, iou, by_class=by_class).wishes(rank), len(found))


def settle(wishes: Pairs, count: int, shared: np.ndarray | None = None) -> np.ndarray:
    """The object that each of ``count`` detections gets, (count,) row of truth or -1.

    The greedy rule gives the only stable matching, so all images are solved together: each detection asks for its best
    object, each object keeps the best asker, those turned away ask for their next, until nobody is.

    Args:
        wishes: as ``Pairs.wishes`` orders them.
        count: detections.
        shared: (truth,) bool: objects, crowds, that keep all who ask.
    """
    asker, asked = wishes.asker, wishes.asked
    partner = np.full(count, -1)
    while len(asker):
        top = np.flatnonzero(np.diff(asker, prepend=-1))
        refused = np.ones(len(top), bool)
        refused[np.unique(asked[top], return_index=True)[1]] = False
        if shared is not None:
            refused &= ~shared[asked[top]]
        if not refused.any():
            partner[asker[top]] = asked[top]
            break
        stay = np.ones(len(asker), bool)
        stay[top[refused]] = False
        asker, asked = asker[stay], asked[stay]
    return partner


def pairs(found: Objects, truth: Objects, iou: float, *, by_class: bool, crowd: np.ndarray | None = None) -> Pairs:
    """Detections and objects of one image (and class) with at least ``iou`` overlap, above 0 at any rate.

    Args:
        found: the detections.
        truth: the objects.
        iou: least intersection over union; with a crowd, over the area of the detection.
        by_class: only those of one class.
        crowd: (truth,) bool.
    """
    classes = 1 + max(found.classes.max(initial=0), truth.classes.max(initial=0))
    group, home = (o.image * classes + o.classes if by_class else o.image for o in (found, truth))
    order = np.argsort(home, kind="stable")
    start = np.searchsorted(home[order], group, side="left")
    count = np.searchsorted(home[order], group, side="right") - start
    parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    with_objects = np.flatnonzero(count)
    total = count[with_objects].cumsum()
    cuts = np.searchsorted(total, np.arange(_AT_ONCE, total[-1] if len(total) else 0, _AT_ONCE)) + 1
    for rows in np.split(with_objects, cuts):
        n = count[rows]
        asker = np.repeat(rows, n)
        within = np.arange(len(asker)) - np.repeat(n.cumsum() - n, n)
        asked = order[np.repeat(start[rows], n) + within]
        overlap = _overlap(found.boxes[asker], truth.boxes[asked], None if crowd is None else crowd[asked])
        near = overlap >= iou
        parts.append((asker[near], asked[near], overlap[near]))
    return Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _overlap(a: np.ndarray, b: np.ndarray, crowd: np.ndarray | None) -> np.ndarray:
    """Of boxes pair by pair, (N, 4) xyxy each; 0 where there is no area to divide by."""
    both = (np.minimum(a[:, 2:], b[:, 2:]) - np.maximum(a[:, :2], b[:, :2])).clip(min=0).prod(1)
    own, other = ((box[:, 2:] - box[:, :2]).prod(1) for box in (a, b))
    whole = own + other - both
    if crowd is not None:
        whole = np.where(crowd, own, whole)
    return both / np.where(whole > 0, whole, 1.0)
