"""A sample is a function of seed, epoch and position: not of worker, batch or history."""

from __future__ import annotations

import gc
import pickle
import shutil
import time
import traceback
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch

from visiontrain.batch import join, regroup
from visiontrain.config.groups import AugmentConfig
from visiontrain.config.pipeline import Pipeline
from visiontrain.data import loader as loading
from visiontrain.data import pixels
from visiontrain.data.augment import AUGMENTATIONS
from visiontrain.data.dataset import EvalSet, TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.image import letterbox, read
from visiontrain.data.index import read_split
from visiontrain.data.loader import Loader, evaluation_loader, fitting_workers, training_loader
from visiontrain.data.sampler import FEW, WindowSampler, partners, permutation
from visiontrain.errors import DataError, VisionTrainError

N = 7
OPEN_FILES = Path("/proc/self/fd")


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Seven pictures of different shades and shapes, one box each."""
    root = tmp_path_factory.mktemp("shades")
    for kind in ("images", "labels"):
        (root / kind).mkdir()
    for number in range(N):
        cv2.imwrite(str(root / f"images/{number}.png"), np.full((30 + 9 * number, 60, 3), 20 + 30 * number, np.uint8))
        (root / f"labels/{number}.txt").write_text("0 0.5 0.5 0.4 0.4")
    (root / "data.yaml").write_text("train: images\nnames: [thing]\n")
    return read_split(load_description(root / "data.yaml"), "train")


def samples_of(index, seed=0, epochs=30, **settings):
    return TrainSet(index, 64, replace(AugmentConfig(), **settings), seed, epochs)


def same(one, two):
    return np.array_equal(one.image, two.image) and np.array_equal(one.boxes, two.boxes)


def test_an_epoch_is_a_permutation_of_its_own():
    orders = [tuple(permutation(seed, epoch, 50)) for seed in (0, 1) for epoch in (0, 1)]
    assert len(set(orders)) == 4 and all(sorted(order) == list(range(50)) for order in orders)
    assert orders[0] == tuple(permutation(0, 0, 50))


def test_windows_are_cut_into_micro_batches_that_never_cross():
    dealt = list(WindowSampler([(0, 4), (4, 14), (14, 17)], batch=4, epoch0=2))
    assert [[position for _, position in keys] for keys in dealt] == [
        [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13], [14, 15, 16],
    ]  # fmt: skip
    assert {epoch for keys in dealt for epoch, _ in keys} == {2}


def test_a_sample_depends_on_nothing_but_its_key(index):
    one, two = samples_of(index), samples_of(index)
    first = [one[3, position] for position in range(N)]
    np.random.seed(1)  # global state must not matter
    cv2.setRNGSeed(7)
    for position in reversed(range(N)):  # another order, another history
        two[0, position]
        assert same(two[3, position], first[position])
    assert not same(one[4, 0], one[3, 0]) and not same(samples_of(index, seed=1)[3, 0], first[0])


def test_the_path_is_that_of_the_picture_at_the_position(index):
    samples = samples_of(index)
    order = permutation(0, 2, N)
    assert [samples[2, p].path for p in range(N)] == [index.path(order[p]) for p in range(N)]
    assert [samples[2, p].position for p in range(N)] == list(range(N))


def test_an_order_without_a_list_serves_as_well(index, monkeypatch):
    """What a split of more than 16 million pictures gets."""
    monkeypatch.setattr("visiontrain.data.sampler.permutation", partial(permutation, listed=0))
    order = permutation(0, 2, N, listed=0)
    samples, again = samples_of(index), pickle.loads(pickle.dumps(samples_of(index)))
    assert [samples[2, p].path for p in range(N)] == [index.path(order[p]) for p in range(N)]
    assert all(same(samples[2, p], again[2, p]) for p in reversed(range(N)))


def shades(sample):
    """How many pictures a sample shows: each has one shade."""
    values, counts = np.unique(sample.image[..., 0], return_counts=True)
    return sum(count > 20 for value, count in zip(values, counts, strict=True) if value != 114)


def test_the_last_epochs_see_single_pictures(index):
    plain = {
        "hsv_h": 0.0,
        "hsv_s": 0.0,
        "hsv_v": 0.0,
        "close_mosaic": 2,
        "mixup": 1.0,
        "albumentations": Pipeline("none"),
    }
    samples = samples_of(index, epochs=4, **plain)
    assert all(shades(samples[epoch, p]) == 1 for epoch in (2, 3) for p in range(N))
    assert sum(shades(samples[1, p]) > 1 for p in range(N)) > 3


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_change_no_bit(index, persistent):
    """Law 17, for one rank; and the last epochs are closed in workers that outlive an epoch."""
    samples = samples_of(index, epochs=3, close_mosaic=1)
    keys = [keys for epoch in range(3) for keys in WindowSampler([(0, 4), (4, N)], 3, epoch)]
    alone = list(training_loader(samples, keys))
    if persistent:
        with Loader(samples, workers=2) as loader:
            helped = [batch for start in (0, 3, 6) for batch in loader.run(keys[start : start + 3])]
    else:
        helped = list(training_loader(samples, keys, workers=2))
    assert [batch.positions for batch in helped] == [tuple(p for _, p in each) for each in keys]
    for one, two in zip(alone, helped, strict=True):
        assert torch.equal(one.images, two.images)
        assert torch.equal(one.targets.boxes, two.targets.boxes) and torch.equal(one.targets.image, two.targets.image)


def test_workers_end_and_leave_no_open_file(index):
    def open_files():
        return len(list(OPEN_FILES.iterdir()))

    if not OPEN_FILES.is_dir():
        pytest.skip("counts open files in /proc")
    samples, keys = samples_of(index), [[(0, 0)], [(0, 1)], [(0, 2)]]
    gc.collect()  # what earlier tests left
    before = open_files()
    for _ in range(3):
        loader = training_loader(samples, keys, workers=1)
        next(loader)
        loader.close()  # abandoned early
    for _ in range(100):  # the threads that feed the queues close their ends a moment later
        if open_files() <= before:
            break
        time.sleep(0.05)
    assert open_files() <= before
    assert not [child for child in torch.multiprocessing.active_children() if child.is_alive()]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_arrives_with_its_own_words(tmp_path, workers):
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
    path = tmp_path / "images/a.png"
    cv2.imwrite(str(path), np.zeros((20, 20, 3), np.uint8))
    (tmp_path / "labels/a.txt").write_text("0 0.5 0.5 0.4 0.4")
    (tmp_path / "d.yaml").write_text("train: images\nnames: [thing]\n")
    gone = read_split(load_description(tmp_path / "d.yaml"), "train")
    path.unlink()
    path.mkdir()  # no verdict on the picture: the machine does not let it be opened
    with pytest.raises(DataError) as caught:
        list(training_loader(samples_of(gone), [[(0, 0)]], workers=workers))
    assert str(caught.value) == f"{path}: cannot be opened: Is a directory"


@pytest.fixture
def broken(index, tmp_path):
    """The same seven pictures, three of them no longer as they were when the index was made."""
    shutil.copytree(Path(index.path(0)).parents[1], tmp_path / "broken")
    mine = read_split(load_description(tmp_path / "broken/data.yaml"), "train")
    Path(mine.path(0)).unlink()
    Path(mine.path(3)).write_bytes(Path(mine.path(3)).read_bytes()[:-30])
    cv2.imwrite(mine.path(5), np.zeros((30, 20, 3), np.uint8))  # of another size
    return mine


SAID = {0: "0.png: cannot be opened: No such file", 3: "cannot decode as PNG", 5: "20 x 30 pixels now, and 60 x 75"}


def test_a_picture_that_went_bad_leaves_its_place_grey(index, broken):
    """IMG-08: nothing else of the sample changes, and neither does any other sample."""
    plain = {"hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0, "albumentations": Pipeline("none")}
    quiet = {**plain, "mosaic": 0.0}
    for settings in (plain, quiet):
        whole, partly = samples_of(index, **settings), samples_of(broken, **settings)
        order = permutation(0, 2, N)
        for position in range(N):
            one, two = whole[2, position], partly[2, position]
            if not two.bad:
                assert same(one, two)
                continue
            differ = (one.image != two.image).any(axis=2)
            assert (two.image[differ] == 114).all() and len(two.boxes) <= len(one.boxes)
            if settings is quiet:
                assert SAID[int(order[position])] in two.bad[0] and not len(two.boxes) and (two.image == 114).all()
    assert {int(order[p]) for p in range(N) if partly[2, p].bad} == set(SAID)


def test_in_validation_it_is_grey_and_has_no_objects(broken):
    samples = EvalSet(broken, 96)
    for i in range(N):
        sample = samples[i]
        if sample.position in SAID:
            assert SAID[sample.position] in sample.bad[0] and (sample.image == 114).all() and not len(sample.boxes)
        else:
            assert not sample.bad and len(sample.boxes) == 1
        assert sample.original == broken.size(sample.position)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_bad_is_told_with_the_batch(broken, workers):
    keys = list(WindowSampler([(0, N)], 3, 2))
    batches = list(training_loader(samples_of(broken, mosaic=0.0), keys, workers=workers))
    assert len({each for batch in batches for each in batch.bad}) == len(SAID)
    assert regroup(batches, 2)[0].bad == batches[0].bad
    joined = join(batches)
    assert joined.bad == tuple(each for batch in batches for each in batch.bad)
    assert sum((piece.bad for piece in joined.split(2)), ()) == joined.bad
    ours = [sample.bad for batch in evaluation_loader(EvalSet(broken, 96), 3, workers) for sample in batch.samples]
    assert sum(map(bool, ours)) == len(SAID)


def test_evaluation_can_be_repeated_and_covers_the_split_once(index):
    loader = evaluation_loader(EvalSet(index, 96), batch=3)
    for _ in range(2):
        batches = list(loader)
        assert len(batches) == len(loader) == 3
        assert sorted(p for batch in batches for p in batch.positions) == list(range(N))
        for batch in batches:
            assert [sample.path for sample in batch.samples] == [index.path(p) for p in batch.positions]
            assert all(side % 32 == 0 for side in batch.images.shape[2:])


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_evaluation_batch_holds_pictures_of_one_size_and_nothing_is_padded(index, ranks):
    """VAL-07, VAL-09: what is seen of a picture cannot depend on the others of its batch."""
    seen = []
    for loader in (evaluation_loader(EvalSet(index, 96), 4, rank=rank, ranks=ranks) for rank in range(ranks)):
        for batch in loader:
            alone = [letterbox(read(sample.path), 96)[0] for sample in batch.samples]
            assert np.array_equal(batch.images.permute(0, 2, 3, 1).numpy(), np.stack(alone))
            seen += batch.positions
    assert sorted(seen) == list(range(N))


def test_a_fixed_canvas_is_one_size_for_all(index):
    (batch,) = evaluation_loader(EvalSet(index, 96, canvas=(64, 128)), N)
    assert batch.images.shape == (N, 3, 64, 128)


def test_what_workers_get_can_be_pickled(index):
    samples = pickle.loads(pickle.dumps(samples_of(index)))
    assert same(samples[1, 2], samples_of(index)[1, 2])


def test_a_closed_loader_says_so(index):
    loader = Loader(samples_of(index))
    loader.close()
    with pytest.raises(VisionTrainError, match="closed"):
        next(loader.run([[(0, 0)]]))


def test_partners_of_a_block_are_those_of_three_blocks_before_each_once():
    """And those alone, whatever the batch; at the start of an epoch of its end; in a small split all of it."""
    rng = np.random.default_rng(0)

    def firsts(block, n=5120, epoch=0):
        return [
            list(islice(partners(0, epoch, position, n, rng), 3)) for position in range(block * 16, block * 16 + 16)
        ]

    rows = firsts(64)
    for back, column in enumerate(zip(*rows, strict=True), 1):
        assert sorted(column) == list(range(1024 - 128 * back, 1040 - 128 * back))
    assert rows != firsts(64, epoch=1) and rows == firsts(64)
    assert sorted(each for row in firsts(0) for each in row) == sorted(
        5120 - 128 * back + k for back in (1, 2, 3) for k in range(16)
    )
    dealt = Counter(each for block in range(320) for row in firsts(block) for each in row)
    assert set(dealt.values()) == {3} and len(dealt) == 5120
    beyond = set(islice(partners(0, 0, 1030, 5120, rng), 3, 1000))
    assert beyond == {1024 - 128 * back + k for back in (1, 2, 3) for k in range(16)}
    assert set(islice(partners(0, 0, 40, FEW - 1, rng), 20_000)) == set(range(FEW - 1))


@pytest.mark.parametrize(
    ("workers", "batch", "again"),
    [(0, 2, 0), (0, 16, 0), (1, 2, 0), (2, 2, 0), (2, 16, 0), (3, 16, 0), (3, 2, 0), (4, 64, 2.0)],
)
def test_a_mosaic_decodes_one_picture_whatever_the_batch_and_the_workers(tmp_path, workers, batch, again):
    """Counted by each process that makes samples, over half an epoch of 1,024 pictures; 4 workers are too many for batches of 64."""
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
    content = cv2.imencode(".png", np.zeros((8, 8, 3), np.uint8))[1].tobytes()
    for number in range(1024):
        (tmp_path / f"images/{number:04}.png").write_bytes(content)
    (tmp_path / "labels/0000.txt").write_text("")
    (tmp_path / "d.yaml").write_text("train: images\nnames: [a]\n")
    index = read_split(load_description(tmp_path / "d.yaml"), "train")
    counted = tmp_path / "decoded"
    counted.touch()

    def counting(*arguments):
        with counted.open("a") as file:
            file.write(".")
        return real(*arguments)

    real = pixels.read
    samples = TrainSet(index, 32, AugmentConfig(), 0, 30, kept=pixels.room((8, 8), max(workers, 1)))
    with pytest.MonkeyPatch.context() as patch, Loader(samples, workers) as loader:
        patch.setattr(pixels, "read", counting)
        for _ in loader.run(WindowSampler([(128, 512)], batch, 0)):
            pass
        before = counted.stat().st_size
        for _ in loader.run(WindowSampler([(512, 1024)], batch, 0)):
            pass
    decoded = (counted.stat().st_size - before) / 512
    print(f"{decoded:.2f} pictures decoded for each sample")
    assert 1 <= decoded <= 1.08 + again


@pytest.mark.filterwarnings("error")
def test_torch_does_not_warn_of_workers_that_were_asked_for(index, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0})
    with Loader(samples_of(index), 2) as loader:
        assert len(list(loader.run([[(0, 0)]]))) == 1


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_workers_of_either_start_method_make_the_same_samples(index, start_method):
    keys = list(WindowSampler([(0, N)], 3, 0))
    expected = list(training_loader(samples_of(index), keys))
    with Loader(samples_of(index), workers=2, start_method=start_method) as loader:
        for one, two in zip(expected, loader.run(keys), strict=True):
            assert torch.equal(one.images, two.images) and torch.equal(one.targets.boxes, two.targets.boxes)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_the_users_own_names_the_picture(index, workers, monkeypatch):
    def broken(draft, context):
        raise ZeroDivisionError("of the user's own")

    monkeypatch.setitem(AUGMENTATIONS, "colour", broken)
    samples = samples_of(index)
    with pytest.raises(ZeroDivisionError) as raised:
        next(training_loader(samples, [[(0, 3)]], workers))
    assert samples.path((0, 3)) in "".join(traceback.format_exception(raised.value))


def test_shared_memory_bounds_the_workers(monkeypatch, tmp_path):
    monkeypatch.setattr(loading, "SHARED_MEMORY", tmp_path)
    free = {"bytes": 64 * 2**20}
    monkeypatch.setattr(loading.shutil, "disk_usage", lambda path: SimpleNamespace(free=free["bytes"]))
    assert fitting_workers(8, 16, (640, 640)) == 1  # 59 MB for each
    assert fitting_workers(8, 16, (640, 640), ranks=2) == 0
    assert fitting_workers(8, 16, (320, 320)) == 4
    free["bytes"] = 2**40
    assert fitting_workers(8, 16, (640, 640)) == 8
    monkeypatch.setattr(loading, "SHARED_MEMORY", tmp_path / "not there")
    free["bytes"] = 0
    assert fitting_workers(8, 16, (640, 640)) == 8
