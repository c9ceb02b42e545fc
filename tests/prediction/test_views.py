"""Several views of one picture: they cover it, their boxes come back to where they were, and no object counts twice."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from visiontrain.config.image_size import ImageSize
from visiontrain.prediction.merging import fuse, join
from visiontrain.prediction.views import Views, starts


def part(*rows: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of rows x1 y1 x2 y2 score class."""
    values = np.array(rows, float).reshape(-1, 6)
    return values[:, :4], values[:, 4], values[:, 5].astype(int)


@pytest.mark.parametrize(
    ("length", "tile", "overlap"), [(100, 100, 0.2), (101, 100, 0.2), (1000, 64, 0.5), (333, 70, 0)]
)
def test_tiles_cover_a_side_and_overlap(length, tile, overlap):
    at = starts(length, tile, overlap)
    assert at[0] == 0 and at[-1] == max(length - tile, 0)
    assert all(b - a <= tile * (1 - overlap) + 1 for a, b in pairwise(at))


@pytest.mark.parametrize("looks", [Views(ImageSize(64, 64), augment=True), Views(ImageSize(64, 64), tile=48)])
def test_what_a_view_shows_of_an_object_is_mapped_back_to_it(looks):
    image = np.zeros((100, 150, 3), np.uint8)
    image[60:68, 90:99] = 255
    seen = 0
    views = list(looks.of(image))
    assert len(views) == (3 if looks.augment else 1 + 3 * 4)
    for view in views:
        sample = view.sample
        ys, xs = np.nonzero(sample.image[..., 0] > 127)
        if not len(xs):
            continue
        edges = np.array([[xs.min(), ys.min()], [xs.max() + 1, ys.max() + 1]])
        box = ((edges - sample.pad) / sample.scale).reshape(1, 4)
        if view.whole(box)[0]:
            seen += 1
            assert np.allclose(view.in_picture(box), [[90, 60, 99, 68]], atol=2 / min(sample.scale))
    assert (seen == 3) if looks.augment else (seen >= 2)


def test_a_box_that_an_inner_border_cuts_is_not_whole():
    views = list(Views(ImageSize(64, 64), tile=50, overlap=0).of(np.zeros((50, 100, 3), np.uint8)))
    boxes = np.array([[0.0, 0, 20, 50], [20, 10, 49, 20], [10, 10, 40, 40]])
    assert [view.tile for view in views] == [False, True, True]
    assert [view.whole(boxes).tolist() for view in views] == [[True] * 3, [True, False, True], [False, True, True]]


def test_fusing_is_a_mean_weighted_by_score_over_all_views():
    views = [part((0, 0, 10, 10, 0.8, 0), (50, 50, 60, 60, 0.6, 1)), part((0, 0, 12, 10, 0.4, 0)), part()]
    boxes, scores, classes = fuse(views, iou=0.7)
    assert scores.tolist() == pytest.approx([0.4, 0.2]) and classes.tolist() == [0, 1]
    assert boxes[0].tolist() == pytest.approx([0, 0, (10 * 0.8 + 12 * 0.4) / 1.2, 10])
    assert len(fuse([part(), part()], iou=0.7)[1]) == 0


def test_fusing_keeps_classes_apart_unless_told_and_counts_a_view_once():
    views = [part((0, 0, 10, 10, 0.9, 0), (0, 0, 10, 10, 0.8, 0)), part((0, 0, 10, 10, 0.6, 1))]
    assert fuse(views, iou=0.5)[1].tolist() == pytest.approx([0.45, 0.3])
    assert fuse(views, iou=0.5, agnostic=True)[1].tolist() == pytest.approx([0.75])


def test_joining_keeps_the_surest():
    views = [part((0, 0, 10, 10, 0.5, 0)), part((0, 0, 10, 11, 0.9, 0), (30, 0, 40, 10, 0.3, 0)), part()]
    boxes, scores, _ = join(views, iou=0.5, agnostic=False)
    assert scores.tolist() == pytest.approx([0.9, 0.3]) and boxes[0].tolist() == [0, 0, 10, 11]
    assert len(join([part(), part()], iou=0.5, agnostic=False)[1]) == 0
