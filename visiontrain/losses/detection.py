"""The loss of the anchor-free families with task-aligned assignment, as sums with one weight."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from visiontrain.batch import Targets
from visiontrain.boxes import at_least_float32
from visiontrain.config.schema import LossConfig
from visiontrain.losses.assign import Assignment, TaskAlignedAssigner
from visiontrain.losses.sums import LossSum, Term
from visiontrain.losses.terms import box_sum, classification_sum, distribution_sum
from visiontrain.nn.head import HeadOutput, distances_to_boxes


class DetectionLoss:
    """Box (CIoU), class (BCE) and distribution (DFL) sums of one micro-batch; the weight is the sum of target scores.

    With class weights everything of a class counts that much: its column of the class sum, its boxes in the other two, and
    its target scores in the weight. Weights that are all the same change nothing.

    Args:
        gains: of the three parts.
        assigner: None: with its defaults.
        class_weights: one for each class; none: all 1.

    Source:
        TOOD, arXiv:2108.07755; CIoU, arXiv:1911.08287; DFL, arXiv:2006.04388.
    """

    term = "detect"
    part_names = ("box_loss", "cls_loss", "dfl_loss")

    def __init__(
        self, gains: LossConfig, assigner: TaskAlignedAssigner | None = None, class_weights: Sequence[float] = ()
    ) -> None:
        self.gains = gains
        self.class_weights = class_weights
        self.assigner = assigner or TaskAlignedAssigner()

    def __call__(self, output: HeadOutput, targets: Targets) -> LossSum:
        """Sums of one micro-batch.

        Args:
            output: B images, A anchors.
            targets: N objects, xyxy pixels of the network input.
        """
        positive, target_scores, boxes = self._assign(output, targets)
        logits = at_least_float32(output.distances[positive.image, positive.anchor])
        anchors, strides = output.anchors[positive.anchor], output.strides[positive.anchor]
        truth = boxes[positive.target] / strides
        predicted = distances_to_boxes(expected_distances(logits), anchors)
        distances = torch.cat((anchors - truth[:, :2], truth[:, 2:] - anchors), -1)
        columns = target_scores.new_tensor(self.class_weights) if self.class_weights else None
        score = positive.score if columns is None else positive.score * columns[targets.classes[positive.target]]
        parts = {
            "box_loss": self.gains.box * box_sum(predicted, truth, score),
            "cls_loss": self.gains.cls * classification_sum(output.scores, target_scores, columns),
            "dfl_loss": self.gains.dfl * distribution_sum(logits, distances, score),
        }
        total = parts["box_loss"] + parts["cls_loss"] + parts["dfl_loss"]
        counted = target_scores if columns is None else target_scores * columns
        return LossSum(
            {self.term: Term(total, counted.sum(dtype=torch.float64))},
            {self.term: {name: part.detach() for name, part in parts.items()}},
        )

    @torch.no_grad()
    def _assign(self, output: HeadOutput, targets: Targets) -> tuple[Assignment, Tensor, Tensor]:
        logits = at_least_float32(output.scores)
        boxes = targets.boxes.to(logits.dtype)
        decoded = distances_to_boxes(expected_distances(at_least_float32(output.distances)), output.anchors)
        positive = self.assigner(
            logits.sigmoid(),
            decoded * output.strides,
            output.anchors * output.strides,
            targets.image,
            targets.classes,
            boxes,
        )
        scores = torch.zeros_like(logits)
        scores[positive.image, positive.anchor, targets.classes[positive.target]] = positive.score
        return positive, scores, boxes


def expected_distances(logits: Tensor) -> Tensor:
    """(..., 4 * bins) logits -> (..., 4) expected distance in cells."""
    probabilities = logits.unflatten(-1, (4, -1)).softmax(-1)
    return probabilities @ torch.arange(probabilities.shape[-1], dtype=logits.dtype, device=logits.device)
