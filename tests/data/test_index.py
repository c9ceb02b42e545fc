"""MEM-01: what workers share must not grow: a hundred thousand pictures are a few flat arrays, mapped by all of them."""

from __future__ import annotations

import multiprocessing
import os
import tracemalloc
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from visiontrain.config.groups import AugmentConfig
from visiontrain.data import kept
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import Index, mapped, open_index, read_split

N = 100_000
MIB = 2**20


def large_index() -> Index:
    path = b"/data/images/train/000000000000.jpg"
    return Index(
        path_bytes=np.frombuffer(path * N, np.uint8),
        path_ends=np.arange(1, N + 1) * len(path),
        sizes=np.full((N, 2), 480, np.int32),
        box_ends=np.arange(1, N + 1) * 3,
        all_boxes=np.full((3 * N, 4), 0.5, np.float32),
        all_classes=np.zeros(3 * N, np.int32),
        names=("thing",),
        findings=[],
        fingerprint="",
    )


def test_a_hundred_thousand_pictures_are_flat_arrays():
    index = large_index()
    others = ("names", "findings", "fingerprint", "split", "told", "not_kept")
    per_picture = [f.name for f in fields(Index) if f.init and f.name not in others]
    columns = [getattr(index, name) for name in per_picture]
    assert all(isinstance(column, np.ndarray) and column.dtype != object for column in columns)
    assert sum(column.nbytes for column in columns) <= 200 * N


def test_reading_the_index_leaves_nothing_behind():
    index = large_index()

    def read() -> None:
        for i in range(0, N, 10):
            index.path(i), index.boxes(i), index.classes(i), index.size(i)

    read()
    tracemalloc.start()
    try:
        read()
        first = tracemalloc.get_traced_memory()[0]
        read()
        grown = tracemalloc.get_traced_memory()[0] - first
    finally:
        tracemalloc.stop()
    assert grown < 10_000


def own(process: str = "self") -> int:
    """Bytes that a process has written to since it was forked, and shares with nobody."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("Private_Dirty:"))) * 1024


def _walk(look, results) -> None:
    look(0)
    before = own()
    for _ in range(2):
        for i in range(0, N, 2):
            look(i)
    results.put(own() - before)


def grown(look) -> int:
    """Bytes by which a forked worker grows that looks at half of the pictures, twice."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    process = context.Process(target=_walk, args=(look, results))
    process.start()
    found = results.get(timeout=240)
    process.join(60)
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's account of memory")
def test_a_forked_worker_copies_no_page_of_the_index(user_cache):
    index = large_index()
    columns = {name: getattr(index, name) for name in ("path_bytes", "path_ends", "sizes", "box_ends")}
    columns |= {"all_boxes": index.all_boxes, "all_classes": index.all_classes}
    about = {"index": {"names": ["thing"], "fingerprint": "", "split": "train"}}
    index = mapped(kept.keep("large", {}, {}, columns, [], about))
    listed = [index.path(i) for i in range(N)]  # as trainers do it that grow until they are killed
    assert grown(lambda i: (index.path(i), index.boxes(i), index.classes(i), index.size(i))) < 2 * MIB
    assert grown(lambda i: listed[i].strip()) > 5 * MIB, "this test could not fail"


def test_samples_of_a_mapped_index_are_those_of_a_fresh_reading(tiny, user_cache):
    description = load_description(tiny)

    def samples(index: Index) -> list:
        made = TrainSet(index, 64, AugmentConfig(), seed=0, epochs=20)
        return [made[0, position] for position in range(4)]

    for ours, theirs in zip(
        samples(open_index(description, "train")), samples(read_split(description, "train")), strict=True
    ):
        assert np.array_equal(ours.image, theirs.image) and np.array_equal(ours.boxes, theirs.boxes)
    assert os.listdir(user_cache / "index")
