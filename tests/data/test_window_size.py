"""rect and multi_scale: one size for a window, whoever makes its pictures; shuffle and mosaic stay."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visiontrain.config.groups import AugmentConfig, SamplingConfig
from visiontrain.config.image_size import ImageSize
from visiontrain.config.pipeline import Pipeline
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.data.loader import training_loader
from visiontrain.data.sampler import Orders
from visiontrain.data.window_size import drawn_size, fitted_size, largest_size, shape_kinds
from visiontrain.training.plan import make_plan

STILL = AugmentConfig(
    hsv_h=0, hsv_s=0, hsv_v=0, translate=0, scale=0, fliplr=0, mosaic=0, close_mosaic=0, albumentations=Pipeline("none")
)
SHAPES = [(60, 100), (100, 60), (80, 80)] * 7 + [(40, 100)]  # 22 pictures
N = len(SHAPES)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    root = tmp_path_factory.mktemp("shapes")
    for kind in ("images", "labels"):
        (root / kind).mkdir()
    for number, (height, width) in enumerate(SHAPES):
        cv2.imwrite(str(root / f"images/{number:02}.png"), np.full((height, width, 3), 10 * number + 3, np.uint8))
        (root / f"labels/{number:02}.txt").write_text("0 0.5 0.5 0.5 0.5")
    (root / "d.yaml").write_text("train: images\nnames: [thing]\n")
    return read_split(load_description(root / "d.yaml"), "train")


def samples_of(index, augment=STILL, imgsz=96, block=4, **sampling):
    return TrainSet(index, imgsz, augment, 5, 30, SamplingConfig(**sampling), block)


def plan(batch=4, ranks=1, **more):
    values = {"nbs": 4, "images": N, "epochs": 30, "weight_decay": 0.0, "warmup_epochs": 0.0} | more
    return make_plan(batch=batch, ranks=ranks, **values)


def test_sizes_are_drawn_around_imgsz_in_strides():
    sizes = [drawn_size(ImageSize(384, 640), 0.5, seed, 1, 64) for seed in range(400)]
    heights, widths = np.array(sizes).T
    assert (heights.min(), heights.max(), widths.min(), widths.max()) == (192, 576, 320, 960)
    assert not (heights % 32).any() and not (widths % 32).any()
    assert np.abs(widths / heights - 640 / 384).max() < 0.17  # the shape stays
    assert abs(np.mean(widths) / 640 - 1) < 0.05
    assert drawn_size(ImageSize(96, 96), 0.0, 0, 0, 0) == (96, 96)
    assert min(drawn_size(ImageSize(32, 32), 0.9, seed, 0, 0) for seed in range(50)) == (32, 32)
    assert max(drawn_size(ImageSize(96, 96), 0.4, seed, 0, 0) for seed in range(300)) == largest_size(
        ImageSize(96, 96), 0.4, False, np.ones((1, 2))
    )


def test_seed_epoch_and_window_each_draw_their_own():
    keys = [(seed, epoch, start) for seed in range(4) for epoch in range(4) for start in range(0, 256, 64)]
    sizes = [drawn_size(ImageSize(640, 640), 0.5, *key) for key in keys]
    assert len(set(sizes)) > 15
    assert sizes == [drawn_size(ImageSize(640, 640), 0.5, *key) for key in keys]


def test_the_fitted_size_shows_every_picture_whole_and_enlarges_none():
    assert fitted_size(ImageSize(640, 640), np.array([(1080, 1920)])) == (384, 640)
    assert fitted_size(ImageSize(640, 640), np.array([(480, 640), (1920, 1080)])) == (640, 640)
    assert fitted_size(ImageSize(640, 640), np.array([(416, 640)])) == (416, 640)  # no stride for a rounding error
    assert fitted_size(ImageSize(384, 640), np.array([(500, 500)])) == (384, 384)
    assert fitted_size(ImageSize(640, 640), np.array([(1, 5000)])) == (32, 640)
    rng = np.random.default_rng(0)
    for imgsz in (ImageSize(640, 640), ImageSize(384, 640)):
        shapes = rng.integers(20, 3000, (500, 2))
        for shape in shapes:
            fitted = fitted_size(imgsz, shape[None])
            assert fitted.gain(*shape) == pytest.approx(imgsz.gain(*shape), rel=1e-12)
            assert (fitted <= np.array(imgsz)).all()


def test_kinds_ascend_from_wide_to_high():
    shapes = np.array([(50, 200), (100, 200), (200, 200), (200, 100), (200, 50)])
    kinds = shape_kinds(ImageSize(640, 640), shapes)
    assert (np.diff(kinds) > 0).all()
    assert len(set(shape_kinds(ImageSize(384, 640), np.array([(480, 640), (960, 1280), (481, 641)])))) == 1


def test_blocks_hold_like_shapes_and_the_epoch_every_picture_once(index):
    kinds = shape_kinds(ImageSize(96, 96), index.sizes)
    orders = [Orders(1, N, kinds=kinds, block=4)(epoch) for epoch in range(60)]
    assert all(sorted(order.tolist()) == list(range(N)) for order in orders)
    mixed = np.mean([np.ptp(np.searchsorted(np.unique(kinds), kinds[o[:20].reshape(5, 4)]), axis=1) for o in orders])
    plain = [Orders(1, N)(epoch) for epoch in range(60)]
    shuffled = np.mean([np.ptp(np.searchsorted(np.unique(kinds), kinds[o[:20].reshape(5, 4)]), axis=1) for o in plain])
    assert mixed < 0.8 < 1.5 < shuffled
    last = np.bincount(np.concatenate([order[20:] for order in orders]), minlength=N)
    assert (last > 0).sum() > N * 0.9  # what is left at the end is not always the same shape
    together = {frozenset(order[i : i + 4].tolist()) for order in orders for i in range(0, 20, 4)}
    assert len(together) > 150  # other company in every epoch
    firsts = {int(order[0]) for order in orders}
    assert len(firsts) > N * 0.8


def test_a_window_has_one_size_however_it_is_cut_and_shared(index):
    """Law 17 with rect, multi_scale, mosaic and balance: the same pictures for every micro-batch, rank and worker."""
    settings = {"rect": True, "multi_scale": 0.4, "balance": "images"}
    augment = AugmentConfig(mixup=0.3)
    reference = {}
    for window in plan().windows(2):
        keys = samples_of(index, augment, **settings).keys(2, window, *window)
        assert len({size for *_, size in keys}) == 1
        samples = samples_of(index, augment, **settings)
        reference |= {key[:2]: samples[key] for key in keys}
    assert len({sample.image.shape for sample in reference.values()}) > 2
    for batch, ranks in ((1, 1), (2, 1), (2, 2), (4, 4)):
        cut = plan(batch, ranks)
        assert cut.windows(2) == plan().windows(2)
        for rank in range(ranks):
            samples = samples_of(index, augment, **settings)  # a process of its own
            keys = [samples.keys(2, window, *share) for window in cut.windows(2) for share in cut.shares(*window, rank)]
            for key in (key for part in keys[::-1] for key in part):
                ours = samples[key]
                np.testing.assert_array_equal(ours.image, reference[key[:2]].image)
                np.testing.assert_array_equal(ours.boxes, reference[key[:2]].boxes)
    samples = samples_of(index, augment, **settings)
    keys = [samples.keys(2, window, *share) for window in plan(2).windows(2) for share in plan(2).shares(*window, 0)]
    for batch in training_loader(samples, keys, workers=2):
        for row, position in zip(batch.images, batch.positions, strict=True):
            np.testing.assert_array_equal(row.permute(1, 2, 0).numpy(), reference[2, position].image)


def test_rect_pads_less_and_shows_the_same_pictures(index):
    square, rect = samples_of(index), samples_of(index, rect=True)
    grey = {}
    for name, samples in (("square", square), ("rect", rect)):
        images = [samples[key].image for window in plan().windows(0) for key in samples.keys(0, window, *window)]
        grey[name] = np.mean([(image == 114).all(axis=2).mean() for image in images])
        seen = sorted(int(np.median(image[image != 114])) for image in images)
        assert seen == sorted(10 * number + 3 for number in range(N))
    assert grey["rect"] < 0.6 * grey["square"]


def test_with_rect_a_mosaic_is_of_pictures_of_like_shape(index):
    samples = samples_of(
        index, AugmentConfig(hsv_h=0, hsv_s=0, hsv_v=0, mosaic=1, scale=0, albumentations=Pipeline("none")), rect=True
    )
    order = samples.order(0)
    for window in plan().windows(0)[:-1]:
        here = {10 * int(number) + 3 for number in order[slice(*window)]}
        for key in samples.keys(0, window, *window):
            shades, counts = np.unique(samples[key].image[..., 0], return_counts=True)
            shown = {int(s) for s, count in zip(shades, counts, strict=True) if count > 40 and s != 114}
            assert shown <= here
    assert any(samples.size(0, window) != (96, 96) for window in plan().windows(0))


def test_without_them_nothing_changes(index):
    """Keys of windows give the samples that keys without a size always gave."""
    plain, samples = TrainSet(index, 96, AugmentConfig(), 5, 30), samples_of(index, AugmentConfig())
    for key in samples.keys(1, (4, 8), 4, 8):
        np.testing.assert_array_equal(samples[key].image, plain[key[:2]].image)
        np.testing.assert_array_equal(samples[key].boxes, plain[key[:2]].boxes)
    assert samples.order(3).tolist() == np.random.default_rng([5, 3, 0, 1]).permutation(N).tolist()
