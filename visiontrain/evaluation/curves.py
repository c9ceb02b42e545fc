"""What COCO's AP does not say: precision, recall and F1 over the confidence, and which class is taken for which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from visiontrain.evaluation.matching import match, pairs
from visiontrain.evaluation.objects import Objects

SHOWN_FROM = 0.25  # confidence from which a detection is shown and counts in the confusion matrix
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
    inside = pairs(found.where(free), ignored, iou, by_class=True, crowd=np.ones(len(ignored), bool)).asker
    return found.where(np.setdiff1d(np.arange(len(found)), free[inside]))


def confusion(
    truth: Objects, found: Objects, class_count: int, conf: float = SHOWN_FROM, iou: float = 0.45
) -> np.ndarray:
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


@dataclass(frozen=True, slots=True)
class Errors:
    """Of one image: objects that were ``missed`` and detections that are ``wrong``."""

    image: int
    missed: int
    wrong: int


def most_errors(truth: Objects, found: Objects, conf: float = SHOWN_FROM, iou: float = 0.5) -> tuple[Errors, ...]:
    """The images with errors, those with the most first.

    Args:
        truth: the objects.
        found: the detections; those that score less than ``conf`` are left out.
        conf: least score.
        iou: least overlap of a hit, of the right class.
    """
    found = found.where(found.scores >= conf)
    partner = match(found, truth, iou, by_class=True)
    size = 1 + max(truth.image.max(initial=-1), found.image.max(initial=-1))
    missed = np.bincount(np.delete(truth.image, partner[partner >= 0]), minlength=size)
    wrong = np.bincount(found.image[partner < 0], minlength=size)
    order = np.argsort(-(missed + wrong), kind="stable")
    return tuple(Errors(int(i), int(missed[i]), int(wrong[i])) for i in order if missed[i] + wrong[i])


def _classes_at(truth: Objects, rows: np.ndarray) -> np.ndarray:
    return truth.classes[rows] if len(truth) else np.zeros(len(rows), np.int64)
