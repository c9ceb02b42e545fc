"""An exported file against the checkpoint that it was made from, on pictures, through the same pre-processing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from visiontrain.config.image_size import ImageSize
from visiontrain.data.image import letterbox
from visiontrain.models.detector import Detector
from visiontrain.models.exported.network import Exported
from visiontrain.nn.head import DetectorOutput
from visiontrain.prediction.decode import select
from visiontrain.prediction.nms import Detections, as_they_are, non_max_suppression

CONFIDENT = 0.01  # score from which boxes are told of apart
BOX_TOLERANCE = 0.05  # pixels; measured are 2e-4 at 320 pixels (docs/export.md)
SCORE_TOLERANCE = 1e-3  # measured are 3e-6 of trained models; 2e-4 of one whose scores were made steep
# Share of detections that NMS may decide otherwise, for an overlap that is the limit to a rounding.
ALONE_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class Parity:
    """Largest differences: ``boxes`` in pixels of predictions that score above CONFIDENT, ``all_boxes`` of all, ``scores`` of all.

    ``alone`` of ``compared`` detections only one of the two has; where the file gives all anchors there are none.
    """

    pictures: int
    boxes: float
    all_boxes: float
    scores: float
    compared: int
    confident: int
    alone: int = 0

    @property
    def good(self) -> bool:
        """Whether all is within the tolerances."""
        few = self.alone <= ALONE_TOLERANCE * self.compared
        return self.all_boxes <= BOX_TOLERANCE and self.scores <= SCORE_TOLERANCE and few

    def sentence(self) -> str:
        """For a person."""
        alone = f"; {self.alone} of {self.compared} detections in one alone" if self.alone else ""
        return (
            f"against the checkpoint on {self.pictures} pictures: boxes differ by {self.boxes:.1e} px at most where the score "
            f"is above {CONFIDENT} ({self.confident} of {self.compared}), by {self.all_boxes:.1e} px over all; scores by "
            f"{self.scores:.1e}{alone}"
        )


def compare(model: Detector, exported: Exported, pictures: Sequence[np.ndarray], imgsz: ImageSize) -> Parity:
    """Both see each picture alone, letterboxed as validation and prediction do it.

    Args:
        model: the original in evaluation mode, its head as it was exported.
        exported: the file.
        pictures: (H, W, 3) uint8 RGB each.
        imgsz: the size that a picture fits into; a file of fixed size has its own.
    """
    found = []
    for picture in pictures:
        boxed = letterbox(picture, imgsz, exported.stride, exported.input_size)[0]
        images = torch.from_numpy(boxed).permute(2, 0, 1).unsqueeze(0).float() / 255
        with torch.no_grad():
            mine, its = model(images), exported(images)
        found.append(_detections(mine, its, exported) if exported.metadata.rows else _anchors(mine, its))
    columns = list(zip(*found, strict=True))
    return Parity(len(pictures), *(max(column) for column in columns[:3]), *(sum(column) for column in columns[3:]))


Differences = tuple[float, float, float, int, int, int]  # as the fields of Parity


def _anchors(mine: DetectorOutput, its: DetectorOutput) -> Differences:
    boxes = (mine.boxes - its.boxes).abs().amax(-1)
    scores = (mine.scores - its.scores).abs()
    confident = mine.scores.amax(-1) > CONFIDENT
    return _most(boxes[confident]), _most(boxes), _most(scores), boxes.numel(), int(confident.sum()), 0


def _detections(mine: DetectorOutput, its: DetectorOutput, exported: Exported) -> Differences:
    """Each detection with the nearest of its class in the other; one further than the tolerance away is alone."""
    inside = exported.metadata
    most = inside.max_det or 1
    if inside.nms:
        candidates = select(mine.boxes, mine.scores, inside.conf or 0.0)
        (first,) = non_max_suppression(candidates, iou=inside.iou or 0.0, max_det=most)
    else:
        (first,) = as_they_are(select(mine.boxes, mine.scores, 0.0, max_candidates=most))
    (second,) = as_they_are(select(its.boxes, its.scores, 0.0, max_candidates=most))
    boxes, scores = _nearest(first, second)
    back, _ = _nearest(second, first)
    paired = boxes <= BOX_TOLERANCE
    confident = paired & (first.scores > CONFIDENT)
    # The last rows of a full list are a matter of rounding.
    last = max(_last(first, most), _last(second, most)) + SCORE_TOLERANCE
    alone = int((~paired & (first.scores > last)).sum()) + int(((back > BOX_TOLERANCE) & (second.scores > last)).sum())
    return _most(boxes[confident]), _most(boxes[paired]), _most(scores[paired]), len(first), int(confident.sum()), alone


def _last(found: Detections, most: int) -> float:
    return float(found.scores[-1]) if len(found) == most else -SCORE_TOLERANCE


def _nearest(found: Detections, others: Detections) -> tuple[Tensor, Tensor]:
    """Of each detection the distance (N,) in pixels to the nearest of its class, and the difference (N,) of their scores."""
    if not len(found) or not len(others):
        return torch.full((len(found),), torch.inf), torch.zeros(len(found))
    away = (found.boxes[:, None] - others.boxes[None]).abs().amax(-1)
    away[found.classes[:, None] != others.classes[None]] = torch.inf
    distance, place = away.min(1)
    return distance, (found.scores - others.scores[place]).abs()


def _most(values: Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0
