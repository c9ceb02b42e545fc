"""Batches in a given order, made here or by worker processes that stay alive from epoch to epoch."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import warnings
import weakref
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any

import cv2
import torch
from torch import Tensor
from torch.utils.data import DataLoader, get_worker_info

from visiontrain.batch import Batch, Sample, collate, stacked_bytes
from visiontrain.data.dataset import EvalSet, TrainSet
from visiontrain.data.handover import SLOTS, HandedOver, Slots, close_loader, open_loader
from visiontrain.data.sampler import block_of, stretch_of
from visiontrain.errors import VisionTrainError

SHARED_MEMORY = Path("/dev/shm")
_GRACE = 10  # seconds that a worker outlives SIGTERM, so that the main process can write its checkpoint


class Loader:
    """Makes batches from lists of keys, in their order; the workers live until ``close``.

    Args:
        dataset: gives a sample for a key.
        workers: processes; 0 makes the same samples in this one.
        pin: copy batches to page-locked memory (for CUDA).
        keep_samples: batches keep their samples without pixels, for evaluation.
        start_method: of the workers: fork, spawn or forkserver; None: as the platform does.
    """

    def __init__(
        self,
        dataset: TrainSet | EvalSet,
        workers: int = 0,
        pin: bool = False,
        *,
        keep_samples: bool = False,
        start_method: str | None = None,
    ) -> None:
        # An augmentation in a form that no text stands for may be defined there.
        self._needs_script = isinstance(dataset, TrainSet) and dataset.augment.albumentations.live is not None
        self._keys = _Keys(workers, near=isinstance(dataset, TrainSet) and dataset.draws_near)
        self.name = open_loader()
        self._forget = weakref.finalize(self, close_loader, self.name)
        with _as_many_as_asked():
            self._loader: DataLoader | None = DataLoader(
                _Fetch(dataset, keep_samples, self.name),
                batch_sampler=self._keys,
                collate_fn=_as_is,
                num_workers=workers,
                prefetch_factor=SLOTS if workers else None,
                pin_memory=pin,
                persistent_workers=workers > 0,
                worker_init_fn=_quiet_worker if workers else None,
                multiprocessing_context=start_method if workers else None,
            )
        _OPEN.add(self)

    def run(self, keys: Iterable[Sequence[Any]]) -> Iterator[Batch]:
        """One batch per list of keys. A later call ends an earlier one.

        Raises:
            VisionTrainError: a sample could not be made (the error of the data set), or a worker died.
        """
        if self._loader is None:
            raise VisionTrainError("this loader is closed; make another")
        self._keys.lists = keys
        with _as_many_as_asked(), nullcontext() if self._needs_script else _script_not_run_again():
            tasks = iter(self._loader)
        yield from _checked(tasks)

    def close(self) -> None:
        """End the workers."""
        loader, self._loader = self._loader, None
        workers = getattr(loader, "_iterator", None)
        if workers is not None:
            # Torch would do this as the last reference goes. Left to the garbage collector (an exception's traceback
            # may hold one), pipes can be closed first: then no worker hears of it, and each costs seconds.
            workers._shutdown_workers()
        self._forget()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class EvaluationLoader:
    """All samples of a split, at most ``batch`` at a time; each iteration is one pass, by the same workers.

    One of several ranks gets every so-manieth batch, so that together they have each sample once.
    """

    def __init__(
        self, dataset: EvalSet, batch: int, workers: int = 0, pin: bool = False, rank: int = 0, ranks: int = 1
    ) -> None:
        self.dataset = dataset
        self.batch = batch
        self._batches = dataset.batches(batch)[rank::ranks]
        self._loader = Loader(dataset, workers, pin, keep_samples=True)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return self._loader.run(self._batches)

    def close(self) -> None:
        """End the workers."""
        self._loader.close()


_OPEN: weakref.WeakSet[Loader] = weakref.WeakSet()


@atexit.register  # after the import of torch, so before multiprocessing waits for whoever is left
def _close_all() -> None:
    for loader in list(_OPEN):
        loader.close()


def worker_count(workers: int, ranks: int = 1) -> int:
    """Loader processes of one rank that ``workers`` means: as set, or for -1 one for each core, at most 8.

    Args:
        workers: the setting.
        ranks: processes that share the cores of this host.
    """
    return workers if workers >= 0 else min(8, max((os.cpu_count() or 1) // ranks, 1))


def fitting_workers(wanted: int, task_images: int, size: tuple[int, int], ranks: int = 1) -> int:
    """How many of the wanted loader processes the shared memory has room for; containers often have 64 MB of it.

    Args:
        wanted: by one rank.
        task_images: that a worker makes at a time.
        size: (height, width) of a picture, pixels.
        ranks: that share the memory of this host.
    """
    if not wanted or not SHARED_MEMORY.is_dir():
        return wanted
    free = shutil.disk_usage(SHARED_MEMORY).free
    # The slots of a worker, and for a moment one more, as a larger one takes its place.
    return min(wanted, free // ((SLOTS + 1) * ranks * task_images * size[0] * size[1] * 3))


def training_loader(
    dataset: TrainSet, micro_batches: Iterable[Sequence[Any]], workers: int = 0, pin: bool = False
) -> Generator[Batch, None, None]:
    """Batches for lists of keys, in order; the workers end with the iteration (``Loader`` keeps them)."""
    with Loader(dataset, workers, pin) as loader:
        yield from loader.run(micro_batches)


def evaluation_loader(
    dataset: EvalSet, batch: int, workers: int = 0, pin: bool = False, rank: int = 0, ranks: int = 1
) -> EvaluationLoader:
    """Batches of a split with their samples kept, or one rank's share of them; may be iterated again and again."""
    return EvaluationLoader(dataset, batch, workers, pin, rank, ranks)


class _Keys:
    """The batch sampler of a DataLoader that outlives an epoch: what it yields, batches for one task, is set before each.

    A worker that makes all samples of a block of positions, and those of the block ``APART`` positions later, has their
    partners' pictures in memory still.

    Args:
        workers: processes that torch deals tasks to in turn.
        near: samples draw from blocks of positions before theirs.
    """

    lists: Iterable[Sequence[Any]] = ()

    def __init__(self, workers: int, near: bool) -> None:
        self.workers = workers
        self.near = near

    def __iter__(self) -> Iterator[list[list[Any]]]:
        lists = (list(keys) for keys in self.lists)
        if not self.workers:
            return ([keys] for keys in lists)
        return self._for_the_same_workers(lists) if self.near else _tasks(lists)

    def _for_the_same_workers(self, lists: Iterator[list[Any]]) -> Iterator[list[list[Any]]]:
        """Each stretch of ``APART`` positions begins with the first worker: who is left over has nothing to do meanwhile.

        Of 3 workers one rests for a task in nine, where each would decode three pictures for a sample. With twice as many
        workers as tasks it would not pay.
        """
        for _, stretch in groupby(lists, stretch_of):
            count = 0
            for task in _tasks(stretch):
                count += 1
                yield task
            if self.workers < 2 * count:
                yield from ([] for _ in range(-count % self.workers))


def _tasks(lists: Iterator[list[Any]]) -> Iterator[list[list[Any]]]:
    return (list(task) for _, task in groupby(lists, block_of))


@dataclass(frozen=True, slots=True)
class _Failure:
    error: VisionTrainError


class _Fetch(torch.utils.data.Dataset):
    """Batches for lists of keys. An error for people travels as a value: torch would wrap it in a traceback."""

    def __init__(self, dataset: TrainSet | EvalSet, keep_samples: bool, loader: str) -> None:
        self.dataset = dataset
        self.keep_samples = keep_samples
        self._loader = loader
        self._slots: Slots | None = None

    def __getitems__(self, task: list[list[Any]]) -> list[Batch | HandedOver | _Failure]:
        made = [self._samples(keys) for keys in task]
        sizes = [0 if isinstance(samples, _Failure) else stacked_bytes(samples) for samples in made]
        if not get_worker_info() or not any(sizes):
            return [self._batch(samples) for samples in made]
        self._slots = self._slots or Slots(self._loader)
        rooms = self._slots.take(sum(sizes))[: sum(sizes)].split(sizes)
        batches = (self._batch(samples, room) for samples, room in zip(made, rooms, strict=True))
        return [self._slots.hand_over(batch) if isinstance(batch, Batch) else batch for batch in batches]

    def _batch(self, samples: list[Sample] | _Failure, room: Tensor | None = None) -> Batch | _Failure:
        return samples if isinstance(samples, _Failure) else collate(samples, keep_samples=self.keep_samples, room=room)

    def _samples(self, keys: list[Any]) -> list[Sample] | _Failure:
        try:
            return [self._sample(key) for key in keys]
        except VisionTrainError as error:
            return _Failure(error)

    def _sample(self, key: Any) -> Sample:
        try:
            return self.dataset[key]
        except Exception as error:  # of an augmentation of the user's own, say: which picture it was about
            error.add_note(f"while the sample of {self.dataset.path(key)} was made")
            raise


@contextmanager
def _as_many_as_asked() -> Iterator[None]:
    """Torch warns of more workers than cores, with two lines of its source: whoever sets workers means it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        yield


@contextmanager
def _script_not_run_again() -> Iterator[None]:
    """A worker that is not forked imports the user's script before it begins; without a main guard that would train again.

    It is told that there is no script: all it needs is in this package.
    """
    script = sys.modules["__main__"]
    before = {name: getattr(script, name, None) for name in ("__spec__", "__file__")}
    try:
        vars(script).update(dict.fromkeys(before))
        yield
    finally:
        vars(script).update(before)


def _as_is(batches: list[Batch | _Failure]) -> list[Batch | _Failure]:
    return batches


def _checked(tasks: Iterator[list[Batch | _Failure]]) -> Iterator[Batch]:
    while True:
        try:
            batches = next(tasks)
        except StopIteration:
            return
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise VisionTrainError(f"{str(error).rstrip('. ')}. {_why_dead(error)}") from error
        for batch in batches:
            if isinstance(batch, _Failure):
                raise batch.error
            yield batch


def _why_dead(error: RuntimeError) -> str:
    if "signal" in f"{error}{error.__cause__}":
        return (
            "A worker that was killed usually ran out of memory: lower workers or batch, or give the container more "
            "shared memory."
        )
    return "What it said stands above."


def _quiet_worker(worker: int) -> None:
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    # Ctrl-C and SIGTERM reach the whole group: the main process decides, and ends the workers after its checkpoint.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGTERM, lambda *_: signal.alarm(_GRACE))
