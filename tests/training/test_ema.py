from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn

from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.training.ema import EMA
from visiontrain.training.run import train

torch.set_num_threads(1)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).train()


def moved(net: nn.Module) -> nn.Module:
    with torch.no_grad():
        for p in net.parameters():
            p += 1.0
    net(torch.randn(2, 3, 4, 4))
    return net


def test_average_of_weights_and_statistics():
    net = model()
    ema = EMA(net)
    before = copy.deepcopy(net.state_dict())
    ema.update(moved(net), 0.75)
    for name, value in ema.model.state_dict().items():
        now = net.state_dict()[name]
        expected = now if name.endswith("tracked") else 0.75 * before[name] + 0.25 * now
        torch.testing.assert_close(value, expected)


def test_bounds_of_the_decay():
    net = model()
    ema = EMA(net)
    before = copy.deepcopy(ema.model.state_dict())
    ema.update(moved(net), 1.0)
    torch.testing.assert_close(
        {k: v for k, v in ema.model.state_dict().items() if not k.endswith("tracked")},
        {k: v for k, v in before.items() if not k.endswith("tracked")},
        rtol=0,
        atol=0,
    )
    ema.update(net, 0.0)
    torch.testing.assert_close(ema.model.state_dict(), net.state_dict())


def test_the_average_is_its_own_and_not_trained():
    net = model()
    ema = EMA(net)
    assert not ema.model.training
    assert net.training
    assert not any(p.requires_grad for p in ema.model.parameters())
    own = {p.data_ptr() for p in ema.model.state_dict().values()}
    assert not own & {p.data_ptr() for p in net.state_dict().values()}
    assert all(p.requires_grad for p in net.parameters())


def test_the_model_is_left_as_it_is():
    net = model()
    ema = EMA(net)
    before = copy.deepcopy(net.state_dict())
    ema.update(net, 0.5)
    torch.testing.assert_close(net.state_dict(), before, rtol=0, atol=0)


def test_a_state_loaded_after_inference_mode_is_updated():
    """AMP-06: evaluation under inference mode leaves no tensor that cannot be trained or averaged."""
    net = model()
    ema = EMA(net)
    with torch.inference_mode():
        ema.model(torch.randn(1, 3, 4, 4))
        stored = {k: v.clone() for k, v in ema.model.state_dict().items()}
    ema.model.load_state_dict(stored)
    ema.update(moved(net), 0.5)
    assert all(v.isfinite().all() for v in ema.model.state_dict().values())


def test_it_moves_once_with_each_update_and_not_with_micro_batches(short_run, narrow, monkeypatch):
    """EMA-04: 13 images in micro-batches of 2, four in a window."""
    moves, update = [], EMA.update
    monkeypatch.setattr(EMA, "update", lambda self, model, decay: moves.append(decay) or update(self, model, decay))
    folder = train(build(TrainConfig, {**short_run, "nbs": 8})).folder
    measured = json.loads((folder / "run.json").read_text())["measured"]
    assert (len(moves), measured["updates_applied"], measured["micro_batches"]) == (2, 2, 7)


def test_tensors_are_matched_in_order_whatever_a_wrapper_calls_them_and_none_may_be_missing():
    """EMA-05: a compiled module puts a word before every name."""
    net = model()
    ema = EMA(net)
    ema.update(nn.ModuleDict({"_orig_mod": moved(net)}), 0.0)
    torch.testing.assert_close(list(ema.model.state_dict().values()), list(net.state_dict().values()))
    with pytest.raises(ValueError, match="shorter"):
        ema.update(next(net.children()), 0.5)
