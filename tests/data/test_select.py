"""fraction, classes and single_cls: which pictures and boxes are used, and that it is said."""

from __future__ import annotations

import shutil
from dataclasses import replace

import cv2
import numpy as np
import pytest

from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.data.select import class_numbers, members, select, shares, take
from visiontrain.errors import ConfigError, DataError

NAMES = ("cat", "dog", "emu", "1")
# Per picture the classes of its boxes; emus are rare.
LABELS = [
    [0],
    [0, 1],
    [1],
    [0, 0],
    [],
    [1, 1, 0],
    [0],
    [2, 0],
    [1],
    [],
    [0, 1],
    [0],
    [1],
    [0],
    [2],
    [0, 1],
    [0],
    [0],
    [1],
    [],
]


def write(root, labels, start=0):
    for kind in ("images", "labels"):
        (root / kind).mkdir(parents=True, exist_ok=True)
    for number, classes in enumerate(labels, start):
        cv2.imwrite(str(root / f"images/{number:03}.png"), np.full((12, 16, 3), number, np.uint8))
        rows = "\n".join(f"{c} 0.5 {0.3 + 0.1 * k:.2f} 0.2 0.2" for k, c in enumerate(classes))
        (root / f"labels/{number:03}.txt").write_text(rows + "\n")
    (root / "d.yaml").write_text(f"train: images\nval: images\nnames: {list(NAMES)}\n")
    return root


def read(root, split="train"):
    return read_split(load_description(root / "d.yaml"), split)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write(tmp_path_factory.mktemp("few"), LABELS)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    return write(tmp_path_factory.mktemp("many"), LABELS * 10)


def stems(index):
    return [index.path(i)[-7:-4] for i in range(len(index))]


def rows(index):
    return {
        stem: list(zip(index.classes(i).tolist(), index.boxes(i).tolist(), strict=True))
        for i, stem in enumerate(stems(index))
    }


def test_what_is_not_asked_for_changes_nothing(root):
    index = read(root)
    assert select(index, root) is index and select(index, root, classes="all") is index and index.told == ()


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5, 0.99])
def test_a_fraction_is_as_large_as_asked_for_and_of_every_class_alike(many, fraction):
    index = read(many)
    part = select(index, many, fraction)
    assert len(part) == round(fraction * len(index))
    assert rows(part).items() <= rows(index).items()  # paths, boxes and classes stay together
    assert all(part.size(i) == (12, 16) for i in range(len(part)))
    emus = [sum(2 in index.classes(i) for i in range(len(index))) for index in (index, part)]
    empty = [sum(len(index.classes(i)) == 0 for i in range(len(index))) for index in (index, part)]
    assert abs(emus[1] - fraction * emus[0]) <= 1 and abs(empty[1] - fraction * empty[0]) <= 1
    assert f"{len(part)} of {len(index)} train pictures" in part.told[0]


def test_even_a_small_fraction_has_every_class(many):
    part = select(read(many), many, 0.02)  # four of two hundred, one emu's share would be 0.4
    assert {c for i in range(len(part)) for c in part.classes(i).tolist()} == {0, 1, 2}
    assert len(select(read(many), many, 1e-6)) == 1


def test_a_fraction_knows_no_order_no_place_and_no_seed(many, tmp_path):
    whole = read(many)
    backwards = take(whole, np.ones(len(whole), bool))
    order = np.arange(len(whole))[::-1]
    paths = [whole.path_bytes[(whole.path_ends[i - 1] if i else 0) : whole.path_ends[i]] for i in order]
    ends = [len(whole.classes(i)) for i in order]
    object.__setattr__(backwards, "path_bytes", np.concatenate(paths))
    object.__setattr__(backwards, "path_ends", np.cumsum([len(p) for p in paths]))
    object.__setattr__(backwards, "box_ends", np.cumsum(ends))
    object.__setattr__(backwards, "all_classes", np.concatenate([whole.classes(i) for i in order]))
    kept = members(whole, 0.3, many)
    assert np.array_equal(members(backwards, 0.3, many)[::-1], kept)
    moved = shutil.copytree(many, tmp_path / "elsewhere")
    assert np.array_equal(members(read(moved), 0.3, moved), kept)
    runs = np.flatnonzero(np.diff(kept.astype(int)))
    assert len(runs) > 50  # not the first third, nor every third


def test_more_pictures_do_not_deal_anew(many, tmp_path):
    before = select(read(many), many, 0.3)
    grown = write(shutil.copytree(many, tmp_path / "grown"), LABELS[:10], start=200)
    after = select(read(grown), grown, 0.3)
    old = set(stems(before))
    assert len(after) == 63 and len(old - set(stems(after))) <= 3


def test_a_larger_fraction_holds_nearly_all_of_a_smaller_one(many):
    small, large = (set(stems(select(read(many), many, f))) for f in (0.2, 0.4))
    assert len(small - large) <= 1


def test_shares_add_up_and_leave_none_out():
    for counts, total in (([5, 3, 0, 2], 5), ([1000, 1, 1, 1], 10), ([7], 3), ([1, 1, 1], 2), ([3, 3, 3], 9)):
        found = shares(np.array(counts), total)
        assert found.sum() == total and (found <= counts).all()
        if total >= np.count_nonzero(counts):
            assert ((found > 0) == (np.array(counts) > 0)).all()


def test_boxes_of_other_classes_are_left_out_and_their_pictures_stay(root):
    index = read(root)
    for word in ("dog", "1", " dog ,emu", "1,2"):
        chosen = {"dog": {1}, "1": {1}}.get(word, {1, 2})
        part = select(index, root, classes=word)
        assert len(part) == len(index) and part.names == NAMES  # numbers and names stay
        assert rows(part) == {s: [row for row in r if row[0] in chosen] for s, r in rows(index).items()}
    (told,) = select(index, root, classes="dog").told
    assert "1 ('dog')" in told and "15 of 24 train boxes are of other classes" in told and "9 pictures more" in told


@pytest.mark.parametrize(
    ("word", "said"),
    [("dgo", "did you mean dog"), ("4", "numbers 0 to 3"), ("-1", "numbers 0 to 3"), ("0.5", "numbers 0")],
)
def test_a_class_that_is_not_there_is_named(word, said):
    with pytest.raises(ConfigError, match=said):
        class_numbers(f"0,{word}", NAMES)


def test_classes_without_any_box_cannot_be_trained_but_scored(root):
    with pytest.raises(DataError, match="nothing to learn"):
        select(read(root), root, classes="3")
    assert select(read(root, "val"), root, classes="3").targets == 0


@pytest.mark.parametrize(("classes", "name"), [("", "item"), ("1,2", "item"), ("emu", "emu")])
def test_all_boxes_as_one_class(root, classes, name):
    index = read(root)
    part = select(index, root, classes=classes, single_cls=True)
    assert part.names == (name,) and not part.all_classes.any()
    assert part.targets == select(index, root, classes=classes).targets > 0
    assert f"{part.targets} boxes of train are of one class, {name!r}" in part.told[-1]


def test_what_is_learned_from_has_a_fingerprint_of_its_own(root):
    index = read(root)
    choices = [{}, {"fraction": 0.5}, {"fraction": 0.4}, {"classes": "0"}, {"classes": "cat"}, {"single_cls": True}]
    prints = [select(index, root, **choice).fingerprint for choice in choices]
    assert len(set(prints)) == 5 and prints[3] == prints[4]


def test_ignored_objects_go_with_their_pictures_and_classes(root):
    """As a crowd of COCO: what is not chosen is gone there too."""
    index = read(root)
    counts = np.arange(len(index)) % 3
    index = replace(
        index,
        ignored_ends=np.cumsum(counts),
        ignored_boxes=np.random.default_rng(0).random((counts.sum(), 4), np.float32),
        ignored_classes=np.arange(counts.sum(), dtype=np.int32) % 3,
    )
    chosen = select(index, root, fraction=0.5, classes="cat,dog")
    original = {index.path(i): i for i in range(len(index))}
    assert len(chosen.ignored_classes) > 2
    for i in range(len(chosen)):
        boxes, classes = index.ignored(original[chosen.path(i)])
        np.testing.assert_array_equal(chosen.ignored(i)[0], boxes[classes < 2])
        np.testing.assert_array_equal(chosen.ignored(i)[1], classes[classes < 2])
    assert not select(index, root, single_cls=True).ignored_classes.any()
