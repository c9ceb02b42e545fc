from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from visiontrain.boxes import complete_iou, xywh_to_xyxy, xyxy_to_xywh

torch.set_num_threads(1)

coordinate = st.floats(0, 600, allow_nan=False, width=32)
side = st.floats(0.5, 600, allow_nan=False, width=32)
box = st.tuples(coordinate, coordinate, side, side).map(lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3]))


def by_hand(p, t, eps=1e-7):
    """Complete IoU from the paper's formula, in Python floats."""
    wp, hp, wt, ht = p[2] - p[0], p[3] - p[1] + eps, t[2] - t[0], t[3] - t[1] + eps
    width = max(min(p[2], t[2]) - max(p[0], t[0]), 0)
    height = max(min(p[3], t[3]) - max(p[1], t[1]), 0)
    iou = width * height / (wp * hp + wt * ht - width * height + eps)
    diagonal = math.hypot(max(p[2], t[2]) - min(p[0], t[0]), max(p[3], t[3]) - min(p[1], t[1]))
    centres = math.dist(((p[0] + p[2]) / 2, (p[1] + p[3]) / 2), ((t[0] + t[2]) / 2, (t[1] + t[3]) / 2))
    v = (2 / math.pi * (math.atan(wt / ht) - math.atan(wp / hp))) ** 2
    return iou - centres**2 / (diagonal**2 + eps) - v * v / (1 - iou + v + eps)


@settings(max_examples=60, deadline=None)
@given(box, box)
def test_complete_iou_by_hand(p, t):
    value = complete_iou(torch.tensor(p, dtype=torch.float64), torch.tensor(t, dtype=torch.float64))
    assert float(value) == pytest.approx(by_hand(p, t), rel=1e-9, abs=1e-9)


def test_equal_boxes_have_one():
    boxes = torch.tensor([[3.0, 4.0, 30.0, 50.0], [0.0, 0.0, 1.0, 1.0]])
    torch.testing.assert_close(complete_iou(boxes, boxes), torch.ones(2), atol=1e-5, rtol=0)


def test_gradients_are_finite_for_boxes_without_area():
    p = torch.tensor([[5.0, 5.0, 5.0, 5.0], [9.0, 9.0, 3.0, 3.0]], requires_grad=True)
    t = torch.tensor([[5.0, 5.0, 5.0, 5.0], [1.0, 1.0, 4.0, 4.0]])
    complete_iou(p, t).sum().backward()
    assert p.grad.isfinite().all()


def test_half_precision_is_widened():
    box = torch.tensor([[0.0, 0.0, 600.0, 500.0]], dtype=torch.float16)
    assert complete_iou(box, box).dtype == torch.float32
    assert float(complete_iou(box, box)) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("shapes", [((3, 4), (2, 4)), ((4,), (1, 4)), ((2, 5), (2, 5))])
def test_shapes_that_do_not_pair_are_refused(shapes):
    with pytest.raises(ValueError, match=r"\(\.\.\., 4\)"):
        complete_iou(torch.zeros(shapes[0]), torch.zeros(shapes[1]))


def test_forms_convert_back():
    boxes = torch.tensor([[1.0, 2.0, 5.0, 10.0]])
    assert xyxy_to_xywh(boxes).tolist() == [[3.0, 6.0, 4.0, 8.0]]
    assert torch.equal(xywh_to_xyxy(xyxy_to_xywh(boxes)), boxes)
