"""Candidates and NMS, held against a plain loop that knows nothing of chunks, planes or batches."""

from __future__ import annotations

import pytest
import torch

from visiontrain.prediction.decode import select
from visiontrain.prediction.nms import non_max_suppression


def random_boxes(generator, images, anchors, size=320.0):
    corner = torch.rand(images, anchors, 2, generator=generator) * size
    return torch.cat((corner, corner + 8 + 60 * torch.rand(images, anchors, 2, generator=generator)), -1)


def plain_nms(boxes, scores, conf, iou, max_det):
    """One image, pair by pair: (score, class, box) of the survivors, best first."""
    rows = [
        (scores[a, c].item(), c, boxes[a].tolist())
        for a in range(scores.shape[0])
        for c in range(scores.shape[1])
        if scores[a, c].item() > conf
    ]
    kept = []
    for row in sorted(rows, key=lambda r: -r[0]):
        if all(row[1] != k[1] or overlap(row[2], k[2]) <= iou for k in kept):
            kept.append(row)
    return kept[:max_det]


def overlap(a, b):
    wide = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
    high = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - wide * high
    return wide * high / union


@pytest.mark.parametrize("max_det", [3, 40, 1000])
@pytest.mark.parametrize("anchors", [1, 300])
def test_survivors_are_those_of_the_plain_rule(anchors, max_det):
    generator = torch.Generator().manual_seed(0)
    boxes = random_boxes(generator, 3, anchors, size=100.0)
    scores = torch.rand(3, anchors, 2, generator=generator)

    found = non_max_suppression(select(boxes, scores, 0.3), iou=0.5, max_det=max_det)

    for image, detections in enumerate(found):
        expected = plain_nms(boxes[image], scores[image], 0.3, 0.5, max_det)
        assert detections.scores.tolist() == [e[0] for e in expected]
        assert detections.classes.tolist() == [e[1] for e in expected]
        assert detections.boxes.tolist() == [e[2] for e in expected]


def test_looking_at_the_best_first_changes_nothing():
    """2 * max_det boxes are far too few here: nearly all of them overlap, and the search has to go on."""
    generator = torch.Generator().manual_seed(0)
    boxes = random_boxes(generator, 1, 3000, size=200.0)
    boxes[:, :2000] = torch.tensor([10.0, 10.0, 90.0, 90.0]) + torch.rand(1, 2000, 1, generator=generator)
    scores = torch.rand(1, 3000, 1, generator=generator)
    scores[:, :2000] += 1

    few = non_max_suppression(select(boxes, scores, 0.0), iou=0.6, max_det=50)[0]
    all_ = non_max_suppression(select(boxes, scores, 0.0), iou=0.6, max_det=3000)[0]

    assert len(few) == 50 < len(all_)
    assert few.scores.tolist() == all_.scores[:50].tolist()


def test_the_planes_of_an_accelerator_give_what_image_by_image_gives(monkeypatch):
    """On CUDA one call holds several images; the grouping is plain tensor code, so the CPU can try it."""
    generator = torch.Generator().manual_seed(2)
    boxes = random_boxes(generator, 5, 400)
    scores = torch.rand(5, 400, 7, generator=generator)
    candidates = select(boxes, scores, 0.5)
    alone = non_max_suppression(candidates, iou=0.5, max_det=300)
    monkeypatch.setattr("visiontrain.prediction.nms._images_at_once", lambda device, looked: 3)
    grouped = non_max_suppression(candidates, iou=0.5, max_det=300)
    for a, b in zip(alone, grouped, strict=True):
        assert torch.equal(a.boxes, b.boxes) and torch.equal(a.scores, b.scores) and torch.equal(a.classes, b.classes)


def test_every_image_of_a_batch_without_mercy_has_max_det_detections():
    """VAL-04: an untrained model above the threshold everywhere; nothing gives up, whatever the batch."""
    generator = torch.Generator().manual_seed(1)
    boxes, scores = random_boxes(generator, 4, 2100, 640.0), torch.rand(4, 2100, 8, generator=generator)
    together = non_max_suppression(select(boxes, scores, 0.001), iou=0.7, max_det=300)
    assert [len(d) for d in together] == [300] * 4
    alone = non_max_suppression(select(boxes[2:3], scores[2:3], 0.001), iou=0.7, max_det=300)[0]
    assert torch.equal(alone.boxes, together[2].boxes)


def test_classes_do_not_suppress_each_other():
    boxes = torch.tensor([[[10.0, 10, 50, 50], [11.0, 11, 51, 51]]])
    scores = torch.tensor([[[0.9, 0.1], [0.1, 0.8]]])
    (found,) = non_max_suppression(select(boxes, scores, 0.25), iou=0.5, max_det=10)
    assert found.classes.tolist() == [0, 1]


def test_the_cap_keeps_the_best_and_is_counted():
    generator = torch.Generator().manual_seed(3)
    boxes, scores = random_boxes(generator, 2, 50), torch.rand(2, 50, 4, generator=generator)
    scores[1] *= 0.1
    candidates = select(boxes, scores, 0.2, max_candidates=20)
    assert candidates.counts == (20, 0)
    assert candidates.scores.tolist() == scores[0].flatten().sort(descending=True).values[:20].tolist()
    assert candidates.capped == int((scores[0] > 0.2).sum()) - 20


def test_one_label_per_anchor_on_request():
    generator = torch.Generator().manual_seed(4)
    boxes, scores = random_boxes(generator, 2, 30), torch.rand(2, 30, 5, generator=generator)
    candidates = select(boxes, scores, 0.0, multi_label=False)
    assert candidates.counts == (30, 30)
    best, label = scores[0].max(-1)
    order = best.argsort(descending=True)
    assert candidates.scores[:30].tolist() == best[order].tolist()
    assert candidates.classes[:30].tolist() == label[order].tolist()
    assert torch.equal(candidates.boxes[:30], boxes[0][order])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_dropped_and_counted(bad):
    generator = torch.Generator().manual_seed(5)
    boxes, scores = random_boxes(generator, 2, 6), 0.5 + torch.rand(2, 6, 3, generator=generator) / 2
    boxes[0, 1, 2] = bad
    scores[1, 4, 0] = abs(bad)  # a probability is not below 0
    candidates = select(boxes, scores, 0.1)
    assert candidates.non_finite == 2
    assert candidates.counts == (15, 15)
    assert candidates.boxes.isfinite().all() and candidates.scores.isfinite().all()


@pytest.mark.parametrize("shift", [2.0**18 + 1, 1e30], ids=["a plane further", "beyond all planes"])
def test_a_wild_box_does_not_spoil_the_others(shift):
    """A prediction far outside could land on the boxes of another class once these are moved apart."""
    box = torch.tensor([10.0, 10.0, 50.0, 50.0])
    boxes = torch.stack((box + shift, box, box + 0.25))[None]
    scores = torch.tensor([[[0.9, 0.1], [0.1, 0.8], [0.1, 0.7]]])
    (found,) = non_max_suppression(select(boxes, scores, 0.5), iou=0.7, max_det=10)
    assert [round(s, 3) for s in found.scores.tolist()] == [0.9, 0.8]


def test_half_precision_is_compared_as_float32():
    boxes = torch.tensor([[[10.0, 10, 50, 50]]]).half()
    candidates = select(boxes, torch.tensor([[[0.001]]]).half(), 0.001)  # half(0.001) = 0.00100040
    assert candidates.scores.dtype == candidates.boxes.dtype == torch.float32
    assert candidates.counts == (1,)


def test_nothing_found_is_an_answer():
    found = non_max_suppression(select(torch.zeros(2, 4, 4), torch.zeros(2, 4, 3), 0.1), iou=0.5, max_det=5)
    assert [(len(d), tuple(d.boxes.shape)) for d in found] == [(0, (0, 4))] * 2


@pytest.mark.gpu
def test_cuda_finds_what_the_cpu_finds():
    generator = torch.Generator().manual_seed(6)
    boxes, scores = random_boxes(generator, 9, 700), torch.rand(9, 700, 5, generator=generator)
    here = non_max_suppression(select(boxes, scores, 0.01), iou=0.6, max_det=200)
    there = non_max_suppression(select(boxes.cuda(), scores.cuda(), 0.01), iou=0.6, max_det=200)
    for a, b in zip(here, there, strict=True):
        assert torch.equal(a.boxes, b.boxes.cpu()) and torch.equal(a.classes, b.classes.cpu())
