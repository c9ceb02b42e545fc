"""The embedded data set is the same everywhere, its labels are exact, and it is written whole or not at all."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from visiontrain.data import shapes
from visiontrain.data.description import draw_here, load_description
from visiontrain.data.index import read_split
from visiontrain.data.shapes import CLASSES, COUNTS, compose, draw, generate
from visiontrain.errors import DataError

# Of the labels alone: pixels may differ in a bit between versions of OpenCV, labels must not.
LABELS = "4c396c4b67e87547"


@pytest.fixture
def few(monkeypatch):
    """A data set of five pictures, to be quick."""
    monkeypatch.setattr(shapes, "COUNTS", {"train": 3, "val": 2})


def composed(split):
    for number in range(COUNTS[split]):
        rng = np.random.default_rng([shapes._SEED, list(COUNTS).index(split), number])
        width, height = shapes.SIDES[rng.integers(len(shapes.SIDES))]
        yield width, height, compose(rng, width, height)


def test_the_labels_are_these_on_every_machine():
    digest = hashlib.sha256()
    for split in COUNTS:
        for width, height, content in composed(split):
            for shape in content:
                digest.update(shapes._row(shape, width, height).encode())
    assert digest.hexdigest()[:16] == LABELS


def test_it_holds_what_it_should():
    pictures = list(composed("train"))
    counts = np.bincount([shape.number for *_, content in pictures for shape in content])
    assert len(counts) == len(CLASSES) and counts.min() > 0.8 * counts.mean()
    assert all(3 <= len(content) <= 8 for *_, content in pictures)
    across = [np.ptp(shape.outline, axis=0).max() for *_, content in pictures for shape in content]
    assert min(across) < 16 and max(across) > 140
    assert len({(width, height) for width, height, _ in pictures}) == len(shapes.SIDES)


def test_boxes_are_tight_around_what_is_drawn():
    """Painted white on black, without ground, strokes and grain, each shape ends where its box does."""
    for number in range(12):
        _, content = draw("val", number)
        for shape in content:
            canvas = np.zeros((600, 600, 3), np.float32)
            outline = shape.outline + 90  # away from the border, which would cut tips
            shapes.paint_shape(np.random.default_rng(0), canvas, outline)
            lit = canvas.max(axis=2) > 1
            rows, columns = np.flatnonzero(lit.any(axis=1)), np.flatnonzero(lit.any(axis=0))
            seen = np.array((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
            assert np.abs(seen - shapes.Shape(shape.number, outline).box(600, 600)).max() < 1.6


def test_a_picture_is_drawn_alike_twice():
    (one, _), (two, _) = draw("train", 5), draw("train", 5)
    assert one.dtype == np.uint8 and np.array_equal(one, two)
    assert not np.array_equal(one, draw("train", 6)[0])


def test_the_name_draws_it_into_the_cache_once(few, user_cache):
    description = load_description("shapes")
    assert description.root == user_cache / "datasets/shapes-1" and description.names == CLASSES
    for split, count in shapes.COUNTS.items():
        index = read_split(description, split)
        assert len(index) == count and not index.findings
    before = {path: path.stat().st_mtime_ns for path in user_cache.rglob("*")}
    load_description("shapes.yaml")
    assert {path: path.stat().st_mtime_ns for path in user_cache.rglob("*")} == before


def test_several_at_once_leave_one_whole_set(few, tmp_path):
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(generate, [tmp_path / "s"] * 3))
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert len(list((tmp_path / "s").rglob("*.jpg"))) == 5


def test_an_incomplete_set_is_an_error_that_says_what_to_do(few, tmp_path):
    generate(tmp_path / "s")
    (tmp_path / "s/images/train/0001.jpg").unlink()
    with pytest.raises(DataError, match="2 of 3 train pictures are there; remove this folder"):
        generate(tmp_path / "s")


def test_a_cache_that_cannot_be_written_is_named(few, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="set VISIONTRAIN_CACHE"):
        generate(tmp_path / "file/s")


def test_on_hosts_without_rank_0_it_is_drawn_too_and_no_description_is_needed(few, user_cache):
    draw_here("/on/the/host/of/rank/0.yaml")
    assert not user_cache.exists()
    draw_here("shapes")
    assert len(list(user_cache.rglob("*.jpg"))) == 5
