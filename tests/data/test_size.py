"""Samples that are not square: boxes hug what they name, everything stays inside; square ones are drawn as ever."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest

from visiontrain.config.groups import AugmentConfig
from visiontrain.config.image_size import ImageSize, image_size
from visiontrain.config.pipeline import Pipeline
from visiontrain.data.dataset import EvalSet, TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split

STILL = AugmentConfig(
    hsv_h=0, hsv_s=0, hsv_v=0, translate=0, scale=0, fliplr=0, mosaic=0, close_mosaic=0, albumentations=Pipeline("none")
)
PICTURES = [(240, 320), (151, 227), (233, 97), (350, 450)]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Dark pictures with one white rectangle each."""
    root = tmp_path_factory.mktemp("oblong")
    for kind in ("images", "labels"):
        (root / kind).mkdir()
    for number, (height, width) in enumerate(PICTURES):
        picture = np.full((height, width, 3), 40, np.uint8)
        x0, y0, x1, y1 = width // 4, height // 5, width * 3 // 4, height * 2 // 3
        picture[y0:y1, x0:x1] = 255
        cv2.imwrite(str(root / f"images/{number}.png"), picture)
        row = ((x0 + x1) / 2 / width, (y0 + y1) / 2 / height, (x1 - x0) / width, (y1 - y0) / height)
        (root / f"labels/{number}.txt").write_text("0 " + " ".join(f"{v:.9f}" for v in row))
    (root / "data.yaml").write_text("train: images\nnames: [thing]\n")
    return read_split(load_description(root / "data.yaml"), "train")


def off(image, box):
    """How far each edge of what is bright in and around a box lies from the box's edge."""
    x0, y0, x1, y1 = box
    left, top = max(int(x0) - 6, 0), max(int(y0) - 6, 0)
    part = image.min(axis=2)[top : int(y1) + 7, left : int(x1) + 7] > 150
    rows, columns = np.flatnonzero(part.any(axis=1)), np.flatnonzero(part.any(axis=0))
    return np.array((left + columns[0], top + rows[0], left + columns[-1] + 1, top + rows[-1] + 1)) - box


@pytest.mark.parametrize("size", [(96, 160), (192, 96)])
@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({}, 1.01),
        ({"flipud": 0.5, "fliplr": 0.5, "scale": 0.3, "translate": 0.2}, 1.2),
        ({"mosaic": 1, "scale": 0.3, "translate": 0.1}, 1.2),
        ({"mosaic": 1, "degrees": 30, "shear": 5}, 2.5),
        ({"mosaic": 1, "perspective": 0.0004}, 2.5),
    ],
)
def test_boxes_hug_what_they_name(index, size, settings, most):
    samples = TrainSet(index, size, replace(STILL, **settings), seed=2, epochs=100)
    found = []
    for epoch in range(8):
        for position in range(len(index)):
            sample = samples[epoch, position]
            assert sample.image.shape == (*size, 3)
            edges = np.array(size[::-1] * 2)
            assert (sample.boxes >= 0).all() and (sample.boxes <= edges).all()
            whole = (sample.boxes > 0).all(axis=1) & (sample.boxes < edges).all(axis=1)
            found += [off(sample.image, box) for box in sample.boxes[whole if "mosaic" in settings else slice(None)]]
    assert len(found) > 10 and np.abs(found).max() < most


def test_a_picture_fills_the_sample_one_way(index):
    sample = TrainSet(index, (96, 192), STILL, seed=0, epochs=1)
    for position in range(len(index)):
        height, width = sample[0, position].original
        seen = (sample[0, position].image != 114).any(axis=2)
        rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
        gain = min(96 / height, 192 / width)
        sides = (rows[-1] + 1 - rows[0], columns[-1] + 1 - columns[0])
        np.testing.assert_allclose(sides, (height * gain, width * gain), atol=1)


@pytest.mark.parametrize("size", [(96, 160), (256, 128)])
def test_evaluation_fits_pictures_into_height_and_width(index, size):
    samples = EvalSet(index, size)
    for i in range(len(samples)):
        sample = samples[i]
        height, width = sample.image.shape[:2]
        assert height % 32 == width % 32 == 0
        assert height < size[0] + 64 and width < size[1] + 64  # the grey margin
        inner = np.array(sample.original) * sample.scale[::-1]
        assert (inner <= np.array(size) + 1).all() and (np.abs(inner - size) < 1).any()
        back = (sample.boxes - np.tile(sample.pad, 2)) / np.tile(sample.scale, 2)
        np.testing.assert_allclose(back, index.pixel_boxes(sample.position), atol=1e-3)


def test_a_size_is_one_number_or_two():
    assert str(ImageSize(64, 64)) == "64" and ImageSize(64, 64).written == 64
    assert str(ImageSize(64, 96)) == "64,96" and ImageSize(64, 96).written == [64, 96]
    assert image_size(64) == ImageSize(64, 64) and image_size([64, 96]) == ImageSize(64, 96)
    assert ImageSize(384, 640).shrunk(0.75) == (288, 480) and ImageSize(32, 96).shrunk(0.5) == (32, 32)
