"""Two heads that each learn from all objects: the second counts a quarter, and neither takes more memory on crowded pictures."""

from __future__ import annotations

import pytest
import torch
from laws.toys import NarrowHelped

from visiontrain.batch import Targets
from visiontrain.config.groups import LossConfig
from visiontrain.losses import AuxiliaryDetectionLoss, DetectionLoss
from visiontrain.losses import assign as assigning


def outputs():
    world = NarrowHelped()
    batch = world.batch().to("cpu", torch.float64)
    return world.model()(batch.images), batch.targets


@pytest.mark.parametrize("weights", [(), (0.5, 3.0, 1.0)])
def test_each_head_is_a_detector_and_the_second_counts_a_quarter(weights):
    said, targets = outputs()
    found = AuxiliaryDetectionLoss(LossConfig(), weights)(said, targets)
    alone = [DetectionLoss(LossConfig(), class_weights=weights)(head, targets) for head in (said.main, said.auxiliary)]
    (main, helped), terms = (loss.terms["detect"] for loss in alone), found.terms
    assert (terms["detect"].total, terms["detect"].weight) == (main.total, main.weight)
    assert (terms["auxiliary"].total, terms["auxiliary"].weight) == (0.25 * helped.total, helped.weight)
    assert found.parts["auxiliary"] == {f"aux_{name}": part for name, part in alone[1].parts["detect"].items()}
    assert [*found.parts["detect"], *found.parts["auxiliary"]] == list(AuxiliaryDetectionLoss.part_names)
    assert terms["auxiliary"].weight != terms["detect"].weight


def test_crowded_pictures_are_taken_a_few_at_a_time_by_both(monkeypatch):
    """Pairs of objects and anchors that are held at once, over both heads, against what they would be."""
    said, _ = outputs()
    objects, anchors = 200, len(said.main.anchors)
    image = torch.arange(16).repeat_interleave(objects)
    corner = 40 * torch.rand(len(image), 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = Targets(image, torch.zeros_like(image), torch.cat((corner, corner + 20), 1))
    held = []
    look = assigning.inside

    def watched(centres, truth, *more):
        held.append(len(centres) * len(truth))
        return look(centres, truth, *more)

    monkeypatch.setattr(assigning, "inside", watched)
    whole = AuxiliaryDetectionLoss(LossConfig())(said, targets)
    assert held == [len(image) * anchors] * 2
    monkeypatch.setattr(assigning, "PAIRS_AT_ONCE", 2 * objects * anchors)
    held.clear()
    cut = AuxiliaryDetectionLoss(LossConfig())(said, targets)
    assert held == [2 * objects * anchors] * 16  # of each head two pictures eight times
    for name, term in whole.terms.items():
        torch.testing.assert_close(cut.terms[name].total, term.total, rtol=1e-12, atol=0)
