"""Several devices from one command, one call or one notebook cell: torch's elastic agent starts a process for each.

Each of them is a guest as under torchrun. What happens in them comes home over ``record.wire``: the console and the user's
callbacks run here, the files are rank 0's.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any
from uuid import uuid4

import torch
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from visiontrain.config.parse import words_of
from visiontrain.config.schema import TrainConfig
from visiontrain.distributed import choose_device
from visiontrain.errors import (
    ConfigError,
    DataError,
    Interrupted,
    RankFailed,
    RankLost,
    TrainingStopped,
    VisionTrainError,
    WeightsError,
)
from visiontrain.record.events import Event, Notice
from visiontrain.record.run import Recorder
from visiontrain.record.sinks.notebook import console
from visiontrain.record.wire import Came, Ended, Home
from visiontrain.training.interrupt import INSISTING, SIGNALS

# A rank that ends so would end so again; every other end is worth another attempt.
FINAL = (ConfigError, DataError, WeightsError, TrainingStopped, Interrupted)


@dataclass(frozen=True, slots=True)
class Over:
    """No rank is left: how those failed that did, or what went wrong with the launcher itself."""

    failures: Mapping[int, ProcessFailure]
    error: BaseException | None = None


def launch(
    config: TrainConfig, devices: Sequence[str], max_restarts: int, callbacks: Sequence[Callable[[Event], None]] = ()
) -> Any:
    """Train on several devices of this machine, one rank on each.

    Args:
        config: as given to this process; each rank reads it again from words.
        devices: as words, one for each rank.
        max_restarts: how often all ranks are started again after one was lost.
        callbacks: called here, in this thread, with every event of rank 0.

    Returns:
        what training returned on rank 0.

    Raises:
        VisionTrainError: that of a rank; RankLost or RankFailed where one ended without one.
    """
    for name in devices:
        choose_device(name)  # a device that is not there is answered before anything is started
    ranks = Processes(config, len(devices), max_restarts)
    with ExitStack() as stack:
        home = stack.enter_context(Home(ranks.name, ranks.take))
        stack.enter_context(_environment(len(devices), home.environment))
        stack.enter_context(_signals(ranks.messages.put))
        stack.enter_context(_quiet())
        return ranks.run(stack.enter_context(Recorder([console(), *callbacks])))


class Processes:
    """The processes of one launch, and what they told."""

    def __init__(self, config: TrainConfig, size: int, max_restarts: int) -> None:
        self.name, self.size, self.max_restarts = uuid4().hex, size, max_restarts
        self.messages: SimpleQueue[Any] = SimpleQueue()
        self.ends: list[Ended] = []
        self.asked: list[str] = []  # signals to this process
        self.attempt = 0
        self.started = False
        here = RendezvousParameters("c10d", "localhost:0", self.name, 1, 1, local_addr="127.0.0.1")
        self.meeting = get_rendezvous_handler(here)
        words = [word.replace("$", "$$") for word in words_of(config)]  # the agent fills in ${local_rank}
        spec = WorkerSpec(
            role="rank",
            local_world_size=size,
            rdzv_handler=self.meeting,
            entrypoint=sys.executable,
            args=("-P", "-m", "visiontrain", "train", *words),
            max_restarts=max_restarts,
        )
        self.agent = LocalElasticAgent(spec, _SameTerminal())

    def run(self, show: Callable[[Event], None]) -> Any:
        """Start them, and show what they tell until none is left."""
        threading.Thread(target=self._work, name="elastic agent", daemon=True).start()
        try:
            while not isinstance(message := self.messages.get(), Over):
                self.mind(message, show)
        except BaseException:  # a callback that exits, say: no rank is left behind
            self.stop(signal.SIGTERM)
            while not isinstance(self.messages.get(), Over):
                continue
            raise
        return self.outcome(message)

    def mind(self, message: signal.Signals | Came | Ended | Event, show: Callable[[Event], None]) -> None:
        """Act on one message."""
        if isinstance(message, signal.Signals):
            self.stop(message)
        elif isinstance(message, Came):
            self.came(message, show)
        elif isinstance(message, Ended):
            self.ends.append(message)
        else:
            self.started = True
            show(message)

    def take(self, message: Came | Ended | Event) -> None:
        """Take what a rank sends, before it is told that it was heard: whoever ends for good is not started again."""
        if isinstance(message, Ended) and (message.result is not None or isinstance(message.error, FINAL)):
            self.meeting.set_closed()
        self.messages.put(message)

    def came(self, who: Came, show: Callable[[Event], None]) -> None:
        """A rank of a later attempt says that the ranks were started again, and why."""
        if who.attempt > self.attempt:
            self.attempt = who.attempt
            why = str(_reason(self.ends, {})) if self.ends else "A rank ended and said nothing."
            self.ends.clear()
            count = f"start {who.attempt} of at most {self.max_restarts}"
            show(Notice(f"{why}\nAll ranks were started again ({count}, max_restarts).", "warning"))

    def stop(self, number: signal.Signals) -> None:
        """Hand a signal on: the ranks stop together and write a checkpoint. Who insists gets rid of them at once."""
        self.asked.append(number.name)
        self.meeting.set_closed()
        if len(self.asked) >= INSISTING:
            number = signal.SIGKILL
        elif not self.started:
            number = signal.SIGTERM  # Python would show where in its imports Ctrl-C found it
        for worker in self.agent.get_worker_group().workers:
            if worker.id:
                with suppress(ProcessLookupError):
                    os.kill(worker.id, number)

    def outcome(self, over: Over) -> Any:
        """What rank 0 returned, or the error that all this ended with."""
        results = [end.result for end in self.ends if end.result is not None]
        if results:
            return results[0]
        reason = _reason(self.ends, over.failures) if self.ends else None
        if self.asked and (reason is None or isinstance(reason, RankLost)):
            soon = "before any training" if not self.started else "and no rank had the time to write a checkpoint"
            raise Interrupted(f"{self.asked[0]}: {reason}" if reason else f"{self.asked[0]}, {soon}")
        if reason is not None:
            raise reason
        if over.error is not None:
            raise over.error
        raise RankLost(f"{_ended(over.failures)} and said nothing", tuple(over.failures))

    def _work(self) -> None:
        over = Over({})
        try:
            result = self.agent.run()
            over = Over(result.failures if result else {})
        except RendezvousClosedError:
            pass
        except BaseException as error:  # it is raised in the thread that waits
            over = Over({}, error)
        finally:
            self.meeting.shutdown()
            self.messages.put(over)


def _reason(ends: Sequence[Ended], failures: Mapping[int, ProcessFailure]) -> VisionTrainError:
    """Of all that ranks ended with the one that was first: an error of its own before the loss of another."""
    lost = [end.error for end in ends if isinstance(end.error, RankLost)]
    own = [end for end in ends if not isinstance(end.error, RankLost)]
    saved = [error for error in lost if error.saved]
    if not own:
        error = (saved or lost)[0]
        return _reworded(error, f"{error}\n{_ended(failures)}" if failures else str(error))
    first = next((end for end in own if end.error and end.error.told_by == end.rank), own[0])
    if first.error is None:
        after = f"\n{saved[0]}" if saved else ""
        return RankFailed(f"rank {first.rank} failed.\n{first.trace.rstrip()}{after}")
    alone = first.rank > 0 and first.error.told_by == first.rank
    return _reworded(first.error, f"rank {first.rank}: {first.error}") if alone else first.error


def _reworded(error: VisionTrainError, words: str) -> VisionTrainError:
    error.args = (words, *error.args[1:])
    return error


def _ended(failures: Mapping[int, ProcessFailure]) -> str:
    """``rank 1 was ended by SIGKILL``, of those that did not end by themselves; else of all that failed."""
    killed = {rank: failure for rank, failure in failures.items() if failure.exitcode < 0}
    ways = {
        rank: f"was ended by {failure.signal_name()}" if rank in killed else f"ended with exit code {failure.exitcode}"
        for rank, failure in (killed or failures).items()
    }
    return " and ".join(f"rank {rank} {way}" for rank, way in sorted(ways.items())) or "the ranks ended"


class _SameTerminal(LogsSpecs):
    """What ranks print themselves (a traceback of torch's C++, say) appears where this process prints; no log files."""

    @property
    def root_log_dir(self) -> str:
        return os.devnull

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        here = dict.fromkeys(envs, "")
        return LogsDest(stdouts=here, stderrs=dict(here), error_files=dict.fromkeys(envs, os.devnull))


@contextmanager
def _environment(ranks: int, home: Mapping[str, str]) -> Iterator[None]:
    """What the ranks inherit: their share of the threads, calm C++ logs unless asked for, this very package, the way home."""
    root = str(Path(__file__).resolve().parents[1])
    path = [p for p in (root, os.environ.get("PYTHONPATH")) if p]
    found_anyway = root in sysconfig.get_paths().values()
    defaults = {"OMP_NUM_THREADS": str(max(torch.get_num_threads() // ranks, 1)), "TORCH_CPP_LOG_LEVEL": "ERROR"}
    new = {**defaults, **os.environ, **home, **({} if found_anyway else {"PYTHONPATH": os.pathsep.join(path)})}
    before = dict(os.environ)
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]


@contextmanager
def _signals(put: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM become messages; outside the main thread Python delivers none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hear(number: int, frame: FrameType | None) -> None:
        put(signal.Signals(number))

    before = {number: signal.signal(number, hear) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _quiet() -> Iterator[None]:
    """The agent logs each signal and exit code as an error; what matters of that is told here in words. LOGLEVEL brings it back."""
    loggers = [
        logging.getLogger(n) for n in logging.root.manager.loggerDict if n.startswith("torch.distributed.elastic")
    ]
    before = [(logger, logger.level) for logger in loggers]
    if "LOGLEVEL" not in os.environ:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in before:
            logger.setLevel(level)
