"""Boxes of turned things hug what is seen of them, also where the border cuts them (AUG-01, AUG-02, AUG-10 of public reports)."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest

from visiontrain.config.groups import AugmentConfig
from visiontrain.config.pipeline import Pipeline
from visiontrain.data.augment.extent import visible_extents
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split

SIZE = (40, 60)


def by_points(quad):
    """The extent by trying a fine grid of points of the picture."""
    y, x = np.mgrid[0 : SIZE[0] : 121j, 0 : SIZE[1] : 181j]
    step = np.roll(quad, -1, axis=0) - quad
    turn = [sx * (y - py) - sy * (x - px) for (sx, sy), (px, py) in zip(step, quad, strict=True)]
    inside = np.all(np.array(turn) >= 0, axis=0) | np.all(np.array(turn) <= 0, axis=0)
    return (x[inside].min(), y[inside].min(), x[inside].max(), y[inside].max()) if inside.any() else np.zeros(4)


def test_extents_are_those_of_the_points_that_are_in_both():
    rng = np.random.default_rng(1)
    angles = rng.uniform(0, 2 * np.pi, 60)
    quads = []
    for angle, (x, y) in zip(angles, rng.uniform((-20, -20), (80, 60), (60, 2)), strict=True):
        turn = np.array(((np.cos(angle), -np.sin(angle)), (np.sin(angle), np.cos(angle))))
        half = np.array(((-1, -1), (1, -1), (1, 1), (-1, 1))) * rng.uniform(4, 40, 2)
        quads.append(half @ turn.T + (x, y))
    quads = np.array(quads)
    found = visible_extents(quads, SIZE)
    for quad, extent in zip(quads, found, strict=True):
        np.testing.assert_allclose(extent, by_points(quad), atol=0.6)
    assert (found == 0).all(axis=1).any() and (found == (0, 0, 60, 40)).all(axis=1).any()  # none and all of it
    np.testing.assert_allclose(visible_extents(quads[:, ::-1], SIZE), found)  # the other way around
    assert visible_extents(quads[:0], SIZE).shape == (0, 4)


def test_a_box_along_the_axes_is_clipped():
    quad = np.array([[(-5.0, 10), (20, 10), (20, 70), (-5, 70)]])
    np.testing.assert_allclose(visible_extents(quad, SIZE), [[0, 10, 20, 40]])


@pytest.fixture(scope="module")
def squares(tmp_path_factory):
    """A white square in the middle of dark pictures."""
    root = tmp_path_factory.mktemp("squares")
    for kind in ("images", "labels"):
        (root / kind).mkdir()
    picture = np.full((160, 160, 3), 40, np.uint8)
    picture[50:110, 40:100] = 255
    for number in range(3):
        cv2.imwrite(str(root / f"images/{number}.png"), picture)
        (root / f"labels/{number}.txt").write_text(f"0 {70 / 160} {80 / 160} {60 / 160} {60 / 160}")
    (root / "d.yaml").write_text("train: images\nnames: [thing]\n")
    return read_split(load_description(root / "d.yaml"), "train")


@pytest.mark.parametrize("degrees", [10, 45])
def test_every_box_of_turned_mosaics_hugs_what_is_seen(squares, degrees):
    settings = AugmentConfig(
        hsv_h=0, hsv_s=0, hsv_v=0, fliplr=0, scale=0.3, degrees=degrees, albumentations=Pipeline("none")
    )
    samples = TrainSet(squares, 160, replace(settings, shear=5), seed=0, epochs=100)
    overlaps = []
    for epoch in range(18):
        for position in range(3):
            sample = samples[epoch, position]
            bright = (sample.image.min(axis=2) > 150).astype(np.uint8)
            boxes = sample.boxes
            assert (boxes >= 0).all() and (boxes <= 160).all() and (boxes[:, 2:] - boxes[:, :2] > 2).all()
            found = [row[:4] for row in cv2.connectedComponentsWithStats(bright)[2][1:]]
            seen = np.array([(x, y, x + w, y + h) for x, y, w, h in found]).reshape(-1, 4)
            sides = np.minimum(boxes[:, None, 2:], seen[:, 2:]) - np.maximum(boxes[:, None, :2], seen[:, :2])
            shared = sides.clip(0).prod(-1)
            areas = [(b[:, 2:] - b[:, :2]).prod(1) for b in (boxes, seen)]
            overlaps += (shared / (areas[0][:, None] + areas[1] - shared)).max(axis=1, initial=0).tolist()
    assert len(overlaps) > 70 and min(overlaps) > 0.8
