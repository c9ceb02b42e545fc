from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from visiontrain.batch import Targets
from visiontrain.config.groups import LossConfig
from visiontrain.losses import DetectionLoss, LossSum, Term
from visiontrain.losses.sums import require_loss_sum
from visiontrain.losses.terms import box_sum, classification_sum, distribution_sum
from visiontrain.nn.head import HeadOutput, cell_centres

torch.set_num_threads(1)


def test_distribution_is_cross_entropy_to_two_bins():
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 64, generator=g, dtype=torch.float64)
    distances = torch.rand(7, 4, generator=g, dtype=torch.float64) * 14.9
    weights = torch.rand(7, generator=g, dtype=torch.float64)
    expected = 0.0
    for p in range(7):
        for side in range(4):
            row, y = logits[p, 16 * side : 16 * side + 16][None], float(distances[p, side])
            low = int(y)
            at = [F.cross_entropy(row, torch.tensor([low + k])) for k in (0, 1)]
            expected += weights[p] / 4 * ((low + 1 - y) * at[0] + (y - low) * at[1])
    torch.testing.assert_close(distribution_sum(logits, distances, weights), expected)


@pytest.mark.parametrize("distance", [-3.0, 0.0, 14.99, 15.0, 40.0])
def test_distances_beyond_the_bins_are_clamped(distance):
    logits = torch.randn(1, 64, dtype=torch.float64)
    at = torch.full((1, 4), distance, dtype=torch.float64)
    clamped = at.clamp(0, 14.99)
    one = torch.ones(1, dtype=torch.float64)
    assert distribution_sum(logits, at, one) == distribution_sum(logits, clamped, one)
    assert distribution_sum(logits, at, one).isfinite()


def test_classification_counts_every_anchor_and_class():
    logits, targets = torch.randn(2, 5, 3), torch.rand(2, 5, 3)
    p = logits.sigmoid()
    expected = -(targets * p.log() + (1 - targets) * (1 - p).log()).sum()
    torch.testing.assert_close(classification_sum(logits, targets), expected)


def test_box_sum_is_weighted():
    box = torch.tensor([[0.0, 0, 4, 4], [0, 0, 4, 4]])
    other = torch.tensor([[0.0, 0, 4, 4], [10, 10, 14, 14]])
    only_equal = box_sum(box, other, torch.tensor([1.0, 0.0]))
    assert float(only_equal) == pytest.approx(0.0, abs=1e-5)
    assert box_sum(box, other, torch.tensor([1.0, 2.0])) == 2 * box_sum(box, other, torch.tensor([1.0, 1.0]))


def test_empty_sums_are_zero_and_reach_their_input():
    logits = torch.randn(3, 64, requires_grad=True)
    none = torch.zeros(0, dtype=torch.long)
    total = distribution_sum(logits[none], torch.zeros(0, 4), torch.zeros(0))
    total = total + box_sum(logits[none][:, :4], torch.zeros(0, 4), torch.zeros(0))
    assert total.item() == 0
    total.backward()
    assert not logits.grad.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype):
    logits = torch.full((1, 4000, 20), 11.0, dtype=dtype)  # the sum is beyond fp16
    assert classification_sum(logits, torch.zeros(1, 4000, 20)).dtype == torch.float32
    assert classification_sum(logits, torch.zeros(1, 4000, 20)).isfinite()


def head_output(images=2, nc=3, requires_grad=True):
    torch.manual_seed(0)
    distances = torch.randn(images, 84, 64, requires_grad=requires_grad)
    scores = torch.randn(images, 84, nc, requires_grad=requires_grad)
    return HeadOutput(distances, scores, *cell_centres([(8, 8), (4, 4), (2, 2)], (8, 16, 32), distances))


def targets_of(*rows):
    table = torch.tensor(rows, dtype=torch.float32).reshape(-1, 6)
    return Targets(table[:, 0].long(), table[:, 1].long(), table[:, 2:])


TWO = targets_of((0, 1, 10, 10, 40, 44), (1, 2, 20, 4, 60, 60))


def test_a_loss_is_sums_with_one_weight():
    loss = DetectionLoss(LossConfig())(head_output(), TWO)
    term = loss.terms["detect"]
    assert set(loss.parts["detect"]) == set(DetectionLoss.part_names)
    torch.testing.assert_close(sum(loss.parts["detect"].values()), term.total.detach())
    assert not term.weight.requires_grad
    assert term.weight.dtype == torch.float64
    assert all(not part.requires_grad for part in loss.parts["detect"].values())


def test_sums_of_pictures_add_up():
    """No division inside: two pictures together are the sum of each alone."""
    output = head_output()
    both = DetectionLoss(LossConfig())(output, TWO).terms["detect"]
    alone = []
    for b in range(2):
        one = HeadOutput(output.distances[b : b + 1], output.scores[b : b + 1], output.anchors, output.strides)
        rows = TWO.image == b
        targets = Targets(TWO.image[rows] - b, TWO.classes[rows], TWO.boxes[rows])
        alone.append(DetectionLoss(LossConfig())(one, targets).terms["detect"])
    torch.testing.assert_close(alone[0].total + alone[1].total, both.total)
    torch.testing.assert_close(alone[0].weight + alone[1].weight, both.weight)


@pytest.mark.parametrize("part", DetectionLoss.part_names)
def test_gains(part):
    field = {"box_loss": "box", "cls_loss": "cls", "dfl_loss": "dfl"}[part]
    plain = DetectionLoss(LossConfig())(head_output(), TWO).parts["detect"]
    gains = {field: 2 * getattr(LossConfig(), field)}
    doubled = DetectionLoss(LossConfig(**gains))(head_output(), TWO).parts["detect"]
    for name in DetectionLoss.part_names:
        torch.testing.assert_close(doubled[name], plain[name] * (2 if name == part else 1))


def test_a_loss_without_objects_reaches_every_output():
    output = head_output()
    loss = DetectionLoss(LossConfig())(output, targets_of())
    term = loss.terms["detect"]
    assert float(term.weight) == 0
    assert float(loss.parts["detect"]["box_loss"]) == float(loss.parts["detect"]["dfl_loss"]) == 0
    term.total.backward()
    assert output.scores.grad.all()
    assert not output.distances.grad.any()


def test_the_target_is_not_differentiated():
    """The soft target depends on predictions, without gradient: the class gradient is sigmoid - target alone."""
    output = head_output()
    loss = DetectionLoss(LossConfig())(output, TWO)
    loss.terms["detect"].total.backward()
    positive, scores, _ = DetectionLoss(LossConfig())._assign(output, TWO)
    torch.testing.assert_close(output.scores.grad, 0.5 * (output.scores.detach().sigmoid() - scores))
    assert len(positive.anchor)


@pytest.mark.parametrize("wrong", [torch.zeros(()), None, LossSum({}), {"a": Term(torch.zeros(()), torch.zeros(()))}])
def test_anything_but_a_loss_sum_is_refused_with_an_example(wrong):
    with pytest.raises(TypeError, match="def my_loss"):
        require_loss_sum(wrong, "mine")
