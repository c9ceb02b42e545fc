"""A cache gives the pixels that the file gives, to every process, and notices when they are not those any more."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
from dataclasses import replace

import cv2
import numpy as np
import pytest

from visiontrain.config.groups import AugmentConfig
from visiontrain.data import cache as module
from visiontrain.data import pixels
from visiontrain.data.bad import BadPicture
from visiontrain.data.cache import close, in_memory, on_disk
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.data.loader import Loader
from visiontrain.data.pixels import Pixels, fitted, read, sides
from visiontrain.data.sampler import WindowSampler
from visiontrain.errors import DataError

SIZE = (64, 64)
SIDES = [(40, 90), (64, 64), (130, 70), (31, 20), (200, 333)]


@pytest.fixture
def index(tmp_path):
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
    rng = np.random.default_rng(0)
    for number, (height, width) in enumerate(SIDES):
        cv2.imwrite(str(tmp_path / f"images/{number}.jpg"), rng.integers(0, 255, (height, width, 3), np.uint8))
        (tmp_path / f"labels/{number}.txt").write_text("0 0.5 0.5 0.4 0.4")
    (tmp_path / "d.yaml").write_text("train: images\nnames: [a]\n")
    return read_split(load_description(tmp_path / "d.yaml"), "train")


@pytest.fixture
def decoded(monkeypatch):
    """The numbers of the pictures that were read from their files."""
    numbers = []
    real = pixels.read
    monkeypatch.setattr(
        pixels, "read", lambda index, number, size: (numbers.append(number), real(index, number, size))[1]
    )
    return numbers


def all_of(source, index):
    return [source[number].copy() for number in range(len(index))]


def in_a_child(source, number, answer):
    answer.put(source[number].sum())


def test_pictures_fit_into_the_size_and_are_never_enlarged(index):
    heights, widths = sides(index, SIZE)
    for number, (height, width) in enumerate(SIDES):
        picture = read(index, number, SIZE)
        assert picture.shape[:2] == fitted(height, width, SIZE) == (heights[number], widths[number])
        assert max(picture.shape) <= 64 and (max(height, width) > 64 or picture.shape[:2] == (height, width))


@pytest.mark.parametrize("seed", range(3))
def test_sides_of_many_are_those_of_each(index, seed):
    many = replace(index, sizes=np.random.default_rng(seed).integers(1, 5000, (2000, 2)).astype(np.int32))
    for size in ((640, 640), (384, 640), (33, 1000)):
        expected = [fitted(*map(int, each), size) for each in many.sizes]
        assert [(int(h), int(w)) for h, w in zip(*sides(many, size), strict=True)] == expected


def test_what_samples_were_about_stays_longest_and_no_more_than_kept(index, decoded):
    """A guest goes before those that later samples draw from, and then the oldest of these."""
    plain = Pixels(index, SIZE)
    expected = all_of(plain, index)
    room = sum(
        expected[number].nbytes for number in (0, 1, 4)
    )  # the largest of the guests, and less than 0, 1, 2 and 3
    source = Pixels(index, SIZE, kept=room)
    decoded.clear()
    for number in (0, 1):
        source.begin(number)
    for guest in (2, 3, 4):
        np.testing.assert_array_equal(source[guest], expected[guest])
    assert decoded == [0, 1, 2, 3, 4] and [*source._own] == [0, 1]
    source.begin(2)
    source.begin(3)
    assert [*source._own] == [1, 2, 3] and not source._guests
    for number in range(5):
        np.testing.assert_array_equal(source[number], expected[number])
        held = [*source._own.values(), *source._guests.values()]
        assert source._bytes == sum(picture.nbytes for picture in held) <= source.kept
    assert not pickle.loads(pickle.dumps(source))._own


def test_one_picture_is_there_however_little_may_be_kept(index):
    source = Pixels(index, SIZE, kept=1)
    source.begin(4)
    np.testing.assert_array_equal(source[0], read(index, 0, SIZE))
    assert len(source._own) + len(source._guests) == 1


@pytest.mark.parametrize("where", ["ram", "disk", "temporary file"])
def test_a_cache_changes_no_pixel_and_no_picture_is_decoded_twice(index, decoded, user_cache, monkeypatch, where):
    if where == "temporary file":  # where the system knows no file in memory
        monkeypatch.delattr(os, "memfd_create")
    cache = on_disk(index, SIZE, *sides(index, SIZE)) if where == "disk" else in_memory(*sides(index, SIZE))
    source, plain = Pixels(index, SIZE, cache=cache), Pixels(index, SIZE)
    for one, two in zip(all_of(source, index), all_of(plain, index), strict=True):
        np.testing.assert_array_equal(one, two)
    decoded.clear()
    other = pickle.loads(pickle.dumps(source))  # as a process that is spawned gets it
    for one, two in zip(all_of(other, index), all_of(plain, index), strict=True):
        np.testing.assert_array_equal(one, two)
    assert decoded == []
    close(cache)
    left = [path for path in user_cache.rglob("*") if path.is_file()]
    assert len(left) == (2 if where == "disk" else 0)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_one_process_keeps_another_finds(index, method):
    context = multiprocessing.get_context(method)
    cache = in_memory(*sides(index, SIZE))
    source, answer = Pixels(index, SIZE, cache=cache), context.Queue()
    worker = context.Process(target=in_a_child, args=(source, 2, answer))
    worker.start()
    total = answer.get(timeout=60)
    worker.join()
    assert cache.get(2) is not None and cache.get(2).sum() == total == read(index, 2, SIZE).sum()
    assert cache.get(1) is None
    close(cache)


def test_samples_are_the_same_with_workers_and_a_cache(index):
    cache = in_memory(*sides(index, SIZE))
    keys = [keys for epoch in range(2) for keys in WindowSampler([(0, 5)], 2, epoch)]
    with Loader(TrainSet(index, 64, AugmentConfig(), 0, 9)) as plain:
        expected = list(plain.run(keys))
    with Loader(TrainSet(index, 64, AugmentConfig(), 0, 9, cache=cache), workers=2) as helped:
        for one, two in zip(expected, helped.run(keys), strict=True):
            assert (one.images == two.images).all() and one.positions == two.positions
    close(cache)


def test_a_later_run_finds_what_an_earlier_one_kept_unless_a_picture_has_changed(index, decoded, user_cache, tmp_path):
    def run():
        decoded.clear()
        cache = on_disk(index, SIZE, *sides(index, SIZE))
        found = all_of(Pixels(index, SIZE, cache=cache), index)
        close(cache)
        return found, list(decoded)

    first, read_first = run()
    again, read_again = run()
    assert (read_first, read_again) == ([0, 1, 2, 3, 4], [])
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))
    cv2.imwrite(str(tmp_path / "images/1.jpg"), np.full((64, 64, 3), 200, np.uint8))
    changed, read_changed = run()
    assert read_changed == [0, 1, 2, 3, 4] and changed[1].mean() > 195
    assert len(list((user_cache / "pictures").iterdir())) == 1  # the old one is gone


def test_what_is_not_full_outlives_the_process_and_not_the_power(index, decoded, user_cache, monkeypatch):
    """Another run may still write to it, and what it writes may not be on the disk when the power goes."""
    cache = on_disk(index, SIZE, *sides(index, SIZE))
    Pixels(index, SIZE, cache=cache)[3]
    close(cache)
    decoded.clear()
    all_of(Pixels(index, SIZE, cache=on_disk(index, SIZE, *sides(index, SIZE))), index)
    assert decoded == [0, 1, 2, 4]
    monkeypatch.setattr(module, "_boot", lambda: "another start of the machine")
    decoded.clear()
    cache = on_disk(index, SIZE, *sides(index, SIZE))
    all_of(Pixels(index, SIZE, cache=cache), index)
    assert decoded == [0, 1, 2, 3, 4]
    close(cache)
    monkeypatch.setattr(module, "_boot", lambda: "a third")
    decoded.clear()
    all_of(Pixels(index, SIZE, cache=on_disk(index, SIZE, *sides(index, SIZE))), index)
    assert decoded == []  # full, so nobody wrote after it was synced


def test_pixels_of_another_decoder_are_not_used(index, decoded, user_cache, monkeypatch):
    cache = on_disk(index, SIZE, *sides(index, SIZE))
    all_of(Pixels(index, SIZE, cache=cache), index)
    close(cache)
    monkeypatch.setattr(module, "reader", lambda: "with another OpenCV")
    decoded.clear()
    all_of(Pixels(index, SIZE, cache=on_disk(index, SIZE, *sides(index, SIZE))), index)
    assert decoded == [0, 1, 2, 3, 4]


def test_a_picture_rewritten_with_its_old_size_and_time_is_seen(index, decoded, user_cache, tmp_path):
    cache = on_disk(index, SIZE, *sides(index, SIZE))
    all_of(Pixels(index, SIZE, cache=cache), index)
    close(cache)
    file = tmp_path / "images/1.jpg"
    before = file.stat()
    file.write_bytes(file.read_bytes())
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    decoded.clear()
    all_of(Pixels(index, SIZE, cache=on_disk(index, SIZE, *sides(index, SIZE))), index)
    assert decoded == [0, 1, 2, 3, 4]


def test_a_picture_that_is_gone_is_told_by_what_draws_it(index, user_cache, tmp_path):
    (tmp_path / "images/2.jpg").unlink()
    cache = on_disk(index, SIZE, *sides(index, SIZE))
    source = Pixels(index, SIZE, cache=cache)
    source[1]
    with pytest.raises(BadPicture, match=r"2\.jpg"):
        source[2]


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system cannot take room beforehand")
def test_the_room_is_taken_when_the_file_is_made(index, user_cache, monkeypatch):
    cache = on_disk(index, SIZE, *sides(index, SIZE))
    assert os.stat(cache.path).st_blocks * 512 >= cache.length

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DataError, match="No space left"):
        on_disk(index, (32, 32), *sides(index, (32, 32)))


@pytest.mark.parametrize("fault", ["power", "short", "state", "format"])
def test_what_may_not_be_whole_is_made_anew(index, decoded, user_cache, monkeypatch, fault):
    cache = on_disk(index, SIZE, *sides(index, SIZE))
    all_of(Pixels(index, SIZE, cache=cache), index)  # never closed: the process was killed
    decoded.clear()
    all_of(Pixels(index, SIZE, cache=on_disk(index, SIZE, *sides(index, SIZE))), index)
    assert decoded == []  # a killed process loses nothing
    (folder,) = (user_cache / "pictures").iterdir()
    if fault == "power":
        monkeypatch.setattr(module, "_boot", lambda: "another start of the machine")
    elif fault == "short":
        os.truncate(folder / "pixels.bin", cache.length - 1)
    elif fault == "state":
        (folder / "state.json").write_text("{")
    else:
        state = json.loads((folder / "state.json").read_text())
        (folder / "state.json").write_text(json.dumps({**state, "format": "older"}))
    all_of(Pixels(index, SIZE, cache=on_disk(index, SIZE, *sides(index, SIZE))), index)
    assert decoded == [0, 1, 2, 3, 4]


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(index, user_cache, monkeypatch):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: module.shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(DataError, match=r"5 pictures take .* has 0.0 GB left; make room"):
        on_disk(index, SIZE, *sides(index, SIZE))
    assert not list(user_cache.rglob("pixels.bin"))
