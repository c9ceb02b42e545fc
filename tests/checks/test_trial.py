"""Faulty loops and optimizers, one by one: the preflight names the cause of each, and none where all is well."""

from __future__ import annotations

import pytest
import torch

from visiontrain.checks import verdicts
from visiontrain.checks.rows import FAIL, PASS
from visiontrain.checks.trial import Window, full_windows, growth, observe
from visiontrain.training import transaction
from visiontrain.training.ledger import Ledger
from visiontrain.training.plan import make_plan
from visiontrain.training.transaction import train_window


def questions(seen, job):
    return {row.name: row for row in verdicts.of_windows([seen], job.plan, job.schedule, True)}


def failed(rows):
    return {name for name, row in rows.items() if row.verdict == FAIL}


@pytest.fixture
def trial(begin):
    def run(loop=train_window, change=lambda job: None, **settings):
        _, job = begin(**settings)
        change(job)
        seen, _ = observe(job, full_windows(job.plan, 3), loop)
        return questions(seen, job)

    return run


def test_the_trainers_own_loop_passes(trial):
    assert {row.verdict for row in trial().values()} == {PASS}


def test_what_was_counted_is_in_the_rows(trial):
    rows = trial()
    assert rows["boundaries"].meaning == "as planned: 2 x 2 images, 2 x 2 images, 2 x 2 images"
    assert rows["same samples"].value == "13 positions"
    assert "3 optimizer steps and 3 clearings" in rows["effect"].meaning


def test_an_update_for_each_micro_batch_is_seen(trial):
    def every(job, micro_batches, window):
        for batch in micro_batches:
            train_window(job, [batch])

    rows = trial(every)
    assert {"same parameters", "update counts", "boundaries"} <= failed(rows)
    assert "each micro-batch is stepped on its own" in rows["same parameters"].meaning


def test_an_optimizer_that_does_nothing_is_seen(trial):
    class Idle(torch.optim.SGD):
        def step(self, closure=None):
            pass

    def change(job):
        groups = [{**group} for group in job.state.optimizer.param_groups]
        job.state.optimizer = Idle(groups, lr=0.01)

    rows = trial(change=change)
    assert failed(rows) == {"effect"}
    assert "no effect: the optimizer's step changes nothing" in rows["effect"].meaning


def test_a_gradient_that_is_cleared_too_early_is_seen(trial, monkeypatch):
    apply = transaction.apply_update

    def cleared(optimizer, *arguments, **named):
        torch._foreach_zero_([p.grad for group in optimizer.param_groups for p in group["params"]])
        return apply(optimizer, *arguments, **named)

    monkeypatch.setattr(transaction, "apply_update", cleared)
    rows = trial()
    assert failed(rows) == {"effect"}
    assert "the gradient was cleared before the update" in rows["effect"].meaning


def test_a_loop_that_never_updates_is_seen(trial):
    rows = trial(lambda job, micro_batches, window: transaction.forward_backward(job, micro_batches, 4))
    assert {"effect", "update counts"} <= failed(rows)
    assert "the optimizer was never stepped" in rows["effect"].meaning


def test_a_gradient_that_is_not_cleared_is_seen(trial, monkeypatch):
    def change(job):
        monkeypatch.setattr(transaction, "apply_update", lambda optimizer, *a, **n: stepped(optimizer))

    def stepped(optimizer):
        optimizer.step()
        return transaction.Update(True, "", 1.0, False)

    rows = trial(change=change)
    assert "leak into the next" in rows["effect"].meaning and "effect" in failed(rows)


def test_a_schedule_moved_by_micro_batches_is_seen(trial):
    def shifted(job, micro_batches, window):
        train_window(job, micro_batches)
        job.state.progress_images += sum(map(len, micro_batches)) * (len(micro_batches) - 1)

    rows = trial(shifted)
    assert failed(rows) == {"schedule"}
    assert "micro-batches are taken for updates" in rows["schedule"].meaning


def test_a_schedule_that_stands_still_is_seen(trial, monkeypatch):
    monkeypatch.setattr(transaction, "set_schedule", lambda optimizer, schedule, images: (0.01, 0.9))
    rows = trial()
    assert failed(rows) == {"schedule"} and "does not follow" in rows["schedule"].meaning


def test_positions_dealt_twice_or_left_out_are_seen(trial, monkeypatch):
    monkeypatch.setattr(Ledger, "close", lambda *arguments: None)  # the trainer's own guard, asleep

    def repeats(job):
        stream = job.micro_batches
        first = next(stream)
        job.micro_batches = (batch for batch in [first, first, *stream])

    assert failed(trial(change=repeats)) == {"same samples"}


def test_a_loss_that_is_not_finite_is_seen(trial):
    def change(job):
        sound = job.criterion

        def broken(outputs, targets):
            loss = sound(outputs, targets)
            term = loss.terms["detect"]
            return type(loss)({"detect": type(term)(term.total * torch.inf, term.weight)}, loss.parts)

        job.criterion = broken

    rows = trial(change=change)
    assert {"finite gradients", "update counts"} <= failed(rows)
    assert "3 of 3 windows were skipped" in rows["finite gradients"].meaning


def test_tensors_that_every_window_leaves_behind_are_named(begin):
    _, job = begin()
    _, first = observe(job, full_windows(job.plan, 1))
    assert verdicts.kept_tensors(growth(job, first[:1], (0, 2))).verdict == PASS
    history: list = []
    owner = {"history": history}

    def keeping(job, micro_batches, window):
        sound = job.criterion

        def kept(outputs, targets):
            loss = sound(outputs, targets)
            owner["history"].append(loss.terms["detect"].total)
            return loss

        job.criterion = kept
        train_window(job, micro_batches)
        job.criterion = sound

    row = verdicts.kept_tensors(growth(job, first[:1], (0, 2), windows=3, loop=keeping))
    assert row.verdict == FAIL
    assert "memory grows" in row.meaning and "a list called 'history'" in row.meaning


def test_nothing_stays_hooked_to_model_or_optimizer(begin):
    _, job = begin()
    observe(job, full_windows(job.plan, 1))
    assert not job.state.model._forward_pre_hooks
    assert not job.state.optimizer._optimizer_step_pre_hooks and "zero_grad" not in vars(job.state.optimizer)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({"warmup_epochs": 0}, [(0, 0, 8), (0, 8, 16), (0, 16, 20)]),
        ({"warmup_epochs": 1}, [(1, 0, 8), (1, 8, 16), (1, 16, 20)]),
        ({"warmup_epochs": 100, "epochs": 2}, [(0, 0, 2), (0, 2, 4), (0, 4, 6)]),
        ({"warmup_epochs": 0, "nbs": 64}, [(0, 0, 20), (1, 0, 20)]),
        ({"warmup_epochs": 0, "epochs": 1, "nbs": 64}, [(0, 0, 20)]),
        ({"warmup_epochs": 0, "last_window": "drop"}, [(0, 0, 8), (0, 8, 16), (1, 0, 8)]),
    ],
)
def test_the_trial_begins_with_the_first_full_window(plan, expected):
    made = make_plan(**{"batch": 2, "nbs": 8, "images": 20, "epochs": 5, "weight_decay": 0, **plan})
    assert full_windows(made, 3) == [Window(*window) for window in expected]
