"""Activation checkpointing: a block keeps its input alone and computes what lies inside again in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from visiontrain.nn.norm import batch_norms


def recomputed(block: nn.Module, x: Tensor) -> Tensor:
    """``block(x)`` that keeps x for the backward pass and nothing from inside.

    Random numbers are drawn alike both times, and running statistics count the first pass alone.

    Source:
        Chen et al., Training Deep Nets with Sublinear Memory Cost, arXiv:1604.06174.
    """
    return checkpoint(block, x, use_reentrant=False, context_fn=lambda: (nullcontext(), _EachTime(block)))


class _EachTime:
    """``untouched_statistics`` for every backward pass through one graph, of which there may be several."""

    def __init__(self, block: nn.Module) -> None:
        self.block = block
        self.inside = ExitStack()

    def __enter__(self) -> None:
        self.inside.enter_context(untouched_statistics(self.block))

    def __exit__(self, *error: object) -> None:
        self.inside.close()


@contextmanager
def untouched_statistics(block: nn.Module) -> Iterator[None]:
    """Inside, the BatchNorms of the block update copies of their running statistics; afterwards they have their own again."""
    own = [(norm, name, buffer) for norm in batch_norms(block) for name, buffer in norm.named_buffers(recurse=False)]
    for norm, name, buffer in own:
        setattr(norm, name, buffer.clone())
    try:
        yield
    finally:
        for norm, name, buffer in own:
            setattr(norm, name, buffer)
