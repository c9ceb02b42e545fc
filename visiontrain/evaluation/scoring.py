"""COCO's average precision of columns of boxes, without a Python loop over pictures; equal to pycocotools (tests)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from visiontrain.evaluation.matching import Pairs, pairs, settle
from visiontrain.evaluation.objects import Objects

HEADLINE_MAX_DET = 100  # COCO's, per image and class
IOUS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
AREAS = {"all": (0, 1e10), "small": (0, 32**2), "medium": (32**2, 96**2), "large": (96**2, 1e10)}  # original pixels


@dataclass(frozen=True, slots=True)
class Precision:
    """``at`` (10 IoU 0.50..0.95, 101 recalls 0..1, classes, 4 areas, 2 limits) precision, -1 where there are no labels.

    The limits are COCO's 100 detections and ``max_det``.
    """

    at: np.ndarray

    def mean(
        self, *, iou: int | slice = slice(None), klass: int | slice = slice(None), area: str = "all", limit: int = 0
    ) -> float | None:
        """Average over all that has labels, as COCO does; None where nothing has any.

        Args:
            iou: index of the threshold: 0 is 0.50, 5 is 0.75; all by default.
            klass: a class, or all.
            area: a key of ``AREAS``.
            limit: 0 for COCO's 100 detections, 1 for max_det.
        """
        values = self.at[iou, ..., list(AREAS).index(area), limit][..., klass]
        values = values[values > -1]
        return float(values.mean()) if values.size else None


def score(
    truth: Objects,
    found: Objects,
    class_count: int,
    max_det: int,
    ignored: Objects | None = None,
) -> Precision:
    """Score detections against ground truth by COCO's rules for boxes.

    Args:
        truth: every object of ``images``; areas are those of the boxes.
        found: detections of the same images; more than ``max_det`` in an image and class are not counted.
        class_count: classes are 0 .. class_count - 1.
        max_det: the second limit, beside COCO's 100.
        ignored: crowds: a detection that hits no object and lies in one of them counts neither for nor against.

    Source:
        Lin et al., Microsoft COCO, 2014, and its evaluation code; equal to pycocotools on the same detections.
    """
    everything = Objects.join([truth, ignored or Objects.join([])])
    crowd = np.arange(len(everything)) >= len(truth)
    limits = (HEADLINE_MAX_DET, max_det)
    found, place = _in_order(found, max(limits))
    near = pairs(found, everything, IOUS[0], by_class=True, crowd=crowd)
    at = np.full((len(IOUS), len(RECALLS), class_count, len(AREAS), len(limits)), -1.0)
    edges = np.searchsorted(found.classes, np.arange(class_count + 1))
    for a, area in enumerate(AREAS.values()):
        aside = crowd | _outside(everything, area)
        wanted = np.bincount(everything.classes[~aside], minlength=class_count)
        if not wanted.any():
            continue
        hit, counted = _judged(near, found, crowd, aside, _outside(found, area))
        for k in np.flatnonzero(wanted):
            mine = slice(*edges[k : k + 2])
            for m, limit in enumerate(limits):
                among = counted[:, mine] & (place[mine] < limit)
                at[:, :, k, a, m] = [_curve(h, c, wanted[k]) for h, c in zip(hit[:, mine], among, strict=True)]
    return Precision(at)


def _in_order(found: Objects, limit: int) -> tuple[Objects, np.ndarray]:
    """By class, in it by score, of equal scores by image: as COCO counts them; and the place of each in its image and class.

    Those beyond ``limit`` are left out.
    """
    found = found.where(np.lexsort((found.image, -found.scores, found.classes)))
    groups = np.lexsort((found.image, found.classes))  # stable: by score inside
    first = np.flatnonzero(np.diff(found.image[groups], prepend=-1) | np.diff(found.classes[groups], prepend=-1))
    lengths = np.diff(first, append=len(found))
    place = np.empty(len(found), np.int64)
    place[groups] = np.arange(len(found)) - np.repeat(first, lengths)
    return found.where(place < limit), place[place < limit]


def _outside(objects: Objects, area: tuple[float, float]) -> np.ndarray:
    return (objects.areas < area[0]) | (objects.areas > area[1])


def _judged(
    near: Pairs, found: Objects, crowd: np.ndarray, aside: np.ndarray, outside: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of each detection at each threshold whether it hits an object, and whether it counts at all, (10, N) bool each.

    Args:
        near: pairs of detections and objects that overlap enough for the first threshold.
        found: the detections, the best of an image and class first.
        crowd: (objects,) bool: keeps all who ask.
        aside: (objects,) bool: neither to find nor wrong to find; taken only where no other is free.
        outside: (N,) bool: does not count unless it hits.
    """
    wishes = near.wishes(np.arange(len(found)), aside)
    hit, counted = np.zeros((2, len(IOUS), len(found)), bool)
    for t, iou in enumerate(IOUS):
        wishes = wishes.where(wishes.overlap >= iou)
        partner = settle(wishes, len(found), crowd)
        with_one = np.flatnonzero(partner >= 0)
        good = ~aside[partner[with_one]]
        counted[t] = ~outside
        counted[t, with_one] = good
        hit[t, with_one] = good
    return hit, counted


def _curve(hit: np.ndarray, counted: np.ndarray, wanted: int) -> np.ndarray:
    """Precision at each of RECALLS, (101,): the best that is reached at that recall or a higher one.

    Args:
        hit: (N,) bool, best score first.
        counted: (N,) bool: those not counted are no detections here.
        wanted: objects.
    """
    at = np.flatnonzero(hit & counted)
    hits = np.arange(1, len(at) + 1)
    precision = hits / np.cumsum(counted)[at]
    best = np.maximum.accumulate(precision[::-1])[::-1]
    reached = np.searchsorted(hits / wanted, RECALLS)
    return np.append(best, 0.0)[np.minimum(reached, len(at))]
