from __future__ import annotations

import contextlib
import io
import json

import numpy as np
import pytest

from visiontrain.config.groups import ScoringConfig
from visiontrain.data.convert import convert
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.errors import DataError
from visiontrain.evaluation.coco_json import Ids, ids_of, read_detections, write_detections
from visiontrain.evaluation.evaluator import score_detections
from visiontrain.evaluation.objects import Objects

IDS = Ids([139, 285], [1, 90])
GOOD = {"image_id": 285, "category_id": 90, "bbox": [1, 2, 10, 20.5], "score": 0.5}


def test_detections_are_read_by_the_ids_of_the_annotations(tmp_path):
    (tmp_path / "d.json").write_text(
        json.dumps([GOOD, {**GOOD, "image_id": 139, "category_id": 1, "more": "is ignored"}])
    )
    found = read_detections(tmp_path / "d.json", IDS)
    assert found.image.tolist() == [1, 0] and found.classes.tolist() == [1, 0]
    assert found.boxes[0].tolist() == [1, 2, 11, 22.5] and found.scores.tolist() == [0.5, 0.5]


def test_no_detections_are_none(tmp_path):
    (tmp_path / "d.json").write_text("[]")
    assert len(read_detections(tmp_path / "d.json", IDS)) == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not valid JSON"),
        ("{}", "a list of detections is needed"),
        ([GOOD, {**GOOD, "image_id": 7}], "detection 1 .*7 is no id of this split .images are 139, 285"),
        ([{**GOOD, "category_id": 2}], "detection 0 .*2 is no id"),
        ([{**GOOD, "category_id": [2]}], "needs image_id"),
        ([{k: v for k, v in GOOD.items() if k != "score"}], "needs image_id, category_id, bbox and score"),
        ([{**GOOD, "bbox": [1, 2, 3]}], "x y w h"),
        ([{**GOOD, "bbox": [1, 2, -3, 4]}], "x y w h"),
        ([{**GOOD, "score": float("nan")}], "finite"),
        ([5], "needs image_id"),
    ],
)
def test_what_is_wrong_is_named(content, said, tmp_path):
    file = tmp_path / "d.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(DataError, match=f"d.json: .*{said}"):
        read_detections(file, IDS)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_detections(tmp_path / "d.json", IDS)


def test_ids_are_those_of_the_json(tmp_path, tiny):
    index = read_split(load_description(str(tiny)), "val")
    assert ids_of(load_description(str(tiny)), index) == Ids(
        list(range(1, len(index) + 1)), [1, 2, 3][: len(index.names)]
    )
    names = [index.path(i) for i in range(len(index))]
    content = {
        "images": [{"id": 1000 - i, "file_name": name, "height": 1, "width": 1} for i, name in enumerate(names)],
        "categories": [{"id": 90, "name": index.names[0]}, {"id": 7, "name": index.names[1]}],
        "annotations": [],
    }
    (tmp_path / "val.json").write_text(json.dumps(content))
    (tmp_path / "coco.yaml").write_text(
        f"format: coco\ntrain: val.json\nval: val.json\nnames: {list(index.names[:2])}\n"
    )
    description = load_description(str(tmp_path / "coco.yaml"))
    ids = ids_of(description, read_split(description, "val"))
    assert list(ids.images) == [1000 - i for i in range(len(index))]
    assert list(ids.categories) == [90, 7]
    assert np.unique(ids.images).size == len(index)


@pytest.mark.parametrize("form", ["yolo", "coco"])
def test_pycocotools_reads_what_is_written_beside_the_converted_labels(form, tiny, tmp_path):
    coco, cocoeval = pytest.importorskip("pycocotools.coco"), pytest.importorskip("pycocotools.cocoeval")
    made = convert(load_description(str(tiny)), "coco", tmp_path / "as_coco").description
    description = load_description(str(tiny if form == "yolo" else made))
    index = read_split(description, "val")
    rng = np.random.default_rng(0)
    boxes = np.concatenate([index.pixel_boxes(i) for i in range(len(index))])
    classes = np.concatenate([index.classes(i) for i in range(len(index))]).astype(np.int64)
    jitter = rng.normal(0, 0.06, boxes.shape) * np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    found = Objects(index.owners, boxes + jitter, classes, rng.random(len(boxes)))
    write_detections(tmp_path / "d.json", found, ids_of(description, index), index)
    read = read_detections(tmp_path / "d.json", ids_of(description, index))
    assert np.array_equal(read.image, found.image) and np.array_equal(read.scores, found.scores)
    with contextlib.redirect_stdout(io.StringIO()):
        table = coco.COCO(str(made.parent / "annotations" / "instances_val.json"))
        scorer = cocoeval.COCOeval(table, table.loadRes(str(tmp_path / "d.json")), "bbox")
        scorer.evaluate()
        scorer.accumulate()
        scorer.summarize()
    ours = score_detections(read, index, ScoringConfig(conf=0)).metrics
    assert 0.1 < ours["ap"] < 0.95  # or nothing is compared
    assert scorer.stats[:3] == pytest.approx([ours["ap"], ours["ap50"], ours["ap75"]], abs=1e-6)
