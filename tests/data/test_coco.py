"""COCO JSON: what is right arrives as written, what is wrong is named, by annotation where there is one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from visiontrain.checks.data import examine
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.errors import DataError

HEIGHT, WIDTH = 48, 64


def content(*boxes, pictures=("0.png",), categories=((3, "cat"), (7, "dog")), **more):
    """A JSON whose annotations 10, 11, ... are ``boxes`` of cats in the first picture, or maps as they are."""
    rows = [box if isinstance(box, dict) else {"bbox": box} for box in boxes]
    first = {"image_id": 100, "category_id": categories[0][0]}
    return {
        "images": [{"id": 100 + n, "file_name": name} for n, name in enumerate(pictures)],
        "annotations": [first | {"id": 10 + n} | row for n, row in enumerate(rows)],
        "categories": [{"id": number, "name": name} for number, name in categories],
    } | more


@pytest.fixture
def split(tmp_path):
    """Write a JSON and the pictures it names, and read it by way of a description."""

    def write(data, text="train: train.json\n", folder="", names=("0.png",), which="train"):
        for name in names:
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imencode(".png", np.zeros((HEIGHT, WIDTH, 3), np.uint8))[1].tofile(path)
        (tmp_path / "train.json").write_text(data if isinstance(data, str) else json.dumps(data), "utf-8")
        (tmp_path / "data.yaml").write_text(text, "utf-8")
        return read_split(load_description(tmp_path / "data.yaml"), which)

    return write


def test_boxes_arrive_as_written_and_ids_with_gaps_are_classes_by_name(split):
    """FMT-01: ids start anywhere and have gaps; names without a list are those of the JSON, by id."""
    data = content(
        [10, 12, 20, 6.5], {"bbox": [0, 0, 64, 48], "category_id": 90}, categories=((90, "fox"), (3, "cat"), (7, "dog"))
    )
    data["annotations"][0]["category_id"] = 3
    index = split(data)
    assert index.names == ("cat", "dog", "fox") and index.classes(0).tolist() == [0, 2] and not index.findings
    np.testing.assert_allclose(index.pixel_boxes(0), [[10, 12, 30, 18.5], [0, 0, 64, 48]], atol=1e-5)


def test_classes_follow_the_names_of_the_description(split, tmp_path):
    """FMT-09: one mapping for all splits, whatever ids each JSON has."""
    text = "train: train.json\nval: val.json\nnames: [dog, cat]\n"
    (tmp_path / "val.json").write_text(
        json.dumps(content([1, 1, 5, 5], categories=((0, "cat"), (1, "dog"), (2, "unused"))))
    )
    assert split(content([1, 1, 5, 5]), text).classes(0).tolist() == [1]
    assert split(content([1, 1, 5, 5]), text, which="val").classes(0).tolist() == [1]


def test_names_left_out_are_those_of_the_training_json_for_every_split(split, tmp_path):
    (tmp_path / "val.json").write_text(json.dumps(content([1, 1, 5, 5], categories=((1, "dog"), (2, "cat")))))
    assert split(content([1, 1, 5, 5]), "train: train.json\nval: val.json\n", which="val").classes(0).tolist() == [1]


def test_categories_that_names_lacks_stop_with_a_table(split):
    """FMT-08: Cat is not cat; a run on nothing is refused."""
    with pytest.raises(
        DataError, match=r"1 categories have .* not in names \(Cat\):\n  'cat': 2 annotations; did you mean Cat\?"
    ):
        split(content([1, 1, 5, 5], [2, 2, 5, 5]), "train: train.json\nnames: [Cat]\n")
    with pytest.raises(DataError, match="category_id 5, which categories does not have: 1 annotations"):
        split(content({"bbox": [1, 1, 5, 5], "category_id": 5}))


@pytest.mark.parametrize(
    ("row", "kind", "said"),
    [
        ({"bbox": [5, 5, 0, 4]}, "row_size", "width 0 and height 4"),
        ({"bbox": [5, 5, -3, 4]}, "row_size", "width -3"),
        ({"bbox": [5, 5, 4]}, "row_number", "bbox"),
        ({"bbox": "5 5 4 4"}, "row_number", "bbox"),
        ({"bbox": [5, 5, float("nan"), 4]}, "row_number", "nan"),
        ({}, "row_number", "nan"),
        ({"bbox": [70, 5, 10, 10]}, "row_outside", "nothing of the box lies in the picture of 64 x 48"),
        ({"bbox": [1, 1, 9, 9]}, "row_duplicate", "same as annotation 10"),
    ],
)
def test_a_bad_annotation_is_named_and_dropped(split, row, kind, said):
    index = split(content([1, 1, 9, 9], row, [20, 20, 9, 9]))
    (finding,) = index.findings
    assert finding.kind == kind and finding.file.endswith("train.json") and finding.line == 0
    assert finding.message.startswith("annotation 11: ") and said in finding.message and "0.png" in finding.message
    assert index.targets == 2


def test_a_box_partly_outside_is_clipped_and_said(split):
    """FMT-04."""
    index = split(content([60, 10, 10, 50], [63.9, 1, 0.2, 5]))
    np.testing.assert_allclose(index.pixel_boxes(0), [[60, 10, 64, 48], [63.9, 1, 64, 6]], atol=1e-5)
    assert [finding.kind for finding in index.findings] == ["row_outside", "row_clipped"]


def test_no_usable_annotation_is_an_error(split):
    with pytest.raises(DataError, match="none of the 1 annotations can be used"):
        split(content([70, 70, 5, 5]))


def test_crowd_is_kept_apart_and_counted(split):
    rows = ({"bbox": [1, 1, 9, 9], "iscrowd": 1}, {"bbox": [2, 2, 9, 9], "ignore": 1, "category_id": 7}, [20, 20, 9, 9])
    last = {"bbox": [3, 3, 9, 9], "iscrowd": 1, "image_id": 102}
    names = ("0.png", "1.png", "2.png")
    index = split(content(*rows, last, pictures=names), names=names)
    assert index.targets == 1 and [len(index.ignored(i)[1]) for i in range(3)] == [2, 0, 1]
    boxes, classes = index.ignored(0)
    np.testing.assert_allclose(boxes[:, 2:] * (WIDTH, HEIGHT), [[9, 9], [9, 9]], rtol=1e-6)
    assert classes.tolist() == [0, 1]
    (finding,) = index.findings
    assert finding.kind == "ignored" and finding.message.startswith("3 crowd boxes of train are left out")


def test_an_outline_without_a_box_becomes_its_box_and_outlines_of_one_box_are_two(split):
    """LBL-09: two outlines may have one box."""
    outline = {"segmentation": [[10, 10, 20, 10, 20, 30]]}
    same = {"bbox": [10, 10, 10, 20], "segmentation": [[10, 10, 10, 30, 20, 30, 20, 11]]}
    index = split(content(outline | {"area": 100}, same | {"area": 110}))
    np.testing.assert_allclose(index.pixel_boxes(0), [[10, 10, 20, 30]] * 2, atol=1e-5)


def test_sizes_may_be_missing_and_where_they_differ_it_is_said(split):
    data = content([1, 1, 5, 5], pictures=("0.png", "1.png", "2.png"))
    data["images"][1] |= {"width": WIDTH, "height": HEIGHT}
    data["images"][2] |= {"width": HEIGHT, "height": WIDTH}
    (finding,) = split(data, names=("0.png", "1.png", "2.png")).findings
    assert finding.kind == "size_differs" and "2.png: 48 x 64 pixels there, 64 x 48 in the picture" in finding.message


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("", "0.png"),
        ("", "sub/ä b.PNG"),
        ("images", "0.png"),
        ("images/train", "0.png"),
        ("train", "0.png"),
        ("images/train", "x\\0.png"),
    ],
)
def test_pictures_are_found_where_they_usually_are(split, folder, name):
    index = split(content([1, 1, 5, 5], pictures=(name,)), folder=folder, names=(name.replace("\\", "/"),))
    assert index.targets == 1 and not index.findings


def test_the_description_says_where_pictures_are_and_a_picture_that_is_not_is_named(split, tmp_path):
    data = content([1, 1, 5, 5], pictures=("0.png", "gone.png"))
    text = "train: train.json\npictures: {train: far/away}\n"
    index = split(data, text, folder="far/away")
    assert len(index) == 1 and [finding.kind for finding in index.findings] == ["picture_missing"]
    with pytest.raises(DataError, match=r"there is no folder '.*far/off'"):
        split(data, text.replace("away", "off"))
    shutil.rmtree(tmp_path / "far")
    (tmp_path / "0.png").unlink()
    with pytest.raises(
        DataError, match=r"names pictures such as '0.png', which is in none of\n(.|\n)*pictures: \{train:"
    ):
        split(data, names=())


def test_a_picture_in_two_files_has_the_boxes_of_both(split, tmp_path):
    (tmp_path / "more.json").write_text(json.dumps(content([20, 20, 5, 5])))
    index = split(content([1, 1, 5, 5]), "train: [train.json, more.json]\nnames: [cat, dog]\n")
    assert len(index) == 1 and index.targets == 2


def test_each_picture_has_its_own_annotations_whatever_the_order_of_the_file(split):
    names = ("b.png", "a.png", "c.png")
    rows = [{"bbox": [n, n, 9, 9], "image_id": 100 + image} for n, image in enumerate((2, 0, 1, 0, 2), 1)]
    index = split(content(*rows, pictures=names), names=names)
    lefts = {Path(index.path(i)).name: index.pixel_boxes(i)[:, 0].round(3).tolist() for i in range(3)}
    assert lefts == {"a.png": [3], "b.png": [2, 4], "c.png": [1, 5]}


def test_annotations_of_pictures_that_are_not_there_are_counted(split, tmp_path):
    split(content([1, 1, 5, 5], {"bbox": [1, 1, 2, 2], "image_id": 7}), "train: train.json\nval: train.json\n")
    found = examine(load_description(tmp_path / "data.yaml"), 64).findings
    said = [f.message for f in found if f.kind == "labels_without_picture"]
    assert said == ["1 annotations are of pictures that images does not have, e.g. annotation 11 of image 7"]


def test_check_names_the_annotation_where_there_is_no_line(split, tmp_path):
    split(content([1, 1, 30, 30], [1, 1, 30, 30.5], [50, 40, 1, 1]), "train: train.json\nval: train.json\n")
    found = examine(load_description(tmp_path / "data.yaml"), 64).findings
    assert {f.message.split(", ")[0] for f in found if f.kind == "box_twice"} == {
        "annotation 11: IoU 0.984 with annotation 10"
    }
    assert [f.line for f in found if f.kind == "box_vanishes"] == [0]
    assert [f.line for f in found if f.kind == "class_without_boxes"] == [0]  # dog stands in no line of the description


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{", r"train.json:1: not valid JSON: .*column"),
        ("[]", "no images in a list"),
        ('{"images": [], "annotations": {}, "categories": []}', "no annotations in images"),
        (content(pictures=()), "images is empty"),
        (content(images=[{"id": 1}]), "images, entry 0 .* needs an id and a file_name"),
        (content(images=[{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}]), "id 1 is of both 'a' and 'b'"),
        (content(categories=((1, "a"), (1, "b"))), "categories: id 1 is of both"),
        (content(annotations=["a"]), "annotation 0 .* not a map"),
    ],
)
def test_a_file_that_is_not_coco_says_why(split, data, said):
    with pytest.raises(DataError, match=said):
        split(data, "train: train.json\nnames: [cat]\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train: trian.json\nnames: [cat]", r"trian.json' is not there .*train.json"),
        ("train: trian.json", r"trian.json: cannot be opened"),
        ("train: train.json\nval: images\nnames: [cat]", "train.json is a COCO JSON and .*images is not"),
        ("format: coco\ntrain: .\nnames: [cat]", "with format: coco a split is a JSON"),
        ("format: cocoa\ntrain: .\nnames: [cat]", r"format is 'cocoa', known are yolo, coco, voc; did you mean coco\?"),
        ("train: train.json\npictures: [a]", "pictures must be a folder, or one for each split"),
    ],
)
def test_a_wrong_description_says_why(split, text, said):
    with pytest.raises(DataError, match=said):
        split(content([1, 1, 5, 5]), text)


def test_a_json_as_data_is_pointed_to_a_description():
    with pytest.raises(DataError, match=r"a JSON holds one split; give a description(.|\n)*train: train.json"):
        load_description("some/train.json")


def test_yolo_without_labels_points_to_a_json(split):
    with pytest.raises(DataError, match=r"holds train.json: a COCO JSON is named as the split, train: train.json"):
        split(content([1, 1, 5, 5]), "train: images\nnames: [cat]", folder="images")
