"""Non-maximum suppression within each class: exact, without a time limit, for a whole batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor
from torchvision.ops import nms

from visiontrain.prediction.decode import Candidates

_REACH = 2.0**17  # pixels: no picture is larger, and a wild prediction must not cost the others their precision
_ROWS = 16384  # boxes of one call on an accelerator; its overlap mask takes rows^2 / 8 bytes


@dataclass(frozen=True, slots=True)
class Detections:
    """What was found in one image: ``boxes`` (N, 4) float32 xyxy pixels of the network input, ``scores`` (N,), ``classes`` (N,) int64."""

    boxes: Tensor
    scores: Tensor
    classes: Tensor

    def __len__(self) -> int:
        return len(self.scores)


def non_max_suppression(
    candidates: Candidates, *, iou: float, max_det: int, agnostic: bool = False
) -> list[Detections]:
    """Suppress boxes that overlap a better one of their class by more than ``iou``; the best ``max_det`` per image stay.

    Whether a box stays depends on better boxes alone. So the best few hundred are looked at first, and more only
    for images that have not reached ``max_det``: the result is the same as with all at once, and no image is given up.

    Args:
        candidates: from ``select``: image after image, best score first.
        iou: overlap above which the lower score goes.
        max_det: per image, over all classes; images with that many survivors have exactly that many.
        agnostic: whatever their classes.

    Returns:
        One per image, best score first.
    """
    alike = replace(candidates, classes=torch.zeros_like(candidates.classes)) if agnostic else candidates
    kept = _survivors(alike, iou, max_det)
    rows = torch.cat(kept) if kept else candidates.classes[:0]
    sizes = [len(k) for k in kept]
    parts = (t[rows].split(sizes) for t in (candidates.boxes, candidates.scores, candidates.classes))
    return [Detections(*part) for part in zip(*parts, strict=True)]


def as_they_are(candidates: Candidates) -> list[Detections]:
    """One per image, best score first: of a head that gives each object one box, nothing is suppressed."""
    parts = (t.split(candidates.counts) for t in (candidates.boxes, candidates.scores, candidates.classes))
    return [Detections(*part) for part in zip(*parts, strict=True)]


def _survivors(candidates: Candidates, iou: float, max_det: int) -> list[Tensor]:
    """Row numbers that stay, per image."""
    counts, device = candidates.counts, candidates.scores.device
    starts = list(accumulate(counts, initial=0))
    apart, scores = _one_plane_per_image_and_class(candidates), candidates.scores.double()
    kept = [candidates.classes[:0]] * len(counts)
    pending = [image for image, count in enumerate(counts) if count]
    looked = max(2 * max_det, 256)
    while pending:
        together = _images_at_once(device, looked)
        for group in (pending[at : at + together] for at in range(0, len(pending), together)):
            spans = [(starts[i], starts[i] + min(counts[i], looked)) for i in group]
            rows = torch.cat([torch.arange(*span, device=device) for span in spans])
            alive = rows[nms(apart[rows], scores[rows], iou)].sort().values
            edges = torch.tensor([stop for _, stop in spans], device=device)
            ends = torch.searchsorted(alive, edges).tolist()
            for image, start, end in zip(group, [0, *ends], ends, strict=False):
                kept[image] = alive[start : min(end, start + max_det)]
        pending = [i for i in pending if len(kept[i]) < max_det and counts[i] > looked]
        looked *= 4
    return kept


def _images_at_once(device: torch.device, looked: int) -> int:
    """A CPU would compare across images in vain; an accelerator is called less often."""
    return 1 if device.type == "cpu" else max(_ROWS // looked, 1)


def _one_plane_per_image_and_class(candidates: Candidates) -> Tensor:
    """Boxes moved so far apart that only those of one image and class can overlap, (N, 4).

    In float64: a float32 coordinate of some hundred pixels keeps every bit beside the offset.
    """
    device = candidates.scores.device
    counts = torch.tensor(candidates.counts, device=device)
    image = torch.repeat_interleave(counts, output_size=len(candidates.scores)) if len(counts) else counts
    classes = candidates.classes.max() + 1 if len(candidates.classes) else 0
    plane = (image * classes + candidates.classes).double()
    return candidates.boxes.double().clamp(-_REACH, _REACH) + (plane * (2 * _REACH + 1)).unsqueeze(1)
