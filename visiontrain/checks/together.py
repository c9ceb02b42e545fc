"""What several ranks show together: that they are one training, and not each its own."""

from __future__ import annotations

import copy
import platform
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from visiontrain.batch import Batch
from visiontrain.checks.equality import PARTLY_SINGLE, SAME_SHAPE, TOLERANCES, Pieces, gradient, relative, share_of
from visiontrain.checks.rows import FAIL, NOTE, PASS, Row, judged
from visiontrain.checks.trial import Seen
from visiontrain.distributed import Ranks
from visiontrain.models.detector import Detector
from visiontrain.nn.norm import freeze_batch_norm
from visiontrain.training.plan import Plan, counted
from visiontrain.training.precision import Precision
from visiontrain.training.reduction import Reduction
from visiontrain.training.update import normalise
from visiontrain.training.window import provisional_weights


@dataclass(frozen=True, slots=True)
class Places:
    """Host and device of each rank."""

    where: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, ranks: Ranks) -> Places:
        """Ask every rank."""
        return cls(tuple(ranks.gather((platform.node(), str(ranks.device)))))

    @property
    def hosts(self) -> int:
        return len({host for host, _ in self.where})

    @property
    def words(self) -> list[str]:
        """``rank 1 (cuda:1)``, with the host where there are several."""
        several = self.hosts > 1
        return [
            f"rank {rank} ({device} of {host})" if several else f"rank {rank} ({device})"
            for rank, (host, device) in enumerate(self.where)
        ]

    def sharers(self, rank: int) -> int:
        """Ranks that have this one's device, and so its memory, this one included."""
        return self.where.count(self.where[rank])


# What must have the same bits on all ranks, in the order in which one comes of the other; what to say where it has not.
_EVIDENCE: tuple[tuple[Callable[[Seen], Hashable], str, str], ...] = (
    (lambda s: s.before, "began window {} with other parameters", "the ranks did not begin with the same weights"),
    (lambda s: tuple(s.counts.gradients), "got another gradient in window {}", "the reduction did not reach all ranks"),
    (
        lambda s: s.after,
        "has other parameters after window {}",
        "with equal gradients its optimizer did something else",
    ),
    (lambda s: s.statistics, "has other running statistics after window {}", "they were not averaged over the ranks"),
)


def same_on_all(by_rank: Sequence[Sequence[Seen]], places: Places, reduction: str) -> Row:
    """Have parameters, gradients and running statistics the same bits on every rank, window after window?

    Args:
        by_rank: what each rank saw of the same windows.
        places: of the ranks.
        reduction: window or ddp.
    """
    windows, size = len(by_rank[0]), len(by_rank)
    odd, wrong = _first_difference(by_rank, places.words)
    return judged(
        "ranks",
        not odd,
        counted(size, "rank"),
        f"on {counted(places.hosts, 'host')}, reduction {reduction}: parameters, running statistics and gradient norms are "
        f"equal, bit for bit, after each of {counted(windows, 'window')}",
        wrong,
        "all ranks need the same version of visiontrain and torch, the same settings and the same kind of device",
        float(odd),
    )


def _first_difference(by_rank: Sequence[Sequence[Seen]], words: Sequence[str]) -> tuple[int, str]:
    """How many ranks differ from most, and the sentence about the first difference; 0 and "" where there is none."""
    for number, seen in enumerate(zip(*by_rank, strict=True), 1):
        for read, told, cause in _EVIDENCE:
            values = [read(s) for s in seen]
            (usual, _), *others = Counter(values).most_common()
            if others:
                odd = [word for word, value in zip(words, values, strict=True) if value != usual]
                return len(odd), f"{' and '.join(odd)} {told.format(number)}: {cause}"
    return 0, ""


def one_process_row(pieces: Pieces, model: Detector, batch: Batch, plan: Plan) -> Row:
    """The same images in float64, statistics frozen, shared by all ranks and by this process alone: is it one gradient?

    Args:
        pieces: of the gradient; its ranks share it, and all of them must call this.
        model: of the run.
        batch: equal on all ranks.
        plan: of the run.
    """
    ranks, device = pieces.ranks, pieces.ranks.device
    exact = Precision(device, torch.float64)
    frozen = freeze_batch_norm(copy.deepcopy(model)).double()
    whole = gradient(replace(pieces, ranks=Ranks(device)), frozen, [batch], exact).vector
    shared = shared_gradient(pieces, frozen, batch, plan, exact)
    factor = share_of(shared, whole)
    apart, rest, factor = max(ranks.gather((relative(shared, whole), relative(shared, factor * whole), factor)))
    what = f"{len(batch)} images with {len(batch.targets)} objects in float64, statistics frozen, shared by {ranks.size} ranks"
    value, name = f"{apart:.1e}", "one process"
    if apart <= TOLERANCES[device.type, torch.float64]:
        return Row(name, PASS, value, f"relative difference of {what}, to one process", "", apart)
    if apart <= PARTLY_SINGLE:
        meaning = f"{what}: part of model or loss computes in float32, so this is rounding"
        return Row(name, NOTE, value, meaning, "", apart)
    cause = f"it is {factor:.3g} times that" if rest < SAME_SHAPE else "a part of it is lost or comes twice"
    return Row(
        name,
        FAIL,
        value,
        f"{what}: not the gradient of one process, {cause}",
        "gradients of ranks must be summed, once per window, and divided once by the weight of all",
        apart,
    )


def shared_gradient(pieces: Pieces, model: Detector, batch: Batch, plan: Plan, precision: Precision) -> Tensor:
    """The gradient of images that all ranks share, flattened and not clipped, made as training makes it.

    Each rank's share is two micro-batches, where there are images for it.

    Args:
        pieces: of the gradient; all of its ranks must call this.
        model: of the run; its gradients are empty before.
        batch: equal on all ranks.
        plan: says how ranks add up.
        precision: of the passes.
    """
    ranks, images = pieces.ranks, len(batch)
    cut = replace(plan, batch=images // 2 if images // 2 >= ranks.size else images)
    reduction = Reduction(model, ranks, plan.reduction)
    sums = pieces.accumulate(
        reduction.module,
        pieces.criterion,
        [batch.slice(*share) for share in cut.shares(0, images, ranks.rank)],
        ranks=ranks,
        precision=precision,
        provisional=provisional_weights(model.loss_terms, len(batch.targets), 1),
        overlap=reduction.overlaps(images),
        meets=reduction.meets(images),
    )
    reduction.reduce(sums)
    normalise(sums, model.term_parameters())
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).div_(precision.scale)
