"""A picture of any kind has the same pixels, the right way up, for whoever reads it: training, validation, check, predict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data.kinds import H, W, all_kinds, exif, jpeg, picture

from visiontrain.checks.data import examine
from visiontrain.config.groups import AugmentConfig
from visiontrain.config.pipeline import Pipeline
from visiontrain.data import image
from visiontrain.data.dataset import EvalSet, TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split

PLAIN = {"hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0, "translate": 0.0, "scale": 0.0, "fliplr": 0.0, "mosaic": 0.0}
PLAIN["albumentations"] = Pipeline("none")


@pytest.fixture(scope="module")
def kinds():
    return all_kinds()


@pytest.fixture(scope="module")
def data(tmp_path_factory, kinds) -> Path:
    """A data set with a picture of each kind."""
    root = tmp_path_factory.mktemp("kinds")
    for folder in ("images", "labels"):
        (root / folder).mkdir()
    for name, (ending, content, _, _) in kinds.items():
        (root / "images" / f"{name}{ending}").write_bytes(content)
        (root / "labels" / f"{name}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    (root / "data.yaml").write_text("train: images\nval: images\nnames: [thing]\n")
    return root / "data.yaml"


@pytest.fixture(scope="module")
def index(data):
    return read_split(load_description(data), "train")


def in_the_middle(sample: np.ndarray, height: int, width: int) -> np.ndarray:
    top, left = (sample.shape[0] - height) // 2, (sample.shape[1] - width) // 2
    return sample[top : top + height, left : left + width]


def test_every_kind_is_read_as_people_see_it(index, kinds):
    assert len(index) == len(kinds) and not index.findings
    for i in range(len(index)):
        name = Path(index.path(i)).stem
        _, _, wanted, tolerance = kinds[name]
        read = image.read(index.path(i))
        assert read.shape == wanted.shape and read.dtype == np.uint8 and read.flags["C_CONTIGUOUS"], name
        assert np.abs(read.astype(int) - wanted).max() <= tolerance, name


def test_the_index_has_the_size_that_is_read(index):
    for i in range(len(index)):
        assert index.size(i) == image.read(index.path(i)).shape[:2], index.path(i)


def test_training_and_validation_see_what_is_read(index):
    train = TrainSet(index, W, replace(AugmentConfig(), **PLAIN), seed=0, epochs=30)
    val = EvalSet(index, W)
    for samples, count, key in ((train, len(train), lambda i: (0, i)), (val, len(val), lambda i: i)):
        for i in range(count):
            sample = samples[key(i)]
            read = image.read(sample.path)
            assert np.array_equal(in_the_middle(sample.image, *read.shape[:2]), read), sample.path


def test_check_decodes_all_of_them(data):
    kinds_of_findings = {finding.kind for finding in examine(load_description(data), W).findings}
    assert not {kind for kind in kinds_of_findings if kind.startswith("picture_")} - {
        "picture_in_both", "picture_nearly_in_both", "picture_twice", "picture_nearly_twice",
    }  # fmt: skip


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_jpeg_that_is_decoded_at_a_fraction_lies_where_it_should(tmp_path, orientation):
    """Boxes are for the turned picture; 1/2 and 1/4 come from the decoder, also where the sides are odd."""
    for height, width in ((96, 128), (101, 131)):
        path = tmp_path / f"{height}.jpg"
        path.write_bytes(jpeg(picture(height, width), exif(orientation)))
        whole = image.read(path)
        for reduce in (2, 4, 8):
            rows, columns = (-(-side // reduce) for side in whole.shape[:2])
            padded = np.pad(
                whole, ((0, rows * reduce - whole.shape[0]), (0, columns * reduce - whole.shape[1]), (0, 0)), "edge"
            )
            means = padded.reshape(rows, reduce, columns, reduce, 3).mean((1, 3))
            read = image.read(path, reduce)
            assert read.shape == means.shape
            assert np.abs(read - means).mean() < 1.5 and np.abs(read - means).max() < 40


def test_the_kinds_differ_in_every_turn_and_order_of_colours():
    """Else the tests above could not fail."""
    one = picture().astype(int)
    others = (one[:, ::-1], one[::-1], one[::-1, ::-1], one[..., ::-1], one[..., (1, 0, 2)])
    assert all(np.abs(one - other).mean() > 20 for other in others) and one.shape[:2] == (H, W)


@pytest.mark.parametrize("reduce", [1, 2, 8])
def test_an_older_opencv_gives_the_same_order_of_colours(index, monkeypatch, reduce):
    """Newer ones decode a JPEG as RGB; others as BGR, which is turned around."""
    newer = [image.read(index.path(i), reduce) for i in range(len(index))]
    monkeypatch.setattr(image, "_RGB", 0)
    for i, expected in enumerate(newer):
        np.testing.assert_array_equal(image.read(index.path(i), reduce), expected, index.path(i))
