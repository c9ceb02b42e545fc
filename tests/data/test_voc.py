"""Pascal VOC XML: tags by name, decimals, corners in any order; what is wrong is named by file and line."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from visiontrain.checks.data import examine
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.errors import DataError

HEIGHT, WIDTH = 48, 64
GOOD = (10, 12, 30, 18)


def box(corners, order=("xmin", "ymin", "xmax", "ymax")):
    values = dict(zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True))
    return "<bndbox>" + "".join(f"<{edge}>{values[edge]}</{edge}>" for edge in order) + "</bndbox>"


def thing(corners, name="cat", more="", **order):
    """An object on a line of its own."""
    return f"<object><name>{name}</name>{more}{box(corners, **order)}</object>\n"


def xml(*objects, size=f"<size><width>{WIDTH}</width><height>{HEIGHT}</height></size>"):
    return f"<annotation>{size}\n{''.join(objects)}</annotation>"


@pytest.fixture
def split(tmp_path):
    """Write XML files for pictures 0, 1, ... (None: no file) in the tree of VOC and read the split."""

    def write(*texts, text="train: VOC\nnames: [cat, dog]\n", which="train"):
        for folder in ("Annotations", "JPEGImages", "ImageSets/Main"):
            (tmp_path / "VOC" / folder).mkdir(parents=True, exist_ok=True)
        for number, each in enumerate(texts):
            path = tmp_path / f"VOC/JPEGImages/{number}.jpg"
            cv2.imwrite(str(path), np.zeros((HEIGHT, WIDTH, 3), np.uint8))
            if each is not None:
                (tmp_path / f"VOC/Annotations/{number}.xml").write_text(each, "utf-8")
        (tmp_path / "data.yaml").write_text(text, "utf-8")
        return read_split(load_description(tmp_path / "data.yaml"), which)

    return write


def kinds(index):
    """Without the word on how the format was told."""
    return [finding.kind for finding in index.findings if finding.kind != "format_recognised"]


def test_decimals_and_any_order_of_tags(split):
    """FMT-05, FMT-07."""
    index = split(
        xml(thing((45.70000076293945, 1.5, 50, 7)), thing(GOOD, "dog", order=("ymin", "xmin", "ymax", "xmax")))
    )
    np.testing.assert_allclose(index.pixel_boxes(0), [[45.70000076, 1.5, 50, 7], GOOD], atol=1e-5)
    assert index.classes(0).tolist() == [0, 1]
    (finding,) = index.findings
    assert finding.kind == "format_recognised" and "holds Annotations and JPEGImages" in finding.message


def test_parts_of_an_object_are_not_the_object(split):
    head = f"<part><name>head</name>{box((1, 1, 2, 2))}</part>"
    index = split(xml(thing(GOOD, more=head), f"<object>{box(GOOD)}{head}<name>dog</name></object>"))
    np.testing.assert_allclose(index.pixel_boxes(0), [GOOD, GOOD], atol=1e-5)
    assert index.classes(0).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("row", "kind", "said"),
    [
        (thing((10, 5, 10, 9)), "row_size", "width 0 and height 4"),
        (thing((10, 5, "x", 9)), "row_number", "xmax=x"),
        (thing((10, 5, "12,5", 9)), "row_number", "12,5"),
        (thing(("nan", 5, 10, 9)), "row_number", "nan"),
        (thing((70, 5, 80, 9)), "row_outside", "nothing of the box lies in the picture"),
        (thing(GOOD), "row_duplicate", "same as line 2"),
        ("<object><name>cat</name></object>\n", "row_columns", "no xmin, ymin, xmax, ymax in bndbox"),
        (
            "<object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin></bndbox></object>\n",
            "row_columns",
            "no xmax, ymax",
        ),
    ],
)
def test_a_bad_object_is_named_by_line_and_dropped(split, row, kind, said):
    index = split(xml(thing(GOOD), row, thing((40, 5, 50, 9), "dog")))
    assert kinds(index) == [kind] and index.classes(0).tolist() == [0, 1]
    finding = index.findings[0]
    assert finding.line == 3 and finding.file.endswith("Annotations/0.xml") and said in finding.message


def test_corners_in_the_wrong_order_are_turned_and_said(split):
    index = split(xml(thing((30, 18, 10, 12))))
    np.testing.assert_allclose(index.pixel_boxes(0), [GOOD], atol=1e-5)
    assert kinds(index) == ["row_inverted"] and index.findings[0].line == 2


def test_a_box_over_the_border_is_clipped_and_said(split):
    index = split(xml(thing((60, 10, 70, 50)), thing((0, 0, 64.5, 48))))
    np.testing.assert_allclose(index.pixel_boxes(0), [[60, 10, 64, 48], [0, 0, 64, 48]], atol=1e-5)
    assert kinds(index) == ["row_outside", "row_clipped"]


def test_difficult_is_kept_apart_and_counted(split):
    index = split(
        xml(thing(GOOD, more="<difficult>1</difficult>"), thing((1, 1, 9, 9), more="<difficult>0</difficult>"))
    )
    assert index.targets == 1 and index.ignored(0)[1].tolist() == [0] and kinds(index) == ["ignored"]


def test_an_unknown_class_names_the_line_and_the_nearest(split):
    with pytest.raises(DataError, match=r"0\.xml:3: class 'Dog' is not .* allowed are cat, dog; did you mean dog\?"):
        split(xml(thing(GOOD), thing(GOOD, "Dog")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<annotation>\n<object>", r"0\.xml:2: not valid XML"),
        ("", "not valid XML: no element found"),
        ("<html></html>", "not a VOC annotation: its outer tag is 'html'"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><annotation/>', "declares an entity"),
    ],
)
def test_a_file_that_cannot_be_read_stops(split, text, said):
    with pytest.raises(DataError, match=f"1 labels cannot be used:(.|\n)*{said}"):
        split(text, xml(thing(GOOD)))


def test_a_size_that_is_missing_or_zero_is_no_fault_and_another_is(split):
    zero, other = (f"<size><width>{w}</width><height>{h}</height></size>" for w, h in ((0, 0), (HEIGHT, WIDTH)))
    index = split(*(xml(thing(GOOD), size=size) for size in ("", zero, other)))
    assert kinds(index) == ["size_differs"] and "48 x 64 pixels there, 64 x 48" in index.findings[0].message


def test_missing_files_are_background_and_none_at_all_is_an_error(split, tmp_path):
    index = split(xml(thing(GOOD)), None, xml())
    assert [len(index.classes(i)) for i in range(3)] == [1, 0, 0] and kinds(index) == ["labels_missing"]
    (tmp_path / "VOC/Annotations/0.xml").unlink()
    (tmp_path / "VOC/Annotations/2.xml").unlink()
    with pytest.raises(DataError, match=r"no XML file was found for any of 3 pictures(.|\n)*Annotations/0.xml"):
        split()


def test_no_usable_object_is_an_error(split):
    with pytest.raises(DataError, match=r"none of the 1 objects can be used:\n  .*0\.xml:2"):
        split(xml(thing((70, 70, 80, 80))))


@pytest.mark.parametrize("entry", ["VOC", "VOC/JPEGImages", "VOC/ImageSets/Main/train.txt"])
def test_the_tree_is_recognised(split, tmp_path, entry):
    texts = [xml(thing(GOOD))] * 2
    split(*texts)
    (tmp_path / "VOC/ImageSets/Main/train.txt").write_bytes(b"0\r\n\r\n 1.jpg \r\n")
    (tmp_path / "VOC/SegmentationClass").mkdir(exist_ok=True)
    cv2.imwrite(str(tmp_path / "VOC/SegmentationClass/0.png"), np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    index = split(text=f"train: {entry}\nnames: [cat, dog]\n")
    assert [Path(index.path(i)).name for i in range(len(index))] == ["0.jpg", "1.jpg"] and index.targets == 2


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("0 -1\n1  1\n", "a list of one class, with a flag behind each picture"),
        ("0\n", r"'0' is both .*0\.jpg and .*0\.png; write the ending"),
    ],
)
def test_a_list_that_is_not_clear_is_refused(split, tmp_path, lines, said):
    split(xml(thing(GOOD)))
    cv2.imwrite(str(tmp_path / "VOC/JPEGImages/0.png"), np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    (tmp_path / "VOC/ImageSets/Main/train.txt").write_text(lines)
    with pytest.raises(DataError, match=f"train.txt:1: .*{said}"):
        split(text="train: VOC/ImageSets/Main/train.txt\nnames: [cat, dog]\n")


def test_a_listed_picture_that_is_not_there_is_named(split, tmp_path):
    split(xml(thing(GOOD)))
    (tmp_path / "VOC/ImageSets/Main/train.txt").write_text("0\n7\n")
    assert kinds(split(text="train: VOC/ImageSets/Main/train.txt\nnames: [cat, dog]\n")) == ["picture_missing"]


@pytest.mark.parametrize(
    ("pictures", "labels", "more"),
    [
        ("images/train", "Annotations/train", ""),
        ("images/train", "annotations/train", ""),
        ("images/train", "images/train", ""),
        ("images/train", "far", "annotations: far\n"),
        ("images", "far/train", "annotations: {train: far}\n"),
    ],
)
def test_plain_folders(tmp_path, pictures, labels, more):
    for folder, name in ((tmp_path / "images/train", "ä b.JPG"), (tmp_path / labels, "ä b.xml")):
        folder.mkdir(parents=True, exist_ok=True)
        if name.endswith("xml"):
            (folder / name).write_text(xml(thing(GOOD)))
        else:
            cv2.imencode(".jpg", np.zeros((HEIGHT, WIDTH, 3), np.uint8))[1].tofile(folder / name)
    (tmp_path / "d.yaml").write_text(f"format: voc\ntrain: {pictures}\nnames: [cat]\n{more}")
    index = read_split(load_description(tmp_path / "d.yaml"), "train")
    assert index.targets == 1 and not index.findings


def test_labels_without_a_picture_are_found(split, tmp_path):
    split(xml(thing(GOOD)))
    for stem in ("8", "9"):
        (tmp_path / f"VOC/Annotations/{stem}.xml").write_text(xml(thing(GOOD)))
    (tmp_path / "more").mkdir()
    cv2.imwrite(str(tmp_path / "more/8.jpg"), np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    text = "format: voc\ntrain: VOC\nval: more\ntest: gone\nannotations: VOC/Annotations\nnames: [cat]\n"
    (tmp_path / "data.yaml").write_text(text)
    found = examine(load_description(tmp_path / "data.yaml"), 64).findings
    assert [Path(f.file).name for f in found if f.kind == "labels_without_picture"] == ["9.xml"]
    (unusable,) = [f.message for f in found if f.kind == "split_unusable"]
    assert "test: " in unusable and "gone' is not there" in unusable  # and the other two are looked at all the same


def test_yolo_without_labels_points_to_the_xml(tmp_path):
    (tmp_path / "images").mkdir()
    cv2.imwrite(str(tmp_path / "images/0.jpg"), np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations/0.xml").write_text(xml(thing(GOOD)))
    (tmp_path / "d.yaml").write_text("train: images\nnames: [cat]\n")
    with pytest.raises(
        DataError, match=r"holds 0.xml: Pascal VOC labels are read with format: voc and annotations: ann"
    ):
        read_split(load_description(tmp_path / "d.yaml"), "train")
