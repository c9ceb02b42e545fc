"""One reading for all ranks; on one host one copy in memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ranks import run_on_ranks

from visiontrain.data.description import load_description
from visiontrain.data.index import open_index, read_split
from visiontrain.data.shared import read_for_all
from visiontrain.distributed import ALONE


def look(ranks, data: str, cache: str, elsewhere: str) -> tuple:
    """``elsewhere``: the ranks besides the first see another cache, as on another host."""
    os.environ["VISIONTRAIN_CACHE"] = cache
    reads = []

    def read():
        reads.append(ranks.rank)
        description = load_description(data)
        found = [open_index(description, split) for split in ("train", "val")]
        if elsewhere:
            for index in found:
                index.place[0].rename(f"{index.place[0]}.there")
        return found

    train, val = read_for_all(ranks, read)
    maps = Path("/proc/self/maps").read_text()
    rows = [train.boxes(i).tolist() for i in range(len(train))]
    return reads, train.fingerprint, val.fingerprint, rows, f"{cache}/index" in maps, len(train.findings)


@pytest.mark.parametrize("elsewhere", ["", "there"])
def test_every_rank_has_the_index_that_the_first_read(tiny, tmp_path, elsewhere):
    first, second = run_on_ranks(2, look, str(tiny), str(tmp_path), elsewhere)
    fresh = read_split(load_description(tiny), "train")
    assert first[0] == [0] and second[0] == []
    assert first[1:4] == second[1:4] == (fresh.fingerprint, first[2], [fresh.boxes(i).tolist() for i in range(13)])
    assert first[4] and second[4] == (not elsewhere) and first[5] == second[5]


def in_memory(ranks, data: str) -> str:
    (index,) = read_for_all(ranks, lambda: [read_split(load_description(data), "train")])
    return index.fingerprint


def test_without_a_cache_ranks_are_sent_the_columns(tiny):
    assert len(set(run_on_ranks(2, in_memory, str(tiny)))) == 1


def test_alone_nothing_is_sent(tiny):
    index = read_split(load_description(tiny), "train")
    assert read_for_all(ALONE, lambda: [index])[0] is index
