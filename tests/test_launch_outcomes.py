"""What a launch makes of signals and of what its ranks told; an agent made by hand stands in for torch's."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError, Interrupted, OutOfMemory, RankFailed, RankLost
from visiontrain.launch import Over, Processes
from visiontrain.record.events import Notice
from visiontrain.record.wire import Came, Ended


def told(error, rank):
    error.told_by = rank
    return error


def failed(**exit_codes):
    return {
        int(rank[1:]): SimpleNamespace(exitcode=code, signal_name=lambda code=code: signal.Signals(-code).name)
        for rank, code in exit_codes.items()
    }


TRACE = "Traceback (most recent call last):\nZeroDivisionError: planted\n"
SAVED = "rank 1 ended: x. Nothing is lost; go on with: visiontrain train resume=last.pt"


@pytest.fixture
def processes():
    launch = Processes(TrainConfig(data="d", device="cpu,cpu"), 2, 1)
    yield launch
    launch.meeting.shutdown()


@pytest.mark.parametrize(
    ("ends", "failures", "kind", "said"),
    [
        (  # the error of one rank comes before the loss that it was to another, whoever told first
            [Ended(0, 0, error=RankLost(SAVED, (1,), True)), Ended(1, 0, trace=TRACE)],
            failed(r0=1, r1=1),
            RankFailed,
            f"rank 1 failed.\n{TRACE}{SAVED}",
        ),
        (  # of two who lost the same the one that saved
            [Ended(2, 0, error=RankLost("rank 1 is gone", (1,))), Ended(0, 0, error=RankLost(SAVED, (1,), True))],
            failed(r0=1, r1=-9, r2=1),
            RankLost,
            f"{SAVED}\nrank 1 was ended by SIGKILL",
        ),
        (  # what all have, once
            [Ended(1, 0, error=told(ConfigError("batch=3"), 0)), Ended(0, 0, error=told(ConfigError("batch=3"), 0))],
            failed(r0=2, r1=2),
            ConfigError,
            "batch=3",
        ),
        (
            [Ended(0, 0, error=RankLost("rank 1 ended", (1,))), Ended(1, 0, error=told(OutOfMemory("too large", 4), 1))],
            failed(r0=1, r1=5),
            OutOfMemory,
            "rank 1: too large",
        ),
        ([], failed(r0=-9, r1=-11), RankLost, "rank 0 was ended by SIGKILL and rank 1 was ended by SIGSEGV and said nothing"),
        ([], failed(r1=7), RankLost, "rank 1 ended with exit code 7 and said nothing"),
    ],
)  # fmt: skip
def test_the_error_of_a_launch_is_the_first_of_its_ranks(processes, ends, failures, kind, said):
    processes.ends = ends
    with pytest.raises(kind) as caught:
        processes.outcome(Over(failures))
    assert type(caught.value) is kind and str(caught.value) == said


def test_a_result_stands_even_where_a_rank_falls_over_on_its_way_out(processes):
    processes.ends = [Ended(0, 0, result="result")]
    assert processes.outcome(Over(failed(r1=-11))) == "result"


def test_who_asked_for_the_end_is_told_of_an_interruption(processes):
    processes.asked = ["SIGINT"]
    with pytest.raises(Interrupted, match="SIGINT, before any training"):
        processes.outcome(Over(failed(r0=-15, r1=-15)))
    processes.started = True
    with pytest.raises(Interrupted, match="no rank had the time to write a checkpoint"):
        processes.outcome(Over(failed(r0=-9, r1=-9)))
    processes.ends = [Ended(0, 0, error=RankLost("rank 1 gave no sign of life", (1,)))]
    with pytest.raises(Interrupted, match="SIGINT: rank 1 gave no sign of life"):
        processes.outcome(Over(failed(r0=1, r1=-9)))


def test_an_error_of_the_agent_itself_is_not_hidden(processes):
    with pytest.raises(OSError, match="no more processes"):
        processes.outcome(Over({}, OSError("no more processes")))


def test_ranks_that_were_started_again_are_told_of_once_with_the_reason(processes):
    shown = []
    processes.ends = [Ended(0, 0, error=RankLost(SAVED, (1,), True))]
    for who in (Came(0, 0), Came(1, 1), Came(0, 1)):
        processes.came(who, shown.append)
    again = "All ranks were started again (start 1 of at most 1, max_restarts)."
    assert shown == [Notice(f"{SAVED}\n{again}", "warning")]
    assert processes.ends == []  # what became of the first attempt is no reason for the end of the second


class Sleepers:
    """An agent of two processes that never end by themselves."""

    def __init__(self):
        code = "import time; print('here', flush=True); time.sleep(100)"
        self.processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
        for process in self.processes:
            process.stdout.readline()

    def run(self):
        codes = [process.wait() for process in self.processes]
        return SimpleNamespace(failures=failed(**{f"r{rank}": code for rank, code in enumerate(codes)}))

    def get_worker_group(self):
        return SimpleNamespace(workers=[SimpleNamespace(id=process.pid) for process in self.processes])


@pytest.mark.parametrize(
    ("asked", "ended_by"),
    [([signal.SIGINT], -signal.SIGTERM), ([signal.SIGTERM], -signal.SIGTERM)],
)
def test_a_signal_reaches_every_rank(processes, asked, ended_by):
    processes.agent = Sleepers()
    for number in asked:
        processes.messages.put(number)
    with pytest.raises(Interrupted, match=asked[0].name):
        processes.run(lambda event: None)
    assert [process.wait() for process in processes.agent.processes] == [ended_by] * 2
    assert processes.meeting.is_closed()  # so that the agent starts nobody again


def test_who_insists_gets_rid_of_ranks_that_do_not_listen(processes, monkeypatch):
    sent = []
    monkeypatch.setattr("visiontrain.launch.os.kill", lambda pid, number: sent.append(number))
    processes.agent.get_worker_group = lambda: SimpleNamespace(workers=[SimpleNamespace(id=4194305)])
    processes.started = True
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        processes.stop(number)
    assert sent == [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]


def test_a_callback_that_exits_leaves_no_rank_behind(processes):
    def leave(event):
        sys.exit(3)

    processes.agent = Sleepers()
    processes.messages.put(Notice("a rank speaks"))
    with pytest.raises(SystemExit):
        processes.run(leave)
    assert [process.wait() for process in processes.agent.processes] == [-signal.SIGTERM] * 2


@pytest.mark.parametrize(
    ("end", "final"),
    [
        (Ended(0, 0, result="result"), True),
        (Ended(0, 0, error=ConfigError("x")), True),
        (Ended(0, 0, error=Interrupted("x")), True),
        (Ended(0, 0, error=RankLost("x")), False),
        (Ended(0, 0, error=OutOfMemory("x")), False),
        (Ended(0, 0, trace="x"), False),
    ],
)
def test_what_would_end_so_again_is_not_started_again(processes, end, final):
    processes.take(end)
    assert processes.meeting.is_closed() == final
