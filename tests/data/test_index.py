"""MEM-01: what workers share must not grow: a hundred thousand pictures are a few flat arrays."""

from __future__ import annotations

import tracemalloc
from dataclasses import fields

import numpy as np

from visiontrain.data.index import Index

N = 100_000


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
    per_picture = [f.name for f in fields(Index) if f.name not in ("names", "findings", "fingerprint", "split", "told")]
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
