"""A few windows of the real training loop, watched from outside: the loop is not asked what it did, it is counted."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from visiontrain.batch import Batch
from visiontrain.nn.norm import running_statistics
from visiontrain.training.job import Job
from visiontrain.training.ledger import Ledger
from visiontrain.training.plan import Plan
from visiontrain.training.transaction import train_window

# Runs one window, forward, backward and update: what this rank has of it, and its positions over all ranks.
Loop = Callable[[Job, Sequence[Batch], tuple[int, int]], None]


@dataclass(frozen=True, slots=True)
class Window:
    """A window of the plan: positions ``start`` to ``stop`` of an epoch, counted from 0."""

    epoch: int
    start: int
    stop: int


@dataclass(slots=True)
class Counts:
    """What was done to model and optimizer in one window.

    ``forwards`` are the images of each forward pass and ``prints`` the parameters' fingerprints before each; ``rates`` are
    the learning rates and ``gradients`` the norms that the optimizer found at each of its steps.
    """

    forwards: list[int] = field(default_factory=list)
    prints: list[int] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    gradients: list[float] = field(default_factory=list)
    clears: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """A window that was run: what was planned, delivered to this rank and counted.

    ``progress`` are the schedule's images after it; ``images`` are those of all ranks.
    """

    window: Window
    positions: tuple[int, ...]
    counts: Counts
    before: int  # fingerprints of the parameters
    after: int
    statistics: int  # and of the running statistics, after it
    attempted: int
    applied: int
    progress: int
    seconds: float  # loading included
    peak: int  # bytes

    @property
    def images(self) -> int:
        return self.window.stop - self.window.start


def full_windows(plan: Plan, count: int) -> list[Window]:
    """Consecutive windows from the first full one on; a run whose ramp never gets there gives its largest and what follows."""
    best: list[Window] = []
    for epoch in range(plan.epochs):
        windows = [Window(epoch, *window) for window in plan.windows(epoch)]
        sizes = [w.stop - w.start for w in windows]
        largest = sizes.index(max(sizes))
        if not best or sizes[largest] > best[0].stop - best[0].start:
            following = [Window(epoch + 1, *w) for w in plan.windows(epoch + 1)] if epoch + 1 < plan.epochs else []
            best = (windows[largest:] + following)[:count]
        if sizes[largest] >= min(plan.images_per_update, plan.images):
            break
    return best


@contextmanager
def watched(model: nn.Module, optimizer: Optimizer) -> Iterator[list[Counts]]:
    """Count into the last element of the list that this yields; the caller appends one for each window."""
    log = [Counts()]

    def forward(module: nn.Module, args: tuple[Any, ...]) -> None:
        if not torch.is_grad_enabled():  # the pass for the weights of a window
            return
        log[-1].forwards.append(len(args[0]))
        log[-1].prints.append(fingerprint(model.parameters()))

    def before_update(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        log[-1].gradients.append(float(torch.nn.utils.get_total_norm(gradients)) if gradients else 0.0)
        log[-1].rates.append(optimizer.param_groups[0]["lr"])

    clear = optimizer.zero_grad

    def counted(set_to_none: bool = True) -> None:
        log[-1].clears += 1
        clear(set_to_none)

    with ExitStack() as stack:
        stack.callback(model.register_forward_pre_hook(forward).remove)
        stack.callback(optimizer.register_step_pre_hook(before_update).remove)
        optimizer.zero_grad = counted  # type: ignore[method-assign]
        stack.callback(vars(optimizer).pop, "zero_grad")
        yield log


def fingerprint(tensors: Iterable[Tensor]) -> int:
    """A number that changes when any bit of them does: the sum of their bits, read as whole numbers."""
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = [t.detach().view(whole[t.element_size()]).sum(dtype=torch.int64) for t in tensors]
    return int(torch.stack(sums).sum()) if sums else 0


def observe(job: Job, windows: Sequence[Window], loop: Loop = train_window) -> tuple[list[Seen], list[Batch]]:
    """Run windows as training would and count.

    Args:
        job: its stream of micro-batches begins with the first window.
        windows: consecutive ones of the plan.
        loop: runs one window.

    Returns:
        what this rank saw of each, and the micro-batches that it had of the first.
    """
    state, seen = job.state, []
    first: list[Batch] = []
    state.model.train()
    with watched(state.model, state.optimizer) as log:
        for window in windows:
            began, before = time.monotonic(), fingerprint(state.model.parameters())
            attempted, applied = state.updates_attempted, state.updates_applied
            state.epoch, state.position = window.epoch, window.start
            state.ledger = Ledger.of_position(window.start, window.start)
            shares = job.plan.shares(window.start, window.stop, job.ranks.rank)
            micro_batches = list(islice(job.micro_batches, len(shares)))
            log.append(Counts())
            loop(job, micro_batches, (window.start, window.stop))
            seen.append(
                Seen(
                    window=window,
                    positions=tuple(p for batch in micro_batches for p in batch.positions),
                    counts=log[-1],
                    before=before,
                    after=fingerprint(state.model.parameters()),
                    statistics=fingerprint(running_statistics(state.model)),
                    attempted=state.updates_attempted - attempted,
                    applied=state.updates_applied - applied,
                    progress=state.progress_images,
                    seconds=time.monotonic() - began,
                    peak=job.phases.peak,
                )
            )
            first = micro_batches if window == windows[0] else first
    return seen, first


@dataclass(frozen=True, slots=True)
class Growth:
    """Tensors made since the trial began that live on after each of some equal windows, their bytes, and who holds them."""

    tensors: tuple[int, ...]
    bytes: tuple[int, ...]
    holders: tuple[str, ...] = ()

    @property
    def grows(self) -> bool:
        """Whether every window left more tensors than the one before."""
        return all(a < b for a, b in zip(self.tensors, self.tensors[1:], strict=False))


def growth(
    job: Job, micro_batches: Sequence[Batch], window: tuple[int, int], windows: int = 4, loop: Loop = train_window
) -> Growth:
    """Run the same window again and again and count the tensors that live on.

    The first of them is not counted: it may still fill caches and the optimizer's state.

    Args:
        job: of the run.
        micro_batches: what this rank has of the window.
        window: its positions [start, stop) over all ranks.
        windows: how often.
        loop: runs one window.
    """
    counts, sizes = [], []
    added: list[Tensor] = []
    with _only_what_is_new():
        for _ in range(windows):
            known = {id(t) for t in added}
            added.clear()  # or this list would hold what it looks for
            job.state.ledger = Ledger.of_position(window[0], 0)  # the same positions again
            loop(job, micro_batches, window)
            alive = live_tensors()
            counts.append(len(alive))
            sizes.append(_bytes_of(alive, job.ranks.device))
            added += alive
            del alive
    found = Growth(tuple(counts[1:]), tuple(sizes[1:]))
    latest = [t for t in added if id(t) not in known]
    return replace(found, holders=_holders(latest, added)) if found.grows else found


@contextmanager
def _only_what_is_new() -> Iterator[None]:
    """Inside, the collector knows of nothing that was there before: a look at all objects takes no second."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def live_tensors() -> list[Tensor]:
    """Every tensor that the collector knows of."""
    gc.collect()
    return [thing for thing in gc.get_objects() if issubclass(type(thing), Tensor)]


def _bytes_of(tensors: Sequence[Tensor], device: torch.device) -> int:
    """What the device has allocated; on the CPU the storages of these tensors."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    storages = (t.untyped_storage() for t in tensors)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _holders(tensors: Sequence[Tensor], ours: Sequence[Tensor]) -> tuple[str, ...]:
    """In words, what holds the first of these besides our own list: a list called 'losses'."""
    holders = [h for h in gc.get_referrers(*tensors[:1]) if isinstance(h, dict | list | set)]
    found = []
    for holder in holders:
        if holder is tensors or holder is ours:
            continue
        owners = [owner for owner in gc.get_referrers(holder) if isinstance(owner, dict)]
        names = [name for owner in owners for name, value in owner.items() if value is holder and isinstance(name, str)]
        found.append(f"a {type(holder).__name__}" + (f" called {names[0]!r}" if names else ""))
    return tuple(found)
