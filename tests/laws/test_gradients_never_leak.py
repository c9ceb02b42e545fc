"""Law 4: nothing of an update's gradient is left in the next, at every length of the window.

Every gradient tensor an update used is filled with NaN afterwards: were one still in use, the next update would show it.
"""

from __future__ import annotations

import pytest
import torch
from laws.toys import ALONE, OURS, Pieces, Probe, Toy, flat, full_precision, reach_of, relative

from visiontrain.training.plan import windows_of_epoch


def ramp_sizes() -> list[int]:
    """Micro-batches of each window of two epochs of 44 images: the ramp from 1 to 4, and the tails."""
    sizes = []
    for epoch in range(2):
        windows = windows_of_epoch(44, 2, 4, 44 * epoch, 44.0, "use")
        sizes += [-(-(stop - start) // 2) for start, stop in windows]
    return sizes


def check_poison_does_not_leak(pieces: Pieces):
    world, precision = Toy(), full_precision()
    model = world.model()
    optimizer = Probe(model, lr=1e-4)
    reach = reach_of(model, world.term)
    for count in ramp_sizes():
        assert all(p.grad is None for p in model.parameters())  # rule 23
        micro_batches = world.batch().slice(0, 2 * count).split(2)
        clean = fresh_gradient(world, model, micro_batches)
        sums = pieces.accumulate(model, world.criterion, micro_batches, ranks=ALONE, precision=precision)
        used = [p.grad for p in model.parameters()]
        assert pieces.apply(optimizer, sums, reach, precision, 1e9).applied
        assert relative(optimizer.seen[-1], clean) <= 1e-12
        for gradient in used:
            gradient.fill_(torch.nan)
        assert all(p.isfinite().all() for p in model.parameters())


def fresh_gradient(world, model, micro_batches):
    terms = [world.criterion(model(b.images), b.targets).terms[world.term] for b in micro_batches]
    mean = sum(t.total for t in terms) / sum(t.weight for t in terms).clamp(min=1)
    return flat(torch.autograd.grad(sum(map(len, micro_batches)) * mean, list(model.parameters())))


def test_poison_does_not_leak():
    assert sorted(set(ramp_sizes())) == [1, 2, 3, 4]
    check_poison_does_not_leak(OURS)


@pytest.mark.parametrize("fault", ["loss", "gradient"])
def test_a_skipped_window_leaves_nothing_behind(fault):
    world, precision = Toy(), full_precision()
    model = world.model()
    optimizer = Probe(model)

    def faulty(outputs, targets):
        if fault == "gradient":
            outputs.register_hook(lambda g: g * torch.inf)
            return world.criterion(outputs, targets)
        return world.criterion(outputs * torch.inf, targets)

    batch = world.batch()
    sums = OURS.accumulate(model, faulty, batch.split(4), ranks=ALONE, precision=precision)
    assert not OURS.apply(optimizer, sums, reach_of(model, world.term), precision).applied
    assert all(p.grad is None for p in model.parameters())
