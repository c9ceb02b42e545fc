"""albumentations: the user's own pipeline, reseeded for each sample, boxes kept right; and the usual few without it."""

from __future__ import annotations

import json
import os
import pickle
import sys
from dataclasses import replace

import cv2
import numpy as np
import pytest

from visiontrain.config.build import build
from visiontrain.config.groups import AugmentConfig
from visiontrain.config.image_size import ImageSize
from visiontrain.config.parse import parse_keywords, parse_words
from visiontrain.config.pipeline import Pipeline, read_pipeline
from visiontrain.config.schema import TrainConfig
from visiontrain.data.augment import album, usual
from visiontrain.data.augment.draft import Context, Draft
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.data.loader import training_loader
from visiontrain.errors import ConfigError

SIZE = ImageSize(64, 96)
STILL = AugmentConfig(
    hsv_h=0, hsv_s=0, hsv_v=0, translate=0, scale=0, fliplr=0, mosaic=0, close_mosaic=0, albumentations=Pipeline("none")
)
N = 6


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Dark pictures with a white and a less white rectangle, classes 0 and 1; each fills a sample."""
    root = tmp_path_factory.mktemp("album")
    for kind in ("images", "labels"):
        (root / kind).mkdir()
    for number in range(N):
        picture = np.full((128, 192, 3), 20 + number, np.uint8)
        picture[20:60, 20 + number : 80] = 255
        picture[80:120, 100:180] = 180
        cv2.imwrite(str(root / f"images/{number}.png"), picture)
        boxes = ((20 + number, 20, 80, 60), (100, 80, 180, 120))
        rows = [
            f"{c} {(x0 + x1) / 384:.9f} {(y0 + y1) / 256:.9f} {(x1 - x0) / 192:.9f} {(y1 - y0) / 128:.9f}"
            for c, (x0, y0, x1, y1) in enumerate(boxes)
        ]
        (root / f"labels/{number}.txt").write_text("\n".join(rows))
    (root / "d.yaml").write_text("train: images\nnames: [white, grey]\n")
    return read_split(load_description(root / "d.yaml"), "train")


@pytest.fixture
def library():
    return pytest.importorskip("albumentations", reason="needs albumentations>=2.0.8,<2.1")


def samples_of(index, pipeline, **settings):
    return TrainSet(index, SIZE, replace(STILL, albumentations=read_pipeline(pipeline), **settings), seed=1, epochs=50)


def assert_hugged(sample, most=2.1):
    """Each box lies around the shade of its class, and what has no box is not there, or hardly."""
    assert sample.image.shape == (*SIZE, 3) and sample.image.dtype == np.uint8
    assert len(sample.boxes) == len(sample.classes)
    for (x0, y0, x1, y1), kind in zip(sample.boxes, sample.classes, strict=True):
        grey = sample.image[..., 0].astype(int)
        there = grey > 217 if kind == 0 else (grey > 150) & (grey <= 217)
        there[: max(int(y0) - 4, 0)] = there[int(y1) + 5 :] = False
        there[:, : max(int(x0) - 4, 0)] = there[:, int(x1) + 5 :] = False
        if kind == 1:  # blurred edges of white have this shade too
            there = cv2.erode(there.astype(np.uint8), np.ones((3, 3))).astype(bool)
            there = cv2.dilate(there.astype(np.uint8), np.ones((3, 3))).astype(bool)
        rows, columns = np.flatnonzero(there.any(axis=1)), np.flatnonzero(there.any(axis=0))
        seen = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
        assert np.abs(np.array(seen) - (x0, y0, x1, y1)).max() < most


@pytest.mark.parametrize(
    "pipeline",
    [
        [{"HorizontalFlip": {"p": 0.5}}, {"VerticalFlip": {"p": 0.5}}],
        [{"RandomCrop": {"height": 40, "width": 50, "p": 1}}],  # comes out smaller
        [{"Transpose": {"p": 1}}],  # and on its side
        [{"Resize": {"height": 200, "width": 150, "p": 1}}],
        [
            {"OneOf": {"transforms": [{"RandomRotate90": {"p": 1}}, {"HorizontalFlip": {}}], "p": 1}},
            {"Blur": {"p": 0.2, "blur_limit": 3}},
        ],
        [{"Affine": {"scale": [0.6, 1.4], "translate_percent": [-0.3, 0.3], "p": 1}}],
    ],
    ids=lambda pipeline: "+".join(next(iter(entry)) for entry in pipeline),
)
def test_boxes_follow_what_the_pipeline_moves(library, index, pipeline):
    samples = samples_of(index, pipeline)
    kept = 0
    for epoch in range(5):
        for position in range(N):
            sample = samples[epoch, position]
            assert_hugged(sample)
            assert (sample.boxes >= 0).all() and (sample.boxes <= (96, 64, 96, 64)).all()
            assert (sample.boxes[:, 2:] - sample.boxes[:, :2] >= 1.9).all()
            kept += len(sample.boxes)
    assert kept > 30


def test_pictures_alone_leave_boxes_as_they_are_to_the_last_bit(library, index):
    plain, blurred = samples_of(index, "none"), samples_of(index, [{"Blur": {"p": 1}}])
    for position in range(N):
        assert np.array_equal(plain[0, position].boxes, blurred[0, position].boxes)
        assert not np.array_equal(plain[0, position].image, blurred[0, position].image)


def test_a_sample_does_not_depend_on_worker_history_or_global_state(library, index):
    pipeline = [{"HorizontalFlip": {}}, {"RandomBrightnessContrast": {"p": 1}}, {"SomeOf": {"transforms": [{"Blur": {}}, {"GaussNoise": {}}], "n": 1}}]  # fmt: skip
    one, two = samples_of(index, pipeline), pickle.loads(pickle.dumps(samples_of(index, pipeline)))
    keys = [(epoch, position) for epoch in (0, 1) for position in range(N)]
    first = {key: one[key] for key in keys}
    np.random.seed(4)
    for key in reversed(keys):
        assert np.array_equal(two[key].image, first[key].image) and np.array_equal(two[key].boxes, first[key].boxes)
    helped = training_loader(samples_of(index, pipeline), [keys[:4], keys[4:8], keys[8:]], workers=2)
    rows = [row.permute(1, 2, 0).numpy() for batch in helped for row in batch.images]
    assert all(np.array_equal(row, first[key].image) for row, key in zip(rows, keys, strict=True))
    means = {key: float(sample.image.mean()) for key, sample in first.items()}
    assert len(set(means.values())) == len(keys)  # each position and epoch has numbers of its own
    assert os.environ["NO_ALBUMENTATIONS_UPDATE"] == "1"


def test_other_random_numbers_stay_whatever_the_pipeline(library, index):
    """A stream of its own: flips, colours and mosaics are those of a run without it."""
    moving = {"fliplr": 0.5, "mosaic": 0.5, "scale": 0.3, "hsv_v": 0.4}
    plain, other = samples_of(index, "none", **moving), samples_of(index, [{"ToGray": {"p": 0.5}}], **moving)
    default = samples_of(index, "default", **moving)
    changed = 0
    for epoch in range(10):
        for position in range(N):
            a, b, c = (samples[epoch, position] for samples in (plain, other, default))
            assert np.array_equal(a.boxes, b.boxes) and np.array_equal(a.boxes, c.boxes)
            changed += not np.array_equal(a.image, c.image)
    assert 0 < changed < 12  # four in a hundred of 60


def test_the_usual_few_need_no_albumentations(index, monkeypatch):
    monkeypatch.setitem(sys.modules, "albumentations", None)
    assert AugmentConfig().albumentations == Pipeline("default")
    samples_of(index, "default")[0, 0]
    assert album.told(Pipeline("default")) == ""
    album._built.cache_clear()
    with pytest.raises(ConfigError, match="pip install"):
        samples_of(index, [{"Blur": {}}])[0, 0]


def test_the_usual_few_come_one_in_a_hundred_each_and_do_what_they_say(monkeypatch):
    picture = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    drawn = np.array([usual.drawn(np.random.default_rng(k)) for k in range(4000)])
    assert (abs(drawn.mean(axis=0) - 0.01) < 0.005).all()
    flat = cv2.merge([np.tile(np.linspace(100, 140, 64).astype(np.uint8), (64, 1))] * 3)
    assert np.ptp(usual.equalised(flat, 4.0).astype(int)) > 1.4 * np.ptp(flat.astype(int))

    class Most:
        """Random numbers that are as large as they can be."""

        def choice(self, sides):
            return sides[-1]

        def uniform(self, low, high):
            return high

    def alone(image, which):
        return usual.vary(image, [k == which for k in range(4)], Most())

    spot = np.zeros((21, 21, 3), np.uint8)
    spot[10, 10] = (49, 98, 147)
    assert (alone(spot, 0)[10, 10] == (1, 2, 3)).all()
    assert not alone(spot, 1).any()
    assert len(set(alone(spot, 2)[10, 10].tolist())) == 1
    assert not np.array_equal(alone(picture, 3), picture)


def test_a_file_a_compose_and_its_stored_text_are_one_pipeline(library, index, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "- HorizontalFlip: {p: 0.5}\n- OneOf:\n    p: 1.0\n    transforms:\n      - MedianBlur: {p: 1}\n"
        "      - RandomBrightnessContrast:\n          p: 1\n          brightness_limit: [1e-1, 3e-1]\n"
    )
    inner = [library.MedianBlur(p=1), library.RandomBrightnessContrast(p=1, brightness_limit=(0.1, 0.3))]
    params = library.BboxParams(format="yolo", label_fields=["labels"])  # as tutorials have it
    compose = library.Compose([library.HorizontalFlip(p=0.5), library.OneOf(inner, p=1.0)], bbox_params=params)
    by_library = tmp_path / "theirs.yaml"
    library.save(compose, by_library, data_format="yaml")
    config = parse_keywords(TrainConfig, {"data": "d", "albumentations": compose})
    stored = json.loads(json.dumps(config.leaves()))
    assert build(TrainConfig, stored) == config
    ways = [str(file), compose, str(by_library), config.leaves()["albumentations"]]
    reference = [samples_of(index, ways[0])[2, position] for position in range(N)]
    for way in ways[1:]:
        samples = samples_of(index, way)
        for position, expected in enumerate(reference):
            assert np.array_equal(samples[2, position].image, expected.image)
            assert np.array_equal(samples[2, position].boxes, expected.boxes)
    pipeline = read_pipeline(compose)
    album.try_out(pipeline, SIZE)
    assert album.told(pipeline) == "albumentations: HorizontalFlip, OneOf (boxes follow)."


def test_filters_of_the_users_own_are_kept(library, index):
    """Half of a picture: boxes whose smaller part is seen go, where the user asks for it."""
    crop = {"Crop": {"x_min": 30, "x_max": 96, "y_min": 0, "y_max": 64, "p": 1}}
    count = lambda pipeline: len(samples_of(index, pipeline)[0, 0].boxes)
    assert count({"transforms": [crop]}) == 2
    assert count({"transforms": [crop], "bbox_params": {"min_visibility": 0.9}}) == 1


def test_what_cannot_be_written_down_is_used_and_asked_for_again(library, index):
    compose = library.Compose([library.Lambda(image=darker), library.HorizontalFlip(p=0.5)])
    pipeline = read_pipeline(compose)
    assert pipeline.live is compose and "live" in json.loads(pipeline.written)
    samples, plain = samples_of(index, compose), samples_of(index, "none")
    for position in range(N):
        assert_shape = samples[0, position]
        assert assert_shape.image.mean() < 0.8 * plain[0, position].image.mean()
        assert len(assert_shape.boxes) == 2
    with pytest.raises(ConfigError, match="must be given again as it was"):
        build(TrainConfig, {"data": "d", "albumentations": pipeline.written})
    config = parse_keywords(TrainConfig, {"data": "d", "albumentations": compose})
    assert config.augment.albumentations.live is compose


def darker(image, **_):
    return image // 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- Blurr: {p: 0.1}", "mine.yaml, line 1: albumentations 2.0.8 has no transform 'Blurr'; did you mean Blur?"),
        ("- ToGray: {}\n- Blur: {blur_limt: 3}", "mine.yaml, line 2: Blur has no parameter 'blur_limt'; did you mean blur_limit?"),
        ("- Blur: {blur_limit: many}", "mine.yaml, line 1: Blur: "),
        ("- OneOf:\n    transforms:\n      - flip: {}", "line 3: albumentations 2.0.8 has no transform 'flip'"),
        ("- Normalize: {}", "divides by 255 itself"),
        ("- os.system: {command: ls}", "has no transform 'os.system'"),
        ("- check_version.check_for_updates: {}", "has no transform 'check_version"),
        ("- BasicTransform: {}", "has no transform 'BasicTransform'"),
        ("- Lambda: {image: print}", "give the Compose from Python"),
        ("- ToGray: {num_output_channels: 1, p: 1}", "gave uint8 (64, 96)"),
        ("- Crop: {x_max: 2000, y_max: 2000, p: 1}", "Crop failed: ValueError"),
        ("- !!python/object/apply:os.system [ls]", "not readable as YAML"),
        ("a: [", "not readable as YAML"),
        ("- Blur: 3", "parameters of Blur are named"),
        ("- [Blur]", "is no transform"),
        ("", "a pipeline is a list of transforms"),
    ],
)  # fmt: skip
def test_mistakes_are_named_by_line_with_what_is_near(library, tmp_path, text, said):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        config = parse_words(TrainConfig, ["data=d", f"albumentations={tmp_path / 'mine.yaml'}"])
        album.try_out(config.augment.albumentations, SIZE)
    message = str(caught.value)
    assert said in message or said.replace("mine.yaml", str(tmp_path / "mine.yaml")) in message, message


@pytest.mark.parametrize(
    ("value", "said"), [("lost.yaml", "no such file"), (3, "a Compose from Python"), ("{", "cut off")]
)
def test_what_is_no_pipeline_is_refused(value, said):
    with pytest.raises(ConfigError, match=said):
        parse_keywords(TrainConfig, {"data": "d", "albumentations": value})


def test_off_is_off():
    for word in ("none", "no", "false", False, None):
        assert parse_keywords(TrainConfig, {"data": "d", "albumentations": word}).augment.albumentations.text == "none"
    context = Context(np.random.default_rng(0), STILL, SIZE, None, lambda: 0)
    draft = Draft(0, image=np.zeros((*SIZE, 3), np.uint8))
    assert album.vary(draft, context) is draft
