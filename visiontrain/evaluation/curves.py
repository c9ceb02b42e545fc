"""What COCO's AP does not say: precision, recall and F1 over the confidence, and which class is taken for which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from visiontrain.evaluation.scoring import Objects

_PAIRS = 2_000_000  # of boxes compared at a time: bounds memory on crowded pictures
_GRID = np.linspace(0, 1, 1001)  # confidences looked at; the curves keep every tenth


@dataclass(frozen=True, slots=True)
class Confidence:
    """Over 1001 confidences 0, 0.001 .. 1: ``precision``, ``recall`` and ``f1``, (classes, 1001).

    NaN for classes without labels; precision is 0 where nothing scores that high. ``best`` is the place where the mean
    F1 over the classes with labels is largest.
    """

    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    best: int

    @property
    def threshold(self) -> float:
        """The confidence at ``best``."""
        return float(_GRID[self.best])


def over_confidence(truth: Objects, found: Objects, class_count: int, iou: float = 0.5) -> Confidence:
    """Precision, recall and F1 of each class among the detections that score at least each confidence.

    Args:
        truth: the objects.
        found: the detections.
        class_count: classes are 0 .. class_count - 1.
        iou: least overlap of a hit, matched by COCO's rule within image and class.
    """
    hit = match(found, truth, iou, by_class=True) >= 0
    instances = np.bincount(truth.classes, minlength=class_count)[:, None]
    place = np.searchsorted(_GRID, found.scores, side="right") - 1
    cells = found.classes * len(_GRID) + place
    shape = (class_count, len(_GRID))
    reach = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)[:, ::-1].cumsum(1)[:, ::-1]
    hits = np.bincount(cells[hit], minlength=shape[0] * shape[1]).reshape(shape)[:, ::-1].cumsum(1)[:, ::-1]
    labelled = instances > 0
    precision = np.where(labelled, hits / np.maximum(reach, 1), np.nan)
    recall = np.where(labelled, hits / np.maximum(instances, 1), np.nan)
    f1 = np.where(labelled, 2 * hits / np.maximum(reach + instances, 1), np.nan)
    best = int(f1[labelled[:, 0]].mean(0).argmax()) if labelled.any() else 0
    return Confidence(precision, recall, f1, best)


def judged(truth: Objects, found: Objects, ignored: Objects, iou: float = 0.5) -> Objects:
    """The detections without those that count neither way, by COCO's rule for crowds.

    Args:
        truth: the objects.
        found: the detections.
        ignored: crowds and the like; a detection that hits no object and has ``iou`` of its own area in one of its
            class is left out.
        iou: least overlap of a hit.
    """
    if not len(ignored):
        return found
    free = np.flatnonzero(match(found, truth, iou, by_class=True) < 0)
    inside = _overlapping(found.where(free), ignored, iou, True, _covered)[0]
    return found.where(np.setdiff1d(np.arange(len(found)), free[inside]))


def confusion(truth: Objects, found: Objects, class_count: int, conf: float = 0.25, iou: float = 0.45) -> np.ndarray:
    """Counts of (predicted, true) classes, (C + 1, C + 1) int64; the last row and column are background.

    A column sums to the objects of its class, a row to the detections of its class. Objects that nothing overlaps
    stand in the last row, detections that overlap nothing in the last column.

    Args:
        truth: the objects.
        found: the detections; those that score less than ``conf`` are left out.
        class_count: classes are 0 .. class_count - 1.
        conf: least score.
        iou: least overlap; the better score chooses first, whatever the class.
    """
    found = found.where(found.scores >= conf)
    partner = match(found, truth, iou, by_class=False)
    missed = np.setdiff1d(np.arange(len(truth)), partner)
    predicted = np.concatenate((found.classes, np.full(len(missed), class_count)))
    true = np.concatenate((np.where(partner >= 0, _classes_at(truth, partner), class_count), truth.classes[missed]))
    counts = np.bincount(predicted * (class_count + 1) + true, minlength=(class_count + 1) ** 2)
    return counts.reshape(class_count + 1, class_count + 1)


def match(found: Objects, truth: Objects, iou: float, *, by_class: bool) -> np.ndarray:
    """The object that each detection hits, (N,) row of ``truth`` or -1; an object is hit once.

    COCO's greedy rule: within an image (and class, if ``by_class``) the best score takes the free object it overlaps
    most, then the next. That is the only stable matching, so all images are solved together: each detection asks for
    its best object, each object keeps the best asker, those turned away ask for their next, until nobody is.
    """
    rank = np.empty(len(found), np.int64)
    rank[np.argsort(-found.scores, kind="stable")] = np.arange(len(found))
    asker, asked, overlap = _overlapping(found, truth, iou, by_class)
    order = np.lexsort((-asked, -overlap, rank[asker]))  # of equal overlaps COCO takes the later object
    asker, asked = asker[order], asked[order]
    partner = np.full(len(found), -1)
    while len(asker):
        top = np.flatnonzero(np.diff(asker, prepend=-1))
        _, first = np.unique(asked[top], return_index=True)
        if len(first) == len(top):
            partner[asker[top]] = asked[top]
            break
        refused = np.ones(len(top), bool)
        refused[first] = False
        stay = np.ones(len(asker), bool)
        stay[top[refused]] = False
        asker, asked = asker[stay], asked[stay]
    return partner


def _overlapping(
    found: Objects, truth: Objects, iou: float, by_class: bool, measure: Callable[..., np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of one image (and class) with at least ``iou`` overlap: row of found, row of truth, overlap."""
    classes = 1 + max(found.classes.max(initial=0), truth.classes.max(initial=0))
    group, home = (o.image * classes + o.classes if by_class else o.image for o in (found, truth))
    order = np.argsort(home, kind="stable")
    start = np.searchsorted(home[order], group, side="left")
    count = np.searchsorted(home[order], group, side="right") - start
    parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    with_objects = np.flatnonzero(count)
    total = count[with_objects].cumsum()
    cuts = np.searchsorted(total, np.arange(_PAIRS, total[-1] if len(total) else 0, _PAIRS)) + 1
    for rows in np.split(with_objects, cuts):
        n = count[rows]
        asker = np.repeat(rows, n)
        within = np.arange(len(asker)) - np.repeat(n.cumsum() - n, n)
        asked = order[np.repeat(start[rows], n) + within]
        overlap = (measure or _iou)(found.boxes[asker], truth.boxes[asked])
        near = overlap >= iou
        parts.append((asker[near], asked[near], overlap[near]))
    asker, asked, overlap = (np.concatenate(column) for column in zip(*parts, strict=True))
    return asker, asked, overlap


def _iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Overlap of boxes pair by pair, (N, 4) xyxy each; 0 where both are empty."""
    both = _shared(a, b)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - both
    return both / np.where(union > 0, union, 1.0)


def _covered(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How much of each a lies in its b; 0 where a is empty."""
    area = (a[:, 2:] - a[:, :2]).prod(1)
    return _shared(a, b) / np.where(area > 0, area, 1.0)


def _shared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    sides = np.minimum(a[:, 2:], b[:, 2:]) - np.maximum(a[:, :2], b[:, :2])
    return sides.clip(min=0).prod(1)


def _classes_at(truth: Objects, rows: np.ndarray) -> np.ndarray:
    return truth.classes[rows] if len(truth) else np.zeros(len(rows), np.int64)
