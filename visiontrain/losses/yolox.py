"""The loss of YOLOX: SimOTA, objectness over all anchors, the rest over the positive ones; sums with one weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from visiontrain.batch import Targets
from visiontrain.boxes import at_least_float32, plain_iou
from visiontrain.config.groups import LossConfig
from visiontrain.losses.assign import Assignment
from visiontrain.losses.simota import SimOTA
from visiontrain.losses.sums import LossSum, Term
from visiontrain.losses.terms import classification_sum
from visiontrain.nn.decoupled import boxes_to_offsets, offsets_to_boxes
from visiontrain.nn.head import OffsetOutput


class YOLOXLoss:
    """Box (1 - IoU^2), class, objectness (both BCE) and L1 sums of one micro-batch; the weight is the number of positive anchors.

    A positive anchor's class target is its IoU with the object. The L1 sum, of offsets, counts in the last part of a run alone,
    which is where mosaic ends (``closing``).

    With class weights everything of a class counts that much: its column of the class sum, its anchors in the other sums and
    in the weight. Background weighs their mean, so weights that are all the same change nothing.

    Args:
        gains: of box and class; the other two parts have 1.
        class_weights: one for each class; none: all 1.
        last: share of the run, at its end, that has the L1 sum.
        progress: of the run, from 0 to 1.

    Source:
        Ge et al., YOLOX, arXiv:2107.08430.
    """

    term = "detect"
    part_names: tuple[str, ...] = ("box_loss", "cls_loss", "obj_loss", "l1_loss")
    # Settings that change nothing here, with the reason.
    idle: Mapping[str, str] = {"dfl": "its boxes are numbers without bins, and their L1 loss has no gain"}

    def __init__(
        self, gains: LossConfig, class_weights: Sequence[float] = (), last: float = 0.0, progress: float = 0.0
    ) -> None:
        self.gains, self.class_weights, self.last = gains, class_weights, last
        self.exact = progress > 1 - last - 1e-9  # the L1 sum counts; progress is a quotient, and rounded
        self.assigner = SimOTA()

    def at(self, progress: float) -> YOLOXLoss:
        """The loss at another moment of the run."""
        return YOLOXLoss(self.gains, self.class_weights, self.last, progress)

    def closing(self, last: float) -> YOLOXLoss:
        """The loss of a run whose ``last`` share has no mosaic."""
        return YOLOXLoss(self.gains, self.class_weights, last)

    def __call__(self, output: OffsetOutput, targets: Targets) -> LossSum:
        """Sums of one micro-batch.

        Args:
            output: B images, A anchors.
            targets: N objects, xyxy pixels of the network input.
        """
        positive, truth = self._assign(output, targets)
        image, anchor = positive.image, positive.anchor
        kinds, truth = targets.classes[positive.target], truth[positive.target]
        said = at_least_float32(output.offsets[image, anchor])
        at = output.anchors[anchor], output.strides[anchor]
        overlap = plain_iou(offsets_to_boxes(said, *at), truth)
        wanted = F.one_hot(kinds, output.scores.shape[-1]) * positive.score.unsqueeze(-1)
        columns = said.new_tensor(self.class_weights) if self.class_weights else said.new_ones(output.scores.shape[-1])
        weights = columns[kinds]
        parts = {
            "box_loss": self.gains.box * ((1 - overlap.square()) * weights).sum(),
            "cls_loss": self.gains.cls * classification_sum(output.scores[image, anchor], wanted, columns),
            "obj_loss": objectness_sum(output.objectness, image, anchor, weights, columns.mean()),
            "l1_loss": self._distance(said - boxes_to_offsets(truth, *at), weights),
        }
        total = torch.stack(list(parts.values())).sum()
        return LossSum(
            {self.term: Term(total, weights.sum(dtype=torch.float64))},
            {self.term: {name: part.detach() for name, part in parts.items()}},
        )

    def _distance(self, error: Tensor, weights: Tensor) -> Tensor:
        return (error.abs().sum(-1) * weights).sum() if self.exact else error.new_zeros(())

    @torch.no_grad()
    def _assign(self, output: OffsetOutput, targets: Targets) -> tuple[Assignment, Tensor]:
        """The positive anchors, and the objects' boxes in the precision of the loss."""
        scores, objectness = at_least_float32(output.scores), at_least_float32(output.objectness)
        boxes = offsets_to_boxes(at_least_float32(output.offsets), output.anchors, output.strides)
        truth, centres = targets.boxes.to(boxes.dtype), output.anchors * output.strides
        return self.assigner(
            scores, objectness, boxes, centres, output.strides, targets.image, targets.classes, truth
        ), truth


def objectness_sum(logits: Tensor, image: Tensor, anchor: Tensor, weights: Tensor, background: Tensor) -> Tensor:
    """Binary cross-entropy over all anchors: (B, A) logits -> scalar.

    Args:
        image, anchor, weights: (P,) of the anchors that have an object.
        background: what each of the others weighs.
    """
    wanted = torch.zeros_like(logits, dtype=weights.dtype)
    counted = background.expand(logits.shape).clone()
    wanted[image, anchor], counted[image, anchor] = 1.0, weights
    return F.binary_cross_entropy_with_logits(at_least_float32(logits), wanted, counted, reduction="sum")
