"""SimOTA as the papers write it, one object after another in float64, to compare with."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from visiontrain.boxes import plain_iou
from visiontrain.nn.decoupled import offsets_to_boxes


def matrices(output, targets, number):
    """(objects, A) cost and IoU of one image; the cost of anchors that are no candidates is infinite."""
    mine = targets.image == number
    truth, kinds = targets.boxes[mine].double(), targets.classes[mine]
    anchors, strides = output.anchors.double(), output.strides.double()
    boxes = offsets_to_boxes(output.offsets[number].detach().double(), anchors, strides)
    joint = (output.scores[number].double().sigmoid() * output.objectness[number].double().sigmoid()[:, None]).sqrt()
    costs, overlaps, centrals = [], [], []
    for box, kind in zip(truth, kinds, strict=True):
        one = F.one_hot(kind, joint.shape[1]).double().expand_as(joint)
        away = (anchors * strides - (box[:2] + box[2:]) / 2).abs()
        centrals.append((away < 1.5 * strides).all(1))
        overlaps.append(plain_iou(boxes, box))
        classes = F.binary_cross_entropy(joint.detach(), one, reduction="none").sum(1)
        costs.append(classes - 3 * (overlaps[-1] + 1e-8).log() + 1e6 * ~centrals[-1])
    candidates = torch.stack(centrals).any(0)
    cost = torch.stack(costs).masked_fill(~candidates, torch.inf)
    return cost, torch.stack(overlaps).masked_fill(~candidates, 0)


def assigned(output, targets, number):
    """{anchor: object} of one image, costs told apart to 1 / 1024, of equals the first."""
    cost, overlap = matrices(output, targets, number)
    cost = (1024 * cost).round()
    taken = {}
    for g, row in enumerate(cost):
        for anchor in row.sort(stable=True).indices[: max(int(overlap[g].topk(10).values.sum()), 1)].tolist():
            taken.setdefault(anchor, []).append(g)
    return {a: int(cost[:, a].argmin()) if len(claims) > 1 else claims[0] for a, claims in taken.items()}
