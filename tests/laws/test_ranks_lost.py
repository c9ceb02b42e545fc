"""A rank that is gone, or behind a cut cable, keeps nobody: the others end in bounded time and say who is missing."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
import torch.distributed as dist
from laws.toys import Toy, cut, full_precision
from ranks import _CONTEXT, run_on_ranks

from visiontrain import distributed
from visiontrain.distributed import Group
from visiontrain.place import Place
from visiontrain.training.reduction import Reduction
from visiontrain.training.window import accumulate_window


def keep_a_store(pipe):
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    pipe.send(store.port)
    pipe.recv()


@contextmanager
def another_host():
    """A process that keeps the store; stopped, it answers as little as a host behind a cut cable."""
    mine, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=keep_a_store, args=(theirs,), daemon=True)
    process.start()
    try:
        yield process.pid, mine.recv()
    finally:
        process.kill()
        process.join()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(distributed, "BEAT", 0.02)


def test_a_store_that_cannot_be_reached_is_not_waited_for_and_said(quick):
    """torch's own timeout holds only as long as the other side answers; TCP gives up after a quarter of an hour."""
    with another_host() as (pid, port):
        store = dist.TCPStore("127.0.0.1", port, None, False, timedelta(seconds=30), wait_for_workers=False)
        group = Group(store, rank=1, size=2, timeout=0.3)
        os.kill(pid, signal.SIGSTOP)
        start = time.monotonic()
        with pytest.raises(
            distributed.RankLost, match=r"cannot be reached any more from .*: that host, its launcher or"
        ):
            group.turn(mine=False)  # rank 0 prepares something, and is cut off
        said = str(group.lost(RuntimeError("[gloo/pair.cc:1] Timed out waiting 300ms for recv operation to complete")))
        group.farewell("to nobody", saved=True)
        group.close()
        assert time.monotonic() - start < 60
    assert said.endswith("(Timed out waiting 300ms for recv operation to complete)")


def fails_in_the_last_pass(ranks):
    """Rank 1 meets an error in the last forward pass, while rank 0 sums its gradients in the backward pass already."""
    world = Toy()
    reduction = Reduction(world.model(), ranks, "ddp")
    pieces = cut(world.batch(), [4] * 4)[2 * ranks.rank : 2 * ranks.rank + 2]

    def before(batch):
        if ranks.rank == 1 and batch is pieces[-1]:
            raise ZeroDivisionError("of the user's own")

    accumulate_window(
        reduction.module,
        world.criterion,
        pieces,
        ranks=ranks,
        precision=full_precision(),
        before=before,
        overlap=True,
        meets=True,
    )


def test_who_is_missing_in_a_backward_pass_that_sums_is_named():
    with pytest.raises(AssertionError) as both:
        run_on_ranks(2, fails_in_the_last_pass)
    rank0, rank1 = str(both.value).split("\nrank 1: ")
    assert "RankLost: rank 1 (host " in rank0
    assert "ended: ZeroDivisionError: of the user's own" in rank0
    assert "RankLost" not in rank1


def test_a_host_whose_name_leads_to_itself_is_told_what_to_set():
    """Debian's /etc/hosts; what gloo says is from two hosts made with tools/two_namespaces.py."""
    error = RuntimeError("timed out connecting: SO_ERROR: Connection refused, remote=[127.0.1.1]:1933$0")
    apart = Place(rank=0, size=2, local=0, local_size=1)
    assert "GLOO_SOCKET_IFNAME" in distributed._why_apart(error, apart)
    assert "GLOO_SOCKET_IFNAME" not in distributed._why_apart(error, replace(apart, local_size=2))
