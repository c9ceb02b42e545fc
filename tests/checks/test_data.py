"""What is wrong with a data set is named, all of it, by kind, file and line; and what is right is not."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from visiontrain.checks.data import examine
from visiontrain.checks.kinds import KINDS
from visiontrain.data.description import load_description

GOOD = "0 0.5 0.5 0.2 0.2\n1 0.25 0.25 0.3 0.3\n"


def picture(seed, height=120, width=160):
    """A smooth random picture: unlike every other, and itself again after it was saved anew."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)


@pytest.fixture
def data(tmp_path):
    """Three training pictures and two for validation, nothing wrong."""
    for number, split in enumerate(("train", "train", "train", "val", "val")):
        for kind in ("images", "labels"):
            (tmp_path / kind / split).mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(tmp_path / "images" / split / f"{number}.jpg"), picture(number))
        (tmp_path / "labels" / split / f"{number}.txt").write_text(GOOD)
    (tmp_path / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [cat, dog]\n")
    return tmp_path


def found(root, imgsz=160):
    """(kind, file from the root, line) of each finding."""
    report = examine(load_description(root / "data.yaml"), imgsz)
    return [(f.kind, str(Path(f.file).relative_to(root)), f.line) for f in report.findings]


def message(root, kind, imgsz=160):
    report = examine(load_description(root / "data.yaml"), imgsz)
    (text,) = (f.message for f in report.findings if f.kind == kind)
    return text


def test_nothing_is_found_where_nothing_is_wrong(data):
    assert found(data) == []


def test_every_wrong_row_is_named_and_none_stops_the_others(data):
    bad = "7 .5 .5 .2 .2\n0 .5 .5 .2\n0 .5 x .2 .2\n0 .5 .5 -.2 .2\n0 3 .5 .2 .2\n-1 .5 .5 .2 .2\n0.5 .5 .5 .2 .2\ncat .5 .5 .2 .2\n"
    (data / "labels/train/0.txt").write_text(GOOD + bad)
    (data / "labels/val/3.txt").write_text("9 .5 .5 .2 .2\n" + GOOD)
    kinds = ["class_unknown", "row_columns", "row_number", "row_size", "row_outside", *["class_unknown"] * 3]
    expected = {(kind, "labels/train/0.txt", line) for line, kind in enumerate(kinds, 3)}
    assert set(found(data)) == expected | {("class_unknown", "labels/val/3.txt", 1)}


def test_double_annotations_are_named_with_both_lines(data):
    file = data / "labels/train/1.txt"
    file.write_text(GOOD + "0 0.501 0.5 0.2 0.2\n0 0.5 0.5 0.2 0.2\n")
    assert found(data) == [("row_duplicate", "labels/train/1.txt", 4), ("box_twice", "labels/train/1.txt", 3)]
    assert "line 1" in message(data, "box_twice") and "IoU 0.99" in message(data, "box_twice")


def test_boxes_of_two_classes_or_a_little_apart_are_two_objects(data):
    (data / "labels/train/1.txt").write_text(GOOD + "1 0.501 0.5 0.2 0.2\n0 0.51 0.5 0.2 0.2\n")
    assert found(data) == []


def test_boxes_vanish_at_one_size_and_not_at_another(data):
    (data / "labels/val/4.txt").write_text(GOOD + "1 0.8 0.8 0.1 0.02\n")
    assert found(data, 96) == [("box_vanishes", "labels/val/4.txt", 3)]
    assert message(data, "box_vanishes", 96).startswith("9.6 x 1.4 px at imgsz=96")
    assert found(data, 160) == []


def test_a_class_without_boxes_is_named_where_the_description_names_it(data):
    (data / "data.yaml").write_text("train: images/train\nval: images/val\nnames:\n  1: dog\n  0: cat\n  2: owl\n")
    (data / "labels/val/3.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    (data / "labels/val/4.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    assert found(data) == [("class_without_boxes", "data.yaml", 4), ("class_without_boxes", "data.yaml", 6)]
    report = examine(load_description(data / "data.yaml"), 160)
    assert [f.message for f in report.findings] == ["'dog' has no box in val", "'owl' has no box in train and val"]
    assert not report.faults


def test_missing_empty_and_stray_labels(data):
    (data / "labels/train/0.txt").unlink()
    (data / "labels/train/1.txt").write_text("\n")
    (data / "labels/train/9.txt").write_text(GOOD)
    (data / "labels/train/classes.txt").write_text("cat\ndog\n")
    assert found(data) == [
        ("labels_without_picture", "labels/train/9.txt", 0),
        ("picture_without_labels", "images/train/0.jpg", 0),
        ("labels_empty", "labels/train/1.txt", 0),
    ]


def test_pictures_in_two_splits_are_the_same_file_or_nearly(data):
    (data / "images/val/same.jpg").write_bytes((data / "images/train/0.jpg").read_bytes())
    smaller = cv2.resize(picture(1), None, fx=0.8, fy=0.8)
    cv2.imwrite(str(data / "images/val/near.jpg"), smaller, [cv2.IMWRITE_JPEG_QUALITY, 50])
    cv2.imwrite(str(data / "images/train/frame.png"), picture(2) // 2 + 60)
    for name in ("val/same", "val/near", "train/frame"):
        (data / f"labels/{name}.txt").write_text(GOOD)
    assert found(data) == [
        ("picture_in_both", "images/val/same.jpg", 0),
        ("picture_nearly_in_both", "images/val/near.jpg", 0),
        ("picture_nearly_twice", "images/train/frame.png", 0),
    ]
    assert f"{data}/images/train/1.jpg" in message(data, "picture_nearly_in_both")


def test_broken_pictures(data):
    whole = (data / "images/train/0.jpg").read_bytes()
    (data / "images/train/0.jpg").write_bytes(whole[: len(whole) * 6 // 10])  # left out, or grey below
    (data / "images/train/1.jpg").write_bytes(b"")
    (data / "images/val/3.jpg").write_bytes(whole + b"\0" * 10)  # bytes after the end do no harm
    assert found(data) == [
        ("picture_unreadable", "images/train/1.jpg", 0),
        ("picture_truncated", "images/train/0.jpg", 0),
    ]


def test_a_picture_that_breaks_behind_its_header_is_found_before_training_meets_it(data):
    cv2.imwrite(str(data / "images/train/2.png"), picture(2))
    (data / "images/train/2.jpg").unlink()
    sound = (data / "images/train/2.png").read_bytes()
    (data / "images/train/2.png").write_bytes(sound[:60] + bytes(len(sound) - 72) + sound[-12:])
    assert found(data) == [("picture_unreadable", "images/train/2.png", 0)]
    assert "training would leave it grey" in message(data, "picture_unreadable")


def test_twelve_bits_that_were_not_scaled_to_sixteen_are_noted(data):
    deep = picture(2)[..., 0].astype(np.uint16) * 16  # up to 4080 of 65535
    cv2.imwrite(str(data / "images/train/2.png"), deep)
    (data / "images/train/2.jpg").unlink()
    assert found(data) == [("picture_dark", "images/train/2.png", 0)]
    assert "nothing in it is brighter than 15 of 255" in message(data, "picture_dark")
    cv2.imwrite(str(data / "images/train/2.png"), deep * 16)
    assert found(data) == []


def test_the_thumbnail_in_a_header_does_not_end_the_picture(data):
    file = data / "images/train/0.jpg"
    whole = file.read_bytes()
    thumbnail = b"Exif\0\0" + b"II*\0\x08\0\0\0\0\0" + b"\xff\xd8\xff\xd9"
    block = b"\xff\xe1" + (len(thumbnail) + 2).to_bytes(2, "big") + thumbnail
    file.write_bytes(whole[:2] + block + whole[2:-2])
    assert found(data) == [("picture_truncated", "images/train/0.jpg", 0)]
    file.write_bytes(whole[:2] + block + whole[2:])
    assert found(data) == []


def test_a_split_that_cannot_be_used_is_a_finding_and_the_others_are_still_read(data):
    (data / "data.yaml").write_text("train: images/train\nval: images/nowhere\nnames: [cat, dog]\n")
    (data / "labels/train/0.txt").write_text(GOOD + "0 .5 .5 .2\n")
    assert found(data) == [("split_unusable", "data.yaml", 0), ("row_columns", "labels/train/0.txt", 3)]
    report = examine(load_description(data / "data.yaml"), 160)
    assert report.unusable == {"val"}


def test_a_listed_picture_that_is_missing_is_named(data):
    (data / "train.txt").write_text("images/train/0.jpg\nimages/train/none.jpg\n")
    (data / "data.yaml").write_text("train: train.txt\nval: images/val\nnames: [cat, dog]\n")
    assert found(data) == [("picture_missing", "images/train/none.jpg", 0)]


def test_every_kind_that_is_found_anywhere_is_described(checkout):
    import ast

    used = {
        node.args[0].value
        for path in (checkout / "visiontrain").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding"
        if isinstance(node.args[0], ast.Constant)
    }
    assert used - {"labels_missing"} <= KINDS.keys()
    assert all(kind.title and kind.remedy for kind in KINDS.values())
