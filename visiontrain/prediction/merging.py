"""What several views of one picture found, as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torchvision.ops import box_iou

from visiontrain.prediction.decode import Candidates
from visiontrain.prediction.nms import non_max_suppression

Part = tuple[np.ndarray, np.ndarray, np.ndarray]  # boxes (N, 4) xyxy pixels of a picture, scores (N,), classes (N,)

TILE_IOU = 0.5  # above it boxes of two tiles are of one object: each saw it a little differently


def fuse(parts: Sequence[Part], *, iou: float, agnostic: bool = False) -> Part:
    """Views of the whole picture: boxes that overlap are one, their mean weighted by score; its score is the mean over all views.

    So a box that one view alone finds loses, and one that all find is placed better. Suppression would keep the highest
    score of all views, that of their mistakes too: on bccd it takes away AP where this adds some (docs/predict.md).

    Args:
        parts: of each view, every one of which sees every object.
        iou: overlap above which boxes of a class are one; of each view the surest counts.
        agnostic: whatever their classes.

    Source:
        After Solovyev et al., Weighted boxes fusion, 2021, arXiv:1910.13302; clusters are those of their surest box.
    """
    view = np.repeat(np.arange(len(parts)), [len(scores) for _, scores, _ in parts])
    boxes, scores, classes = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(-scores, kind="stable")
    boxes, scores, classes, view = boxes[order], scores[order], classes[order], view[order]
    owner = _owners(boxes, np.zeros_like(classes) if agnostic else classes, iou)
    first = np.unique(np.stack((owner, view)), axis=1, return_index=True)[1]  # the surest of each owner and view
    owner, weights = owner[first], scores[first]
    total = np.bincount(owner, weights, len(scores))
    corners = [np.bincount(owner, weights * side, len(scores)) for side in boxes[first].T]
    kept = np.flatnonzero(total)
    kept = kept[np.argsort(-total[kept], kind="stable")]
    return np.stack(corners, 1)[kept] / total[kept, None], total[kept] / len(parts), classes[kept]


def _owners(boxes: np.ndarray, classes: np.ndarray, iou: float) -> np.ndarray:
    """For each of boxes sorted by score the number of the surest one, not owned itself, that it overlaps with."""
    corners = torch.from_numpy(boxes)
    alike = (box_iou(corners, corners).numpy() > iou) & (classes[:, None] == classes)
    owner = np.full(len(boxes), -1)
    for number in range(len(boxes)):
        if owner[number] < 0:
            owner[alike[number] & (owner < 0)] = number
            owner[number] = number
    return owner


def join(parts: Sequence[Part], *, iou: float, agnostic: bool) -> Part:
    """Views of different parts of a picture: of boxes that overlap the surest stays.

    Args:
        parts: of the whole picture and of each tile.
        iou: overlap above which the weaker of two boxes of a class is dropped.
        agnostic: whatever their classes.
    """
    boxes, scores, classes = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(-scores, kind="stable")
    sorted_boxes, sorted_scores, sorted_classes = (torch.from_numpy(c[order]) for c in (boxes, scores, classes))
    candidates = Candidates(sorted_boxes.float(), sorted_scores, sorted_classes, (len(scores),), 0, 0)
    (kept,) = non_max_suppression(candidates, iou=iou, max_det=max(len(scores), 1), agnostic=agnostic)
    return kept.boxes.double().numpy(), kept.scores.numpy(), kept.classes.numpy()
