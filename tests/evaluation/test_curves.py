"""Matching, precision and recall, confusion: small cases worked by hand and a plain loop as the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from visiontrain.evaluation import matching
from visiontrain.evaluation.curves import Errors, confusion, judged, most_errors, over_confidence
from visiontrain.evaluation.matching import match
from visiontrain.evaluation.objects import Objects


def objects(rows):
    """Rows of image, x1, y1, x2, y2, class, score."""
    table = np.array(rows, float).reshape(-1, 7)
    return Objects(table[:, 0].astype(np.int64), table[:, 1:5], table[:, 5].astype(np.int64), table[:, 6])


def plain_match(found, truth, iou, by_class):
    """COCO's greedy rule as a loop over detections."""
    partner, taken = [-1] * len(found), set()
    for d in np.argsort(-found.scores, kind="stable").tolist():
        best = iou
        for t in range(len(truth)):
            same = found.image[d] == truth.image[t] and (not by_class or found.classes[d] == truth.classes[t])
            if same and t not in taken and overlap(found.boxes[d], truth.boxes[t]) >= best:
                best, partner[d] = overlap(found.boxes[d], truth.boxes[t]), t
        taken.add(partner[d])
    return partner


def overlap(a, b):
    both = np.clip(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0, None).prod()
    return both / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - both)


def heap(seed, count, images=3, classes=3):
    """Boxes piled on each other, so that matches compete."""
    rng = np.random.default_rng(seed)
    corner = rng.random((count, 2)) * 60
    return Objects(
        rng.integers(0, images, count),
        np.concatenate((corner, corner + 30 + 20 * rng.random((count, 2))), 1),
        rng.integers(0, classes, count),
        rng.integers(1, 20, count) / 20,
    )


@pytest.mark.parametrize("by_class", [True, False])
@pytest.mark.parametrize("pairs", [40, 2_000_000], ids=["in pieces", "at once"])
def test_all_images_at_once_match_as_one_by_one(by_class, pairs, monkeypatch):
    monkeypatch.setattr(matching, "_AT_ONCE", pairs)
    for seed in range(4):
        found, truth = heap(seed, 120), heap(seed + 100, 70)
        partner = match(found, truth, 0.3, by_class=by_class)
        assert partner.tolist() == plain_match(found, truth, 0.3, by_class)
        assert (partner >= 0).sum() > 20


def test_of_equal_objects_each_is_hit_once():
    truth = objects([(0, 0, 0, 10, 10, 0, 1)] * 2)
    found = objects([(0, 0, 0, 10, 10, 0, s) for s in (0.5, 0.5, 0.9)])
    assert match(found, truth, 0.5, by_class=True).tolist() == [0, -1, 1]


def test_precision_and_recall_at_the_best_mean_f1():
    truth = objects([(0, 0, 0, 10, 10, 0, 1), (0, 20, 0, 30, 10, 0, 1), (1, 0, 0, 10, 10, 1, 1)])
    found = objects(
        [
            (0, 0, 0, 10, 10, 0, 0.9),  # hit
            (0, 20, 0, 30, 10, 0, 0.6),  # hit
            (0, 50, 0, 60, 10, 0, 0.3),  # beside
            (1, 0, 0, 10, 10, 1, 0.5),  # hit
            (1, 50, 0, 60, 10, 1, 0.7),  # beside
            (1, 50, 0, 60, 10, 2, 0.99),  # a class without labels
        ]
    )
    sweep = over_confidence(truth, found, 3)
    assert 0.3 < sweep.threshold <= 0.5
    assert sweep.precision[:2, sweep.best].tolist() == [1.0, 0.5]
    assert sweep.recall[:2, sweep.best].tolist() == [1.0, 1.0]
    assert sweep.f1[0, 0] == pytest.approx(0.8)  # two of three right, both objects found
    assert sweep.recall[0, [600, 601, 900, 901]].tolist() == [1.0, 0.5, 0.5, 0.0]
    assert np.isnan(sweep.f1[2]).all()


def test_a_sweep_of_nothing_is_finite_where_there_are_labels():
    one, none = objects([(0, 0, 0, 10, 10, 0, 1)]), objects([])
    sweep = over_confidence(one, none, 1)
    assert sweep.precision.max() == sweep.recall.max() == sweep.f1.max() == 0
    assert np.isnan(over_confidence(none, one, 1).f1).all()
    assert over_confidence(none, none, 1).best == 0


def test_an_unmatched_pair_is_one_of_each_in_the_confusion():
    """VAL-02: nothing matches in the image, and still both count."""
    truth = objects([(0, 200, 200, 300, 300, 0, 1)])
    found = objects([(0, 50, 50, 100, 100, 0, 0.6)])
    assert confusion(truth, found, 1).tolist() == [[0, 1], [1, 0]]


def test_the_worst_pictures_come_first_and_those_without_an_error_not_at_all():
    there = [(0, 10, 10, 30, 30, 0, 1), (1, 10, 10, 30, 30, 0, 1), (1, 50, 50, 90, 90, 1, 1), (2, 10, 10, 30, 30, 0, 1)]
    seen = [
        (0, 10, 10, 30, 30, 0, 0.9),  # right
        (1, 10, 10, 30, 30, 0, 0.9),  # right
        (1, 50, 50, 90, 90, 0, 0.9),  # of the wrong class: one is missed and one is wrong
        (2, 10, 10, 30, 30, 0, 0.2),  # not sure enough
        (4, 10, 10, 30, 30, 0, 0.9),  # where nothing is
    ]
    worst = most_errors(objects(there), objects(seen))
    assert worst == (Errors(1, 1, 1), Errors(2, 1, 0), Errors(4, 0, 1))


def test_confusion_sums_to_the_counts():
    found, truth = heap(1, 90), heap(2, 50)
    table = confusion(truth, found, 3)
    sure = found.where(found.scores >= 0.25)
    assert table[:, :3].sum(0).tolist() == np.bincount(truth.classes, minlength=3).tolist()
    assert table[:3].sum(1).tolist() == np.bincount(sure.classes, minlength=3).tolist()
    assert table[3, 3] == 0


def test_confusion_names_the_class_taken_for_another():
    truth = objects([(0, 0, 0, 10, 10, 0, 1), (0, 50, 0, 60, 10, 1, 1)])
    found = objects([(0, 0, 0, 10, 10, 1, 0.9), (0, 50, 0, 60, 10, 1, 0.8), (0, 50, 0, 60, 10, 1, 0.1)])
    assert confusion(truth, found, 2).tolist() == [[0, 0, 0], [1, 1, 0], [0, 0, 0]]  # rows predicted, columns true
    nothing = replace(found, scores=found.scores * 0)
    assert confusion(truth, nothing, 2).tolist() == [[0, 0, 0], [0, 0, 0], [1, 1, 0]]
    assert confusion(objects([]), found, 2).sum() == 2


def test_what_lies_in_a_crowd_and_hits_nothing_counts_neither_way():
    truth = objects([(0, 0, 0, 10, 10, 0, 1)])
    crowd = objects([(0, 0, 0, 100, 100, 0, 1), (1, 0, 0, 100, 100, 1, 1)])
    found = objects(
        [
            (0, 0, 0, 10, 10, 0, 0.9),  # the object, though it lies in the crowd
            (0, 50, 50, 60, 60, 0, 0.8),  # in the crowd
            (0, 95, 50, 105, 60, 0, 0.7),  # half in it
            (0, 96, 50, 106, 60, 0, 0.6),  # less than half
            (0, 50, 50, 60, 60, 1, 0.5),  # of another class than the crowd here
            (1, 50, 50, 60, 60, 1, 0.4),  # in the other crowd
        ]
    )
    assert judged(truth, found, crowd).scores.tolist() == [0.9, 0.6, 0.5]
    assert judged(truth, found, objects([])) is found
