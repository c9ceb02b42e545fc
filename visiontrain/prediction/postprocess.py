"""From what a network puts out to boxes in original pixels: the one way for validation and prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from visiontrain.prediction.decode import select
from visiontrain.prediction.nms import Detections, as_they_are, non_max_suppression


class Output(Protocol):
    """What a network gives: ``boxes`` (B, A, 4) xyxy pixels of its input, ``scores`` (B, A, C)."""

    @property
    def boxes(self) -> Tensor: ...

    @property
    def scores(self) -> Tensor: ...


class Letterboxed(Protocol):
    """How a picture lies in the input: pixel = original * scale + pad, as (x, y); ``original`` is its (height, width)."""

    @property
    def scale(self) -> tuple[float, float]: ...

    @property
    def pad(self) -> tuple[float, float]: ...

    @property
    def original(self) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """The ``detections`` of each image; ``capped`` candidates were too many, ``non_finite`` predictions were dropped."""

    detections: list[Detections]
    capped: int
    non_finite: int


def choose(
    output: Output, *, conf: float, iou: float, max_det: int, classes: Sequence[int] = (), agnostic: bool = False
) -> Chosen:
    """What is found in each image; a head that gives each object one box needs no NMS.

    Args:
        output: of a batch.
        conf: detections score more than this.
        iou: overlap above which the weaker of two boxes of a class is dropped.
        max_det: per image.
        classes: only these, as numbers; empty: all.
        agnostic: of two boxes that overlap so, the weaker is dropped whatever their classes.
    """
    scores = output.scores[..., list(classes)] if classes else output.scores
    if getattr(output, "end_to_end", False):
        candidates = select(output.boxes, scores, conf, max_candidates=max_det)
        detections, capped = as_they_are(candidates), 0
    else:
        candidates = select(output.boxes, scores, conf)
        detections, capped = (
            non_max_suppression(candidates, iou=iou, max_det=max_det, agnostic=agnostic),
            candidates.capped,
        )
    if classes:
        numbers = torch.tensor(list(classes), device=scores.device)
        detections = [replace(each, classes=numbers[each.classes]) for each in detections]
    return Chosen(detections, capped, candidates.non_finite)


@dataclass(frozen=True, slots=True)
class Columns:
    """Detections of several pictures, one after another, in original pixels.

    ``boxes`` (N, 4) float64 xyxy, ``scores`` (N,) float64, ``classes`` (N,) int64, ``counts`` rows of each picture.
    """

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray
    counts: list[int]


def in_original_pixels(detections: Sequence[Detections], pictures: Sequence[Letterboxed]) -> Columns:
    """Undo the letterbox of each detection and clip it to its picture; one transfer for the batch."""
    counts = [len(d) for d in detections]
    boxes, scores, classes = (
        torch.cat([getattr(d, name) for d in detections]).cpu().numpy() for name in ("boxes", "scores", "classes")
    )
    scale, pad, size = (
        np.repeat(np.array(column), counts, axis=0)
        for column in zip(*((p.scale, p.pad, p.original[::-1]) for p in pictures), strict=True)
    )
    points = (boxes.astype(np.float64).reshape(-1, 2, 2) - pad[:, None]) / scale[:, None]
    points = points.clip(0, size[:, None])
    return Columns(points.reshape(-1, 4), scores.astype(np.float64), classes, counts)
