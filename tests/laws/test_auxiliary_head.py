"""Law 12 on a real detector: yolov9's auxiliary head reaches the backbone too, so a window runs twice and is exact."""

from __future__ import annotations

import pytest
import torch
from laws.test_a_window_is_one_batch import SPLITS, check_split_invariance
from laws.test_two_terms_on_one_parameter import TWICE, each_in_turn, one_for_both
from laws.toys import OURS, NarrowHelped, Pieces

from visiontrain.errors import ConfigError
from visiontrain.models.freezing import freeze
from visiontrain.training.two_pass import accumulate_twice, accumulator, shared_parameters
from visiontrain.training.window import accumulate_window, check_terms

FEW = {name: SPLITS[name] for name in ("4", "very ragged")}


@pytest.mark.parametrize(("dtype", "leading"), [(torch.float64, False), (torch.float64, True), (torch.float32, False)])
def test_however_it_is_cut_it_is_one_batch(dtype, leading):
    check_split_invariance(TWICE, NarrowHelped(dtype, leading=leading), FEW)


@pytest.mark.parametrize("apply", [one_for_both, each_in_turn])
def test_one_pass_with_any_multipliers_is_noticed(apply):
    with pytest.raises(AssertionError):
        check_split_invariance(Pieces(accumulate_window, apply), NarrowHelped(), FEW)


def test_one_pass_is_refused():
    with pytest.raises(ConfigError, match="'auxiliary' shares a parameter with a term of another weight"):
        check_split_invariance(OURS, NarrowHelped(), FEW)


@pytest.mark.parametrize("leading", [False, True])
def test_both_heads_reach_the_backbone_and_each_its_own_neck(leading):
    """As autograd finds it, parameter by parameter."""
    world = NarrowHelped(leading=leading)
    model, batch = world.model(), world.batch().to("cpu", torch.float64)
    reach = model.term_parameters()
    check_terms(model, world.criterion, batch, reach)
    loss, everything = world.criterion(model(batch.images), batch.targets), list(model.parameters())
    learning = [p for p in everything if p.requires_grad]
    for term in model.loss_terms:
        found = torch.autograd.grad(loss.terms[term].total, learning, retain_graph=True, allow_unused=True)
        assert {id(p) for p, g in zip(learning, found, strict=True) if g is not None} == set(map(id, reach[term]))
    names = {id(p): name for name, p in model.named_parameters()}
    both = {names[id(p)] for p in reach["detect"]} & {names[id(p)] for p in reach["auxiliary"]}
    assert {int(name.split(".")[1]) for name in both} == set(range(model.backbone))
    assert accumulator(reach) is accumulate_twice


def test_with_the_backbone_frozen_one_pass_will_do():
    model = NarrowHelped().model()
    freeze(model, "backbone")
    assert shared_parameters(model.term_parameters()) == 0
    assert accumulator(model.term_parameters()) is accumulate_window
