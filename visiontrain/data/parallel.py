"""Work on the parts of a data set by several processes, its results in the order of the parts."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import cv2

from visiontrain.errors import DataError, VisionTrainError

Part = TypeVar("Part")
Result = TypeVar("Result")

MOST = 16  # processes: beyond, the one that collects is what takes the time


def in_order(work: Callable[[Part], Result], parts: Sequence[Part], processes: int = 1) -> Iterator[Result]:
    """``work(part)`` of each part, in their order.

    Forked processes have ``work`` and all that it holds without a copy, and each waits until its result is taken, so that
    few are in memory. Where processes cannot be forked threads do it.

    Args:
        processes: how many, see ``processes_for``; 1: threads of this process.

    Raises:
        DataError: the first part (in their order) where ``work`` raised one.
        VisionTrainError: a process was killed.
    """
    if processes > 1:
        yield from _by_processes(work, parts, min(processes, len(parts)))
        return
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        yield from pool.map(work, parts)


def processes_for(count: int, enough: int) -> int:
    """How many processes: one for each core where there are ``enough`` things to do and processes can be forked."""
    forks = "fork" in multiprocessing.get_all_start_methods() and sys.platform != "darwin"
    worth = forks and count >= enough and not multiprocessing.current_process().daemon
    return min(os.cpu_count() or 1, MOST) if worth else 1


def _by_processes(work: Callable[[Part], Result], parts: Sequence[Part], processes: int) -> Iterator[Result]:
    context = multiprocessing.get_context("fork")
    pipes: list[Connection] = []
    started: list[multiprocessing.process.BaseProcess] = []
    try:
        for number in range(processes):
            mine, theirs = context.Pipe(duplex=False)
            arguments = (work, parts[number::processes], mine, theirs)
            started.append(context.Process(target=_work, args=arguments, daemon=True))
            started[-1].start()
            theirs.close()  # else the end of a process would not be heard
            pipes.append(mine)
        for number in range(len(parts)):
            yield _result(pipes[number % processes], started[number % processes])
    finally:
        for pipe in pipes:
            pipe.close()
        for process in started:
            process.terminate()
            process.join()


def _result(pipe: Connection, process: multiprocessing.process.BaseProcess) -> Any:
    try:
        result = pipe.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        how = (
            f"was killed (signal {-code}), usually because memory ran out"
            if code < 0
            else f"failed (exit code {code}); its error stands above"
        )
        raise VisionTrainError(f"a process that reads the data {how}") from None
    if isinstance(result, DataError):
        raise result
    return result


def _work(work: Callable[[Part], Result], parts: Sequence[Part], theirs: Connection, pipe: Connection) -> None:
    theirs.close()  # once the reader is gone, sending fails and this process ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the reader gets it too, and ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    cv2.setNumThreads(0)
    try:
        for part in parts:
            pipe.send(work(part))
    except DataError as error:
        pipe.send(error)
    except BrokenPipeError:
        return
