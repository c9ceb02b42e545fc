"""The device of a rank, and how ranks find each other in a store that is not new."""

from __future__ import annotations

import threading
import time

import pytest
import torch
import torch.distributed as dist

from visiontrain.distributed import choose_device
from visiontrain.errors import ConfigError, RankLost
from visiontrain.meeting import appointment
from visiontrain.place import Place


def here(local, local_size, bound=False):
    return Place(local, local_size, local, local_size, "a", 1, bound)


@pytest.mark.parametrize(
    ("name", "where", "cards", "device"),
    [
        ("auto", Place(), 0, "cpu"),
        ("auto", Place(), 2, "cuda:0"),
        ("1", Place(), 2, "cuda:1"),
        ("cuda:1", Place(), 2, "cuda:1"),
        ("cuda", Place(), 2, "cuda:0"),
        ("cpu", Place(), 2, "cpu"),
        ("auto", here(1, 2), 2, "cuda:1"),
        ("auto", here(1, 2), 0, "cpu"),
        ("cuda", here(1, 2), 4, "cuda:1"),
        ("auto", here(1, 2, bound=True), 1, "cuda:0"),  # Slurm shows each task its own card alone
        ("auto", here(1, 2, bound=True), 2, "cuda:1"),
        ("0", here(1, 2, bound=True), 1, "cuda:0"),
        ("2,3", here(1, 2), 4, "cuda:3"),
        ("cpu,cpu", here(1, 2), 4, "cpu"),
        ("cpu", here(1, 2), 4, "cpu"),
    ],
)
def test_each_rank_has_its_device(name, where, cards, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cards > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    assert choose_device(name, where) == torch.device(device)


@pytest.mark.parametrize(
    ("name", "where", "cards", "said"),
    [
        ("2", Place(), 2, "cuda:0 to cuda:1 are there"),
        ("cuda", Place(), 0, "torch sees no CUDA device"),
        ("auto", here(2, 3), 2, "cuda:0 to cuda:1 are there"),
        ("0,1,2", here(0, 2), 4, "3 devices for 2 ranks on this host"),
        ("0,5", here(1, 2), 2, "cuda:0 to cuda:1 are there"),
        ("0", here(1, 2), 2, "one device for 2 ranks on this host"),
    ],
)
def test_a_device_that_cannot_be_is_named(name, where, cards, said, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cards > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    with pytest.raises(ConfigError, match=said):
        choose_device(name, where)


def meet(store, size, timeout=30):
    """What each rank calls the meeting, or the error that it got."""
    names = [None] * size

    def come(rank):
        try:
            names[rank] = appointment(store.clone(), here(rank, size), timeout)
        except RankLost as error:
            names[rank] = error

    threads = [threading.Thread(target=come, args=(rank,)) for rank in reversed(range(size))]
    for thread in threads:
        thread.start()
        time.sleep(0.05)  # rank 0 comes last: the others find what lies there from before
    for thread in threads:
        thread.join(timeout)
    return names


@pytest.fixture
def store():
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def test_every_meeting_has_a_name_of_its_own(store):
    first, second = meet(store, 3), meet(store, 3)
    assert len(set(first)) == len(set(second)) == 1 and first[0] != second[0]


def test_a_meeting_that_rank_0_left_half_way_is_not_joined(store):
    alone = _try(lambda: appointment(store.clone(), here(0, 3), 0.1))
    assert "rank 1, 2 did not come" in str(alone)
    names = meet(store, 3)
    assert len(set(names)) == 1 and isinstance(names[0], str)


def test_who_waits_for_rank_0_in_vain_says_so(store):
    _try(lambda: appointment(store.clone(), here(0, 2), 0.1))
    assert "rank 0 did not come" in str(_try(lambda: appointment(store.clone(), here(1, 2), 0.2)))


def _try(call):
    with pytest.raises(RankLost) as caught:
        call()
    return caught.value
