"""Our AP is pycocotools' AP on the same detections."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace

import numpy as np
import pytest

from visiontrain.evaluation.objects import Objects
from visiontrain.evaluation.scoring import AREAS, score


def objects(rows):
    """Rows of image, x1, y1, x2, y2, class, score."""
    table = np.array(rows, float).reshape(-1, 7)
    return Objects(table[:, 0].astype(np.int64), table[:, 1:5], table[:, 5].astype(np.int64), table[:, 6])


def scene(seed, images, per_image, classes, found_per_object=3):
    """Random objects, detections near them and far from them; scores on a coarse grid, so that many tie."""
    rng = np.random.default_rng(seed)
    count = images * per_image
    corner, side = rng.random((count, 2)) * 400, np.exp(rng.uniform(1, 5.5, (count, 2)))
    truth = Objects(
        rng.integers(0, images, count),
        np.concatenate((corner, corner + side), 1),
        rng.integers(0, classes, count),
        np.ones(count),
    )
    found = truth.where(np.repeat(np.arange(count), found_per_object))
    boxes = found.boxes + rng.normal(0, 0.12, (len(found), 4)) * np.tile(side.repeat(found_per_object, 0), 2)
    boxes[:, 2:] = np.maximum(boxes[:, :2], boxes[:, 2:])  # some have no area left
    wrong = rng.random(len(found)) < 0.2
    labels = np.where(wrong, rng.integers(0, classes, len(found)), found.classes)
    found = replace(found, boxes=boxes, classes=labels, scores=rng.integers(1, 30, len(found)) / 30)
    return truth, found


def pycocotools_precision(truth, found, images, classes, max_dets, crowd=frozenset()):
    """The reference: its own objects, its own run; ``crowd`` are rows of ``truth``."""
    coco = pytest.importorskip("pycocotools.coco")
    evaluation = pytest.importorskip("pycocotools.cocoeval")
    with contextlib.redirect_stdout(io.StringIO()):
        table = coco.COCO()
        table.dataset = {
            "info": {},
            "images": [{"id": i} for i in images],
            "categories": [{"id": c} for c in range(classes)],
            "annotations": [
                {
                    "id": i + 1,
                    "image_id": int(truth.image[i]),
                    "category_id": int(truth.classes[i]),
                    "bbox": [b[0], b[1], b[2] - b[0], b[3] - b[1]],
                    "area": (b[2] - b[0]) * (b[3] - b[1]),
                    "iscrowd": int(i in crowd),
                }
                for i, b in enumerate(truth.boxes.tolist())
            ],
        }
        table.createIndex()
        rows = [
            {
                "image_id": int(found.image[i]),
                "category_id": int(found.classes[i]),
                "bbox": [b[0], b[1], b[2] - b[0], b[3] - b[1]],
                "score": float(found.scores[i]),
            }
            for i, b in enumerate(found.boxes.tolist())
        ]
        scorer = evaluation.COCOeval(table, table.loadRes(rows), "bbox")
        scorer.params.maxDets = max_dets
        scorer.evaluate()
        scorer.accumulate()
    return scorer.eval["precision"]


@pytest.mark.parametrize(
    ("images", "per_image", "classes", "max_det"),
    [(12, 5, 4, 300), (1, 1, 1, 300), (1, 9, 3, 300), (2, 130, 1, 300), (4, 60, 2, 20), (3, 6, 40, 100)],
    ids=["several", "one object", "one picture", "crowd", "small max_det", "many classes"],
)
def test_precision_is_that_of_pycocotools(images, per_image, classes, max_det):
    truth, found = scene(images + per_image, images, per_image, classes)
    ours = score(truth, found, classes, max_det)
    limits = sorted({100, max_det})
    theirs = pycocotools_precision(truth, found, range(images), classes, limits)
    np.testing.assert_allclose(ours.at[..., 0], theirs[..., limits.index(100)], rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.at[..., 1], theirs[..., limits.index(max_det)], rtol=0, atol=1e-9)
    for place, area in enumerate(AREAS):
        valid = theirs[:, :, :, place, limits.index(100)]
        valid = valid[valid > -1]
        ap = ours.mean(area=area)
        assert (ap is None) == (not valid.size)
        assert ap is None or abs(ap - valid.mean()) < 1e-9


def test_crowds_count_as_pycocotools_counts_them():
    truth, found = scene(7, 12, 8, 3)
    rows = np.arange(len(truth))
    crowd = rows[rows % 4 == 0]
    ours = score(truth.where(rows % 4 > 0), found, 3, 300, truth.where(crowd))
    theirs = pycocotools_precision(truth, found, range(12), 3, [100, 300], set(crowd.tolist()))
    np.testing.assert_allclose(ours.at, theirs, rtol=0, atol=1e-9)
    assert (ours.at != score(truth.where(rows % 4 > 0), found, 3, 300).at).any()  # they do count


def test_ap_counts_100_and_ap_max_det_all():
    """VAL-05: predictions equal to 500 objects are perfect only for those who may name 500."""
    truth = objects([(0, 5 * i, 0, 5 * i + 4, 4, 0, 1) for i in range(500)])
    found = replace(truth, scores=np.linspace(1, 0.5, 500))
    scored = score(truth, found, 1, max_det=1000)
    assert scored.mean(limit=1) == 1.0
    assert scored.mean() == pytest.approx(0.2, abs=0.01)


def test_a_class_without_labels_is_in_no_mean():
    """VAL-06."""
    truth = objects([(0, 10, 10, 50, 50, 0, 1)])
    found = objects([(0, 10, 10, 50, 50, 0, 0.9), (0, 60, 60, 90, 90, 1, 0.99)])
    scored = score(truth, found, 3, 300)
    assert scored.mean() == 1.0
    assert scored.mean(klass=0, iou=5) == 1.0
    assert scored.mean(klass=1) is None
    assert scored.mean(area="large") is None


@pytest.mark.parametrize("with_objects", [True, False])
@pytest.mark.parametrize("with_detections", [True, False])
def test_nothing_there_and_nothing_found(with_objects, with_detections):
    one, none = objects([(3, 10, 10, 50, 50, 0, 0.5)]), objects([])
    scored = score(one if with_objects else none, one if with_detections else none, 2, 300)
    expected = (1.0 if with_detections else 0.0) if with_objects else None
    assert scored.mean() == expected
    assert scored.at.shape == (10, 101, 2, 4, 2)


def test_boxes_without_area_do_not_hurt():
    truth = objects([(0, 10, 10, 10, 50, 0, 1), (0, 20, 20, 60, 60, 0, 1)])
    found = objects([(0, 10, 10, 10, 50, 0, 0.9), (0, 20, 20, 60, 60, 0, 0.8), (0, 5, 5, 5, 5, 0, 0.7)])
    theirs = pycocotools_precision(truth, found, [0], 1, [100, 300])
    np.testing.assert_allclose(score(truth, found, 1, 300).at, theirs, rtol=0, atol=1e-9)
