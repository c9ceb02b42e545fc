"""A data set in another format: the same pictures and boxes, nothing touched, nothing written over, complete or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import re
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest

from visiontrain import api, cli
from visiontrain.data import convert as module
from visiontrain.data.convert import convert
from visiontrain.data.description import load_description
from visiontrain.data.formats import FORMATS
from visiontrain.data.index import read_split
from visiontrain.data.scan import scan_split
from visiontrain.errors import ConfigError, DataError

WAYS = [(a, b) for a in FORMATS for b in FORMATS]


def state(folder):
    """Every file with its bytes, every link with where it leads, and the times of all."""
    return {
        path.relative_to(folder): (
            path.lstat().st_mtime_ns,
            path.is_file() and hashlib.sha256(path.read_bytes()).digest(),
        )
        for path in sorted(folder.rglob("*"))
    }


def seen(file, split="train"):
    """What training sees of a split: picture bytes, size, classes and boxes in order."""
    index = read_split(load_description(file), split)
    return [
        (Path(index.path(i)).read_bytes(), index.size(i), index.classes(i).tolist(), index.boxes(i).tolist())
        for i in range(len(index))
    ]


@pytest.fixture
def source(tmp_path):
    """A YOLO data set with all that a name can hold, odd sizes and boxes with many digits."""
    root = tmp_path / "source"
    rng = np.random.default_rng(0)
    names = ("train/a b.JPG", "train/ä/ö.jpg", "train/ä/#1.png", "train/x.y.bmp", "train/empty.jpg", "val/a b.JPG")
    for number, name in enumerate(names):
        path, label = root / "images" / name, (root / "labels" / name).with_suffix(".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        label.parent.mkdir(parents=True, exist_ok=True)
        size = (37 + 13 * number, 61 + 7 * number, 3)
        cv2.imencode(path.suffix.lower(), rng.integers(0, 255, size, np.uint8))[1].tofile(path)
        side = rng.uniform(0.05, 0.4, (3, 2))
        rows = np.concatenate((rng.uniform(side / 2, 1 - side / 2), side), 1).tolist()
        rows = [] if "empty" in name else [*rows, [0.5, 0.5, 1.0, 1.0], [0.123457, 0.5, 0.1, 0.987654]]
        label.write_text("".join(f"{n % 2} {' '.join(map(str, row))}\n" for n, row in enumerate(rows)))
    (root / "data.yaml").write_text("train: images/train\nval: images/val\nnames: ['no', '<0&8>', ünser]\n", "utf-8")
    return root / "data.yaml"


@pytest.mark.parametrize(("form", "to"), WAYS, ids=lambda each: each)
def test_every_format_becomes_every_other_and_nothing_is_lost(source, tmp_path, form, to):
    first = convert(load_description(source), form, tmp_path / "first").description
    before = state(tmp_path / "first")
    result = convert(load_description(first), to, tmp_path / "second")
    assert load_description(result.description).names == ("no", "<0&8>", "ünser")
    for split in ("train", "val"):
        assert seen(result.description, split) == seen(first, split) == seen(source, split)
    assert result.counts == {"train": (5, 20), "val": (1, 5)} and not result.lost and not result.findings
    assert state(tmp_path / "first") == before


def test_through_all_formats_and_back_the_files_are_the_same(source, tmp_path):
    """The six digits that are usual do not grow: what double precision gets wrong is rounded away."""
    for file in (source.parent / "labels").rglob("*.txt"):
        file.write_text(re.sub(r"0\.\d+", lambda match: f"{float(match[0]):.6f}".rstrip("0"), file.read_text()))
    made = [source]
    for number, form in enumerate(("yolo", "coco", "voc", "yolo", "voc", "coco", "yolo")):
        made.append(convert(load_description(made[-1]), form, tmp_path / str(number)).description)
    texts = [{p.relative_to(made[n].parent): p.read_text() for p in made[n].parent.rglob("*.txt")} for n in (1, 4, 7)]
    assert texts[0] == texts[1] == texts[2] and "0.123457" in str(texts[0])


def test_two_conversions_write_the_same_bytes(source, tmp_path):
    for form in FORMATS:
        trees = [convert(load_description(source), form, tmp_path / f"{form}{n}").description.parent for n in (1, 2)]
        one, two = ({k: v[1] for k, v in state(tree).items()} for tree in trees)
        assert one == two
    text = (tmp_path / "coco1/annotations/instances_train.json").read_text("utf-8")
    keys = [list(entry) for each in json.loads(text).values() for entry in each]
    assert all(a <= b for key in keys for a, b in pairwise(key)) and '"ä/ö.jpg"' in text


def test_pictures_are_links_or_copies(source, tmp_path):
    for form, place in (("yolo", "images"), ("voc", "JPEGImages")):
        for copy in (False, True):
            out = convert(load_description(source), form, tmp_path / f"{form}{copy}", copy=copy).description.parent
            picture = out / place / "train/ä/ö.jpg"
            assert picture.is_symlink() != copy
            assert picture.read_bytes() == (source.parent / "images/train/ä/ö.jpg").read_bytes()


def test_nothing_of_the_source_is_touched_and_what_is_there_is_not_written_over(source, tmp_path):
    before = state(source.parent)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(ConfigError, match="is there already, and nothing is written over"):
        convert(load_description(source), "coco", out)
    inside = source.parent / "images/train/coco"
    with pytest.raises(ConfigError, match=r"lies in .*images/train, where .*data.yaml would find the pictures again"):
        convert(load_description(source), "coco", inside)
    convert(load_description(source), "coco", tmp_path / "deep/new")
    assert state(source.parent) == before and not list(out.iterdir())


def test_what_fails_half_way_leaves_nothing(source, tmp_path, monkeypatch):
    calls = []

    def full(*_):
        calls.append(1)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device", "x")

    monkeypatch.setattr(module, "_bring", full)
    with pytest.raises(ConfigError, match="cannot be written: x: No space left on device"):
        convert(load_description(source), "voc", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_data_that_training_refuses_are_not_converted(source, tmp_path):
    (source.parent / "labels/val/a b.txt").write_text("7 .5 .5 .1 .1")
    with pytest.raises(DataError, match="class 7 is not in the description"):
        convert(load_description(source), "coco", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_a_format_has_no_place_for_is_said(source, tmp_path):
    root = source.parent
    (root / "labels/train/empty.txt").unlink()
    (root / "labels/train/x.y.txt").write_text("0 .1 .1 .4 .1 .4 .4\n0 .5 .5 .1 0\n")
    result = convert(load_description(source), "coco", tmp_path / "coco")
    assert result.lost == (
        "1 outlines are written as the boxes around them",
        "1 pictures without labels are pictures without annotations now",
    )
    assert [f.kind for f in result.findings] == ["row_size", "labels_missing"]
    found = (tmp_path / "coco/findings.txt").read_text("utf-8").splitlines()
    assert found == [str(finding) for finding in result.findings]
    assert f"2 findings in the old labels, all of them in {tmp_path / 'coco/findings.txt'}:" in result.sentences()
    kept = convert(load_description(source), "yolo", tmp_path / "yolo")
    assert not (tmp_path / "yolo/labels/train/empty.txt").exists() and len(kept.lost) == 1


def test_what_is_ignored_stays_ignored_where_the_format_can_say_it(source, tmp_path):
    file = convert(load_description(source), "coco", tmp_path / "coco").description
    path = tmp_path / "coco/annotations/instances_train.json"
    content = json.loads(path.read_text("utf-8"))
    content["annotations"][0]["iscrowd"] = 1
    path.write_text(json.dumps(content))
    for number, form in enumerate(("voc", "coco", "voc")):
        result = convert(load_description(file), form, tmp_path / f"{number}")
        file = result.description
        (told,) = result.lost
        assert re.fullmatch(r"1 ignored objects \(crowd, difficult\) are written with (difficult|iscrowd)=1", told)
    scan = scan_split(load_description(file), "train")
    assert sum(len(labels.ignored) for labels in scan.labels) == 1
    (told,) = convert(load_description(file), "yolo", tmp_path / "yolo").lost
    assert told == "1 ignored objects (crowd, difficult) are left out: yolo has no word for it"


def test_pictures_that_differ_in_their_ending_alone_get_names_of_their_own(source, tmp_path):
    file = convert(load_description(source), "coco", tmp_path / "coco", copy=True).description
    (tmp_path / "coco/images/train/x.y.bmp").rename(tmp_path / "coco/images/train/EMPTY.png")
    path = tmp_path / "coco/annotations/instances_train.json"
    path.write_text(path.read_text("utf-8").replace("x.y.bmp", "EMPTY.png"), "utf-8")
    for form in ("yolo", "voc"):
        result = convert(load_description(file), form, tmp_path / form)
        assert result.lost == ("1 pictures have a new name, since their labels would be those of another",)
        assert sorted(map(str, seen(result.description))) == sorted(map(str, seen(file)))


def test_splits_of_several_folders_and_lists(source, tmp_path):
    root = source.parent
    (root / "list.txt").write_text("images/train/x.y.bmp\nimages/val/a b.JPG\n")
    source.write_text("train: [images/train/ä, list.txt]\nnames: [a, b]\n", "utf-8")
    result = convert(load_description(source), "voc", tmp_path / "voc")
    assert seen(result.description) == seen(source) and result.counts == {"train": (4, 20)}


def test_the_command(source, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["convert", f"data={source}", "format=voc", "out=made"]
    assert cli.main(words) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "train: 5 pictures, 20 boxes",
        "val: 1 pictures, 5 boxes",
        f"written as voc: train with data={tmp_path / 'made/data.yaml'}",
    ]
    assert cli.main(words) == 2 and "is there already" in capsys.readouterr().err
    assert cli.main(["convert", "format=xml"]) == 2
    said = capsys.readouterr().err
    assert "format=xml: " in said and "yolo, coco or voc" in said and "data and out must be given" in said
    result = api.convert(data=tmp_path / "made/data.yaml", format="yolo", out=tmp_path / "back", pictures="copy")
    assert seen(result.description) == seen(source)
