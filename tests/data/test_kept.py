"""The index that is kept: what is read once is not read again, and no edit of any kind is missed."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import time
from dataclasses import fields, replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from visiontrain.data import index as index_module
from visiontrain.data import kept, watch
from visiontrain.data.description import load_description
from visiontrain.data.index import Index, open_index, read_split
from visiontrain.errors import DataError

LONG_AGO = 10**9  # seconds since the epoch


@pytest.fixture
def data(tmp_path, user_cache, monkeypatch):
    """Six pictures in two folders, labels with a fault, one picture without labels; all of it settled."""
    monkeypatch.setattr(watch, "SETTLED", -(10**12))  # the times of files made now are taken as settled
    root = tmp_path / "ds"
    for number in range(6):
        picture = root / f"images/train/{number % 2}/{number}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(picture), np.full((20 + number, 30, 3), number, np.uint8))
        label = Path(str(picture).replace("images", "labels")).with_suffix(".txt")
        label.parent.mkdir(parents=True, exist_ok=True)
        if number:
            label.write_text(f"0 0.5 0.5 0.{number} 0.2\n1 0.5 0.5 0 0\n")
    (root / "data.yaml").write_text("train: images/train\nnames: [a, b]\n")
    return root


@pytest.fixture
def reads(monkeypatch):
    """How often pictures and labels were read."""
    counted = []
    read = index_module.read_parts

    def counting(*given):
        counted.append(1)
        return read(*given)

    monkeypatch.setattr(index_module, "read_parts", counting)
    return counted


def opened(root: Path) -> Index:
    return open_index(load_description(root / "data.yaml"), "train")


def assert_same(a: Index, b: Index) -> None:
    for each in fields(Index):
        if each.init and each.name != "not_kept":
            ours, theirs = getattr(a, each.name), getattr(b, each.name)
            if isinstance(ours, np.ndarray):
                assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs), each.name
            else:
                assert (list(ours), each.name) == (list(theirs), each.name)


def test_it_is_read_once_and_what_is_mapped_is_what_a_fresh_reading_gives(data, reads, user_cache):
    first, again = opened(data), opened(data)
    assert len(reads) == 1
    fresh = read_split(load_description(data / "data.yaml"), "train")
    assert_same(first, fresh)
    assert_same(again, fresh)
    assert again.place is not None and again.place[0].is_relative_to(user_cache)
    assert not again.all_boxes.flags.owndata and not again.all_boxes.flags.writeable
    assert len(again.findings) == 6 and again.findings[:2] == list(fresh.findings)[:2]
    assert again.findings[-1] == list(fresh.findings)[-1] and not again.findings[2:2]


def write_in_place(path: Path, text: str) -> None:
    """Same name, same folder, same size: only the file itself tells."""
    before = path.stat()
    with path.open("r+") as file:
        file.write(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size and path.stat().st_mtime_ns == before.st_mtime_ns


def edit_class(root: Path) -> None:
    write_in_place(root / "labels/train/1/1.txt", "1")


def edit_row(root: Path) -> None:
    (root / "labels/train/1/1.txt").write_text("0 0.5 0.5 0.25 0.25\n")


def remove_label(root: Path) -> None:
    (root / "labels/train/1/1.txt").unlink()


def add_label(root: Path) -> None:
    (root / "labels/train/0/0.txt").write_text("0 0.5 0.5 0.25 0.25\n")


def add_label_beside(root: Path) -> None:
    (root / "images/train/0/0.txt").write_text("0 0.5 0.5 0.25 0.25\n")


def add_picture(root: Path) -> None:
    cv2.imwrite(str(root / "images/train/1/7.png"), np.zeros((9, 9, 3), np.uint8))


def add_picture_in_a_new_folder(root: Path) -> None:
    (root / "images/train/new/er").mkdir(parents=True)
    cv2.imwrite(str(root / "images/train/new/er/7.png"), np.zeros((9, 9, 3), np.uint8))


def remove_picture(root: Path) -> None:
    (root / "images/train/1/3.png").unlink()


def rename_picture(root: Path) -> None:
    (root / "images/train/1/3.png").rename(root / "images/train/1/33.png")


def resize_picture_in_place(root: Path) -> None:
    cv2.imwrite(str(root / "images/train/1/3.png"), np.zeros((9, 9, 3), np.uint8))


def edit_names(root: Path) -> None:
    (root / "data.yaml").write_text("train: images/train\nnames: [a, b, c]\n")


def edit_split(root: Path) -> None:
    (root / "data.yaml").write_text("train: images/train/0\nnames: [a, b]\n")


@pytest.mark.parametrize(
    "edit",
    [
        edit_class, edit_row, remove_label, add_label, add_label_beside, add_picture, add_picture_in_a_new_folder,
        remove_picture, rename_picture, resize_picture_in_place, edit_names, edit_split,
    ],
)  # fmt: skip
def test_an_edit_is_seen(data, reads, edit):
    """PATH-11: also one that keeps size and time."""
    before = opened(data)
    edit(data)
    after = opened(data)
    assert len(reads) == 2
    assert_same(after, read_split(load_description(data / "data.yaml"), "train"))
    assert after.fingerprint != before.fingerprint
    assert_same(opened(data), after)
    assert len(reads) == 3  # the second reading, the fresh one of this test, and none for the last opening


def test_an_edited_list_file_is_seen_and_a_picture_that_it_waits_for(data, reads):
    (data / "list.txt").write_text("images/train/1/1.png\nlater/7.png\n")
    (data / "data.yaml").write_text("train: list.txt\nnames: [a, b]\n")
    assert len(opened(data)) == 1
    assert len(opened(data)) == 1 and len(reads) == 1
    (data / "later").mkdir()
    cv2.imwrite(str(data / "later/7.png"), np.zeros((9, 9, 3), np.uint8))
    assert len(opened(data)) == 2
    (data / "list.txt").write_text("images/train/1/1.png\nimages/train/1/3.png\nlater/7.png\n")
    assert len(opened(data)) == 3 and len(reads) == 3


def test_another_version_of_the_code_reads_again(data, reads, monkeypatch):
    opened(data)
    monkeypatch.setattr(kept, "reader", lambda: "another")
    opened(data)
    assert len(reads) == 2


def test_the_code_that_counts_is_all_that_reads():
    named = {path.name for path in kept.sources()}
    assert {"yolo.py", "coco.py", "voc.py", "labels.py", "image.py", "header.py", "splits.py", "scan.py"} <= named


def test_files_that_changed_a_moment_ago_are_read_again(data, reads, monkeypatch):
    """Two edits within the grain of a clock may have one time: the second would not be seen."""
    monkeypatch.setattr(watch, "SETTLED", 2 * 10**9)
    first = opened(data)
    opened(data)
    assert len(reads) == 2 and first.place is not None  # kept all the same, for processes to share
    monkeypatch.setattr(watch, "now", lambda: time.time_ns() + 3 * 10**9)
    opened(data), opened(data)
    assert len(reads) == 3


@pytest.mark.parametrize("edit_while_reading", [edit_row, add_picture, add_picture_in_a_new_folder])
def test_an_edit_while_it_is_read_is_seen_the_next_time(data, reads, monkeypatch, edit_while_reading):
    monkeypatch.setattr(watch, "SETTLED", 0)
    time.sleep(0.05)
    stamps = watch.stamps

    def edited(*given):
        time.sleep(0.05)  # the clock of files is coarser than ours; two seconds of SETTLED are more than enough
        edit_while_reading(data)  # the pictures are listed, their stamps still to come
        return stamps(*given)

    monkeypatch.setattr(watch, "stamps", edited)
    opened(data)
    monkeypatch.setattr(watch, "stamps", stamps)
    assert_same(opened(data), read_split(load_description(data / "data.yaml"), "train"))


@pytest.mark.parametrize("place", ["start", "header", "columns", "end"])
@pytest.mark.parametrize("cut", [False, True])
def test_a_damaged_file_is_made_again(data, reads, place, cut):
    """PATH-13."""
    first = opened(data)
    file = first.place[0]
    whole = file.read_bytes()
    at = {"start": 3, "header": 40, "columns": len(whole) - 600, "end": len(whole) - 1}[place]
    del first
    file.write_bytes(whole[:at] if cut else whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    again = opened(data)
    assert len(reads) == 2
    assert_same(again, read_split(load_description(data / "data.yaml"), "train"))
    assert file.read_bytes() == whole


@pytest.mark.parametrize("text", [b"", b"something else", b"VTCOLUM1" + bytes(8)])
def test_a_file_that_is_something_else_is_made_again(data, reads, text):
    opened(data).place[0].write_bytes(text)
    opened(data)
    assert len(reads) == 2


def test_a_cache_that_cannot_be_written_means_memory_and_a_reason(data, reads, user_cache):
    user_cache.write_text("a file where the folder should be")
    index = opened(data)
    assert index.place is None and str(user_cache) in index.not_kept
    assert_same(index, read_split(load_description(data / "data.yaml"), "train"))
    assert index.not_kept in kept.why_not_kept(index.not_kept)
    assert pickle.loads(pickle.dumps(index)).fingerprint == index.fingerprint


def test_a_full_disk_leaves_nothing_behind(data, user_cache, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("visiontrain.data.columns.os.fsync", full)
    index = opened(data)
    assert index.not_kept.endswith("No space left on device") and not list((user_cache / "index").iterdir())


def test_nothing_is_written_beside_the_pictures(data):
    before = sorted((path, path.stat().st_mtime_ns) for path in data.rglob("*"))
    opened(data), opened(data)
    assert sorted((path, path.stat().st_mtime_ns) for path in data.rglob("*")) == before


def test_few_are_kept_of_a_split_and_not_many_of_all(data, user_cache, monkeypatch):
    for number in range(6):
        (data / "labels/train/1/1.txt").write_text(f"0 0.5 0.5 0.25 0.{number + 1}\n")
        opened(data)
    assert len(list((user_cache / "index").iterdir())) == kept.FEW
    monkeypatch.setattr(kept, "MOST", 4)
    for name in "abc":
        (data / f"{name}.yaml").write_text("train: images/train\nnames: [a, b]\n")
        last = open_index(load_description(data / f"{name}.yaml"), "train")
    files = list((user_cache / "index").iterdir())
    assert len(files) == 4 and last.place[0] in files


def test_what_a_killed_writer_left_is_removed_after_a_day(data, user_cache):
    (user_cache / "index").mkdir(parents=True)
    old, new = (user_cache / "index" / f".x.{word}.tmp" for word in ("old", "new"))
    old.write_text(""), new.write_text("")
    os.utime(old, (LONG_AGO, LONG_AGO))
    opened(data)
    assert not old.exists() and new.exists()


def _open_in(root: str, start, results) -> None:
    watch.SETTLED = -(10**12)
    start.wait()
    index = opened(Path(root))
    results.put((index.fingerprint, index.place))


def test_two_processes_at_once_do_no_harm(data, user_cache):
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(3), context.Queue()
    processes = [context.Process(target=_open_in, args=(str(data), start, results)) for _ in range(2)]
    for process in processes:
        process.start()
    start.wait()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    assert {fingerprint for fingerprint, _ in found} == {opened(data).fingerprint}
    assert [path.suffix for path in (user_cache / "index").iterdir()] == [".index"]


def _look(index: Index, results) -> None:
    maps = Path("/proc/self/maps")
    mapped = str(index.place[0]) in maps.read_text() if maps.exists() else True
    results.put((index.fingerprint, index.path(3), index.boxes(3).tolist(), len(index.findings), mapped))


def test_a_spawned_process_maps_the_same_file(data):
    index = opened(data)
    assert len(pickle.dumps(index)) < 600
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=_look, args=(index, results))
    process.start()
    assert results.get(timeout=120) == (index.fingerprint, index.path(3), index.boxes(3).tolist(), 6, True)
    process.join(60)


def test_what_is_gone_or_changed_is_sent_whole(data):
    index = opened(data)
    other = replace(index, all_classes=index.all_classes + 1)
    assert pickle.loads(pickle.dumps(other)).all_classes.tolist() == other.all_classes.tolist()
    words = pickle.dumps(index)
    index.place[0].unlink()
    assert_same(pickle.loads(pickle.dumps(index)), index)
    with pytest.raises(DataError, match="removed or replaced while a run began"):
        pickle.loads(words)


def test_names_that_are_no_text_come_back(data, reads):
    name = os.fsencode(str(data / "images/train/1")) + b"/\xff.png"
    Path(os.fsdecode(name)).write_bytes((data / "images/train/1/1.png").read_bytes())
    Path(os.fsdecode(name + b".broken.png")).write_bytes(b"no picture")
    opened(data)
    again = opened(data)
    assert len(reads) == 1 and os.fsdecode(name) in [again.path(i) for i in range(len(again))]
    assert any(finding.file == os.fsdecode(name + b".broken.png") for finding in again.findings)


def test_the_header_is_plain_json(data):
    file = opened(data).place[0]
    whole = file.read_bytes()
    length = int.from_bytes(whole[8:12], "little")
    header = json.loads(whole[16 : 16 + length])
    assert header["columns"]["all_boxes"][:2] == ["<f4", [5, 4]] and header["about"]["index"]["names"] == ["a", "b"]


COCO = {
    "images": [{"id": 7, "file_name": "1.png", "width": 30, "height": 21}],
    "categories": [{"id": 3, "name": "a"}],
    "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [3, 3, 9, 9], "iscrowd": 0}],
}


def test_an_edited_json_is_seen(data, reads):
    (data / "train.json").write_text(json.dumps(COCO))
    (data / "data.yaml").write_text("train: train.json\npictures: images/train/1\nnames: [a]\n")
    opened(data)
    assert_same(opened(data), read_split(load_description(data / "data.yaml"), "train"))
    assert len(reads) == 2
    write_in_place(data / "train.json", json.dumps(COCO).replace("[3, 3, 9, 9]", "[3, 3, 9, 8]"))
    assert opened(data).boxes(0)[0, 3] == pytest.approx(8 / 21) and len(reads) == 3


XML = "<annotation><object><name>a</name><bndbox><xmin>3</xmin><ymin>3</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object></annotation>"


@pytest.mark.parametrize("listed", [False, True])
def test_an_edited_xml_is_seen_and_a_new_picture(data, reads, listed):
    home = data / "voc"
    for folder in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (home / folder).mkdir(parents=True)
    for name in "xy":
        cv2.imwrite(str(home / f"JPEGImages/{name}.png"), np.zeros((20, 20, 3), np.uint8))
        (home / f"Annotations/{name}.xml").write_text(XML)
    (home / "ImageSets/Main/train.txt").write_text("x\ny\nlate\n")
    (data / "data.yaml").write_text(f"train: voc{'/ImageSets/Main/train.txt' * listed}\nnames: [a]\n")
    opened(data)
    assert len(opened(data)) == 2 and len(reads) == 1
    write_in_place(home / "Annotations/y.xml", XML.replace("<ymax>9", "<ymax>7"))
    assert opened(data).boxes(1)[0, 3] == pytest.approx(0.2) and len(reads) == 2
    cv2.imwrite(str(home / "JPEGImages/late.png"), np.zeros((20, 20, 3), np.uint8))
    assert len(opened(data)) == 3


def test_opening_again_and_again_leaves_no_file_open(data):
    """MEM-03."""
    opened(data)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        opened(data)
    assert len(os.listdir("/proc/self/fd")) == before
