"""Law 17: positions and pixels of an update are the same for any workers, ranks and cut of its window."""

from __future__ import annotations

import hashlib

import cv2
import numpy as np
import pytest
import torch

from visiontrain.config.groups import AugmentConfig
from visiontrain.data.cache import close, in_memory
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.data.loader import training_loader
from visiontrain.data.pixels import sides
from visiontrain.data.sampler import WindowSampler, permutation
from visiontrain.training.plan import make_plan

PICTURES = 10
EPOCH = 1


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Ten small pictures of noise, each with two objects."""
    root = tmp_path_factory.mktemp("split")
    rng = np.random.default_rng(0)
    for folder in ("images", "labels"):
        (root / folder).mkdir()
    for i in range(PICTURES):
        cv2.imwrite(str(root / "images" / f"{i}.png"), rng.integers(0, 255, (40 + i, 60, 3), dtype=np.uint8))
        rows = [f"{k} {0.3 + 0.3 * k} 0.5 0.3 0.4" for k in range(2)]
        (root / "labels" / f"{i}.txt").write_text("\n".join(rows))
    (root / "data.yaml").write_text("path: .\ntrain: images\nval: images\nnames: [a, b]\n")
    return read_split(load_description(str(root / "data.yaml")), "train")


def dataset(index) -> TrainSet:
    return TrainSet(index, 64, AugmentConfig(mixup=0.3, degrees=10.0), seed=3, epochs=20)


def plan(batch: int, nbs: int = 4, warmup_epochs: float = 0.0):
    return make_plan(batch=batch, nbs=nbs, images=PICTURES, epochs=20, weight_decay=0.0, warmup_epochs=warmup_epochs)


def update(index, batches) -> list[tuple]:
    """(position, pixels, classes, boxes) of each image, in order."""
    found = []
    for batch in batches:
        for k, position in enumerate(batch.positions):
            one = batch.slice(k, k + 1)
            found.append((position, one.images.clone(), one.targets.classes, one.targets.boxes))
    return found


def dealt(index, batch: int, workers: int = 0, warmup_epochs: float = 0.0) -> dict[tuple[int, int], list[tuple]]:
    """The images of every window of an epoch."""
    planned = plan(batch, warmup_epochs=warmup_epochs)
    windows = planned.windows(EPOCH)
    batches = list(training_loader(dataset(index), WindowSampler(windows, batch, EPOCH), workers))
    images = update(index, batches)
    return {(start, stop): images[start:stop] for start, stop in windows}


def assert_equal(ours, reference):
    assert ours.keys() == reference.keys()
    for window in reference:
        for a, b in zip(ours[window], reference[window], strict=True):
            assert a[0] == b[0]
            assert all(torch.equal(x, y) for x, y in zip(a[1:], b[1:], strict=True)), (window, a[0])


@pytest.mark.parametrize("batch", [1, 2])
def test_any_cut_of_equal_windows(index, batch):
    """Without warm-up windows are equal for equal images per update: any (m, A)."""
    assert_equal(dealt(index, batch), dealt(index, 4))


def test_any_number_of_workers(index):
    assert_equal(dealt(index, 2, workers=2), dealt(index, 2))


def test_the_ramp_is_the_same_for_equal_batch(index):
    assert_equal(dealt(index, 2, workers=1, warmup_epochs=2.0), dealt(index, 2, warmup_epochs=2.0))


@pytest.mark.parametrize("ranks", [2, 4])
def test_any_number_of_ranks(index, ranks):
    """Each rank makes its slice of a micro-batch on its own; together they are the micro-batch, each position once."""
    whole = dealt(index, 4)
    planned = plan(4)
    share = 4 // ranks
    for window in planned.windows(EPOCH):
        together = []
        for start, stop in planned.micro_batches(*window):
            for rank in range(ranks):
                alone = dataset(index)  # a process of its own
                positions = range(min(start + rank * share, stop), min(start + (rank + 1) * share, stop))
                together += [alone[EPOCH, position] for position in positions]
        assert [s.position for s in together] == [row[0] for row in whole[window]]
        for sample, row in zip(together, whole[window], strict=True):
            assert np.array_equal(sample.image, row[1][0].permute(1, 2, 0).numpy())
            assert np.array_equal(sample.boxes, row[3].numpy())


def test_a_shrunk_micro_batch(index):
    """After a shrink the same window is cut finer, with a smaller last piece: same images."""
    batches = training_loader(dataset(index), WindowSampler(plan(4).windows(EPOCH), 4, EPOCH))
    finer = [part for batch in batches for part in batch.split(3)]
    assert max(map(len, finer)) == 3
    images = update(index, finer)
    assert_equal({w: images[w[0] : w[1]] for w in plan(4).windows(EPOCH)}, dealt(index, 4))


def test_history_leaves_no_trace(index):
    used, fresh = dataset(index), dataset(index)
    for position in range(PICTURES):
        used[0, position]
    np.random.seed(5)
    torch.manual_seed(5)
    assert np.array_equal(used[EPOCH, 7].image, fresh[EPOCH, 7].image)


def test_seed_epoch_and_position_all_matter(index):
    def pixels(seed, epoch, position):
        return TrainSet(index, 64, AugmentConfig(), seed=seed, epochs=20)[epoch, position].image

    reference = pixels(0, 0, 0)
    for key in ((1, 0, 0), (0, 1, 0), (0, 0, 1)):
        assert not np.array_equal(pixels(*key), reference), key


def test_each_epoch_deals_every_picture_once():
    orders = [tuple(permutation(3, epoch, PICTURES)) for epoch in range(4)]
    assert all(sorted(order) == list(range(PICTURES)) for order in orders)
    assert len(set(orders)) == 4


def hashes(samples: TrainSet, keys, workers: int = 0) -> dict[tuple[int, int], str]:
    """A hash of pixels and targets by (epoch, position)."""
    found = {}
    keys = list(keys)
    for each, batch in zip(keys, training_loader(samples, iter(keys), workers), strict=True):
        for k, key in enumerate(each):
            one = batch.slice(k, k + 1)
            digest = hashlib.sha256(one.images.contiguous().numpy().tobytes())
            digest.update(one.targets.boxes.numpy().tobytes() + one.targets.classes.numpy().tobytes())
            assert one.positions == (key[1],) and key[:2] not in found
            found[key[:2]] = digest.hexdigest()
    return found


def test_the_first_200_samples_of_real_pictures(shared):
    """By 0, 1 and 4 workers, by one and two ranks, with a cache, and after a resume inside the second epoch."""
    index = read_split(load_description(shared / "data" / "coco128" / "data.yaml"), "train")

    def of(cut, epochs=((0, 0), (1, 0)), ranks=1, workers=0, cache=None):
        planned = make_plan(batch=4, nbs=16, images=128, epochs=20, weight_decay=0.0, warmup_epochs=0.5, ranks=ranks)
        found = {}
        for rank in range(ranks):
            samples = TrainSet(index, 96, AugmentConfig(), seed=0, epochs=20, cache=cache)
            keys = [
                samples.keys(epoch, window, *share)
                for epoch, position in epochs
                for window in planned.windows_from(epoch, position)
                for share in planned.shares(*window, rank)
            ]
            mine = hashes(samples, [key for key in keys if key], workers)
            assert not mine.keys() & found.keys()
            found |= mine
        return {key: value for key, value in found.items() if key[0] * 128 + key[1] in cut}

    first = range(200)
    expected = of(first)
    assert len(expected) == len(set(expected.values())) == 200
    for workers in (1, 4):
        assert of(first, workers=workers) == expected
    assert of(first, ranks=2, workers=1) == expected
    cache = in_memory(*sides(index, (96, 96)))
    assert of(first, cache=cache, workers=1) == expected
    close(cache)
    resumed = of(first, epochs=((1, 32),), workers=1)  # at a border of windows
    assert resumed == {key: expected[key] for key in expected if key >= (1, 32)} and len(resumed) == 40
