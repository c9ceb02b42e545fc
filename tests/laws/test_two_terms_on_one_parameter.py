"""Law 12: a loss with two weights on one parameter runs twice and is exact, or is refused; never scaled by one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from laws.test_a_window_is_one_batch import SPLITS
from laws.toys import ALONE, OURS, TOLERANCE, Pieces, Probe, Toy, cut, flat, full_precision, reach_of, relative, scaled
from laws.two_terms import World, by_hand, gradient_of, helped_loss
from ranks import run_on_ranks
from torch import nn

from visiontrain.errors import ConfigError
from visiontrain.losses import LossSum, Term
from visiontrain.nn.sync import SyncBatchNorm
from visiontrain.training.precision import Precision
from visiontrain.training.reduction import Reduction
from visiontrain.training.two_pass import accumulate_twice, shared_parameters
from visiontrain.training.update import Update, apply_update
from visiontrain.training.window import accumulate_window

TWICE = Pieces(accumulate_twice, apply_update)


def check_split_invariance(pieces: Pieces, world: World | None = None):
    world = world or World()
    batch = world.batch()
    whole = by_hand(world, batch)
    for name, sizes in SPLITS.items():
        gradient, sums, _ = gradient_of(world, cut(batch, sizes), pieces, ranks=ALONE, provisional=8.0)
        assert relative(gradient, whole) <= TOLERANCE[world.dtype], name
        assert sums.micro_batches == len(sizes)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["fp64", "fp32"])
def test_however_it_is_cut_it_is_one_batch(dtype):
    check_split_invariance(TWICE, World(dtype))


@pytest.mark.parametrize("objects", [(0,) * 16, (0,) * 15 + (1,)], ids=["none", "one"])
def test_weights_below_one_count_as_one(objects):
    world = World()
    batch = world.batch(objects)
    gradient, sums, _ = gradient_of(world, batch.split(4), TWICE, ranks=ALONE)
    assert min(sums.weights.values()) < 1
    assert relative(gradient, by_hand(world, batch)) <= 1e-12


def one_for_both(optimizer, sums, reach, precision, clip_norm):
    """The known fault: every parameter is multiplied as the first term's are."""
    first = next(iter(sums.weights))
    everything = {first: list(dict.fromkeys(p for parameters in reach.values() for p in parameters))}
    return apply_update(
        optimizer, replace(sums, weights={first: sums.weights[first]}), everything, precision, clip_norm
    )


def each_in_turn(optimizer, sums, reach, precision, clip_norm):
    """Likewise: a shared parameter is multiplied by both."""
    for term in sums.weights:
        for p in reach[term]:
            p.grad.mul_(sums.multiplier(term))
    optimizer.step()
    return Update(True, "", 0.0, False)


@pytest.mark.parametrize("apply", [one_for_both, each_in_turn])
def test_one_pass_with_any_multipliers_is_noticed(apply):
    with pytest.raises(AssertionError):
        check_split_invariance(Pieces(accumulate_window, apply))


def test_one_pass_is_never_scaled_by_one_of_the_weights():
    world = World()
    with pytest.raises(ConfigError, match=r"'aux' shares a parameter with a term of another weight.*accumulate_twice"):
        gradient_of(world, world.batch().split(4), OURS, ranks=ALONE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["fp64", "fp32"])
def test_the_provisional_weight_changes_no_bit(dtype):
    world = World(dtype)
    found = [
        gradient_of(world, world.batch().split(4), TWICE, ranks=ALONE, provisional=p)[0]
        for p in (1.0, 64.0, 2.0**-10, {"main": 2.0**20, "aux": 3.7})
    ]
    assert all(torch.equal(gradient, found[0]) for gradient in found)


def test_with_one_term_two_passes_have_the_bits_of_one():
    world = Toy(torch.float32)
    found = []
    for accumulate in (accumulate_window, accumulate_twice):
        model = world.model()
        optimizer = Probe(model)
        sums = accumulate(
            model,
            world.criterion,
            world.batch().split(4),
            ranks=ALONE,
            precision=full_precision(world.dtype),
            provisional=8.0,
        )
        apply_update(optimizer, sums, reach_of(model, world.term), full_precision(world.dtype))
        found.append(optimizer.seen[-1])
    assert torch.equal(*found)


def test_shared_parameters_are_counted():
    model = World().model()
    assert shared_parameters(model.reach()) == 2
    assert shared_parameters({"main": list(model.parameters()), "aux": []}) == 0


def test_running_statistics_count_one_pass():
    world = World(inside=lambda: [nn.BatchNorm1d(16)])
    batch = world.batch()
    counted = []
    for accumulate in (accumulate_window, accumulate_twice):
        norm = (model := world.model()).trunk[2]
        accumulate(model, helped_loss, batch.split(4), ranks=ALONE, precision=full_precision())
        assert int(norm.num_batches_tracked) == 4
        counted.append(flat([norm.running_mean, norm.running_var]))
    assert torch.equal(*counted)


def test_random_numbers_are_drawn_alike():
    world = World(inside=lambda: [nn.Dropout(0.5)])
    parts = world.batch().split(4)
    model = world.model()
    torch.manual_seed(7)
    terms = [helped_loss(model(part.images), part.targets).terms for part in parts]
    mean = sum(sum(t[n].total for t in terms) / sum(t[n].weight for t in terms) for n in ("main", "aux"))
    expected = flat(torch.autograd.grad(16 * mean, list(model.parameters())))
    world.model = lambda: model
    torch.manual_seed(7)
    gradient, _, _ = gradient_of(world, parts, TWICE, ranks=ALONE)
    assert relative(gradient, expected) <= 1e-12


def changed(where: str, change):
    """The loss with a weight that is changed at each call."""
    calls = []

    def criterion(outputs, targets):
        loss = helped_loss(outputs, targets)
        calls.append(None)
        term = loss.terms[where]
        return LossSum({**loss.terms, where: Term(term.total, change(term.weight, len(calls)))}, loss.parts)

    return criterion


@pytest.mark.parametrize("term", ["main", "aux"])
def test_weights_that_change_between_the_passes_are_refused(term):
    world = World()
    weight = r"\d+\.\d+"
    with pytest.raises(
        ConfigError, match=rf"'{term}' had the weight {weight} in the first pass .* {weight} in the sec"
    ):
        gradient_of(
            world,
            world.batch().split(4),
            TWICE,
            ranks=ALONE,
            criterion=changed(term, lambda w, calls: w * (1 + 1e-9 * calls)),
        )


def test_a_weight_with_a_graph_is_refused():
    world = World()

    def criterion(outputs, targets):
        loss = helped_loss(outputs, targets)
        weight = outputs[1].sigmoid().sum()
        return LossSum({**loss.terms, "aux": Term(loss.terms["aux"].total, weight)}, loss.parts)

    with pytest.raises(TypeError, match="weight of term 'aux' carries a graph"):
        gradient_of(world, world.batch().split(4), TWICE, ranks=ALONE, criterion=criterion)


def test_a_term_that_comes_and_goes_is_refused():
    world = World()

    def criterion(outputs, targets):
        loss = helped_loss(outputs, targets)
        return loss if len(targets) > 8 else LossSum({"main": loss.terms["main"]})

    with pytest.raises(ConfigError, match="A term that comes and goes cannot be summed over a window"):
        gradient_of(world, world.batch().split(4), TWICE, ranks=ALONE, criterion=criterion)


def test_a_scaler_changes_no_bit():
    world = World(torch.float32)
    plain, with_scaler = (
        gradient_of(world, world.batch().split(4), TWICE, precision=p, ranks=ALONE)[0]
        for p in (full_precision(torch.float32), scaled())
    )
    assert torch.equal(plain, with_scaler)


@pytest.mark.parametrize("fault", [torch.inf, torch.nan])
def test_a_window_that_is_not_finite_ends_after_its_first_pass(fault):
    world = World()
    calls = []

    def criterion(outputs, targets):
        calls.append(None)
        return helped_loss((outputs[0] * (fault if targets.image.numel() > 40 else 1), outputs[1]), targets)

    gradient, _, model = gradient_of(world, world.batch().split(4), TWICE, ranks=ALONE, criterion=criterion)
    assert gradient is None and len(calls) == 4
    assert torch.equal(flat(model.parameters()), flat(world.model().parameters()))


def statistics_of_all_ranks() -> list[nn.Module]:
    return [nn.Unflatten(1, (16, 1, 1)), SyncBatchNorm(16), nn.Flatten()]


def window_of(ranks, world, shares, way):
    batch = world.batch()
    start = sum(map(sum, shares[: ranks.rank]))
    mine = cut(batch.slice(start, start + sum(shares[ranks.rank])), shares[ranks.rank])
    model = world.model()
    reduction, optimizer, precision = Reduction(model, ranks, way), Probe(model), Precision(ranks.device, torch.float64)
    overlap = reduction.overlaps(16) and all(shares)
    before = ranks.group.collectives
    sums = accumulate_twice(
        reduction.module,
        helped_loss,
        mine,
        ranks=ranks,
        precision=precision,
        provisional=8.0,
        overlap=overlap,
        meets=overlap or reduction.synchronised,
    )
    gathers = ranks.group.collectives - before
    assert apply_update(optimizer, sums, model.reach(), precision, 1e9, reduction.reduce).applied
    return (
        optimizer.seen[-1],
        flat(model.parameters()),
        gathers,
        [int(b) for b in model.buffers() if not b.is_floating_point()],
    )


def windows(ranks, cases):
    return [window_of(ranks, *case) for case in cases]


def test_two_ranks_are_one():
    shares = [([4, 4], [4, 4]), ([2, 2, 2, 2, 2], [5, 1]), ([8, 8], [])]
    cases = [(World(), share, way) for share in shares for way in ("window", "ddp")]
    cases += [(World(inside=statistics_of_all_ranks), ([6], [10]), way) for way in ("window", "ddp")]
    for case, one, other in zip(cases, *run_on_ranks(2, windows, cases), strict=True):
        world, _, way = case
        together = world.inside is statistics_of_all_ranks
        assert relative(one[0], by_hand(world, world.batch())) <= 1e-12, case
        assert torch.equal(one[1], other[1]), case
        if way == "window" and not together:
            assert one[2] == 2  # one small gather for each pass
        assert one[3] == ([1] if together else [])  # running statistics counted one pass
