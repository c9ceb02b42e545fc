"""SimOTA against itself written one object at a time, in bounded memory; and what the sums of YOLOX's loss count."""

from __future__ import annotations

import pytest
import torch
from losses.one_by_one import assigned
from torch.utils._python_dispatch import TorchDispatchMode

from visiontrain.batch import Targets
from visiontrain.config.groups import LossConfig
from visiontrain.losses import YOLOXLoss, simota
from visiontrain.nn.decoupled import boxes_to_offsets, offsets_to_boxes
from visiontrain.nn.head import OffsetOutput, cell_centres

torch.set_num_threads(1)
GAINS = LossConfig(box=5.0, cls=1.0)


def said(images=2, side=128, classes=4, near=None, dtype=torch.float32):
    """Predictions of noise; those of ``near`` targets overlap them well, so that objects take several anchors."""
    generator = torch.Generator().manual_seed(3)
    anchors, strides = cell_centres(
        [(side // s, side // s) for s in (8, 16, 32)], (8, 16, 32), torch.zeros(1, dtype=dtype)
    )
    offsets, objectness, scores = (
        torch.randn(images, len(anchors), *more, generator=generator, dtype=torch.float64).to(dtype) / 2
        for more in ((4,), (), (classes,))
    )
    for number, box in zip(near.image, near.boxes, strict=True) if near else ():
        inside = ((anchors * strides > box[:2]) & (anchors * strides < box[2:])).all(1)
        exact = boxes_to_offsets(box.to(dtype), anchors[inside], strides[inside])
        offsets[number, inside] = exact + offsets[number, inside] / 5
    return OffsetOutput(*(t.requires_grad_() for t in (offsets, objectness, scores)), anchors, strides)


def crowd(counts, side=128, classes=4, seed=4):
    generator = torch.Generator().manual_seed(seed)
    image = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    middle = side * torch.rand(len(image), 2, generator=generator)
    half = 2 + side / 4 * torch.rand(len(image), 2, generator=generator) ** 2
    kinds = torch.randint(0, classes, (len(image),), generator=generator)
    return Targets(image, kinds, torch.cat((middle - half, middle + half), 1).clamp(0, side))


def choice(output, targets):
    positive, _ = YOLOXLoss(GAINS)._assign(output, targets)
    return [
        dict(zip(positive.anchor[mine].tolist(), positive.target[mine].tolist(), strict=True))
        for mine in (positive.image == number for number in range(len(output.scores)))
    ]


@pytest.mark.parametrize("at_once", [1 << 20, 700, 1])
@pytest.mark.parametrize("counts", [(3, 0, 5), (20, 1, 60)], ids=str)
def test_it_is_the_method_one_object_at_a_time(monkeypatch, counts, at_once):
    monkeypatch.setattr(simota, "PAIRS_AT_ONCE", at_once)
    targets = crowd(counts)
    output = said(len(counts), near=targets)
    found, start = choice(output, targets), 0
    for number, count in enumerate(counts):
        expected = assigned(output, targets, number) if count else {}
        assert found[number] == {anchor: g + start for anchor, g in expected.items()}
        start += count
    assert sum(map(len, found)) > 1.2 * min(len(targets), 30)  # some take several


@pytest.mark.parametrize("at_once", [1 << 20, 1])
def test_of_equals_the_first_is_taken_however_the_batch_is_cut(monkeypatch, at_once):
    """Every anchor of a level says the same, and each object is there twice; also where objects are looked at one by one."""
    monkeypatch.setattr(simota, "PAIRS_AT_ONCE", at_once)
    one = crowd((6, 3))
    order = torch.arange(len(one)).repeat_interleave(2)
    targets = Targets(*(t[order] for t in (one.image, one.classes, one.boxes)))
    output = said(2)
    same = OffsetOutput(
        *(torch.zeros_like(t) for t in (output.offsets, output.objectness, output.scores)),
        output.anchors,
        output.strides,
    )
    whole = choice(same, targets)
    for number in range(2):
        mine = targets.image == number
        part = OffsetOutput(
            *(t[number : number + 1] for t in (same.offsets, same.objectness, same.scores)), same.anchors, same.strides
        )
        alone = choice(part, Targets(targets.image[mine] * 0, targets.classes[mine], targets.boxes[mine]))[0]
        first = int(mine.nonzero()[0])
        assert {a: g + first for a, g in alone.items()} == whole[number]
        assert all(g % 2 == 0 for g in whole[number].values())  # never the second of a pair


def test_rounding_does_not_decide_among_equals():
    """Another order of the sums in a network changes the last bits of what it says, and that must not change who is taken."""
    generator = torch.Generator().manual_seed(5)
    box = torch.tensor([[8.0, 8.0, 120.0, 120.0]])  # several coarse cells lie wholly inside, and so overlap it alike
    targets = Targets(torch.arange(2), torch.zeros(2, dtype=torch.int64), box.repeat(2, 1))
    output = said(2)
    chosen = []
    for noise in (0.0, *[3e-5] * 12):
        what = (
            noise * torch.randn(t.shape, generator=generator)
            for t in (output.offsets, output.objectness, output.scores)
        )
        chosen.append(choice(OffsetOutput(*what, output.anchors, output.strides), targets))
    assert all(each == chosen[0] for each in chosen)


class Largest(TorchDispatchMode):
    """Notes the elements of the largest tensor that is made."""

    most = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, torch.Tensor):
                self.most = max(self.most, tensor.untyped_storage().nbytes() // tensor.element_size())
        return made


def test_a_crowded_picture_takes_no_more_memory(monkeypatch):
    monkeypatch.setattr(simota, "PAIRS_AT_ONCE", 1 << 13)
    targets = crowd((80,), side=256)
    output = said(1, 256)
    with Largest() as largest:
        found = choice(output, targets)[0]
    assert len(found) > 40
    assert largest.most <= 2 << 13  # x and y of each pair; all pairs are 13 times as many


def test_background_alone_has_objectness_alone():
    output = said(2)
    loss = YOLOXLoss(GAINS).at(1.0)(output, crowd((0, 0)))
    term, parts = loss.terms["detect"], loss.parts["detect"]
    assert term.weight == 0
    assert parts["obj_loss"] > 0 and parts["box_loss"] == parts["cls_loss"] == parts["l1_loss"] == 0
    term.total.backward()
    torch.testing.assert_close(output.objectness.grad, output.objectness.detach().sigmoid())
    assert not output.scores.grad.any() and not output.offsets.grad.any()


def test_what_is_not_finite_is_no_error_here():
    """The window sees it in the loss, and skips."""
    output = said(1)
    with torch.no_grad():
        output.offsets[0, :, 2:] = 1e4
        output.objectness[0, ::3] = output.scores[0, ::3] = torch.nan
    assert not YOLOXLoss(GAINS)(output, crowd((5,))).terms["detect"].total.isfinite()


@pytest.mark.parametrize(
    ("last", "progress", "counts"),
    [
        (0.0, 0.0, False),
        (0.0, 0.999, False),
        (0.25, 0.74, False),
        (0.25, 9 / 12, True),
        (1 / 3, 2 / 3, True),
        (1.0, 0.0, True),
    ],
)
def test_l1_counts_in_the_last_part_of_a_run(last, progress, counts):
    output, targets = said(2), crowd((2, 3))
    loss = YOLOXLoss(GAINS).closing(last).at(progress)(output, targets)
    assert bool(loss.parts["detect"]["l1_loss"] > 0) is counts
    assert float(sum(loss.parts["detect"].values())) == pytest.approx(loss.terms["detect"].total.item())


def gradients(weights):
    targets = crowd((3, 0, 6))
    output = said(3, near=targets)
    term = YOLOXLoss(GAINS, weights, last=1.0)(output, targets).terms["detect"]
    (term.total / term.weight).backward()
    return [t.grad for t in (output.offsets, output.objectness, output.scores)], float(term.weight)


def test_equal_class_weights_change_nothing():
    (plain, count), (doubled, weight) = gradients(()), gradients((2.0,) * 4)
    for a, b in zip(plain, doubled, strict=True):
        torch.testing.assert_close(a, b)
    assert weight == 2 * count and count == int(count)


def test_each_class_counts_its_weight():
    weights = torch.tensor((0.5, 3.0, 1.0, 1.5))
    targets = crowd((3, 0, 6))
    plain, weighted = said(3, near=targets), said(3, near=targets)
    positive, _ = YOLOXLoss(GAINS)._assign(plain, targets)
    kinds = targets.classes[positive.target]
    YOLOXLoss(GAINS, last=1.0)(plain, targets).terms["detect"].total.backward()
    term = YOLOXLoss(GAINS, weights.tolist(), last=1.0)(weighted, targets).terms["detect"]
    term.total.backward()
    assert float(term.weight) == pytest.approx(float(weights[kinds].sum()))
    of_each = weights.mean().repeat(3, len(plain.anchors))  # background weighs the mean
    of_each[positive.image, positive.anchor] = weights[kinds]
    torch.testing.assert_close(weighted.offsets.grad, plain.offsets.grad * of_each[..., None])
    torch.testing.assert_close(weighted.objectness.grad, plain.objectness.grad * of_each)
    torch.testing.assert_close(weighted.scores.grad, plain.scores.grad * weights)


def test_offsets_and_boxes_are_each_others_inverse():
    output, boxes = said(1), crowd((84 * 4,)).boxes[: 21 * 16]
    anchors, strides = output.anchors, output.strides
    there = offsets_to_boxes(boxes_to_offsets(boxes, anchors, strides), anchors, strides)
    torch.testing.assert_close(there, boxes, rtol=1e-4, atol=1e-3)
