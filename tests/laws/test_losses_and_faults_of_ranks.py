"""Rules 30 to 33 for every kind of loss, and what one rank alone does wrong or meets: all know of it, or it is stopped."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
import torch.distributed as dist
from checks.toys import about_to_begin
from laws.toys import Toy, cut, flat, full_precision, gradient_by_hand, reach_of, relative
from ranks import run_on_ranks

from visiontrain.distributed import _is_of_the_network
from visiontrain.errors import RankLost, TrainingStopped
from visiontrain.losses import LossSum, Term
from visiontrain.training.reduction import Reduction, wrapped
from visiontrain.training.run import micro_batches
from visiontrain.training.transaction import train_window
from visiontrain.training.update import apply_update
from visiontrain.training.window import accumulate_window

NONE_AND_37 = (0,) * 8 + (20, 0, 3, 5, 0, 9, 0, 0)
BACKGROUND = (0,) * 16


@dataclass
class Kind(Toy):
    """A sum has no weight, a mean that of its elements, a ratio one that depends on the targets."""

    kind: str = "ratio"

    def criterion(self, outputs, targets):
        ratio = super().criterion(outputs, targets).terms["toy"]
        counts = {"sum": 0.0, "mean": outputs.numel()}
        weight = ratio.weight.new_tensor(counts[self.kind]) if self.kind in counts else ratio.weight
        return LossSum({"toy": Term(ratio.total, weight)})


def shared(ranks, world, objects, way, spoil=lambda model: None, clip=torch.inf):
    """The window's gradient on this rank, half of the images its own, and the update."""
    model, mine = world.model(), cut(world.batch(objects), [4] * 4)[2 * ranks.rank : 2 * ranks.rank + 2]
    spoil(model)
    reduction = Reduction(model, ranks, way)
    overlap = reduction.overlaps(16)
    sums = accumulate_window(
        reduction.module,
        world.criterion,
        mine,
        ranks=ranks,
        precision=full_precision(),
        provisional=8.0,
        overlap=overlap,
        meets=overlap,
    )
    seen = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *arguments: seen.append(flat([p.grad for p in model.parameters()])))
    update = apply_update(optimizer, sums, reach_of(model, "toy"), full_precision(), clip, reduce=reduction.reduce)
    return seen[0] if seen else None, update.reason, flat(model.parameters())


def not_finite_on_rank_1(rank):
    def spoil(model):
        if rank == 1:
            model.register_forward_hook(lambda module, arguments, outputs: outputs * torch.inf)

    return spoil


def sent_by(ranks, forward_inside):
    """Elements of gradient that go through all_reduce for two micro-batches whose backward passes keep local."""
    world, count = Toy(), 0
    model, reduce = wrapped(world.model(), ranks, set()), dist.all_reduce

    def counted(tensor, *arguments, **named):
        nonlocal count
        count += tensor.numel()
        return reduce(tensor, *arguments, **named)

    dist.all_reduce = counted
    try:
        for batch in cut(world.batch(), [4] * 4)[:2]:
            outputs = None if forward_inside else model(batch.images)
            with model.no_sync():
                outputs = model(batch.images) if outputs is None else outputs
                world.criterion(outputs, batch.targets).terms["toy"].total.backward()
    finally:
        dist.all_reduce = reduce
    return count / sum(p.numel() for p in model.parameters())


def duplicates(ranks, data):
    """Both ranks load rank 0's pictures."""
    setup, job = about_to_begin(data, ranks, batch=4, nbs=8)
    first = micro_batches(replace(setup, ranks=replace(ranks, rank=0)), job.state)
    mine = [next(first) for _ in range(2)]
    with pytest.raises(TrainingStopped, match="position 0 was dealt twice"):
        train_window(job, mine, (0, 8))


def everything(ranks, data):
    found = {}
    for kind in ("sum", "mean", "ratio"):
        for name, objects in (("0 and 37", NONE_AND_37), ("background", BACKGROUND)):
            for way in ("window", "ddp"):
                found[kind, name, way] = shared(ranks, Kind(kind=kind), objects, way)[0]
    broken = shared(ranks, Toy(), NONE_AND_37, "window", not_finite_on_rank_1(ranks.rank))
    clipped = shared(ranks, Toy(), NONE_AND_37, "window", clip=1.0)[0]
    duplicates(ranks, data)
    return found, broken, clipped, [sent_by(ranks, inside) for inside in (True, False)]


def test_sums_means_and_ratios_are_those_of_one_process_and_what_one_rank_meets_all_know(tiny):
    by_rank = run_on_ranks(2, everything, str(tiny))
    for found, (gradient, reason, weights), clipped, sent in by_rank:
        for (kind, name, way), gradient_of_ranks in found.items():
            world = Kind(kind=kind)
            whole = gradient_by_hand(world, world.batch(NONE_AND_37 if name == "0 and 37" else BACKGROUND))
            assert relative(gradient_of_ranks, whole) <= 1e-12, (kind, name, way)
        whole = gradient_by_hand(Toy(), Toy().batch(NONE_AND_37))
        assert whole.norm() > 10 and relative(clipped, whole / whole.norm()) <= 1e-12, "clipped after the sum, once"
        assert (gradient, reason) == (None, "non-finite loss"), "one rank's loss is everybody's"
        assert torch.equal(weights, flat(Toy().model().parameters())), "and nothing was changed"
        assert sent == [0, 2], "no_sync around the backward pass alone keeps nothing back"


def test_only_a_collective_that_failed_is_taken_for_a_lost_rank():
    """Inside a reduction others may be gone; a mistake of the model's own stays one."""
    gloo = "[/__w/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:34732"
    for error in (RuntimeError(gloo), dist.DistBackendError("NCCL error")):
        assert _is_of_the_network(error)
    for error in (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), RankLost("rank 1 ended", (1,))):
        assert not _is_of_the_network(error)
