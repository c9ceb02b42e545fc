"""The data-parallel ranks of a run, over torch.distributed. One process looks like a group of one."""

from __future__ import annotations

import itertools
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from visiontrain.errors import ConfigError, RankLost, VisionTrainError
from visiontrain.meeting import appointment, meeting_place
from visiontrain.memory import is_out_of_memory
from visiontrain.place import Place, devices_of, place, stop_with_launcher

T = TypeVar("T")

TIMEOUT = 600.0  # seconds that a rank waits for another
BEAT = 1.0  # seconds between two signs of life


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among the data-parallel ranks: ``rank`` of ``size``, on ``device``."""

    device: torch.device
    rank: int = 0
    size: int = 1
    place: Place = Place()
    group: Group | None = field(default=None, repr=False)

    @property
    def main(self) -> bool:
        """Is this the rank that writes and speaks?"""
        return self.rank == 0

    @property
    def hosts(self) -> list[str]:
        """Host and process of each rank."""
        return self.group.hosts if self.group else []

    def on(self, device: torch.device) -> Ranks:
        """The same rank, computing on this device."""
        if device.type == "cuda":
            torch.cuda.set_device(device)
        return replace(self, device=device)

    def meet(self, call: Callable[[], object]) -> None:
        """Do something in which ranks wait for each other.

        Raises:
            RankLost: another rank did not come.
        """
        if self.group is None:
            call()
        else:
            self.group.meet(call)

    def sum_(self, tensor: Tensor) -> None:
        """Sum over all ranks, in place; every rank gets the same bits.

        Raises:
            RankLost: another rank did not come.
        """
        if self.group is not None:
            self.group.meet(lambda: dist.all_reduce(tensor))

    def gather(self, value: T) -> list[T]:
        """What every rank gives, in the order of ranks, on every rank. For small values that can be pickled.

        Raises:
            RankLost: another rank did not come.
        """
        if self.group is None:
            return [value]
        found: list[Any] = [None] * self.size
        self.group.meet(lambda: dist.all_gather_object(found, value))
        return found

    def collect(self, value: T) -> list[T]:
        """What every rank gives, in the order of ranks, on rank 0; nothing on the others. For what is large.

        Raises:
            RankLost: another rank did not come.
        """
        if self.group is None:
            return [value]
        found: list[Any] = [None] * self.size
        self.group.meet(lambda: dist.gather_object(value, found if self.main else None))
        return found if self.main else []

    def first(self, work: Callable[[], T]) -> T:
        """Rank 0 does the work, however long it takes, and every rank gets what came of it.

        Raises:
            VisionTrainError: what the work raised, on every rank.
            RankLost: another rank did not come.
        """
        if self.group is None:
            return work()
        result: list[Any] = [None, None]
        if self.main:
            try:
                result[0] = work()
            except VisionTrainError as error:
                result[1] = error
        self.group.turn(self.main)
        self.group.meet(lambda: dist.broadcast_object_list(result, src=0))
        if result[1] is not None:
            result[1].told_by = 0
            raise result[1]
        return result[0]

    def remember(self, name: str, value: str) -> None:
        """Keep a word for the ranks that a launcher starts in place of these, should one of them be lost."""
        if self.group is not None:
            self.group.memory.set(name, value)

    def recall(self, name: str) -> str:
        """What earlier ranks of this run kept, or nothing."""
        if self.group is None or not self.group.memory.check([name]):
            return ""
        word: str = self.group.memory.get(name).decode()
        return word

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Keep gradients local in forward and backward."""
        return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()


ALONE = Ranks(torch.device("cpu"))


class Group:
    """The process group, a store for signs of life, and who is where.

    Args:
        store: shared by all ranks.
        rank, size: of this process.
        timeout: seconds that a rank waits for another.
        memory: what stands in it outlives the ranks, where a launcher starts them again.
    """

    def __init__(
        self, store: dist.Store, rank: int, size: int, timeout: float, memory: dist.Store | None = None
    ) -> None:
        self.memory = memory if memory is not None else store
        self.rank, self.size, self.timeout = rank, size, timeout
        self.collectives = 0
        self.hosts: list[str] = [""] * size
        self._turns = 0
        self._patience = min(timeout, 30.0) + 5 * BEAT
        self._gone = False  # the store cannot be reached
        self._store, self._pulse = store.clone(), store.clone()
        for client in (self._store, self._pulse):
            client.set_timeout(timedelta(seconds=min(timeout, 30.0)))
        self._over = threading.Event()
        self._store.set(f"at/{rank}", "0")
        self._store.set(f"beat/{rank}", "0")
        self._thread = threading.Thread(target=self._beat, name="signs of life", daemon=True)
        self._thread.start()

    def meet(self, call: Callable[[], object]) -> None:
        """Do something that needs every rank.

        Raises:
            RankLost: names who did not come.
        """
        self.collectives += 1
        try:
            self._store.set(f"at/{self.rank}", str(self.collectives))
            call()
        except RuntimeError as error:
            if not _is_of_the_network(error):
                raise
            raise self.lost(error) from error

    def turn(self, mine: bool) -> None:
        """Wait until rank 0 has done its work; as long as it is alive nobody loses patience."""
        self._turns += 1
        key = f"turn/{self._turns}"
        try:
            if mine:
                self._store.set(key, "done")
                return
            heard, before = time.monotonic(), b""
            while not self._ask(lambda: self._comes(key)):
                now, over = self._ask(lambda: (self._store.get("beat/0"), self._store.check(["bye/0"])))
                if now != before:
                    heard, before = time.monotonic(), now
                if over or time.monotonic() - heard > min(self.timeout, 60 * BEAT):
                    raise self.lost(RuntimeError("it prepares what the others wait for"))
        except RuntimeError as error:
            if isinstance(error, VisionTrainError):
                raise
            raise self.lost(error) from error

    def lost(self, error: RuntimeError) -> RankLost:
        """The error that says who is missing: no sign of life, or not where the others are."""
        said = _in_a_line(error)
        try:
            return self._ask(lambda: self._who_is_missing(said))
        except RuntimeError:
            return RankLost(
                f"the store that keeps the ranks together, on the host of {self.who(0)}, cannot be reached any more from "
                f"{socket.gethostname()}: that host, its launcher or the network is gone ({said})"
            )

    def _who_is_missing(self, said: str) -> RankLost:
        ended = [r for r in range(self.size) if self._store.check([f"bye/{r}"])]
        if ended:
            words = self._store.get(f"bye/{ended[0]}").decode()
            saved = self._store.check([f"saved/{ended[0]}"])
            return RankLost(f"{self.who(ended[0])} ended: {words}", tuple(ended), saved)
        before = self._read("beat")
        time.sleep(5 * BEAT)
        silent = tuple(r for r, (a, b) in enumerate(zip(before, self._read("beat"), strict=True)) if a == b)
        behind = tuple(r for r, at in enumerate(self._read("at")) if int(at) < self.collectives)
        if silent:
            return RankLost(f"{self._all(silent)} gave no sign of life for {5 * BEAT:g} s ({said})", silent)
        if behind:
            return RankLost(
                f"{self._all(behind)} did not come within {self.timeout:g} s; the process is alive and busy or stuck ({said})",
                behind,
            )
        return RankLost(f"the ranks lost each other ({said})")

    def farewell(self, words: str, *, saved: bool = False) -> None:
        """Tell the others why this rank ends; ``saved``: it has written the checkpoint of all.

        A store that is gone has nobody to be told.
        """

        def tell() -> None:
            if saved:
                self._store.set(f"saved/{self.rank}", "")
            if words:
                self._store.set(f"bye/{self.rank}", words)

        with suppress(RuntimeError):
            self._ask(tell)

    def teller(self, words: str) -> int:
        """The rank that tells a person why this one ends: rank 0, if it ends for the same reason."""

        def as_rank_0() -> bool:
            return self._comes("bye/0", 2.0) and self._store.get("bye/0").decode() == words

        if self.rank > 0:
            with suppress(RuntimeError):
                return 0 if self._ask(as_rank_0) else self.rank
        return self.rank

    def who(self, rank: int) -> str:
        """A rank with its host and process."""
        return f"rank {rank} ({self.hosts[rank]})" if self.hosts[rank] else f"rank {rank}"

    def close(self) -> None:
        """End the signs of life."""
        self._over.set()
        self._thread.join(timeout=10)

    def _ask(self, question: Callable[[], T]) -> T:
        """What the store answers. Where its host cannot be reached any more TCP alone would wait for a quarter of an hour.

        Raises:
            RuntimeError: no answer; nothing is asked any more.
        """
        answer: list[T] = []
        failed: list[RuntimeError] = []

        def ask() -> None:
            try:
                answer.append(question())
            except RuntimeError as error:
                failed.append(error)

        if not self._gone:
            asking = threading.Thread(target=ask, name="asking the store", daemon=True)
            asking.start()
            asking.join(self._patience)
            self._gone = asking.is_alive()
        if self._gone:
            raise RuntimeError(f"the store did not answer for {self._patience:g} s")
        if failed:
            raise failed[0]
        return answer[0]

    def _comes(self, key: str, wait: float = BEAT) -> bool:
        """Is the key there, now or in a moment?"""
        until = time.monotonic() + wait
        while not (there := self._store.check([key])) and time.monotonic() < until:
            time.sleep(0.05)
        return there

    def _all(self, ranks: tuple[int, ...]) -> str:
        return " and ".join(self.who(rank) for rank in ranks)

    def _read(self, what: str) -> list[bytes]:
        found: list[bytes] = self._store.multi_get([f"{what}/{rank}" for rank in range(self.size)])
        return found

    def _beat(self) -> None:
        count = 0
        while not self._over.wait(BEAT):
            count += 1
            try:
                self._pulse.set(f"beat/{self.rank}", str(count))
            except RuntimeError:  # the next collective will notice, in the main thread
                return


@contextmanager
def joined(timeout: float = TIMEOUT) -> Iterator[Ranks]:
    """Join the other ranks of this run, and leave with them; alone where no launcher placed this process.

    The device is the CPU until ``Ranks.on`` names another.

    Args:
        timeout: seconds that a rank waits for another.

    Raises:
        RankLost: a rank did not come.
    """
    here = place()
    stop_with_launcher()
    cpu = torch.device("cpu")
    if here.size == 1:
        yield Ranks(cpu)
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    span = timedelta(seconds=timeout)
    try:
        lasting = meeting_place(here, span)
        store = dist.PrefixStore(appointment(lasting, here, timeout), lasting)
        dist.init_process_group(backend, store=store, rank=here.rank, world_size=here.size, timeout=span)
    except RuntimeError as error:
        raise RankLost(
            f"rank {here.rank} of {here.size} could not join the others at {here.address}:{here.port} within {timeout:g} s "
            f"({_in_a_line(error)}). {_why_apart(error, here)}"
        ) from error
    memory = dist.PrefixStore(f"run {next(_RUNS)} of this process", lasting)
    group = Group(dist.PrefixStore("visiontrain", store), here.rank, here.size, timeout, memory)
    ranks = Ranks(cpu, here.rank, here.size, here, group)
    try:
        group.hosts = ranks.gather(f"host {socket.gethostname()}, process {os.getpid()}")
        yield ranks
        ranks.gather(None)  # nobody leaves while another still needs the store
        dist.destroy_process_group()
    except BaseException as error:
        words = f"{type(error).__name__}: {error}"
        group.farewell(words)
        if isinstance(error, VisionTrainError) and error.told_by is None:
            error.told_by = group.teller(words)
        raise
    finally:
        group.close()


def choose_device(name: str, here: Place = ALONE.place) -> torch.device:
    """The device of this rank that ``device=`` means: auto, cpu, cuda, cuda:N or N, or a list with one for each rank.

    Raises:
        ConfigError: the device is not there, or the list has not one for each rank of this host.
    """
    words = devices_of(name)
    if len(words) > 1:
        if len(words) != here.local_size:
            raise ConfigError(
                f"device={name}: {len(words)} devices for {here.local_size} ranks on this host; give one for each, or auto"
            )
        return choose_device(words[here.local])
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name in ("auto", "cuda") and here.local_size > 1:
        if not count and name == "auto":
            return torch.device("cpu")
        name = "cuda:0" if here.bound and count == 1 else f"cuda:{here.local}"
    elif name == "auto":
        return torch.device("cuda", 0) if count else torch.device("cpu")
    elif here.local_size > 1 and name != "cpu" and not here.bound:
        raise ConfigError(f"device={name}: one device for {here.local_size} ranks on this host; give a list, or auto")
    device = torch.device(f"cuda:{name}" if name.isdecimal() else name)
    if device.type != "cuda":
        return device
    index = device.index or 0
    if index >= count:
        there = f"cuda:0 to cuda:{count - 1} are there" if count else "torch sees no CUDA device"
        raise ConfigError(f"device={name}: {there}. Use device=cpu, or device=auto to take what there is.")
    return torch.device("cuda", index)


def _why_apart(error: RuntimeError, here: Place) -> str:
    """What to look at when ranks do not find each other."""
    if here.size > here.local_size and "=[127." in str(error):  # gloo took the address of the host's own name
        return "On one of the hosts its own name leads to itself (127.0.1.1); say which network it is on: GLOO_SOCKET_IFNAME=eth0"
    return "Is the address reachable from this host, and were all ranks started?"


def _in_a_line(error: RuntimeError) -> str:
    """What a backend says, without places in its source before it and advice to its developers after it."""
    said = re.sub(r"^.*?\[\S+:\d+\]\s*|\. This is typically.*", "", (str(error).strip().splitlines() or [""])[0])
    return said[:200] or type(error).__name__


def _is_of_the_network(error: RuntimeError) -> bool:
    """Did waiting for another rank fail? NCCL and stores have errors of their own; gloo's begin with its source file."""
    if isinstance(error, VisionTrainError) or is_out_of_memory(error):
        return False
    return isinstance(error, dist.DistError) or "gloo" in str(error)


_RUNS = itertools.count(1)
