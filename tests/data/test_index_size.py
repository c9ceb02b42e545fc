"""The size of an index, told before it is read, is the size of the index that is read."""

from __future__ import annotations

from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.data.index_size import index_bytes


def test_it_is_that_of_a_real_index(tiny):
    index = read_split(load_description(tiny), "train")
    columns = (index.path_bytes, index.path_ends, index.sizes, index.box_ends, index.all_boxes, index.all_classes)
    paths = sum(len(index.path(i)) for i in range(len(index)))
    assert index.targets > 0
    assert sum(column.nbytes for column in columns) == index_bytes(len(index), index.targets, paths)
