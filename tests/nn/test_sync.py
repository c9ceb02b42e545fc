"""SyncBatchNorm on one rank is BatchNorm, bit for bit; what several ranks make of it: laws/test_statistics_of_all_ranks.py."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from visiontrain.nn.norm import batch_norms, freeze_batch_norm, running_statistics, swap_norms
from visiontrain.nn.sync import SyncBatchNorm

torch.set_num_threads(1)


@pytest.mark.parametrize("training", [True, False])
def test_alone_it_is_batchnorm(training):
    torch.manual_seed(0)
    ours, theirs = SyncBatchNorm(4, eps=1e-3, momentum=0.03), nn.BatchNorm2d(4, eps=1e-3, momentum=0.03)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(3, 4, 5, 6)
    for norm in (ours, theirs):
        norm.train(training)
    assert torch.equal(ours(x), theirs(x))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(a, b) for a, b in zip(ours.buffers(), theirs.buffers(), strict=True))


def test_its_statistics_are_among_those_of_the_model():
    layers = nn.Sequential(nn.BatchNorm2d(4))
    tensors = list(layers.buffers())
    swap_norms(layers, "sync")
    assert type(layers[0]) is SyncBatchNorm and batch_norms(layers) == [layers[0]]
    assert all(a is b for a, b in zip(running_statistics(layers), tensors, strict=True))
    assert batch_norms(freeze_batch_norm(layers)) == []
