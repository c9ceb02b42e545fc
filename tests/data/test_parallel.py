"""Parts read by several processes come back in order, with the error of the first that failed, and nobody stays behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator

import pytest

from visiontrain.data.parallel import in_order, processes_for
from visiontrain.errors import DataError, VisionTrainError


@pytest.mark.parametrize("processes", [1, 2, 3, 20])
def test_results_come_in_the_order_of_the_parts(processes):
    def work(part: int) -> tuple[int, int]:
        time.sleep(0.001 * (part % 3))
        return part, os.getpid()

    found = list(in_order(work, range(10), processes))
    assert [part for part, _ in found] == list(range(10))
    assert len({process for _, process in found} - {os.getpid()}) == (min(processes, 10) if processes > 1 else 0)
    assert list(in_order(work, [], processes)) == []
    assert not multiprocessing.active_children()


def failing(part: int) -> int:
    if part in (3, 4):
        raise DataError(f"part {part}")
    return part


@pytest.mark.parametrize("processes", [1, 2])
def test_the_first_error_is_raised_as_it_was(processes):
    results, found = in_order(failing, range(10), processes), []
    with pytest.raises(DataError, match=r"^part 3$"):
        found.extend(results)
    assert not multiprocessing.active_children()


def test_a_killed_process_is_named():
    def work(part: int) -> int:
        if part == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return part

    with pytest.raises(VisionTrainError, match=r"was killed \(signal 9\), usually because memory ran out"):
        list(in_order(work, range(4), 2))


def test_who_stops_listening_leaves_no_process():
    results: Iterator[int] = in_order(lambda part: part, range(1000), 2)
    assert next(results) == 0
    results.close()
    assert not multiprocessing.active_children()


def _read(pipe) -> None:
    results = in_order(lambda part: (os.getpid(), bytes(100_000)), range(1000), 3)
    pipe.send([next(results)[0] for _ in range(3)])
    time.sleep(60)


def test_when_the_reader_is_killed_its_processes_end():
    mine, theirs = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(target=_read, args=(theirs,))
    process.start()
    theirs.close()
    readers = mine.recv()
    mine.close()
    process.kill()
    process.join()
    until = time.monotonic() + 60
    while any(_alive(reader) for reader in readers):
        assert time.monotonic() < until
        time.sleep(0.05)


def _alive(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_processes_where_they_pay():
    cores = os.cpu_count() or 1
    assert processes_for(9, 10) == 1 and processes_for(10, 10) == min(cores, 16)
