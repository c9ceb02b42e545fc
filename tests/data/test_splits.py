"""Descriptions and splits: found where they should be, and a message that helps where they are not."""

from __future__ import annotations

import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.data.splits import pictures_of
from visiontrain.errors import DataError
from visiontrain.paths import datasets_dir


@pytest.fixture
def data(tmp_path):
    """A folder ``ds`` with pictures under images/train, and a way to write its description."""
    root = tmp_path / "ds"
    for name in ("b.JpEg", "a.PNG", "sub/c d.png", "sub/äöü.jpg"):
        place = root / "images/train" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        cv2.imencode(place.suffix.lower(), np.zeros((8, 8, 3), np.uint8))[1].tofile(place)
        label = root / "labels/train" / name
        label.parent.mkdir(parents=True, exist_ok=True)
        label.with_suffix(".txt").write_text("0 0.5 0.5 0.5 0.5")
    (root / "images/train/notes.txt").write_text("not a picture")
    (root / "images/train/._a.PNG").write_bytes(b"left by another system")

    def describe(text):
        (root / "data.yaml").write_text(text)
        return load_description(root / "data.yaml")

    return root, describe


def test_a_folder_is_searched_to_the_bottom_in_a_fixed_order(data):
    root, describe = data
    found = pictures_of(describe("path: ./\ntrain: images/train\nnames: [a]"), "train")
    assert [os.path.relpath(path, root / "images/train") for path in found] == [
        "a.PNG", "b.JpEg", "sub/c d.png", "sub/äöü.jpg",
    ]  # fmt: skip
    assert read_split(describe("train: images/train\nnames: [a]"), "train").targets == 4


def test_a_link_to_above_does_not_loop(data):
    root, describe = data
    (root / "images/train/up").symlink_to(root / "images")
    assert len(pictures_of(describe("train: images\nnames: [a]"), "train")) == 4


def test_list_files_are_read_from_where_they_lie(data, monkeypatch, tmp_path):
    root, describe = data
    lines = ["# comment", "", "images/train/a.PNG  ", "./images/train/b.JpEg", str(root / "images/train/sub/c d.png")]
    (root / "list.txt").write_bytes("\r\n".join([*lines, r"images\train\sub\äöü.jpg", lines[2]]).encode())
    monkeypatch.chdir(tmp_path)
    index = read_split(describe("train: list.txt\nnames: [a]"), "train")
    assert len(index) == 4 and index.targets == 4 and not index.findings


def test_windows_separators_in_a_description(data):
    _, describe = data
    assert len(pictures_of(describe("train: images\\train\\sub\nnames: [a]"), "train")) == 2


def test_links_to_pictures_and_folders_are_followed_and_labels_lie_where_the_link_is(data):
    root, describe = data
    (root / "images/linked").mkdir()
    (root / "labels/linked").mkdir()
    (root / "images/linked/1.png").symlink_to(root / "images/train/a.PNG")
    (root / "labels/linked/1.txt").write_text("0 0.5 0.5 0.1 0.1")
    (root / "images/folder").symlink_to(root / "images/train")
    (root / "labels/folder").symlink_to(root / "labels/train")
    index = read_split(describe("train: [images/linked, images/folder]\nnames: [a]"), "train")
    assert len(index) == 5 and not index.findings and 0.1 in index.all_boxes.round(3)


def test_a_split_may_be_several_of_both(data):
    root, describe = data
    (root / "list.txt").write_text("images/train/a.PNG")
    assert len(pictures_of(describe("train: [images/train/sub, list.txt]\nnames: [a]"), "train")) == 3


def test_pictures_that_cannot_be_used_are_named_and_left_out(data):
    root, describe = data
    (root / "images/train/empty.jpg").write_bytes(b"")
    (root / "images/train/wrong.png").write_bytes(b"no picture" * 10)
    whole = (root / "images/train/b.JpEg").read_bytes()
    (root / "images/train/longer.jpg").write_bytes(whole + bytes(10))  # decodes, so it is used
    (root / "list.txt").write_text("images/train/gone.jpg")
    index = read_split(describe("train: [images/train, list.txt]\nnames: [a]"), "train")
    assert len(index) == 5
    kinds = sorted((finding.kind, Path(finding.file).name) for finding in index.findings)
    assert kinds[1:] == [
        ("picture_missing", "gone.jpg"), ("picture_unreadable", "empty.jpg"), ("picture_unreadable", "wrong.png"),
    ]  # fmt: skip
    assert kinds[0][0] == "labels_missing"  # longer.jpg has none


def test_all_pictures_unreadable_is_an_error(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.jpg").write_bytes(b"")
    (tmp_path / "d.yaml").write_text("train: images\nnames: [a]")
    with pytest.raises(DataError, match="none of 1 pictures can be used"):
        read_split(load_description(tmp_path / "d.yaml"), "train")


def test_reading_writes_nothing(data):
    root, describe = data
    description = describe("train: images/train\nnames: [a]")
    before = sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*"))
    read_split(description, "train")
    assert sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: images/trian\nnames: [a]", r"images/trian' is not there .* holds train"),
        ("train: ./images/train'\nnames: [a]", r"images/train'\" is not there"),
        ("val: images/train\nnames: [a]", "no split 'train', it has: val"),
        ("path: elsewhere\ntrain: images\nnames: [a]", r"path: 'elsewhere'"),
        ("train: data.yaml\nnames: [a]", "a folder of pictures or a .txt file"),
        ("train: labels\nnames: [a]", "no picture"),
    ],
)
def test_a_split_that_is_not_there_says_what_is(data, text, message):
    _, describe = data
    with pytest.raises(DataError, match=message):
        read_split(describe(text), "train")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: [images\nnames: [a]", r"data.yaml:2: not valid YAML"),
        ("- a\n- b", "a description is a mapping"),
        ("train: images", "names is missing"),
        ("train: images\nnames: cat", "names must be a list"),
        ("train: images\nnames: {0: a, 2: b}", r"each once; missing: \[1\]"),
        ("train: images\nnames: {cat: 0}", "'cat' is not a number"),
        ("train: images\nnc: 3\nnames: [a, b]", "nc is 3, but names has 2"),
        ("trian: images\nnames: [a]", "did you mean 'trian'"),
        ("train: {a: b}\nnames: [a]", "train must be a folder"),
        ("train: images\nnames: [a]\nimages: {train: many}", "images gives counts"),
    ],
)
def test_a_wrong_description_says_why(data, text, message):
    _, describe = data
    with pytest.raises(DataError, match=message):
        describe(text)


def test_a_mapping_of_names_may_be_in_any_order(data):
    _, describe = data
    assert describe("train: images\nnames: {1: b, 0: a}").names == ("a", "b")


def test_lookup_as_given_then_datasets_then_shipped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_description("coco128").file == (datasets_dir() / "coco128.yaml").absolute()
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets/coco128.yaml").write_text("train: x\nnames: [a]")
    assert load_description("coco128.yaml").names == ("a",)
    (tmp_path / "coco128.yaml").write_text("train: x\nnames: [b]")
    assert load_description("coco128").names == ("b",)


def test_an_unknown_description_names_the_places_and_what_is_near(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="no such description") as caught:
        load_description("coco12.yaml")
    text = str(caught.value)
    for place in (tmp_path / "coco12.yaml", tmp_path / "datasets/coco12.yaml", datasets_dir() / "coco12.yaml"):
        assert str(place) in text
    assert "Did you mean" in text and "coco128" in text


def test_a_folder_is_pointed_to_its_description(data):
    root, describe = data
    describe("train: images\nnames: [a]")
    with pytest.raises(DataError, match=r"give the description in it: data\.yaml"):
        load_description(root)


@pytest.mark.parametrize("file", sorted(datasets_dir().glob("*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_description_loads(file, monkeypatch, tmp_path):
    monkeypatch.setenv("VISIONTRAIN_CACHE", str(tmp_path))
    monkeypatch.setattr("visiontrain.data.shapes.generate", lambda root: None)
    description = load_description(file.stem)
    assert description.root.is_relative_to(tmp_path)  # nothing is ever put into the installation
    assert {"train", "val"} <= description.splits.keys() and set(description.images) == {"train", "val"}
    assert len(description.names) == {"coco": 80, "coco128": 80, "voc": 20, "shapes": 4}[file.stem]
