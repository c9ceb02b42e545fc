"""Where the ranks of a run find each other, and how they tell this meeting from one that was there before."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from uuid import uuid4

import torch.distributed as dist

from visiontrain.errors import RankLost
from visiontrain.place import Place


def meeting_place(here: Place, timeout: timedelta) -> dist.Store:
    """The elastic launcher's store, which outlives a rank, where there is one; else rank 0 keeps it."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        store, _, _ = next(iter(dist.rendezvous("env://", timeout=timeout)))
        return store
    return dist.TCPStore(here.address, here.port, here.size, here.rank == 0, timeout)


def appointment(store: dist.Store, here: Place, timeout: float) -> str:
    """A name that all ranks of this meeting know and none before had: a launcher's store still holds what ranks of an earlier
    attempt put there, their addresses for one.

    Rank 0 makes it. An open one that is never closed was made by a rank 0 that is gone; the others change to the next.
    """
    end, said = time.monotonic() + timeout, ""
    if here.rank == 0:
        said = uuid4().hex
        store.set("open", said)
        while not store.check([f"{said}/{rank}" for rank in range(1, here.size)]):
            if time.monotonic() > end:
                missing = [rank for rank in range(1, here.size) if not store.check([f"{said}/{rank}"])]
                raise RankLost(f"rank {', '.join(map(str, missing))} did not come")
            time.sleep(0.02)
        store.set("open", "")
        store.set(f"{said}/closed", "")
        return said
    while not (said and store.check([f"{said}/closed"])):
        name = store.get("open").decode()
        if name and name != said:
            said = name
            store.set(f"{said}/{here.rank}", "")
        if time.monotonic() > end:
            raise RankLost("rank 0 did not come")
        time.sleep(0.02)
    return said
