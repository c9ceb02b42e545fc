"""Laws 15 and 16: sums over sums, never a mean of means, and nobody divides by A."""

from __future__ import annotations

import pytest
import torch
from laws.toys import ALONE, OURS, Pieces, Probe, full_precision
from torch import nn
from torch.nn import functional as F

from visiontrain.batch import Batch, Targets
from visiontrain.losses import LossSum, Term


class Scale(nn.Module):
    """One parameter: output = p * input."""

    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x):
        return self.p * x


def nothing() -> Targets:
    return Targets(torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long), torch.zeros(0, 4))


def as_batch(images: torch.Tensor) -> Batch:
    return Batch(images, nothing(), tuple(range(len(images))))


def sum_over_elements(outputs, targets):
    return LossSum({"main": Term(outputs.sum(), outputs.new_tensor(outputs.numel()))})


def finish(pieces: Pieces, model, criterion, micro_batches, clip_norm=1e9):
    optimizer = Probe(model)
    sums = pieces.accumulate(model, criterion, micro_batches, ranks=ALONE, precision=full_precision())
    reach = {"main": list(model.parameters())}
    assert pieces.apply(optimizer, sums, reach, full_precision(), clip_norm).applied
    return optimizer.seen[-1], sums


def check_512_of_mean_2_and_1536_of_mean_4_give_3_5(pieces: Pieces):
    """Law 15. Each micro-batch is one image, of 512 and of 1536 elements."""
    few = torch.full((1, 1, 1, 512), 2.0, dtype=torch.float64)
    many = torch.full((1, 1, 1, 1536), 4.0, dtype=torch.float64)
    gradient, sums = finish(pieces, Scale(), sum_over_elements, [as_batch(few), as_batch(many)])
    assert sums.loss == 3.5
    assert gradient.item() == 2 * 3.5  # two images


def check_gradient_of_one_stays_one(pieces: Pieces):
    """Law 16: d(loss)/dp is 1 in each micro-batch; 8 images give 8 times the gradient of the mean for any A."""
    for count in (1, 2, 4, 8):
        parts = as_batch(torch.ones(8, 1, 1, 1, dtype=torch.float64)).split(8 // count)
        gradient, sums = finish(pieces, Scale(), sum_over_elements, parts)
        assert sums.micro_batches == count
        assert sums.images == 8
        assert gradient.item() / sums.images == 1.0, count
        assert sums.loss == 1.0


def test_512_of_mean_2_and_1536_of_mean_4_give_3_5():
    check_512_of_mean_2_and_1536_of_mean_4_give_3_5(OURS)


def test_gradient_of_one_stays_one():
    check_gradient_of_one_stays_one(OURS)


def test_the_worked_example_of_the_guides():
    """Rule 66: a mean loss over 32 samples, at once and in four micro-batches of 8, agrees within 1e-6."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 1))
    x, y = torch.randn(32, 3, 2, 2), torch.randn(32, 1)
    F.mse_loss(model(x), y).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    model.zero_grad()

    index = torch.arange(32)
    batch = Batch(x, Targets(index, index, y), tuple(range(32)))  # one target for each image

    def squared_error(outputs, targets):
        error = outputs - targets.boxes
        return LossSum({"main": Term(error.square().sum(), error.new_tensor(error.numel()))})

    gradient, sums = finish(OURS, model, squared_error, batch.split(8))
    torch.testing.assert_close(gradient / sums.images, expected, rtol=0, atol=1e-6)


def test_weights_below_one_count_as_one():
    """max(sum w, 1) once for the window: eight weights of 1/16 make 1/2, which divides by 1."""

    def light(outputs, targets):
        return LossSum({"main": Term(outputs.sum(), outputs.new_tensor(1 / 16))})

    gradient, sums = finish(OURS, Scale(), light, as_batch(torch.ones(8, 1, 1, 1, dtype=torch.float64)).split(1))
    assert sums.weights["main"] == 0.5
    assert gradient.item() == pytest.approx(8 * 8)
