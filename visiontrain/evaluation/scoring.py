"""COCO's average precision of columns of boxes, scored by faster-coco-eval without files, prints or logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

HEADLINE_MAX_DET = 100  # COCO's, per image and class
AREAS = ("all", "small", "medium", "large")  # COCO's, in original pixels: 32^2 and 96^2


@dataclass(frozen=True, slots=True)
class Objects:
    """Boxes of many images as columns, in original pixels.

    ``image`` (N,) int64 position in the split, ``boxes`` (N, 4) float64 xyxy, ``classes`` (N,) int64,
    ``scores`` (N,) float64 (ones for ground truth).
    """

    image: np.ndarray
    boxes: np.ndarray
    classes: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.image)

    def of(self, image: int) -> Objects:
        """The boxes of one image, in the order held."""
        return self.where(self.image == image)

    def where(self, chosen: np.ndarray) -> Objects:
        """The rows that ``chosen``, (N,) bool or row numbers, names."""
        return Objects(self.image[chosen], self.boxes[chosen], self.classes[chosen], self.scores[chosen])

    @staticmethod
    def join(parts: Sequence[Objects]) -> Objects:
        """One table of many; without any, an empty one."""
        none = Objects(np.zeros(0, np.int64), np.zeros((0, 4)), np.zeros(0, np.int64), np.zeros(0))
        columns = zip(*((p.image, p.boxes, p.classes, p.scores) for p in (none, *parts)), strict=True)
        return Objects(*(np.concatenate(column) for column in columns))


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
            area: one of ``AREAS``.
            limit: 0 for COCO's 100 detections, 1 for max_det.
        """
        values = self.at[iou, ..., AREAS.index(area), limit][..., klass]
        values = values[values > -1]
        return float(values.mean()) if values.size else None


def score(
    truth: Objects,
    found: Objects,
    images: Sequence[int],
    class_count: int,
    max_det: int,
    ignored: Objects | None = None,
) -> Precision:
    """Score detections against ground truth by COCO's rules for boxes.

    Args:
        truth: every object of ``images``; areas are those of the boxes.
        found: detections of the same images; more than ``max_det`` in an image and class are not counted.
        images: positions that were evaluated, also those with neither objects nor detections.
        class_count: classes are 0 .. class_count - 1.
        max_det: the second limit, beside COCO's 100.
        ignored: crowds: a detection that hits no object and lies in one of them counts neither for nor against.

    Source:
        Lin et al., Microsoft COCO, 2014, and its evaluation code; equal to pycocotools on the same detections.
    """
    limits = sorted({HEADLINE_MAX_DET, max_det})
    if not len(truth):
        return Precision(np.full((10, 101, class_count, len(AREAS), 2), -1.0))
    from faster_coco_eval import (
        COCO,
        COCOeval_faster,
    )  # the dependency loads in a tenth of a second; only scoring needs it

    shared = {"images": [{"id": int(i)} for i in images], "categories": [{"id": c} for c in range(class_count)]}
    labels = _annotations(truth) + _annotations(ignored or Objects.join([]), 1, len(truth))
    tables = [COCO({**shared, "annotations": o}, print_function=_quiet) for o in (labels, _annotations(found))]
    scorer = COCOeval_faster(*tables, iouType="bbox", print_function=_quiet, extra_calc=False)
    scorer.params.maxDets = limits
    scorer.evaluate()
    scorer.accumulate()
    at = np.asarray(scorer.eval["precision"])
    return Precision(at[..., [limits.index(HEADLINE_MAX_DET), limits.index(max_det)]])


def _annotations(objects: Objects, crowd: int = 0, before: int = 0) -> list[dict[str, Any]]:
    """COCO's dictionaries; ids from 1 (after those ``before``), since 0 means unmatched there."""
    sides = objects.boxes[:, 2:] - objects.boxes[:, :2]
    columns = (
        range(before + 1, before + len(objects) + 1),
        objects.image.tolist(),
        objects.classes.tolist(),
        np.concatenate((objects.boxes[:, :2], sides), 1).tolist(),
        sides.prod(1).tolist(),
        objects.scores.tolist(),
    )
    return [
        {"id": i, "image_id": image, "category_id": k, "bbox": box, "area": area, "score": score, "iscrowd": crowd}
        for i, image, k, box, area, score in zip(*columns, strict=True)
    ]


def _quiet(*_: Any) -> None:
    """faster-coco-eval talks through this."""
