"""Several gloo ranks for a test: processes on this machine, started from one that has imported torch already."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import traceback
from collections.abc import Callable
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "visiontrain.training.run"])


def run_on_ranks(size: int, function: Callable[..., Any], *args: Any, timeout: float = 120) -> list[Any]:
    """Call ``function(ranks, *args)`` on every rank; what each returned, in order.

    Raises:
        AssertionError: with the tracebacks of the ranks that failed.
    """
    answers = ends_of_ranks(size, function, *args, timeout=timeout)
    failed = [f"rank {rank}: {words}" for rank, (good, words) in enumerate(answers) if not good]
    assert not failed, "\n".join(failed)
    return [value for _, value in answers]


def ends_of_ranks(size: int, function: Callable[..., Any], *args: Any, timeout: float = 120) -> list[tuple[bool, Any]]:
    """The same where ranks may fail: for each whether it returned, and the value or its traceback."""
    port = free_port()
    pipes = []
    for rank in range(size):
        mine, theirs = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(target=_rank, args=(theirs, rank, size, port, timeout, function, args), daemon=True)
        process.start()
        theirs.close()
        pipes.append((process, mine))
    answers = [_answer(process, pipe, timeout) for process, pipe in pipes]
    for process, _ in pipes:
        process.join(10)
    return answers


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def place_of(rank: int, size: int, port: int) -> dict[str, str]:
    """The environment that torchrun gives to a rank."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _answer(process: Any, pipe: Any, timeout: float) -> tuple[bool, Any]:
    if not pipe.poll(timeout + 30):
        process.kill()
        return False, f"no answer within {timeout + 30} s"
    try:
        return pickle.loads(pipe.recv_bytes())
    except EOFError:
        process.join(10)
        return False, f"ended with exit code {process.exitcode} and said nothing"


def _rank(pipe: Any, rank: int, size: int, port: int, timeout: float, function: Any, args: Any) -> None:
    os.environ.update(place_of(rank, size, port))
    import torch

    from visiontrain.distributed import joined

    torch.set_num_threads(1)
    try:
        with joined(timeout) as ranks:
            answer = True, function(ranks, *args)
    except BaseException:
        answer = False, traceback.format_exc()
    pipe.send_bytes(pickle.dumps(answer))
