"""Terms with weights of their own, gradient scales, and the small functions around a window; its laws are in tests/laws."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from visiontrain.batch import Batch, Targets
from visiontrain.distributed import Ranks
from visiontrain.errors import OutOfMemory
from visiontrain.losses import LossSum, Term
from visiontrain.training.precision import Precision, choose_precision
from visiontrain.training.update import apply_update
from visiontrain.training.window import accumulate_window, check_terms, power_of_two, provisional_weights

torch.set_num_threads(1)

CPU = torch.device("cpu")
FULL = Precision(CPU, torch.float64)


class TwoHeads(nn.Module):
    """A trunk and a head on it, and a second head that reads the trunk's features detached or not."""

    def __init__(self, detached: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.one, self.two = nn.Linear(12, 8), nn.Linear(8, 2), nn.Linear(8, 2)
        self.detached = detached
        self.double()

    def forward(self, images):
        features = self.trunk(images.flatten(1)).tanh()
        return self.one(features), self.two(features.detach() if self.detached else features)

    def reach(self):
        return {"one": [*self.trunk.parameters(), *self.one.parameters()], "two": list(self.two.parameters())}


def two_terms(outputs, targets):
    """The second term counts only targets of class 1, so its weight is another."""
    one, two = outputs
    second = targets.classes == 1
    error = (one[targets.image] - targets.boxes[:, :2]).square().sum(-1)
    other = (two[targets.image] - targets.boxes[:, 2:]).square().sum(-1)[second]
    return LossSum(
        {
            "one": Term(error.sum(), error.new_tensor(len(error))),
            "two": Term(other.sum(), 3 * error.new_tensor(len(other))),
        },
        {"one": {"first_loss": error.detach().sum()}, "two": {"second_loss": other.detach().sum()}},
    )


def batch_of(objects=(2, 1, 3, 2, 4, 1)) -> Batch:
    g = torch.Generator().manual_seed(3)
    image = torch.repeat_interleave(torch.arange(len(objects)), torch.tensor(objects))
    classes = torch.arange(len(image)) % 3
    boxes = torch.randn(len(image), 4, generator=g, dtype=torch.float64)
    images = torch.randn(len(objects), 3, 2, 2, generator=g, dtype=torch.float64)
    return Batch(images, Targets(image, classes, boxes), tuple(range(len(objects))))


def test_each_term_has_its_own_multiplier():
    batch = batch_of()
    model = TwoHeads(detached=True)
    loss = two_terms(model(batch.images), batch.targets)
    mean = sum(term.total / term.weight.clamp(min=1) for term in loss.terms.values())
    expected = torch.autograd.grad(len(batch) * mean, list(model.parameters()))

    seen = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *args: seen.extend(p.grad.clone() for p in model.parameters()))
    sums = accumulate_window(
        model, two_terms, batch.split(2), ranks=Ranks(CPU), precision=FULL, provisional={"one": 4.0, "two": 16.0}
    )
    assert apply_update(optimizer, sums, model.reach(), FULL, math.inf).applied
    torch.testing.assert_close(tuple(seen), expected, rtol=1e-12, atol=1e-14)
    assert sums.loss == pytest.approx(mean.item(), rel=1e-12)
    assert sums.part_means["second_loss"] == pytest.approx(sums.totals["two"] / sums.weights["two"], rel=1e-12)


def test_terms_that_keep_apart_pass_the_check():
    model = TwoHeads(detached=True)
    check_terms(model, two_terms, batch_of(), model.reach())
    assert all(p.grad is None for p in model.parameters())


def test_a_term_whose_head_is_frozen_reaches_nothing():
    model = TwoHeads(detached=True)
    model.two.requires_grad_(False)
    check_terms(model, two_terms, batch_of(), model.reach())


def test_two_terms_on_one_parameter_are_refused():
    """Law 12: never scaled by one of the two weights."""
    model = TwoHeads(detached=False)
    with pytest.raises(ValueError, match=r"'two' reaches 2 parameters of another term, trunk\.weight first"):
        check_terms(model, two_terms, batch_of(), model.reach())


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 1), (0.3, 1), (1, 1), (1.4, 1), (1.5, 2), (6, 8), (64, 64), (700, 512), (1e6, 2**20)]
)
def test_power_of_two(value, expected):
    assert power_of_two(value) == expected


def test_the_first_provisional_weight_is_the_boxes_of_a_micro_batch():
    assert provisional_weights(("one", "two"), 70, 8) == {"one": 8.0, "two": 8.0}
    assert provisional_weights(("one",), batch_of().targets, 1) == {"one": 16.0}
    assert provisional_weights(("one",), 0, 8) == {"one": 1.0}


def test_before_sees_each_micro_batch():
    seen = []
    accumulate_window(
        TwoHeads(True),
        two_terms,
        batch_of().split(4),
        ranks=Ranks(CPU),
        precision=FULL,
        before=lambda batch: seen.append(batch.positions),
    )
    assert seen == [(0, 1, 2, 3), (4, 5)]


def test_an_error_shows_what_a_loss_returns():
    def ratio(outputs, targets):
        return outputs[0].mean()

    with pytest.raises(TypeError, match=r"ratio returned Tensor; a loss returns LossSum"):
        accumulate_window(TwoHeads(True), ratio, batch_of().split(2), ranks=Ranks(CPU), precision=FULL)


def test_a_cpu_trains_in_full_precision():
    precision = choose_precision(CPU, amp=True)
    assert (precision.dtype, precision.scaler, precision.scale, precision.name) == (torch.float32, None, 1.0, "fp32")


def test_lowering_the_scale_stops_at_one():
    precision = Precision(CPU, torch.float16, torch.amp.GradScaler("cpu", init_scale=4.0))
    precision.scaler.scale(torch.ones(()))
    scales = []
    for _ in range(4):
        precision.lower_scale()
        scales.append(precision.scale)
    assert scales == [2.0, 1.0, 1.0, 1.0]


def test_the_scale_waits_its_time_again_after_an_overflow():
    """An overflow starts the count of good windows anew: else the scale would rise at once and overflow again."""
    model = nn.Linear(2, 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    precision = Precision(CPU, torch.float32, scaler)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scales = []
    for factor in (1.0, 1.0, math.inf, 1.0, 1.0, 1.0):

        def criterion(outputs, targets, factor=factor):
            outputs.register_hook(lambda g: g * factor)
            return LossSum({"main": Term(outputs.sum(), torch.ones(()))})

        none = torch.zeros(0, dtype=torch.long)
        batch = Batch(torch.ones(1, 2), Targets(none, none, torch.zeros(0, 4)), (0,))
        sums = accumulate_window(model, criterion, [batch], ranks=Ranks(CPU), precision=precision)
        apply_update(optimizer, sums, {"main": list(model.parameters())}, precision)
        scales.append(precision.scale / 2**10)
    assert scales == [1, 1, 0.5, 0.5, 0.5, 1]


@pytest.mark.parametrize("failing", [True, False])
def test_out_of_memory_leaves_no_frame_behind(failing):
    def criterion(outputs, targets):
        raise torch.OutOfMemoryError("CUDA out of memory") if failing else ValueError("something else")

    with pytest.raises(OutOfMemory if failing else ValueError) as error:
        accumulate_window(TwoHeads(True), criterion, batch_of().split(2), ranks=Ranks(CPU), precision=FULL)
    if failing:
        assert error.value.largest == 2
        assert error.value.__context__ is None  # the failure, with its frames, is gone
