"""A sound loss passes; one divided twice, never, or by its own weight is told, each with its cause."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from checks.toys import ToyDetector, pictures, toy_loss
from laws.toys import ALONE

from visiontrain.checks import equality
from visiontrain.checks.equality import Pieces, one_batch_rows, split_rows
from visiontrain.checks.rows import FAIL, NOTE, PASS
from visiontrain.losses import LossSum, Term
from visiontrain.training.precision import Precision
from visiontrain.training.window import accumulate_window

FP32 = Precision(torch.device("cpu"))


def rows_of_splits(criterion=toy_loss, **faulty):
    rows = split_rows(Pieces(criterion, ALONE, **faulty), ToyDetector().train(), pictures())
    return {row.name: row for row in rows}


def rows_of_one_batch(criterion=toy_loss, size=2, norm=True):
    model = ToyDetector(norm).train()
    return one_batch_rows(Pieces(criterion, ALONE), model, pictures().split(size), FP32, "8 images")


def scaled(criterion, factor):
    """The same loss with each sum times ``factor(weight)``."""

    def changed(outputs, targets):
        loss = criterion(outputs, targets)
        terms = {name: factor(term) for name, term in loss.terms.items()}
        return LossSum(terms, loss.parts)

    return changed


own_mean = scaled(toy_loss, lambda t: Term(t.total / t.weight.clamp(min=1), torch.ones_like(t.weight)))


def test_a_sound_loss_is_divided_once_and_exact():
    rows = rows_of_splits()
    assert {row.verdict for row in rows.values()} == {PASS}
    assert rows["divided once"].number == pytest.approx(1) and rows["weighted loss"].number < 1e-13


def test_a_loop_that_divides_by_the_micro_batches_again_is_told():
    def twice(model, criterion, micro_batches, **named):
        count = len(micro_batches)
        return accumulate_window(
            model, scaled(criterion, lambda t: Term(t.total / count, t.weight)), micro_batches, **named
        )

    rows = rows_of_splits(accumulate=twice)
    assert rows["divided once"].verdict == FAIL and "divided by A a second time" in rows["divided once"].meaning
    assert rows["divided once"].number == pytest.approx(0.5)
    assert rows["weighted loss"].verdict == FAIL


def test_a_loop_that_never_divides_is_told():
    def never(model, criterion, micro_batches, **named):
        sums = accumulate_window(model, criterion, micro_batches, **named)
        return replace(sums, weights={name: w / sums.micro_batches for name, w in sums.weights.items()})

    assert "never divided" in rows_of_splits(accumulate=never)["divided once"].meaning


def test_a_loss_that_divides_by_its_own_weight_varies_with_the_split():
    rows = rows_of_splits(criterion=own_mean)
    assert rows["weighted loss"].verdict == FAIL and "mean of means" in rows["weighted loss"].meaning
    assert rows["weighted loss"].number > 0.05


def test_objects_that_are_too_few_to_tell_are_no_verdict():
    row = rows_of_splits(scaled(toy_loss, lambda t: Term(t.total, t.weight / 1e3)))["weighted loss"]
    assert row.verdict == NOTE and "too small to tell" in row.meaning


def test_a_loss_in_single_precision_is_rounding_and_no_fault():
    single = scaled(toy_loss, lambda t: Term(t.total.float(), t.weight.float()))
    row = rows_of_splits(criterion=single)["weighted loss"]
    assert row.verdict in (PASS, NOTE) and row.number < 1e-5


def test_a_window_equals_one_batch_but_for_batch_norm():
    frozen, trained = rows_of_one_batch()
    assert frozen.verdict == PASS and frozen.number <= 1e-5
    assert trained.verdict == NOTE and "not equivalent: BatchNorm" in trained.meaning and trained.number > 0.001
    assert "norm=group" in trained.remedy and "of 2 images and of all 8" in trained.meaning


def test_without_batch_norm_every_operation_is_compatible():
    frozen, compatible = rows_of_one_batch(norm=False)
    assert (frozen.verdict, compatible.verdict, compatible.value) == (PASS, PASS, "no BatchNorm")


def test_a_window_that_is_not_its_batch_fails():
    own = scaled(toy_loss, lambda t: Term(t.total / t.weight.clamp(min=1) * 100, 100 * torch.ones_like(t.weight)))
    row = rows_of_one_batch(own)[0]
    assert "more than 1e-05" in row.meaning and row.number > 0.05


def test_rounding_beyond_the_tolerance_is_no_fault_because_float64_has_none(monkeypatch):
    monkeypatch.setitem(equality.TOLERANCES, ("cpu", torch.float32), 1e-12)
    row = rows_of_one_batch(counted)[0]
    assert row.verdict == NOTE and "in float64: rounding, not the window" in row.meaning and row.number > 1e-12


def counted(outputs, targets):
    """A weight that rounding cannot move."""
    (term,) = toy_loss(outputs, targets).terms.values()
    return LossSum({"detect": Term(term.total, torch.tensor(float(len(targets))))})


def test_a_difference_that_float64_has_too_fails():
    row = rows_of_one_batch(own_mean)[0]
    assert row.verdict == FAIL and "not the gradient of its images" in row.meaning


def test_assignment_flips_are_named():
    """Where the weight moves along with the gradient in single precision alone, other anchors were chosen."""
    jitter = iter(range(1, 1000))

    def flipping(outputs, targets):
        single = outputs.dtype == torch.float32
        return scaled(toy_loss, lambda t: Term(t.total, t.weight * (1 + single * 1e-3 / next(jitter))))(
            outputs, targets
        )

    row = rows_of_one_batch(flipping)[0]
    assert row.verdict == NOTE and "other anchors" in row.meaning


def test_model_and_its_statistics_stay_as_they_are():
    model = ToyDetector().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    one_batch_rows(Pieces(toy_loss, ALONE), model, pictures().split(2), FP32, "")
    split_rows(Pieces(toy_loss, ALONE), model, pictures())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(p.grad is None and p.dtype == torch.float32 for p in model.parameters())
