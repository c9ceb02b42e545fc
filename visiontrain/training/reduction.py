"""The one reduction of a window: gradients of all ranks become their sum on each, and running statistics their mean.

Two ways, one result. ``window``: each rank keeps its gradients to the end of the window, then they are summed in buckets.
``ddp``: the last backward pass of a window sums them as it goes (torch's DistributedDataParallel).

Source:
    Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020, arXiv:2006.15704.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from visiontrain.distributed import Ranks
from visiontrain.errors import ConfigError
from visiontrain.nn.norm import norm_of, running_statistics
from visiontrain.training.window import WindowSums

BUCKET_BYTES = 25 * 2**20


class Reduction:
    """Sums gradients over the ranks.

    Args:
        model: on its device; ``module`` is what forward passes must call.
        ranks: who shares a window.
        way: window or ddp.
    """

    def __init__(self, model: nn.Module, ranks: Ranks, way: str = "window") -> None:
        self.ranks = ranks
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.synchronised = ranks.size > 1 and norm_of(model) == "sync"
        apart = ranks.size > 1 and not self.synchronised  # those are alike on all ranks
        self.statistics = running_statistics(model) if apart else []
        self.summed: set[int] = set()  # identities of the parameters that the last backward pass summed
        self.module = wrapped(model, ranks, self.summed) if ranks.size > 1 and way == "ddp" else model
        self._buckets = _buckets(self.parameters) if ranks.size > 1 else []

    def overlaps(self, images: int) -> bool:
        """Can the last backward pass of a window of so many images do the sum? Every rank must have one of them."""
        return isinstance(self.module, DistributedDataParallel) and images >= self.ranks.size

    def meets(self, images: int) -> bool:
        """Do the passes of such a window wait for other ranks? Then a rank that fails in them can agree on nothing."""
        return self.synchronised or self.overlaps(images)

    def reduce(self, sums: WindowSums) -> None:
        """Make the waiting gradients and the running statistics of this rank those of all ranks.

        Raises:
            RankLost: another rank did not come; gradients and statistics may be half done, weights are untouched.
            ConfigError: the last backward pass did not reach every parameter, so it summed them only in part; likewise.
        """
        if self.ranks.size == 1:
            return
        if sums.reduced:
            self._require_all_summed()
        else:
            self._sum_gradients(sums.touched)
        self._average_statistics(sums.share, sums.behind)

    def _require_all_summed(self) -> None:
        """Gradients that only earlier passes of the window made would stay on their rank, and the ranks drift apart."""
        left = sum(id(p) not in self.summed for p in self.parameters)
        self.summed.clear()
        if left:
            raise ConfigError(
                f"reduce=ddp: the last backward pass of a window did not sum {left} of {len(self.parameters)} trainable "
                "parameters, because it did not reach all of them; use reduce=window, which sums what there is"
            )

    def _sum_gradients(self, touched: frozenset[int]) -> None:
        """Zeros stand for a gradient that only other ranks have; a parameter without one anywhere stays without.

        On every rank a gradient lies in memory as its parameter does, so that the norm of all has the same bits.
        """
        for flat, numbers in self._buckets:
            flat.zero_()
            at = 0
            for number in numbers:
                p = self.parameters[number]
                if p.grad is not None:
                    flat[at : at + p.numel()].copy_(p.grad.reshape(-1))
                at += p.numel()
            self.ranks.sum_(flat)
            at = 0
            for number in numbers:
                p = self.parameters[number]
                if number in touched:
                    if p.grad is None or p.grad.stride() != p.stride():
                        p.grad = torch.empty_like(p)
                    p.grad.copy_(flat[at : at + p.numel()].view(p.shape))
                at += p.numel()

    def _average_statistics(self, share: float, behind: int) -> None:
        """Mean and variance: the mean over ranks, each as heavy as its images. Counts: those of the rank with most."""
        moved = [t for t in self.statistics if t.is_floating_point()]
        if not moved:
            return
        flat = torch.cat([t.double().reshape(-1) for t in moved]) * share
        self.ranks.sum_(flat)
        for tensor, mean in zip(moved, flat.split([t.numel() for t in moved]), strict=True):
            tensor.copy_(mean.view(tensor.shape))
        torch._foreach_add_([t for t in self.statistics if not t.is_floating_point()], behind)


def wrapped(model: nn.Module, ranks: Ranks, summed: set[int]) -> DistributedDataParallel:
    """The model so that a backward pass sums gradients over the ranks; outside ``no_sync`` only.

    Whose sums are done is noted in ``summed``, by identity.
    """
    with warnings.catch_warnings():  # torch 2.14 has another name for it, which 2.9 does not know
        warnings.simplefilter("ignore", FutureWarning)
        module = DistributedDataParallel(model, broadcast_buffers=False)
    module.register_comm_hook(summed, _sum_hook)
    return module


def _sum_hook(summed: set[int], bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """A sum and not torch's mean: one place divides, at the end of the window."""
    summed.update(map(id, bucket.parameters()))
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


# Torch compares the annotations themselves; the import from __future__ made them strings.
_sum_hook.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[Tensor]})


def _buckets(parameters: Sequence[nn.Parameter]) -> list[tuple[Tensor, list[int]]]:
    """Flat buffers and the numbers of the parameters whose gradients they carry, by data type."""
    found: list[tuple[Tensor, list[int]]] = []
    open_: list[int] = []
    for number, p in enumerate(parameters):
        open_.append(number)
        last = number + 1 == len(parameters)
        size = sum(parameters[n].numel() for n in open_)
        if last or size * p.element_size() >= BUCKET_BYTES or parameters[number + 1].dtype != p.dtype:
            found.append((torch.zeros(size, dtype=p.dtype, device=p.device), open_))
            open_ = []
    return found
