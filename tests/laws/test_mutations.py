"""Each known way to get accumulation wrong makes a law fail: a law that cannot fail guards nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from laws.test_a_window_is_one_batch import check_loss_is_of_the_window, check_split_invariance
from laws.test_background_windows import check_background_window
from laws.test_clipping_is_of_the_whole_window import check_clipping_equals_the_large_batch
from laws.test_gradients_never_leak import check_poison_does_not_leak
from laws.test_last_window import check_each_position_once, check_tail_window_is_exact
from laws.test_learning_rate_follows_images import check_equal_progress_gives_equal_rates
from laws.test_order_of_a_window import (
    check_contributions_add_up,
    check_gradients_are_cleared_once_a_window,
    check_outputs_are_freed,
    check_parameters_stay_inside_a_window,
)
from laws.test_the_provisional_weight_changes_no_bit import check_provisional_changes_no_bit
from laws.test_weights_are_summed_before_dividing import (
    check_512_of_mean_2_and_1536_of_mean_4_give_3_5,
    check_gradient_of_one_stays_one,
)
from laws.test_what_is_not_finite_changes_nothing import (
    check_not_finite_changes_nothing,
    check_scale_is_constant_in_a_window,
)
from laws.toys import OURS, Pieces, scaled
from torch import nn

from visiontrain.losses import LossSum, Term
from visiontrain.training.plan import windows_of_epoch
from visiontrain.training.update import Update, apply_update, normalise
from visiontrain.training.window import accumulate_window


def with_terms(change: Callable[[Term], Term]) -> Callable:
    """accumulate_window of a loss whose terms are changed in each micro-batch."""

    def accumulate(model, criterion, micro_batches, **settings):
        def changed(outputs, targets):
            loss = criterion(outputs, targets)
            return LossSum({name: change(term) for name, term in loss.terms.items()}, loss.parts)

        return accumulate_window(model, changed, micro_batches, **settings)

    return accumulate


def before_each(act: Callable[[nn.Module, dict], None]) -> Callable:
    """accumulate_window that does something wrong before each forward."""

    def accumulate(model, criterion, micro_batches, **settings):
        inner = settings.pop("before", lambda batch: None)
        return accumulate_window(
            model, criterion, micro_batches, before=lambda batch: (act(model, settings), inner(batch)), **settings
        )

    return accumulate


def with_sums(change: Callable) -> Callable:
    """apply_update of sums that are changed first."""

    def apply(optimizer, sums, *rest):
        return apply_update(optimizer, change(sums), *rest)

    return apply


def mean_of_ratios(term: Term) -> Term:
    weight = term.weight.clamp(min=1)
    return Term(term.total / weight.to(term.total.dtype), torch.ones_like(weight))


def clip_so_far(model: nn.Module, settings: dict) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


@torch.no_grad()
def small_step(model: nn.Module, settings: dict) -> None:
    for p in model.parameters():
        if p.grad is not None:
            p -= 1e-3 * p.grad


def keeps_outputs(model, criterion, micro_batches, **settings):
    kept = []

    def keeping(outputs, targets):
        kept.append(outputs)
        return criterion(outputs, targets)

    return accumulate_window(model, keeping, micro_batches, **settings)


def lowers_scale_at_once(model, criterion, micro_batches, **settings):
    precision = settings["precision"]

    def watching(outputs, targets):
        def notice(gradient):
            if not gradient.isfinite().all():
                precision.lower_scale()

        loss = criterion(outputs, targets)
        outputs.register_hook(notice)
        return loss

    return accumulate_window(model, watching, micro_batches, **settings)


def applies_without_clearing(optimizer, sums, *rest):
    clear = optimizer.zero_grad
    optimizer.zero_grad = lambda *args, **settings: None
    try:
        return apply_update(optimizer, sums, *rest)
    finally:
        optimizer.zero_grad = clear


def clears_to_zeros(optimizer, sums, *rest):
    clear = optimizer.zero_grad
    optimizer.zero_grad = lambda *args, **settings: clear(set_to_none=False)
    try:
        return apply_update(optimizer, sums, *rest)
    finally:
        optimizer.zero_grad = clear


def steps_anyway(optimizer, sums, reach, precision, clip_norm=10.0):
    """No finite check."""
    gradients = normalise(sums, reach)
    norm = float(torch.nn.utils.get_total_norm(gradients))
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return Update(True, "", norm, False)


def says_skipped_but_steps(optimizer, sums, reach, precision, clip_norm=10.0):
    """A gradient overflow that is set to zero and stepped: momentum still moves the weights."""
    gradients = [p.grad for p in reach[next(iter(reach))]]
    if all(bool(g.isfinite().all()) for g in gradients):
        return apply_update(optimizer, sums, reach, precision, clip_norm)
    for g in gradients:
        g.zero_()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return Update(False, "gradient overflow", torch.inf, False)


def clips_before_multiplying(optimizer, sums, reach, precision, clip_norm=10.0):
    nn.utils.clip_grad_norm_([p for parameters in reach.values() for p in parameters], clip_norm)
    return apply_update(optimizer, sums, reach, precision, torch.inf)


@dataclass(frozen=True)
class Mutation:
    """A known fault and the checks that must notice it."""

    name: str
    pieces: Pieces
    checks: tuple[Callable[[Pieces], None], ...]


def broken_accumulate(name: str, accumulate: Callable, *checks: Callable) -> Mutation:
    return Mutation(name, Pieces(accumulate, apply_update), checks)


def broken_apply(name: str, apply: Callable, *checks: Callable) -> Mutation:
    return Mutation(name, Pieces(accumulate_window, apply), checks)


MUTATIONS = [
    broken_accumulate(
        "mean of means",
        with_terms(mean_of_ratios),
        check_split_invariance,
        check_loss_is_of_the_window,
        check_512_of_mean_2_and_1536_of_mean_4_give_3_5,
        check_clipping_equals_the_large_batch,
        check_background_window,
    ),
    broken_accumulate(
        "weight clamped per micro-batch",
        with_terms(lambda t: Term(t.total, t.weight.clamp(min=1))),
        check_split_invariance,
        check_background_window,
    ),
    broken_accumulate(
        "gradients cleared per micro-batch",
        before_each(lambda model, settings: model.zero_grad()),
        check_split_invariance,
        check_contributions_add_up,
        check_gradients_are_cleared_once_a_window,
        check_gradient_of_one_stays_one,
    ),
    broken_accumulate(
        "clipped per micro-batch",
        before_each(clip_so_far),
        check_split_invariance,
        check_clipping_equals_the_large_batch,
        check_contributions_add_up,
    ),
    broken_accumulate("stepped inside the window", before_each(small_step), check_parameters_stay_inside_a_window),
    broken_accumulate("outputs kept in a list", keeps_outputs, check_outputs_are_freed),
    broken_accumulate("scale lowered inside the window", lowers_scale_at_once, check_scale_is_constant_in_a_window),
    broken_accumulate(
        "loss divided by a weight with a graph",
        with_terms(lambda t: Term(t.total / (1 + t.total.square()), t.weight)),
        check_split_invariance,
        check_contributions_add_up,
    ),
    broken_apply(
        "gradients never cleared",
        applies_without_clearing,
        check_poison_does_not_leak,
        check_gradients_are_cleared_once_a_window,
    ),
    broken_apply("gradients cleared to zeros", clears_to_zeros, check_poison_does_not_leak),
    broken_apply(
        "images forgotten",
        with_sums(lambda s: replace(s, images=1)),
        check_split_invariance,
        check_gradient_of_one_stays_one,
        check_tail_window_is_exact,
    ),
    broken_apply(
        "divided by A again",
        with_sums(lambda s: replace(s, weights={t: w * s.micro_batches for t, w in s.weights.items()})),
        check_split_invariance,
        check_gradient_of_one_stays_one,
        check_512_of_mean_2_and_1536_of_mean_4_give_3_5,
    ),
    broken_apply(
        "tail window scaled as a full one",
        with_sums(lambda s: replace(s, images=8)),
        check_tail_window_is_exact,
    ),
    broken_apply(
        "provisional weight not taken back",
        with_sums(lambda s: replace(s, provisional=dict.fromkeys(s.provisional, 1.0))),
        check_provisional_changes_no_bit,
        check_split_invariance,
    ),
    broken_apply("clipped before the multiplication", clips_before_multiplying, check_clipping_equals_the_large_batch),
    broken_apply("stepped without a finite check", steps_anyway, check_not_finite_changes_nothing),
    broken_apply("overflow set to zero and stepped", says_skipped_but_steps, check_not_finite_changes_nothing),
    broken_apply(
        "overflow leaves the scale",
        lambda optimizer, sums, reach, precision, clip: apply_update(
            optimizer, sums, reach, replace(precision, scaler=None), clip
        ),
        check_scale_is_constant_in_a_window,
    ),
]
CASES = [
    pytest.param(mutation.pieces, check, id=f"{mutation.name} - {check.__name__}")
    for mutation in MUTATIONS
    for check in mutation.checks
]


@pytest.mark.parametrize(("pieces", "check"), CASES)
def test_the_law_notices(pieces, check):
    check(OURS)  # the check itself is sound
    with pytest.raises(AssertionError):
        check(pieces)


def test_a_schedule_in_micro_batches_is_noticed():
    """GA-04: the unit of progress is images; counting micro-batches compresses the curve."""
    with pytest.raises(AssertionError):
        check_equal_progress_gives_equal_rates(lambda plan, window: len(plan.micro_batches(*window)))


def test_a_schedule_in_images_of_one_rank_is_noticed():
    """GA-05: progress must not depend on the number of ranks."""
    with pytest.raises(AssertionError):
        check_equal_progress_gives_equal_rates(lambda plan, window: (window[1] - window[0]) / plan.ranks)


def test_windows_that_lose_the_tail_are_noticed():
    def without_tail(images, batch, full, dealt, warmup, last_window):
        return windows_of_epoch(images, batch, full, dealt, warmup, "drop")

    with pytest.raises(AssertionError):
        check_each_position_once(without_tail)


def test_a_forgotten_unscale_is_noticed():
    with pytest.raises(AssertionError):
        check_not_finite_changes_nothing(Pieces(accumulate_window, steps_anyway), "gradient", precision=scaled())
