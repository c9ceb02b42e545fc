"""Boxes hug what they name, whatever is done to the picture; the planted faults of trainers move them."""

from __future__ import annotations

import math
from dataclasses import replace

import cv2
import numpy as np
import pytest

from visiontrain.config.groups import AugmentConfig
from visiontrain.config.image_size import ImageSize
from visiontrain.config.pipeline import Pipeline
from visiontrain.data.augment import AUGMENTATIONS
from visiontrain.data.augment.affine import move_boxes
from visiontrain.data.augment.colour import colour_matrix
from visiontrain.data.augment.draft import Context, Draft, Tile
from visiontrain.data.augment.flip import mirror
from visiontrain.data.augment.paint import paint
from visiontrain.data.dataset import EvalSet, TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.data.pixels import Pixels

PLAIN = AugmentConfig(
    hsv_h=0, hsv_s=0, hsv_v=0, degrees=0, translate=0, scale=0, shear=0, perspective=0, flipud=0, fliplr=0, mosaic=0,
    mixup=0, close_mosaic=0, albumentations=Pipeline("none"),
)  # fmt: skip
# Odd and even sides, wide and high, larger and smaller than the samples, JPEG (decoded in part) and PNG.
PICTURES = [(240, 320, "jpg"), (151, 227, "jpg"), (233, 97, "png"), (350, 450, "png"), (601, 803, "jpg")]
MIDDLE = 150  # between the ground (40) and the rectangle (255); the grey around pictures (114) is below


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Dark pictures, each with one white rectangle and its label."""
    root = tmp_path_factory.mktemp("rectangles")
    for kind in ("images", "labels"):
        (root / kind).mkdir()
    rng = np.random.default_rng(5)
    for number, (height, width, ending) in enumerate(PICTURES):
        picture = np.full((height, width, 3), 40, np.uint8)
        x0, y0 = rng.integers(width // 5, width // 3), rng.integers(height // 5, height // 3)
        x1, y1 = rng.integers(width // 2, width * 4 // 5), rng.integers(height // 2, height * 4 // 5)
        picture[y0:y1, x0:x1] = 255
        cv2.imwrite(str(root / f"images/{number}.{ending}"), picture, [cv2.IMWRITE_JPEG_QUALITY, 98])
        row = ((x0 + x1) / 2 / width, (y0 + y1) / 2 / height, (x1 - x0) / width, (y1 - y0) / height)
        (root / f"labels/{number}.txt").write_text("0 " + " ".join(f"{v:.9f}" for v in row))
    (root / "data.yaml").write_text("train: images\nnames: [thing]\n")
    return read_split(load_description(root / "data.yaml"), "train")


def errors(image, boxes, reach=6):
    """(K, 4): how far each edge of what is bright in and just around a box lies from the box's edge."""
    found = []
    bright = image.min(axis=2) > MIDDLE
    for x0, y0, x1, y1 in boxes:
        left, top = max(int(x0) - reach, 0), max(int(y0) - reach, 0)
        part = bright[top : int(y1) + reach + 1, left : int(x1) + reach + 1]
        rows, columns = np.flatnonzero(part.any(axis=1)), np.flatnonzero(part.any(axis=0))
        assert rows.size, "nothing bright in a box"
        seen = (left + columns[0], top + rows[0], left + columns[-1] + 1, top + rows[-1] + 1)
        found.append(np.array(seen) - (x0, y0, x1, y1))
    return np.array(found).reshape(-1, 4)


def draws(index, settings, size=160, count=60):
    samples = TrainSet(index, size, settings, seed=3, epochs=100)
    return [samples[epoch, position] for epoch in range(count // len(index)) for position in range(len(index))]


def whole(sample):
    """The boxes that no border cuts: the box around a turned and then cut thing is wider than what is left of it."""
    side = sample.image.shape[0]
    return sample.boxes[(sample.boxes > 0).all(axis=1) & (sample.boxes < side).all(axis=1)]


CASES = {
    "letterbox": ({}, 1.01),
    "scale and shift": ({"scale": 0.6, "translate": 0.3}, 1.2),
    "flips": ({"flipud": 0.5, "fliplr": 0.5}, 1.01),
    "mosaic": ({"mosaic": 1}, 1.2),
    "mosaic, defaults": ({"mosaic": 1, "scale": 0.5, "translate": 0.1, "fliplr": 0.5}, 1.3),
    "rotation": ({"degrees": 45}, 2.0),
    "mosaic, rotation and shear": ({"mosaic": 1, "degrees": 20, "shear": 8, "scale": 0.5, "translate": 0.1}, 2.5),
    "perspective": ({"perspective": 0.0008, "translate": 0.1}, 2.5),
    "mosaic and perspective": ({"mosaic": 1, "perspective": 0.0004, "degrees": 5}, 2.5),
}


@pytest.mark.parametrize("case", CASES)
def test_boxes_hug_what_they_name(index, case):
    settings, most = CASES[case]
    samples = draws(index, replace(PLAIN, **settings))
    turned = {"degrees", "shear", "perspective"} & settings.keys()
    off = np.concatenate([errors(each.image, whole(each) if turned else each.boxes) for each in samples])
    assert len(off) > 20
    assert np.abs(off).max() < most
    # Half a pixel of a wrong convention would show in the mean of the middles, whatever rounding does to one edge.
    middles = (off[:, :2] + off[:, 2:]) / 2
    assert np.abs(middles.mean(axis=0)).max() < 0.12


@pytest.mark.parametrize("size", [96, 160, 320, 1000])
def test_evaluation_boxes_hug_and_return_to_the_original(index, size):
    samples = EvalSet(index, size)
    for i in range(len(samples)):
        sample = samples[i]
        height, width = sample.image.shape[:2]
        assert height % 32 == width % 32 == 0 and 32 <= max(height, width) - size < 64
        assert np.abs(errors(sample.image, sample.boxes)).max() < 1.01
        back = (sample.boxes - np.tile(sample.pad, 2)) / np.tile(sample.scale, 2)
        np.testing.assert_allclose(back, index.pixel_boxes(sample.position), atol=1e-3)
        assert sample.original == index.size(sample.position)


def test_every_box_of_a_mosaic_lies_inside_and_has_a_size(index):
    settings = replace(PLAIN, mosaic=1, scale=0.9, translate=0.5, degrees=30, shear=10)
    for sample in draws(index, settings, size=96, count=150):
        assert sample.image.shape == (96, 96, 3) and sample.image.dtype == np.uint8
        assert (sample.boxes >= 0).all() and (sample.boxes <= 96).all()
        assert (sample.boxes[:, 2:] - sample.boxes[:, :2] > 2).all()
        assert len(sample.boxes) == len(sample.classes)


def test_tiles_leave_no_seam(tmp_path):
    """White pictures make a mosaic that is white wherever the canvas is covered: no grey line between tiles."""
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
    for number in range(4):
        cv2.imwrite(str(tmp_path / f"images/{number}.png"), np.full((200, 200, 3), 255, np.uint8))
        (tmp_path / f"labels/{number}.txt").write_text("0 0.5 0.5 1 1")
    (tmp_path / "d.yaml").write_text("train: images\nnames: [a]\n")
    white = read_split(load_description(tmp_path / "d.yaml"), "train")
    for settings in (replace(PLAIN, mosaic=1), replace(PLAIN, mosaic=1, degrees=10)):
        for sample in draws(white, settings, size=160, count=40):
            # The canvas is covered half a side around its centre; the inner part of the output always shows that.
            assert sample.image[60:100, 60:100].min() == 255


def test_a_box_is_dropped_when_little_of_it_is_left():
    boxes = np.array([[0.0, 0, 100, 100], [-95, 0, 5, 100], [10, 10, 11, 60], [0, 0, 90, 50], [0, 40, 100, 40]]) / 100
    forward = np.repeat(np.diag((100.0, 100, 1)).reshape(9, 1), len(boxes), axis=1)
    kept_boxes, kept = move_boxes(boxes.T.reshape(2, 2, -1), forward, (100, 100))
    # The second shows 5 % of itself, the third is 1 px wide, the last has no height.
    assert kept.tolist() == [True, False, False, True, False]
    np.testing.assert_allclose(kept_boxes[0], [0, 0, 100, 100])


def test_the_distribution_of_scales_and_shifts_is_the_fields(index):
    """Area of a box against the letterbox's: uniform(1 - scale, 1 + scale); its middle moves by translate."""
    samples = TrainSet(index, 200, replace(PLAIN, scale=0.4, translate=0.2), seed=0, epochs=1000)
    still = TrainSet(index, 200, PLAIN, seed=0, epochs=1000)
    scales = []
    for epoch in range(25):
        for position in range(len(index)):
            moved, plain = samples[epoch, position].boxes, still[epoch, position].boxes
            if len(moved) and moved.min() > 0 and moved.max() < 200:
                scales.append((moved[0, 2] - moved[0, 0]) / (plain[0, 2] - plain[0, 0]))
    assert 0.59 < min(scales) < 0.7 and 1.25 < max(scales) < 1.41
    assert abs(np.mean(scales) - 1) < 0.08


def test_mixup_adds_the_boxes_of_both(index):
    plain, mixed = draws(index, PLAIN, count=10), draws(index, replace(PLAIN, mixup=1), count=10)
    assert [len(two.boxes) for two in mixed] == [2 * len(one.boxes) for one in plain]
    different = [not np.array_equal(one.image, two.image) for one, two in zip(plain, mixed, strict=True)]
    assert sum(different) >= 6  # now and then a picture is mixed with itself


def colours(pixels, *factors):
    return cv2.transform(np.array([pixels], np.uint8), colour_matrix(*factors))[0]


def test_colour_saturates_and_keeps_grey():
    ramp = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
    brighter = colours(ramp, 0.0, 1.7, 1.4)
    assert (np.diff(brighter[:, 0].astype(int)) >= 0).all()  # nothing wraps to black
    assert (brighter[200:] == 255).all()
    np.testing.assert_array_equal(colours(ramp, 0.05, 0.3, 1.0), ramp)  # grey has neither hue nor saturation
    picture = np.random.default_rng(0).integers(0, 256, (500, 3), dtype=np.uint8)
    np.testing.assert_array_equal(colours(picture, 0.0, 1.0, 1.0), picture)


@pytest.mark.parametrize(
    ("name", "channel", "factors"), [("h", 0, (0.045, 1, 1)), ("s", 1, (0, 0.6, 1)), ("v", 2, (0, 1, 1.2))]
)
def test_each_factor_does_to_a_picture_what_its_name_says(name, channel, factors):
    """Against OpenCV's HSV: hue turns by that angle, saturation and value are multiplied, the others hardly move."""
    muted = np.random.default_rng(0).integers(70, 170, (2000, 3), dtype=np.uint8)
    hsv = [cv2.cvtColor(each[None], cv2.COLOR_RGB2HSV)[0].astype(float) for each in (muted, colours(muted, *factors))]
    clear = (hsv[0][:, 1] > 60) & (abs(hsv[0][:, 0] - 90) < 80)  # hue means little near grey, and wraps near red
    before, after = (each[clear] for each in hsv)
    change = np.array(((after - before)[:, 0].mean(), *(after / before)[:, 1:].mean(axis=0)))
    expected = np.array((math.degrees(factors[0]) / 2, factors[1], factors[2]))  # OpenCV keeps half degrees
    assert abs(change - expected).max() < 0.35 if name == "h" else abs(change - expected)[1:].max() < 0.08
    assert abs(change - expected)[channel] < (0.2 if name == "h" else 0.06)


def test_pictures_vary_in_colour_as_with_two_conversions_to_hsv(shared):
    """With the default strengths, on COCO: saturation and value of a picture change by about what HSV factors give."""
    rng, settings, means = np.random.default_rng(0), AugmentConfig(), []
    for path in sorted((shared / "data/coco128/images").rglob("*.jpg"))[:48]:
        picture = cv2.resize(cv2.imread(str(path)), (80, 80), interpolation=cv2.INTER_AREA)[..., ::-1]
        hue, s, v = rng.uniform(-1, 1, 3) * (settings.hsv_h, settings.hsv_s, settings.hsv_v)
        hsv = cv2.cvtColor(picture, cv2.COLOR_RGB2HSV).astype(np.float64)
        expected = (hsv[..., 1:] * (1 + s, 1 + v)).clip(0, 255).mean(axis=(0, 1))
        ours = cv2.transform(picture, colour_matrix(hue * math.pi, 1 + s, 1 + v))
        found = cv2.cvtColor(ours, cv2.COLOR_RGB2HSV)[..., 1:].astype(np.float64).mean(axis=(0, 1))
        means.append((found - hsv[..., 1:].mean(axis=(0, 1)), expected - hsv[..., 1:].mean(axis=(0, 1))))
    found, expected = np.array(means).transpose(1, 2, 0)
    correlations = [np.corrcoef(found[k], expected[k])[0, 1] for k in (0, 1)]
    print(f"saturation {correlations[0]:.3f}, value {correlations[1]:.3f}, spread {found.std(1) / expected.std(1)}")
    assert min(correlations) > 0.95 and (abs(found.std(1) / expected.std(1) - (0.8, 1)) < 0.1).all()


def test_two_flips_are_none():
    rng = np.random.default_rng(0)
    image, boxes = rng.integers(0, 255, (40, 60, 3), np.uint8), np.array([[3.0, 4, 20, 30]])
    draft = Draft(0, image=image, boxes=boxes, classes=np.zeros(1, np.int64))
    context = Context(rng, replace(PLAIN, flipud=1, fliplr=1), ImageSize(40, 60), None, lambda: 0)
    once = mirror(draft, context)
    np.testing.assert_array_equal(once.image, image[::-1, ::-1])
    np.testing.assert_allclose(once.boxes, [[40, 10, 57, 36]])
    np.testing.assert_allclose(mirror(once, context).boxes, boxes)


def test_a_strong_reduction_does_not_alias(tmp_path):
    """Lines one pixel wide come out as their mean, not as a pattern."""
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
    lines = np.zeros((1000, 1000, 3), np.uint8)
    lines[:, ::2] = 255
    cv2.imwrite(str(tmp_path / "images/a.png"), lines)
    (tmp_path / "labels/a.txt").write_text("0 0.5 0.5 0.5 0.5")
    (tmp_path / "d.yaml").write_text("train: images\nnames: [a]\n")
    index = read_split(load_description(tmp_path / "d.yaml"), "train")
    for settings in (PLAIN, replace(PLAIN, degrees=3)):
        inner = draws(index, settings, size=170, count=1)[0].image[40:130, 40:130]
        assert inner.std() < 20


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_every_augmentation_is_a_function_of_its_random_numbers(index, name):
    settings = AugmentConfig(mixup=1.0, degrees=5, flipud=0.5)

    def until(seed):
        context = Context(
            np.random.default_rng(seed), settings, ImageSize(128, 128), Pixels(index, (128, 128)), lambda: 1
        )
        draft = Draft(0)
        names = list(AUGMENTATIONS)
        for step in names[: names.index(name) + 1]:
            draft = AUGMENTATIONS[step](draft, context)
        return draft

    one, same = until(1), until(1)
    assert one.tiles == same.tiles
    np.testing.assert_array_equal(one.image, same.image)
    np.testing.assert_array_equal(one.boxes, same.boxes)
    assert one.tiles != until(2).tiles


def test_a_mirrored_picture_in_perspective_is_painted(index):
    """Two shears above 45 degrees mirror, which changes the sign of the determinant and not what lies before the eye."""
    mirrored = np.array(((-0.9, 0, 150), (0, 0.9, 5), (2e-4, 1e-4, 1)))
    for matrix in (mirrored, mirrored[:, (1, 0, 2)]):
        output = np.full((160, 160, 3), 114, np.uint8)
        tile = Tile(0, 0.0, 0.0, 160.0, 160.0)
        paint(output, tile, (0.0, 0.0, 1.0, 1.0), tuple(matrix.ravel()), Pixels(index, (160, 160)))
        assert (output != 114).any(axis=2).mean() > 0.5
