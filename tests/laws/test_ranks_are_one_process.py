"""Law 2: two and three gloo ranks compute what one process computes of the same images; law 8: one reduction each window."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
from laws.toys import MIXED, Narrow, Probe, Toy, cut, flat, full_precision, gradient_by_hand, reach_of, relative
from ranks import run_on_ranks
from torch import nn

from visiontrain.losses import LossSum, Term
from visiontrain.training.reduction import Reduction, wrapped
from visiontrain.training.update import apply_update
from visiontrain.training.window import accumulate_window

# What each rank gets of the 16 images, as sizes of its micro-batches; images go to the ranks in order.
SHARES = {
    "two ranks, equal": ([4, 4], [4, 4]),
    "two ranks, unequal numbers of micro-batches": ([2, 2, 2, 2, 2], [5, 1]),
    "three ranks": ([4, 2], [4, 1], [5]),
    "a rank without micro-batches": ([8, 5], [3], []),
}


@dataclass(frozen=True)
class Sent:
    """Tensors that went through all-reduce: how many, and elements of them."""

    calls: int
    elements: int


class Tally:
    """Counts what all_reduce carries, whoever calls it."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._all_reduce = dist.all_reduce

    def __enter__(self) -> Tally:
        def counted(tensor, *args, **kwargs):
            self.sizes.append(tensor.numel())
            return self._all_reduce(tensor, *args, **kwargs)

        dist.all_reduce = counted
        return self

    def __exit__(self, *error: object) -> None:
        dist.all_reduce = self._all_reduce


def window_of(ranks, world, shares, way, objects=MIXED):
    """The gradient as the optimizer saw it, the sums, and what was sent."""
    batch = world.batch(objects)
    start = sum(sum(share) for share in shares[: ranks.rank])
    mine = batch.slice(start, start + sum(shares[ranks.rank]))
    model = world.model()
    reduction = Reduction(model, ranks, way)
    optimizer = Probe(model)
    overlap = reduction.overlaps(len(batch)) and all(shares)
    with Tally() as sent:
        sums = accumulate_window(
            reduction.module,
            world.criterion,
            cut(mine, shares[ranks.rank]),
            ranks=ranks,
            precision=full_precision(world.dtype),
            provisional=8.0,
            overlap=overlap,
            meets=overlap,
        )
        update = apply_update(
            optimizer, sums, reach_of(model, world.term), full_precision(world.dtype), 1e9, reduction.reduce
        )
    assert update.applied
    return (
        optimizer.seen[-1],
        sums.loss,
        sums.positions,
        Sent(len(sent.sizes), sum(sent.sizes)),
        flat(model.parameters()),
    )


def all_windows(ranks, cases):
    return [window_of(ranks, *case) for case in cases]


def check(outcomes, world, batch):
    whole = gradient_by_hand(world, batch)
    for gradient, loss, positions, _, weights in outcomes:
        assert relative(gradient, whole) <= 1e-12
        assert loss == pytest.approx(outcomes[0][1], rel=1e-15)
        assert positions == batch.positions
        assert torch.equal(weights, outcomes[0][4]), "ranks have different weights after an update"


@pytest.mark.parametrize("size", [2, 3])
def test_gradient_is_that_of_one_process(size):
    names = [name for name, shares in SHARES.items() if len(shares) == size]
    cases = [(world, SHARES[name], way) for name in names for world in (Toy(), Narrow()) for way in ("window", "ddp")]
    nobody = ([4, 4], [8]) if size == 2 else ([4], [8], [4])
    cases.append((Toy(), nobody, "window", (0,) * 4 + (5, 1, 2, 0, 0, 3, 1, 1) + (0,) * 4))  # ranks without targets
    cases.append((Toy(), nobody, "window", (0,) * 16))
    by_rank = run_on_ranks(size, all_windows, cases)
    for case, *outcomes in zip(cases, *by_rank, strict=True):
        world = case[0]
        check(outcomes, world, world.batch(*case[3:]))


def bytes_sent(ranks):
    """Elements sent for one update of eight micro-batches: both ways, and by a wrapper that is never kept back."""
    world, shares = Toy(), ([1] * 8, [1] * 8)
    found = [window_of(ranks, world, shares, way)[3].elements for way in ("window", "ddp")]
    model = wrapped(world.model(), ranks, set())
    with Tally() as sent:
        for batch in cut(world.batch(), [1] * 16)[ranks.rank :: 2]:
            world.criterion(model(batch.images), batch.targets).terms["toy"].total.backward()
    return found, sum(sent.sizes), sum(p.numel() for p in model.parameters())


def test_one_reduction_of_the_gradients_each_window():
    for (window, ddp), always, parameters in run_on_ranks(2, bytes_sent):
        assert window == ddp == parameters
        assert always == 8 * parameters


class TwoHeads(nn.Module):
    """Which head is used depends on the picture, as where parts of a model serve some data only (torch issue 69031)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.unused = nn.Linear(12, 4, dtype=torch.float64), nn.Linear(2, 2, dtype=torch.float64)
        self.heads = nn.ModuleList(nn.Linear(4, 1, dtype=torch.float64) for _ in range(2))

    def forward(self, images):
        which = int(images.flatten()[0] > 0)
        return self.heads[which](self.trunk(images.flatten(1)))


def heads_by_turns(ranks):
    model = TwoHeads()
    reduction, optimizer = Reduction(model, ranks), Probe(model)
    batch = Toy().batch([1] * 4)
    images = batch.images.clone()
    images[:, 0, 0, 0] = torch.tensor([1.0, -1.0, -1.0, -1.0])
    pieces = cut(batch.__class__(images, batch.targets, batch.positions), [1] * 4)
    mine = pieces if ranks.size == 1 else pieces[2 * ranks.rank : 2 * ranks.rank + 2]

    def criterion(outputs, targets):
        return LossSum({"toy": Term(outputs.square().sum(), torch.ones((), dtype=torch.float64) * len(targets))})

    sums = accumulate_window(model, criterion, mine, ranks=ranks, precision=full_precision())
    apply_update(optimizer, sums, reach_of(model, "toy"), full_precision(), 1e9, reduction.reduce)
    return flat(model.parameters()), model.unused.weight.grad is None, optimizer.seen[-1]


def test_a_head_that_only_one_rank_used_is_summed_and_one_that_nobody_used_stays_without_gradient():
    from laws.toys import ALONE

    weights, _, gradient = heads_by_turns(ALONE)
    for theirs, unused, seen in run_on_ranks(2, heads_by_turns):
        assert unused
        assert relative(seen, gradient) <= 1e-12
        assert relative(theirs, weights) <= 1e-12


def fails_on(ranks, which):
    """One rank runs out of memory, or is asked to stop, in its second micro-batch."""
    world = Toy()
    pieces = cut(world.batch(), [4] * 4)[2 * ranks.rank : 2 * ranks.rank + 2]
    count = 0

    def before(batch):
        nonlocal count
        count += 1
        if which == "memory" and ranks.rank == 1 and count == 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes")

    try:
        accumulate_window(
            world.model(),
            world.criterion,
            pieces,
            ranks=ranks,
            precision=full_precision(),
            before=before,
            stop=lambda: which == "stop" and ranks.rank == 1 and count == 1,
        )
    except BaseException as error:
        return type(error).__name__, str(error), getattr(error, "largest", None)
    return "nothing"


def test_out_of_memory_on_one_rank_is_known_to_all():
    (kind0, said0, largest0), (kind1, _, largest1) = run_on_ranks(2, fails_on, "memory")
    assert kind0 == kind1 == "OutOfMemory"
    assert largest0 == largest1 == 4
    assert said0.startswith("rank 1: ")


def test_a_stop_asked_of_one_rank_stops_all():
    assert [answer[0] for answer in run_on_ranks(2, fails_on, "stop")] == ["Stop", "Stop"]


class Normed(Toy):
    def model(self):
        torch.manual_seed(0)
        layers = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 4))
        return layers.to(self.dtype).train()


def statistics_of(ranks):
    world, shares = Normed(), ([4, 4], [2])
    batch = world.batch([1] * 10)
    mine = cut(batch.slice(0, 8) if ranks.rank == 0 else batch.slice(8, 10), shares[ranks.rank])
    model = world.model()
    reduction = Reduction(model, ranks)
    sums = accumulate_window(model, world.criterion, mine, ranks=ranks, precision=full_precision())
    own = [t.clone() for t in model[0].buffers()]
    apply_update(Probe(model), sums, reach_of(model, "toy"), full_precision(), 1e9, reduction.reduce)
    return own, list(model[0].buffers())


def test_running_statistics_are_the_mean_over_ranks_each_as_heavy_as_its_images():
    (own0, all0), (own1, all1) = run_on_ranks(2, statistics_of)
    for kind in (0, 1):
        assert torch.equal(all0[kind], all1[kind])
        torch.testing.assert_close(all0[kind], 0.8 * own0[kind] + 0.2 * own1[kind], rtol=1e-12, atol=0)
    assert all0[2] == all1[2] == 2


def norm_of_a_gradient_that_one_rank_has(ranks):
    """Convolutions in channels last; rank 1 had no image. Their norm, and whether gradients lie as their parameters."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(16, 33, 3), nn.Conv2d(33, 17, 3)).double().to(memory_format=torch.channels_last)
    if ranks.main:
        model(torch.randn(1, 16, 9, 9, dtype=torch.float64)).square().sum().backward()
    reduction = Reduction(model, ranks)
    reduction._sum_gradients(frozenset(range(len(reduction.parameters))))
    alike = all(p.grad.stride() == p.stride() for p in reduction.parameters)
    return alike, float(torch.nn.utils.get_total_norm([p.grad for p in reduction.parameters])).hex()


def test_a_rank_without_an_image_has_the_same_bits_in_the_norm_that_all_are_clipped_by():
    (alike, norm), (alike_too, norm_too) = run_on_ranks(2, norm_of_a_gradient_that_one_rank_has)
    assert alike and alike_too
    assert norm == norm_too
