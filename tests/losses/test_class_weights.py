"""What a class weighs: in every sum and in what the sums are divided by, so that equal weights are none."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from laws.test_a_window_is_one_batch import check_split_invariance
from laws.toys import OURS, Narrow

from visiontrain.batch import Targets
from visiontrain.config.groups import LossConfig
from visiontrain.losses import DetectionLoss
from visiontrain.nn.head import HeadOutput, cell_centres


def head_output():
    torch.manual_seed(0)
    distances, scores = torch.randn(2, 84, 64, requires_grad=True), torch.randn(2, 84, 3, requires_grad=True)
    return HeadOutput(distances, scores, *cell_centres([(8, 8), (4, 4), (2, 2)], (8, 16, 32), distances))


ROWS = torch.tensor([(0, 1, 10, 10, 40, 44), (1, 2, 20, 4, 60, 60), (1, 0, 2, 30, 30, 62)], dtype=torch.float32)
TARGETS = Targets(ROWS[:, 0].long(), ROWS[:, 1].long(), ROWS[:, 2:])


def gradients(weights):
    output = head_output()
    term = DetectionLoss(LossConfig(), class_weights=weights)(output, TARGETS).terms["detect"]
    (term.total / term.weight).backward()
    return output.scores.grad, output.distances.grad, term


def test_equal_weights_change_nothing():
    plain, doubled = gradients(()), gradients((2.0, 2.0, 2.0))
    for a, b in zip(plain[:2], doubled[:2], strict=True):
        torch.testing.assert_close(a, b)
    assert float(doubled[2].weight) == pytest.approx(2 * float(plain[2].weight))


def test_each_class_counts_its_weight():
    weights = (0.5, 3.0, 1.0)
    output = head_output()
    loss = DetectionLoss(LossConfig(), class_weights=weights)
    term = loss(output, TARGETS).terms["detect"]
    term.total.backward()
    positive, scores, _ = loss._assign(output, TARGETS)
    column = torch.tensor(weights)
    torch.testing.assert_close(output.scores.grad, 0.5 * column * (output.scores.detach().sigmoid() - scores))
    torch.testing.assert_close(term.weight, (scores.double().sum((0, 1)) * column.double()).sum())
    plain = head_output()
    DetectionLoss(LossConfig())(plain, TARGETS).terms["detect"].total.backward()
    of_class = TARGETS.classes[positive.target]
    ours, theirs = (x.distances.grad[positive.image, positive.anchor] for x in (output, plain))
    torch.testing.assert_close(ours, theirs * column[of_class][:, None])


@dataclass
class Weighted(Narrow):
    """The narrow detector with classes that weigh differently."""

    @property
    def criterion(self):
        return DetectionLoss(LossConfig(), class_weights=(0.3, 1.0, 4.0))


def test_a_window_with_class_weights_is_one_batch():
    check_split_invariance(OURS, Weighted(), {"one batch": [16], "4": [4] * 4, "ragged": [1, 13, 2]})
