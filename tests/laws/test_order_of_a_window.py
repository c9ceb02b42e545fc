"""The order of things in a window: rules 2, 3, 4, 20, 22, 23, 25, 26, and rule 9 of the design (nothing is kept)."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from laws.toys import (
    ALONE,
    OURS,
    Narrow,
    Pieces,
    Probe,
    Toy,
    flat,
    full_precision,
    reach_of,
    relative,
    run_window,
    scaled,
)

from visiontrain.training import update as update_module


def check_parameters_stay_inside_a_window(pieces: Pieces):
    """Rule 3: the same weights before every forward; others after the update."""
    world = Toy()
    model = world.model()
    seen = []
    model.register_forward_pre_hook(lambda module, inputs: seen.append(flat(list(module.parameters())).clone()))
    optimizer = Probe(model)
    sums = pieces.accumulate(model, world.criterion, world.batch().split(4), ranks=ALONE, precision=full_precision())
    assert len(seen) == 4
    assert all(torch.equal(s, seen[0]) for s in seen)
    pieces.apply(optimizer, sums, reach_of(model, world.term), full_precision())
    assert not torch.equal(flat(list(model.parameters())), seen[0])


def check_contributions_add_up(pieces: Pieces):
    """Rule 2: after k micro-batches the gradient is the sum of k single ones."""
    world = Toy()
    model = world.model()
    parts = world.batch().split(4)
    running = []
    pieces.accumulate(
        model,
        world.criterion,
        parts,
        ranks=ALONE,
        precision=full_precision(),
        before=lambda batch: running.append([None if p.grad is None else p.grad.clone() for p in model.parameters()]),
    )
    running.append([p.grad for p in model.parameters()])
    assert all(g is None for g in running[0])
    expected = 0
    for part, gradients in zip(parts, running[1:], strict=True):
        total = world.criterion(model(part.images), part.targets).terms[world.term].total
        expected = expected + flat(torch.autograd.grad(total, list(model.parameters())))
        assert all(g is not None for g in gradients)
        assert relative(flat(gradients), expected) <= 1e-12


def check_outputs_are_freed(pieces: Pieces):
    """Rule 9: outputs of micro-batch k are dead before forward k + 1."""
    world = Narrow(torch.float32)
    model = world.model()
    alive: list[weakref.ref] = []
    inner = world.criterion

    def criterion(outputs, targets):
        loss = inner(outputs, targets)
        watched = (outputs.scores, outputs.distances, loss.terms["detect"].total)
        alive.extend(map(weakref.ref, watched))
        return loss

    checked = []

    def dead(module, inputs):
        checked.append([reference() is None for reference in alive])

    model.register_forward_pre_hook(dead)
    parts = world.batch().slice(0, 6).split(2)
    pieces.accumulate(model, criterion, parts, ranks=ALONE, precision=full_precision(torch.float32))
    assert [len(row) for row in checked] == [0, 3, 6]
    assert all(all(row) for row in checked)


def check_gradients_are_cleared_once_a_window(pieces: Pieces):
    """Rules 4 and 23: cleared once for each window, to None."""
    world = Toy()
    model = world.model()
    optimizer = Probe(model)
    cleared = []
    clear, clear_model = optimizer.zero_grad, model.zero_grad
    optimizer.zero_grad = lambda *a, **k: (cleared.append("optimizer"), clear(*a, **k))
    model.zero_grad = lambda *a, **k: (cleared.append("model"), clear_model(*a, **k))
    for count in (1, 3, 4):
        parts = world.batch().slice(0, 2 * count).split(2)
        sums = pieces.accumulate(model, world.criterion, parts, ranks=ALONE, precision=full_precision())
        pieces.apply(optimizer, sums, reach_of(model, world.term), full_precision())
        assert all(p.grad is None for p in model.parameters())
    assert cleared == ["optimizer"] * 3


def test_parameters_stay_inside_a_window():
    check_parameters_stay_inside_a_window(OURS)


def test_contributions_add_up():
    check_contributions_add_up(OURS)


def test_outputs_are_freed():
    check_outputs_are_freed(OURS)


def test_gradients_are_cleared_once_a_window():
    check_gradients_are_cleared_once_a_window(OURS)


def spied_window(monkeypatch, clip_norm=10.0, criterion=None) -> list[str]:
    """Every call that matters in one window of four micro-batches, in order."""
    world, precision = Toy(torch.float32), scaled()
    model = world.model()
    optimizer = Probe(model)
    trace: list[str] = []

    def spy(owner, name, label):
        original = getattr(owner, name)

        def called(*args, **kwargs):
            trace.append(label)
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, called)

    model.register_forward_pre_hook(lambda module, inputs: trace.append("forward"))
    spy(torch.Tensor, "backward", "backward")
    spy(precision.scaler, "unscale_", "unscale")
    spy(precision.scaler, "update", "scaler update")
    spy(precision.scaler, "step", "scaler step")
    spy(update_module, "normalise", "multiply")
    spy(torch.nn.utils, "get_total_norm", "norm")
    spy(torch, "_foreach_mul_", "foreach")
    spy(optimizer, "step", "step")
    spy(optimizer, "zero_grad", "zero")

    def watched(outputs, targets):
        trace.append("loss")
        return (criterion or world.criterion)(outputs, targets)

    sums = OURS.accumulate(model, watched, world.batch().split(4), ranks=ALONE, precision=precision)
    OURS.apply(optimizer, sums, reach_of(model, world.term), precision, clip_norm)
    return trace


def test_each_micro_batch_is_forward_loss_backward(monkeypatch):
    """Rule 20: nothing between them, no update before the last."""
    assert spied_window(monkeypatch)[:12] == ["forward", "loss", "backward"] * 4


def test_the_end_of_a_window_has_one_order(monkeypatch):
    """Rules 22 and 26: unscale, multiply, finite check, clip, step, scaler, zero; each once."""
    end = spied_window(monkeypatch)[12:]
    assert end == ["unscale", "multiply", "foreach", "norm", "foreach", "step", "scaler update", "zero"]


def test_without_clipping_one_multiplication_is_left(monkeypatch):
    end = spied_window(monkeypatch, clip_norm=1e9)[12:]
    assert end == ["unscale", "multiply", "foreach", "norm", "step", "scaler update", "zero"]


def test_an_overflow_clears_and_lowers_the_scale_without_a_step(monkeypatch):
    world = Toy(torch.float32)

    def overflow(outputs, targets):
        outputs.register_hook(lambda g: g * torch.inf)
        return world.criterion(outputs, targets)

    end = spied_window(monkeypatch, criterion=overflow)[12:]
    assert end == ["unscale", "multiply", "foreach", "norm", "zero", "scaler update"]


def test_tensors_do_not_pile_up_over_windows():
    """Rule 21: as many living tensors after 30 windows as after 5."""
    world, precision = Toy(), full_precision()
    model = world.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    parts = world.batch().split(4)
    counts = {}
    for index in range(30):
        sums = OURS.accumulate(model, world.criterion, parts, ranks=ALONE, precision=precision)
        OURS.apply(optimizer, sums, reach_of(model, world.term), precision)
        if index in (4, 29):
            gc.collect()
            counts[index] = sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())
    assert counts[29] == counts[4]


def test_a_window_says_what_it_held():
    world = Toy()
    batch = world.batch()
    outcome = run_window(world, batch.split(7))
    assert (outcome.sums.images, outcome.sums.targets, outcome.sums.micro_batches) == (16, len(batch.targets), 3)


def test_provisional_of_a_term_may_be_given_by_name():
    world = Toy()
    parts = world.batch().split(4)
    plain = run_window(world, parts, provisional=1.0)
    named = run_window(world, parts, provisional={"toy": 64.0})
    assert named.sums.provisional == {"toy": 64.0}
    assert torch.equal(plain.gradient, named.gradient)


@pytest.mark.parametrize("bad", [torch.zeros(()), {"toy": torch.zeros(())}, None])
def test_anything_but_sums_is_refused_with_an_example(bad):
    world = Toy()
    with pytest.raises(TypeError, match="LossSum, sums and not means"):
        run_window(world, world.batch().split(4), criterion=lambda outputs, targets: bad)
