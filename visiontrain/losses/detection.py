"""The loss of the anchor-free families with task-aligned assignment, as sums with one weight."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from visiontrain.batch import Targets
from visiontrain.boxes import at_least_float32
from visiontrain.config.groups import LossConfig
from visiontrain.losses.assign import Assignment, TaskAlignedAssigner
from visiontrain.losses.sums import LossSum, Term
from visiontrain.losses.terms import box_sum, classification_sum, distance_sum, distribution_sum
from visiontrain.nn.head import AuxiliaryOutput, DualOutput, HeadOutput, distances_to_boxes

FIRST_SHARE, LAST_SHARE = 0.8, 0.1  # of the one-to-many term, at the first and the last window of a run
AUXILIARY_SHARE = 0.25  # of what the auxiliary head's loss would be by itself


class DetectionLoss:
    """Box (CIoU), class (BCE) and distribution (DFL) sums of one micro-batch; the weight is the sum of target scores.

    With class weights everything of a class counts that much: its column of the class sum, its boxes in the other two, and
    its target scores in the weight. Weights that are all the same change nothing.

    A head with one bin predicts distances as numbers; then the third part is their absolute error, ``l1_loss``.

    Args:
        gains: of the three parts.
        assigner: None: with its defaults.
        class_weights: one for each class; none: all 1.

    Source:
        TOOD, arXiv:2108.07755; CIoU, arXiv:1911.08287; DFL, arXiv:2006.04388.
    """

    term = "detect"
    part_names: tuple[str, ...] = ("box_loss", "cls_loss", "dfl_loss")

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
        said = at_least_float32(output.distances[positive.image, positive.anchor])
        anchors, strides = output.anchors[positive.anchor], output.strides[positive.anchor]
        truth = boxes[positive.target] / strides
        expected = expected_distances(said)
        distances = torch.cat((anchors - truth[:, :2], truth[:, 2:] - anchors), -1)
        columns = target_scores.new_tensor(self.class_weights) if self.class_weights else None
        score = positive.score if columns is None else positive.score * columns[targets.classes[positive.target]]
        parts = {
            "box_loss": self.gains.box * box_sum(distances_to_boxes(expected, anchors), truth, score),
            "cls_loss": self.gains.cls * classification_sum(output.scores, target_scores, columns),
        }
        if said.shape[-1] > 4:
            parts["dfl_loss"] = self.gains.dfl * distribution_sum(said, distances, score)
        else:
            parts["l1_loss"] = self.gains.dfl * distance_sum(expected, distances, strides, output.size, score)
        total = torch.stack(list(parts.values())).sum()
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


class DualDetectionLoss:
    """Sums of the two heads, a term each: the first learns from many anchors of an object, the second from its best one.

    Their terms are mixed with shares that move over the run, so that the second head, which is used in the end, comes to
    count most. ``parts`` are those of each head before that. The first head's features learn from its term alone.

    Args:
        gains, class_weights: as DetectionLoss.
        progress: of the run, from 0 to 1.

    Source:
        Wang et al., YOLOv10, NeurIPS 2024, arXiv:2405.14458, section 3.1.
    """

    part_names: tuple[str, ...] = ("box_loss", "cls_loss", "l1_loss", "o2o_box_loss", "o2o_cls_loss", "o2o_l1_loss")

    def __init__(self, gains: LossConfig, class_weights: Sequence[float] = (), progress: float = 0.0) -> None:
        self.gains, self.class_weights = gains, class_weights
        self.share = FIRST_SHARE + (LAST_SHARE - FIRST_SHARE) * progress
        self.many = DetectionLoss(gains, TaskAlignedAssigner(), class_weights)
        self.one = DetectionLoss(gains, TaskAlignedAssigner(top_k=7, keep=1), class_weights)

    def at(self, progress: float) -> DualDetectionLoss:
        """The loss at another moment of the run."""
        return DualDetectionLoss(self.gains, self.class_weights, progress)

    def __call__(self, output: DualOutput, targets: Targets) -> LossSum:
        """Sums of one micro-batch; see DetectionLoss."""
        many, one = self.many(output.one_to_many, targets), self.one(output.one_to_one, targets)
        first, second = many.terms["detect"], one.terms["detect"]
        return LossSum(
            {
                "one_to_many": Term(self.share * first.total, first.weight),
                "one_to_one": Term((1 - self.share) * second.total, second.weight),
            },
            {
                "one_to_many": many.parts["detect"],
                "one_to_one": {f"o2o_{name}": part for name, part in one.parts["detect"].items()},
            },
        )


class AuxiliaryDetectionLoss:
    """Sums of a detector's head and of its auxiliary head, a term each: each is assigned objects by its own predictions.

    The auxiliary term counts a quarter; ``parts`` are those of each head before that. Both terms reach the backbone and each
    has a weight of its own, so a window runs twice (training/two_pass.py).

    Args:
        gains, class_weights: as DetectionLoss.

    Source:
        Wang, Yeh and Liao, YOLOv9, arXiv:2402.13616.
    """

    part_names: tuple[str, ...] = (*DetectionLoss.part_names, *(f"aux_{part}" for part in DetectionLoss.part_names))

    def __init__(self, gains: LossConfig, class_weights: Sequence[float] = ()) -> None:
        self.of_a_head = DetectionLoss(gains, class_weights=class_weights)

    def __call__(self, output: AuxiliaryOutput, targets: Targets) -> LossSum:
        """Sums of one micro-batch; see DetectionLoss."""
        main, helped = self.of_a_head(output.main, targets), self.of_a_head(output.auxiliary, targets)
        second = helped.terms["detect"]
        return LossSum(
            {"detect": main.terms["detect"], "auxiliary": Term(AUXILIARY_SHARE * second.total, second.weight)},
            {**main.parts, "auxiliary": {f"aux_{name}": part for name, part in helped.parts["detect"].items()}},
        )


def expected_distances(said: Tensor) -> Tensor:
    """(..., 4 * bins) logits -> (..., 4) expected distance in cells; with one bin it is what the head says."""
    if said.shape[-1] == 4:
        return said
    probabilities = said.unflatten(-1, (4, -1)).softmax(-1)
    return probabilities @ torch.arange(probabilities.shape[-1], dtype=said.dtype, device=said.device)
