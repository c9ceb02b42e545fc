"""The assigner against a slow one, object by object, written from the description of task-aligned assignment."""

from __future__ import annotations

import math

import pytest
import torch

from visiontrain.losses import assign as assign_module
from visiontrain.losses.assign import TaskAlignedAssigner, inside
from visiontrain.nn.head import cell_centres

torch.set_num_threads(1)


def scalar_ciou(p, t, eps=1e-7):
    """CIoU of two boxes in Python floats."""
    pw, ph, tw, th = p[2] - p[0], p[3] - p[1] + eps, t[2] - t[0], t[3] - t[1] + eps
    iw = max(0.0, min(p[2], t[2]) - max(p[0], t[0]))
    ih = max(0.0, min(p[3], t[3]) - max(p[1], t[1]))
    iou = iw * ih / (pw * ph + tw * th - iw * ih + eps)
    hull = (max(p[2], t[2]) - min(p[0], t[0])) ** 2 + (max(p[3], t[3]) - min(p[1], t[1])) ** 2 + eps
    distance = ((p[0] + p[2] - t[0] - t[2]) ** 2 + (p[1] + p[3] - t[1] - t[3]) ** 2) / 4
    v = 4 / math.pi**2 * (math.atan(tw / th) - math.atan(pw / ph)) ** 2
    return iou - distance / hull - v * v / (v - iou + 1 + eps)


def slow_assign(scores, boxes, centres, image, classes, truth, k=10, keep=None):
    """{(image, anchor): (target, score)}, from loops over pictures, objects and anchors."""
    found = {}
    for b in range(len(scores)):
        mine = [n for n in range(len(truth)) if image[n] == b]
        u, t, chosen = {}, {}, {}
        for n in mine:
            x1, y1, x2, y2 = truth[n].tolist()
            cx, cy, hw, hh = (x1 + x2) / 2, (y1 + y2) / 2, max(x2 - x1, 16) / 2, max(y2 - y1, 16) / 2
            for a, (x, y) in enumerate(centres.tolist()):
                if min(x - (cx - hw), y - (cy - hh), cx + hw - x, cy + hh - y) > 1e-9:
                    u[n, a] = max(scalar_ciou(boxes[b, a].tolist(), truth[n].tolist()), 0.0)
                    t[n, a] = scores[b, a, classes[n]].item() ** 0.5 * u[n, a] ** 6
            ranked = sorted((a for m, a in t if m == n and t[m, a] > 0), key=lambda a: -t[n, a])
            chosen[n] = set(ranked[:k])
        positives = {n: [] for n in mine}
        for a in range(len(centres)):
            claims = [n for n in mine if a in chosen[n]]
            if len(claims) > 1:
                claims = [max((n for n in mine if (n, a) in u), key=lambda n: (u[n, a], -n))]
            for n in claims:
                positives[n].append(a)
        for n, anchors in positives.items():
            anchors = sorted(anchors, key=lambda a: -t[n, a])[:keep]
            for a in anchors:
                most_t, most_u = max(t[n, i] for i in anchors), max(u[n, i] for i in anchors)
                found[b, a] = n, t[n, a] * most_u / (most_t + 1e-9)
    return found


def scene(objects, size=96, nc=3, seed=0, spread=1.0):
    """Predictions near the truth of ``objects`` (a count for each picture), as a half-trained model gives."""
    g = torch.Generator().manual_seed(seed)
    cells = [(size // s, size // s) for s in (8, 16, 32)]
    anchors, strides = cell_centres(cells, (8, 16, 32), torch.zeros(1, dtype=torch.float64))
    centres = anchors * strides
    image = torch.repeat_interleave(torch.arange(len(objects)), torch.tensor(objects))
    corner = torch.rand(len(image), 2, generator=g, dtype=torch.float64) * size * 0.7 * spread
    sides = 4 + torch.rand(len(image), 2, generator=g, dtype=torch.float64) * size * 0.4
    truth = torch.cat((corner, corner + sides), 1)
    classes = torch.randint(0, nc, (len(image),), generator=g)
    scores = torch.rand(len(objects), len(centres), nc, generator=g, dtype=torch.float64)
    half = 4 + torch.rand(len(objects), len(centres), 2, generator=g, dtype=torch.float64) * 30
    boxes = torch.cat((centres - half, centres + half), -1)
    return scores, boxes, centres, image, classes, truth


def as_dict(result):
    rows = zip(*(x.tolist() for x in (result.image, result.anchor, result.target, result.score)), strict=True)
    return {(b, a): (n, s) for b, a, n, s in rows}


def assert_same(result, expected):
    found = as_dict(result)
    assert len(found) == len(result.image)  # an anchor answers for one object at most
    assert found.keys() == expected.keys()
    for key, (target, score) in expected.items():
        assert found[key][0] == target, key
        assert found[key][1] == pytest.approx(score, rel=1e-6, abs=1e-12), key


@pytest.mark.parametrize("seed", range(4))
def test_like_the_slow_one(seed):
    parts = scene([3, 0, 1, 5], seed=seed)
    assert_same(TaskAlignedAssigner()(*parts), slow_assign(*parts))


@pytest.mark.parametrize("keep", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_best_few_stay(seed, keep):
    """Of what is left to an object after contests, also where many lie over each other."""
    parts = scene([6, 0, 9], seed=seed, spread=0.4)
    assigner = TaskAlignedAssigner(top_k=7, keep=keep)
    result = assigner(*parts)
    assert_same(result, slow_assign(*parts, k=7, keep=keep))
    assert torch.bincount(result.target).max() == keep


def test_contested_anchors():
    """Many objects over each other: an anchor goes to the highest overlap of all whose candidate it is."""
    parts = scene([12, 9], seed=7, spread=0.3)
    expected = slow_assign(*parts)
    alone = [slow_assign(*parts[:3], *(x[n : n + 1] for x in parts[3:])) for n in range(21)]
    claims = [key for part in alone for key in part]
    assert len(set(claims)) < len(claims)  # there is a contest
    assert_same(TaskAlignedAssigner()(*parts), expected)


def test_a_third_object_may_win_a_contest_of_two():
    """Rule 4: the winner need not be among those that selected the anchor."""
    centres = torch.tensor([[50.0, 50.0], [54.0, 54.0]], dtype=torch.float64)
    boxes = torch.tensor([[[30.0, 30, 70, 70], [44, 44, 64, 64]]], dtype=torch.float64)
    truth = torch.tensor([[20.0, 20, 80, 80], [22, 22, 82, 82], [30, 30, 71, 71]], dtype=torch.float64)
    # the third prefers the second anchor only by its class score, which overlap ignores
    scores = torch.ones(1, 2, 2, dtype=torch.float64)
    scores[0, 0, 1] = 1e-20
    parts = (scores, boxes, centres, torch.zeros(3, dtype=torch.long), torch.tensor([0, 0, 1]), truth)
    result = TaskAlignedAssigner(top_k=1)(*parts)
    assert_same(result, slow_assign(*parts, k=1))
    assert as_dict(result)[0, 0][0] == 2


def test_tiny_objects_have_anchors():
    """A side below 16 px counts as 16 px: an object of 3 x 3 px between the cell centres is still answered for."""
    scores, boxes, centres, *_ = scene([1], size=64)
    truth = torch.tensor([[30.5, 30.5, 33.5, 33.5]], dtype=torch.float64)  # centres stand at 28 and 36, 24 and 40
    boxes = torch.tensor([28.0, 28.0, 36.0, 36.0], dtype=torch.float64).expand(1, len(centres), 4)
    parts = (scores, boxes, centres, torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long), truth)
    result = TaskAlignedAssigner()(*parts)
    assert len(result.anchor) == 4
    assert_same(result, slow_assign(*parts))


def test_inside_is_strict():
    centres = torch.tensor([[8.0, 8.0], [16.0, 8.0], [24.0, 24.0]])
    truth = torch.tensor([[8.0, 0.0, 24.0, 32.0]])
    assert inside(centres, truth).tolist() == [[False, True, False]]


@pytest.mark.parametrize("pairs", [1, 400, 2000])
def test_chunks_change_nothing(monkeypatch, pairs):
    parts = scene([3, 0, 7, 1, 0, 2], seed=3)
    whole = as_dict(TaskAlignedAssigner()(*parts))
    monkeypatch.setattr(assign_module, "PAIRS_AT_ONCE", pairs)
    calls = []
    original = TaskAlignedAssigner._assign
    monkeypatch.setattr(
        TaskAlignedAssigner, "_assign", lambda self, *args: (calls.append(len(args[-1])), original(self, *args))[1]
    )
    assert_same(TaskAlignedAssigner()(*parts), whole)  # processors round the ends of a vector otherwise
    assert len(calls) > 1
    assert sum(calls) == 13


def test_pictures_do_not_see_each_other():
    parts = scene([3, 4, 2], seed=5)
    together = as_dict(TaskAlignedAssigner()(*parts))
    scores, boxes, centres, image, classes, truth = parts
    apart = {}
    for b in range(3):
        rows = image == b
        first = int(rows.nonzero()[0])
        zero = torch.zeros(int(rows.sum()), dtype=torch.long)
        one = TaskAlignedAssigner()(scores[b : b + 1], boxes[b : b + 1], centres, zero, classes[rows], truth[rows])
        apart |= {(b, a): (n + first, s) for (_, a), (n, s) in as_dict(one).items()}
    assert together == apart


def test_no_objects():
    result = TaskAlignedAssigner()(*scene([0, 0]))
    assert [len(x) for x in (result.image, result.anchor, result.target, result.score)] == [0] * 4


def test_a_crowded_picture():
    parts = scene([300], seed=9)
    result = TaskAlignedAssigner()(*parts)
    assert len(set(result.anchor.tolist())) == len(result.anchor)
    assert result.score.isfinite().all()
    assert float(result.score.max()) <= 1.0


def test_fewer_anchors_than_top_k():
    centres = torch.tensor([[16.0, 16.0], [48.0, 16.0]], dtype=torch.float64)
    boxes = torch.cat((centres - 12, centres + 12), -1)[None]
    truth = torch.tensor([[2.0, 2.0, 60.0, 30.0]], dtype=torch.float64)
    zero = torch.zeros(1, dtype=torch.long)
    parts = (torch.rand(1, 2, 1, dtype=torch.float64), boxes, centres, zero, zero, truth)
    assert_same(TaskAlignedAssigner()(*parts), slow_assign(*parts))


def test_an_anchor_that_fits_not_at_all_takes_no_part_in_a_contest():
    """Alignments of zero tie: which of them fills the top k must not decide who wins an anchor.

    Object 0 overlaps no prediction, so all its alignments are 0; object 1 selects anchor 0; object 2 overlaps anchor 0
    best but ranks it below its top k by class score. Without a real contest object 1 keeps it.
    """
    centres = torch.tensor([[50.0, 50.0], [54.0, 54.0]], dtype=torch.float64)
    boxes = torch.tensor([[[30.0, 30, 70, 70], [44, 44, 64, 64]]], dtype=torch.float64)
    truth = torch.tensor([[0.0, 49, 1000, 51], [22, 22, 82, 82], [30, 30, 71, 71]], dtype=torch.float64)
    scores = torch.ones(1, 2, 2, dtype=torch.float64)
    scores[0, 0, 1] = 1e-20
    parts = (scores, boxes, centres, torch.zeros(3, dtype=torch.long), torch.tensor([0, 0, 1]), truth)
    result = as_dict(TaskAlignedAssigner(top_k=1)(*parts))
    assert result[0, 0][0] == 1
