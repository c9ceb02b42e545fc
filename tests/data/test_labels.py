"""What is wrong in YOLO label files is named by file and line; what can be used is used."""

from __future__ import annotations

import errno

import cv2
import numpy as np
import pytest

from visiontrain.checks.data import examine
from visiontrain.data.description import load_description
from visiontrain.data.formats import FORMATS, open_split, yolo
from visiontrain.data.formats.yolo import label_paths
from visiontrain.data.index import read_split
from visiontrain.errors import DataError

GOOD = "0 0.5 0.5 0.2 0.2"


@pytest.fixture
def split(tmp_path):
    """Write label files (None: no file) beside small pictures and read the split back."""

    def write(*texts, names="[cat, dog]"):
        for folder in ("images", "labels"):
            (tmp_path / folder).mkdir(exist_ok=True)
        for number, text in enumerate(texts):
            cv2.imwrite(str(tmp_path / f"images/{number}.png"), np.zeros((20, 40, 3), np.uint8))
            if text is not None:
                (tmp_path / f"labels/{number}.txt").write_text(text)
        (tmp_path / "data.yaml").write_text(f"train: images\nnames: {names}\n")
        return read_split(load_description(tmp_path / "data.yaml"), "train")

    return write


def test_good_rows_arrive_as_written(split):
    index = split(f"{GOOD}\n1.0\t0.25 0.75 0.5 0.5\r\n\n")
    np.testing.assert_allclose(index.boxes(0), [[0.5, 0.5, 0.2, 0.2], [0.25, 0.75, 0.5, 0.5]])
    assert index.classes(0).tolist() == [0, 1] and index.targets == 2 and not index.findings
    np.testing.assert_allclose(index.pixel_boxes(0), [[16, 8, 24, 12], [0, 10, 20, 20]], atol=1e-5)


def test_each_row_is_judged_by_its_length(split):
    index = split(f"{GOOD}\n0 0.1 0.1 0.4 0.1 0.4 0.4\n")
    np.testing.assert_allclose(index.boxes(0), [[0.5, 0.5, 0.2, 0.2], [0.25, 0.25, 0.3, 0.3]], atol=1e-7)


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ("0 0.5 0.5 0.2", "row_columns"),
        ("0 0.5 0.5 0.2 0.2 0.9", "row_columns"),
        ("0 0.1 0.1 0.4 0.1 0.4 0.4 0.2", "row_columns"),
        ("0 0.5 0.5 0.2 x", "row_number"),
        ("0 0,5 0.5 0.2 0.2", "row_number"),
        ("0 nan 0.5 0.2 0.2", "row_number"),
        ("0 0.5 0.5 inf 0.2", "row_number"),
        ("0 0.5 0.5 -0.2 0.2", "row_size"),
        ("0 0.5 0.5 0 0.2", "row_size"),
        ("0 -0.01 0.5 0.2 0.2", "row_outside"),
        ("0 320 200 64 48", "row_outside"),
        (GOOD, "row_duplicate"),
    ],
)
def test_a_bad_row_is_named_and_dropped(split, row, kind):
    index = split(f"{GOOD}\n{row}\n1 0.3 0.3 0.1 0.1\n")
    (finding,) = index.findings
    assert (finding.kind, finding.line) == (kind, 2)
    assert finding.file.endswith("labels/0.txt") and "dropped" in finding.message and row in finding.message
    assert index.classes(0).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("row", "box", "kind"),
    [
        ("0 0.5 0.5 1.0008 0.4", [0.5, 0.5, 1, 0.4], "row_clipped"),
        ("0 0.9 0.5 0.202 0.4", [0.8995, 0.5, 0.201, 0.4], "row_clipped"),
        ("0 0.9 0.5 0.6 0.4", [0.8, 0.5, 0.4, 0.4], "row_outside"),
        ("0 0.5 0.5 1.000001 1.000001", [0.5, 0.5, 1, 1], None),
    ],
)
def test_an_overshoot_is_clipped_not_dropped(split, row, box, kind):
    index = split(row)
    np.testing.assert_allclose(index.boxes(0), [box], atol=1e-6)
    assert [finding.kind for finding in index.findings] == ([kind] if kind else [])


@pytest.mark.parametrize("word", ["2", "-1", "0.7", "nan", "bird", "dog"])
def test_an_unknown_class_is_an_error_that_names_the_row(split, word):
    with pytest.raises(DataError, match=r"labels/0\.txt:2: class .*allowed are 0 to 1 \(cat, dog\)") as caught:
        split(f"{GOOD}\n{word} 0.5 0.5 0.2 0.2")
    assert ("the number of 'dog' is 1" in str(caught.value)) == (word == "dog")


def test_of_many_unknown_classes_the_first_few_are_named(split):
    with pytest.raises(DataError, match=r"8 label rows (.|\n)*and 3 more"):
        split("\n".join(f"{number} 0.5 0.5 0.2 0.2" for number in range(2, 10)))


def test_polygons_with_one_box_are_not_duplicates(split):
    index = split("0 0.1 0.1 0.4 0.1 0.4 0.4\n0 0.1 0.1 0.1 0.4 0.4 0.4\n")
    assert index.targets == 2 and not index.findings


def test_missing_files_are_background_and_counted(split):
    index = split(GOOD, None, "", None)
    assert [len(index.classes(i)) for i in range(4)] == [1, 0, 0, 0]
    (finding,) = index.findings
    assert finding.kind == "labels_missing" and finding.message.startswith("2 of 4")


def test_no_labels_at_all_is_an_error_that_says_where_it_looked(split, tmp_path):
    (tmp_path / "annotations").mkdir()
    with pytest.raises(DataError, match="no label file was found for any of 2 pictures") as caught:
        split(None, None)
    assert str(tmp_path / "labels/0.txt") in str(caught.value)


def test_no_usable_row_is_an_error(split):
    with pytest.raises(DataError, match=r"none of the 2 label rows can be used(.|\n)*look like pixels"):
        split("0 320 200 64 48\n1 100 200 64 48")


def test_too_many_open_files_is_not_a_fault_of_the_labels(split, monkeypatch):
    split(GOOD)

    def full(*_args, **_kwargs):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(yolo, "open", full, raising=False)
    with pytest.raises(DataError, match=r"labels/0\.txt: cannot be opened: Too many open files"):
        split(GOOD)


def test_names_may_look_like_other_things(split):
    assert split(GOOD, names="[no, on, 1, null, '08', 3.0]").names == ("no", "on", "1", "null", "08", "3.0")


def test_an_edited_label_changes_the_fingerprint(split):
    first = split(GOOD, GOOD).fingerprint
    assert split(GOOD, GOOD).fingerprint == first
    assert split(GOOD, "1 0.5 0.5 0.2 0.2").fingerprint != first  # as many bytes as before
    assert split(GOOD, GOOD, names="[cat, cow]").fingerprint != first


@pytest.mark.parametrize(
    ("picture", "labels"),
    [
        ("/a/images/train/x.jpg", "/a/labels/train/x.txt"),
        ("/images/ds/images/train/x.y.JPG", "/images/ds/labels/train/x.y.txt"),
        ("/a/my_images/x.jpg", "/a/my_images/x.txt"),
        ("/a/images.old/x.jpg", "/a/images.old/x.txt"),
        ("/a/images/images.jpg", "/a/labels/images.txt"),
        ("images/x.jpg", "labels/x.txt"),
    ],
)
def test_only_the_last_folder_called_images_is_replaced(picture, labels):
    assert label_paths(picture)[0] == labels


def test_labels_beside_their_pictures_are_used_and_announced(split, tmp_path):
    split(GOOD)
    (tmp_path / "labels/0.txt").rename(tmp_path / "images/0.txt")
    index = split(None)
    assert index.targets == 1 and [finding.kind for finding in index.findings] == ["labels_beside"]


def test_labels_in_two_places_are_told_by_check(split, tmp_path):
    """PATH-01: labels/ goes before, and the other file is named."""
    split(GOOD)
    (tmp_path / "images/0.txt").write_text("1 0.5 0.5 0.1 0.1")
    assert split().classes(0).tolist() == [0]
    found = examine(load_description(tmp_path / "data.yaml"), 64).findings
    ((file, message),) = [(f.file, f.message) for f in found if f.kind == "labels_in_two_places"]
    assert file == str(tmp_path / "images/0.txt") and str(tmp_path / "labels/0.txt") in message


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_refused_where_there_is_nothing(name, tmp_path):
    (tmp_path / "d.yaml").write_text(f"format: {name}\ntrain: .\nnames: [a]\n")
    with pytest.raises(DataError, match="a split is a JSON" if name == "coco" else "no picture"):
        open_split(load_description(tmp_path / "d.yaml"), "train").pictures()
