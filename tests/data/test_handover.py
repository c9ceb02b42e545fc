"""Pictures come from loader processes through a few slots of shared memory: none is made anew, and none is overwritten too early."""

from __future__ import annotations

import gc
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch

from visiontrain.config.groups import AugmentConfig, SamplingConfig
from visiontrain.data import handover
from visiontrain.data.augment import AUGMENTATIONS
from visiontrain.data.dataset import EvalSet, TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.handover import SLOTS, Slots
from visiontrain.data.index import read_split
from visiontrain.data.loader import Loader
from visiontrain.errors import VisionTrainError

N = 40
WORKERS = 2


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Pictures of one colour each, all different, of different shapes."""
    root = tmp_path_factory.mktemp("colours")
    for kind in ("images", "labels"):
        (root / kind).mkdir()
    for number in range(N):
        picture = np.full((40 + number, 60, 3), (6 * number, 250 - 5 * number, 90), np.uint8)
        cv2.imwrite(str(root / f"images/{number:02d}.png"), picture)
        (root / f"labels/{number:02d}.txt").write_text("0 0.5 0.5 0.4 0.4")
    (root / "data.yaml").write_text("train: images\nnames: [thing]\n")
    return read_split(load_description(root / "data.yaml"), "train")


def keys_of(samples: TrainSet, epoch: int, sizes: list[int]) -> list[list]:
    """Lists of keys of these lengths, in order, around the epoch."""
    starts = np.cumsum([0, *sizes[:-1]]) % N
    return [
        samples.keys(epoch, (int(s), int(s) + 1), int(s), min(int(s) + n, N))
        for s, n in zip(starts, sizes, strict=True)
    ]


def slots_of(loader: Loader) -> dict:
    return handover._SEEN[loader.name]


@pytest.mark.parametrize("scale", [0.0, 0.5])
@pytest.mark.parametrize("order", ["as they come", "all kept"])
def test_batches_that_are_kept_stay_as_they_were(index, scale, order):
    """More tasks than slots, of growing and of shrinking size; every batch is compared after the last was made."""
    samples = TrainSet(index, 64, AugmentConfig(), 0, 30, SamplingConfig(multi_scale=scale))
    keys = keys_of(samples, 0, [1, 5, 2, 7, 3, 1, 6, 2, 2, 4, 3, 5, 1, 7, 2] * 3)
    with Loader(samples) as alone, Loader(samples, WORKERS) as helped:
        expected, got = alone.run(keys), helped.run(keys)
        pairs = zip(expected, got, strict=True)
        for one, two in pairs if order == "as they come" else list(pairs):
            assert torch.equal(one.images, two.images) and one.images.stride() == two.images.stride()
            assert torch.equal(one.targets.boxes, two.targets.boxes) and one.positions == two.positions


def test_memory_is_made_once(index):
    """An epoch is three tasks; once each slot has had a large one, no shared memory is made any more."""
    samples = TrainSet(index, 64, AugmentConfig(), 0, 30)
    with Loader(samples, WORKERS) as loader:
        made = []
        for epoch in range(6):
            for _ in loader.run([[(epoch, p) for p in range(first, first + 4)] for first in range(0, N, 4)]):
                pass
            made.append({place: slot.data_ptr() for place, slot in slots_of(loader).items()})
        assert set(made[3]) == {(worker, slot) for worker in range(WORKERS) for slot in range(SLOTS)}
        assert made[3] == made[-1]
        name = loader.name
    assert name not in handover._SEEN


def test_a_loader_that_is_dropped_gives_its_memory_back(index):
    loader = Loader(TrainSet(index, 64, AugmentConfig(), 0, 30), 1)
    assert len(list(loader.run([[(0, 0)]]))) == 1
    name = loader.name
    assert slots_of(loader)
    del loader
    gc.collect()
    assert name not in handover._SEEN


def test_an_epoch_left_early_does_not_disturb_the_next(index):
    samples = TrainSet(index, 64, AugmentConfig(), 0, 30)
    keys = [[(0, p), (0, p + 1)] for p in range(0, N - 1, 2)]
    with Loader(samples) as alone, Loader(samples, WORKERS) as loader:
        for taken in (1, 3, 2):
            run = loader.run(keys)
            for _ in range(taken):
                next(run)
            run.close()
        for one, two in zip(alone.run(keys), loader.run(keys), strict=True):
            assert torch.equal(one.images, two.images)


def test_an_evaluation_of_many_sizes(index):
    samples = EvalSet(index, 96)
    batches = [[int(i) for i in batch] for batch in samples.batches(3)]
    with Loader(samples, keep_samples=True) as alone, Loader(samples, WORKERS, keep_samples=True) as helped:
        for one, two in zip(alone.run(batches), helped.run(batches), strict=True):
            assert torch.equal(one.images, two.images)
            assert [each.path for each in one.samples] == [each.path for each in two.samples]


def test_what_cannot_be_made_stands_between_the_others(index, monkeypatch):
    """Three lists of one task: the error of the second arrives after the first, whose pictures are whole."""

    def broken(draft, context):
        if draft.index == index_of_bad:
            raise VisionTrainError("this one not")
        return draft

    samples = TrainSet(index, 64, AugmentConfig(mosaic=0), 0, 30)
    index_of_bad = int(samples.order(0)[2])
    monkeypatch.setitem(AUGMENTATIONS, "mixup", broken)
    with Loader(samples) as alone, Loader(samples, 1) as helped:
        keys = [[(0, 0), (0, 1)], [(0, 2), (0, 3)], [(0, 4)]]
        run = helped.run(keys)
        assert torch.equal(next(alone.run(keys)).images, next(run).images)
        with pytest.raises(VisionTrainError, match="this one not"):
            next(run)


def test_pictures_that_the_device_paints_have_no_slot(index):
    settings = replace(AugmentConfig(), augment_device="gpu")
    samples = TrainSet(index, 64, settings, 0, 30)
    keys = [[(0, p), (0, p + 1)] for p in range(0, 12, 2)]
    with Loader(samples) as alone, Loader(samples, WORKERS) as loader:
        for one, two in zip(alone.run(keys), list(loader.run(keys)), strict=True):
            assert torch.equal(one.painted().images, two.painted().images)
        assert not slots_of(loader)


def test_a_slot_is_written_again_only_after_the_others():
    slots = Slots("of a test")
    first, second = (slots.take(10).data_ptr() for _ in range(2))
    assert first != second
    assert [slots.take(7).data_ptr() for _ in range(4)] == [first, second, first, second]
    assert slots.take(1000).data_ptr() != first  # larger: made anew
    assert slots.take(10).data_ptr() == second
