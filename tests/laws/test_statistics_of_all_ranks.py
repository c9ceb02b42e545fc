"""norm=sync: ranks with SyncBatchNorm compute what one process with BatchNorm computes of all their images."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest
import torch
from laws.test_ranks_are_one_process import Tally
from laws.toys import ALONE, MIXED, Narrow, Probe, cut, flat, full_precision, reach_of, relative
from ranks import run_on_ranks
from torch import Tensor, nn

from visiontrain.batch import Batch, empty_batch
from visiontrain.distributed import Ranks
from visiontrain.models import build_model
from visiontrain.nn.conv import Conv
from visiontrain.nn.norm import running_statistics, swap_norms
from visiontrain.training.ema import EMA
from visiontrain.training.reduction import Reduction
from visiontrain.training.update import apply_update
from visiontrain.training.window import accumulate_window

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def blocks(norm: str, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(Conv(3, 6, 3), Conv(6, 6))
    for layer in layers:
        nn.init.normal_(layer.bn.weight)
        nn.init.normal_(layer.bn.bias)
    swap_norms(layers, norm)
    return layers.to(dtype).train()


def passes(sizes: tuple[int, ...], dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    """Inputs and gradients of outputs of three passes; every image is brighter than the one before (known failure BN-04)."""
    generator = torch.Generator().manual_seed(1)
    images = sum(sizes)
    found = []
    for _ in range(3):
        x = torch.randn(images, 3, 4, 5, generator=generator, dtype=torch.float64)
        x += torch.arange(images).view(-1, 1, 1, 1)
        dy = torch.randn(images, 6, 4, 5, generator=generator, dtype=torch.float64)
        found.append((x.to(dtype), dy.to(dtype)))
    return found


def run(layers: nn.Module, given: list[tuple[Tensor, Tensor]]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """By image: outputs and gradients of inputs; of all images: gradients of the parameters; running statistics."""
    by_image = []
    for x, dy in given:
        x = x.clone().requires_grad_()
        y = layers(x)
        y.backward(dy)
        by_image += [y.detach(), x.grad]
    return by_image, [p.grad for p in layers.parameters()], running_statistics(layers)


def run_share(ranks: Ranks, sizes: tuple[int, ...], dtype: torch.dtype, norm: str):
    mine = slice(sum(sizes[: ranks.rank]), sum(sizes[: ranks.rank + 1]))
    given = [(x[mine], dy[mine]) for x, dy in passes(sizes, dtype)]
    return run(blocks(norm, dtype), given)


def all_shares(ranks: Ranks, cases):
    return [run_share(ranks, *case) for case in cases]


@dataclass(frozen=True)
class Apart:
    """Relative difference between ranks and one process."""

    images: float
    gradient: float
    statistics: float

    @property
    def worst(self) -> float:
        return max(self.images, self.gradient, self.statistics)


def compare(outcomes, sizes: tuple[int, ...], dtype: torch.dtype) -> Apart:
    images, gradients, statistics = run(blocks("batch", dtype), passes(sizes, dtype))
    together = [torch.cat(parts) for parts in zip(*(o[0] for o in outcomes), strict=True)]
    summed = [sum(parts) for parts in zip(*(o[1] for o in outcomes), strict=True)]
    return Apart(
        max(relative(a, b) for a, b in zip(together, images, strict=True)),
        max(relative(a, b) for a, b in zip(summed, gradients, strict=True)),
        max(relative(a, b) for o in outcomes for a, b in zip(o[2], statistics, strict=True)),
    )


SHARES = [(3, 4), (6, 1), (0, 5), (1, 1), (2, 0, 4), (1, 1, 1)]  # images of each rank; BN-02: one each


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_are_one_process(size):
    cases = [(s, dtype, "sync") for s in SHARES if len(s) == size for dtype in (torch.float64, torch.float32)]
    by_rank = run_on_ranks(size, all_shares, cases)
    for (sizes, dtype, _), *outcomes in zip(cases, *by_rank, strict=True):
        apart = compare(outcomes, sizes, dtype)
        assert apart.worst <= TOLERANCE[dtype], sizes
        for outcome in outcomes[1:]:
            assert all(torch.equal(a, b) for a, b in zip(outcome[2], outcomes[0][2], strict=True))
        assert all(int(o[2][2]) == 3 for o in outcomes)  # num_batches_tracked


def test_statistics_of_one_rank_break_the_law():
    """What the law above would say of BatchNorm: nothing in it is right."""
    apart = compare(run_on_ranks(2, run_share, (3, 4), torch.float64, "batch"), (3, 4), torch.float64)
    assert min(apart.images, apart.gradient, apart.statistics) > 1e-3


def two_values_and_one(ranks: Ranks):
    layer = nn.Sequential(nn.BatchNorm2d(2)).train()
    swap_norms(layer, "sync")
    layer(torch.rand(1, 2, 1, 1))
    mean = layer[0].running_mean.clone()
    with pytest.raises(ValueError, match="on all 2 ranks it met 1"):
        layer(torch.rand(1 - ranks.rank, 2, 1, 1))
    return mean


def test_bn02_one_value_on_each_rank_is_enough_and_one_alone_is_not():
    first, second = run_on_ranks(2, two_values_and_one)
    assert torch.equal(first, second) and (first > 0).all()


# Micro-batches of nine images, as images of each rank.
WINDOW = {2: ((3, 1), (3, 2)), 3: ((2, 0, 3), (4, 0, 0))}


@dataclass
class Detectors(Narrow):
    """A real detector with BatchNorm, or with what ``norm`` names in its place."""

    norm: str = "batch"
    checkpoint_blocks: bool = False
    whole: bool = False

    def model(self):
        torch.manual_seed(0)
        model = build_model("yolov8n", ["a", "b", "c"]) if self.whole else super().model()
        swap_norms(model, self.norm)
        model.checkpoint_blocks = self.checkpoint_blocks
        return model.to(self.dtype).train()


def micro_batches(batch: Batch, ranks: Ranks, window: tuple[tuple[int, ...], ...]) -> list[Batch]:
    """This rank's, an empty one where it has no image; on one process those of all."""
    pieces = cut(batch, [sum(sizes) for sizes in window])
    if ranks.size == 1:
        return pieces
    mine = [cut(piece, sizes)[ranks.rank] for piece, sizes in zip(pieces, window, strict=True)]
    return [piece if len(piece) else empty_batch(64, 64) for piece in mine]


@dataclass(frozen=True)
class Outcome:
    """A window of one rank: its gradient as the optimizer saw it, ``kinds`` of layers in model and average, all-reduces."""

    gradient: Tensor
    sums: list[float]
    statistics: list[Tensor]
    average: Tensor
    kinds: tuple[list[str], list[str]]
    positions: tuple[int, ...]
    all_reduces: int


def update(ranks: Ranks, world: Detectors, way: str, window: tuple[tuple[int, ...], ...]) -> Outcome:
    model = world.model()
    reduction, optimizer, average = Reduction(model, ranks, way), Probe(model), EMA(model)
    overlap = reduction.overlaps(9)
    with Tally() as sent:
        sums = accumulate_window(
            reduction.module,
            world.criterion,
            micro_batches(world.batch(MIXED[:9]), ranks, window),
            ranks=ranks,
            precision=full_precision(world.dtype),
            provisional=8.0,
            overlap=overlap,
            meets=True,
        )
        own = [t.clone() for t in running_statistics(model)]
        apply_update(optimizer, sums, reach_of(model, world.term), full_precision(world.dtype), 1e9, reduction.reduce)
    average.update(model, 0.5)
    kinds = [[type(m).__name__ for m in of.modules()] for of in (model, average.model)]
    return Outcome(
        gradient=optimizer.seen[-1],
        sums=[*sums.totals.values(), *sums.weights.values(), *sums.part_means.values()],
        statistics=own,
        average=flat(average.model.state_dict().values()),
        kinds=(kinds[0], kinds[1]),
        positions=sums.positions,
        all_reduces=len(sent.sizes),
    )


def updates(ranks: Ranks, cases):
    return [update(ranks, *case) for case in cases]


CASES = {
    2: [
        (Detectors(norm="sync"), "ddp"),
        (Detectors(norm="sync", checkpoint_blocks=True), "window"),
        (Detectors(norm="sync", whole=True), "window"),
    ],
    3: [(Detectors(norm="sync"), "window")],
}


@pytest.mark.parametrize("size", [2, 3])
def test_a_window_of_a_detector_is_that_of_one_process(size):
    cases = [(*case, WINDOW[size]) for case in CASES[size]]
    alone = {
        whole: update(ALONE, Detectors(whole=whole), "window", WINDOW[size]) for whole in {c[0].whole for c in cases}
    }
    by_rank = run_on_ranks(size, updates, cases)
    for (world, _, window), *outcomes in zip(cases, *by_rank, strict=True):
        one = alone[world.whole]
        for rank in outcomes:
            assert relative(rank.gradient, one.gradient) <= 1e-12
            assert rank.sums == pytest.approx(one.sums, rel=1e-12)
            assert all(relative(a, b) <= 1e-12 for a, b in zip(rank.statistics, one.statistics, strict=True))
            assert relative(rank.average, one.average) <= 1e-12
            assert torch.equal(rank.average, outcomes[0].average)
            assert rank.positions == one.positions
            live, averaged = rank.kinds
            assert live == averaged and "SyncBatchNorm" in live and "BatchNorm2d" not in live  # BN-07
            layers, passes_ = live.count("SyncBatchNorm"), len(window)
            assert world.checkpoint_blocks or rank.all_reduces == 2 * layers * passes_ + 1  # and the gradients


def left_alone(ranks: Ranks):
    layer = nn.Sequential(nn.BatchNorm2d(2)).train()
    swap_norms(layer, "sync")
    layer(torch.rand(2, 2, 3, 3))
    if ranks.rank:
        os._exit(7)
    ranks.meet(lambda: layer(torch.rand(2, 2, 3, 3)))


def test_a_rank_that_does_not_come_is_told_as_such():
    with pytest.raises(AssertionError, match=r"RankLost: rank 1 \(host .*gave no sign of life"):
        run_on_ranks(2, left_alone)
