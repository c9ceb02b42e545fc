"""BatchNorm's running statistics under accumulation: horizon in images, and measuring them anew."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from visiontrain import models
from visiontrain.batch import Batch, Targets
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.models.weights import read_checkpoint
from visiontrain.nn.conv import Conv
from visiontrain.nn.norm import batch_norms, running_statistics
from visiontrain.training import run as recipe
from visiontrain.training.run import train
from visiontrain.training.statistics import BatchNormPolicy, reestimate, scale_momentum, statistics_momentum

torch.set_num_threads(1)
CPU = torch.device("cpu")


def test_momentum_in_images():
    assert statistics_momentum(0.03, 64, 64) == pytest.approx(0.03, rel=1e-12)
    assert statistics_momentum(0.03, 2, 64) == pytest.approx(0.03 / 32, rel=0.02)
    for images in (1, 2, 4, 16):  # after 64 images as much of the old is left, however they were cut
        left = (1 - statistics_momentum(0.03, images, 64)) ** (64 / images)
        assert left == pytest.approx(0.97, rel=1e-12)
    assert statistics_momentum(0.03, 128, 64) == pytest.approx(1 - 0.97**2, rel=1e-12)


def test_every_norm_gets_it():
    model = nn.Sequential(Conv(3, 8), Conv(8, 8))
    scale_momentum(model, 2, 64)
    assert [norm.momentum for norm in batch_norms(model)] == [statistics_momentum(0.03, 2, 64)] * 2


def batches(sizes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    none = torch.zeros(0, dtype=torch.int64)
    for size in sizes:
        images = torch.randint(0, 256, (size, 3, 8, 8), generator=generator, dtype=torch.uint8)
        yield Batch(images, Targets(none, none, torch.zeros(0, 4)), tuple(range(size)))


def test_statistics_are_those_of_all_images_together():
    """The first layer's input does not depend on other layers: mean and variance are those of one big batch."""
    torch.manual_seed(0)
    model = nn.Sequential(Conv(3, 8, 3), Conv(8, 4)).eval()
    before = copy.deepcopy(model.state_dict())
    random = torch.get_rng_state()
    reestimate(model, batches([4, 4, 1]), CPU)
    assert torch.equal(torch.get_rng_state(), random)
    inputs = model[0].conv(torch.cat([b.to(CPU).images for b in batches([4, 4, 1])]))
    norm = model[0].bn
    torch.testing.assert_close(norm.running_mean, inputs.mean((0, 2, 3)))
    torch.testing.assert_close(norm.running_var, inputs.var((0, 2, 3), correction=0))
    after = model.state_dict()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed == {f"{i}.bn.running_{what}" for i in (0, 1) for what in ("mean", "var")}
    assert not any(module.training for module in model.modules())
    assert all(norm.track_running_stats and not norm._forward_pre_hooks for norm in batch_norms(model))


def test_each_pass_normalises_with_its_own_batch():
    """So the second layer gets what it gets in training, not what wrong statistics of the first make of it."""
    torch.manual_seed(0)
    model = nn.Sequential(Conv(3, 8, 3), Conv(8, 4)).eval()
    model[0].bn.running_var.fill_(1e6)
    inputs = []
    twin = copy.deepcopy(model).train()
    twin[1].bn.register_forward_pre_hook(lambda norm, x: inputs.append(x[0]))
    for batch in batches([4, 4]):
        twin(batch.to(CPU).images)
    reestimate(model, batches([4, 4]), CPU)
    torch.testing.assert_close(model[1].bn.running_mean, torch.cat(inputs).mean((0, 2, 3)))


def test_an_error_on_the_way_leaves_the_old_ones():
    model = nn.Sequential(Conv(3, 8)).eval()
    before = [t.clone() for t in running_statistics(model)]

    def broken():
        yield from batches([2])
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        reestimate(model, broken(), CPU)
    assert all(torch.equal(a, b) for a, b in zip(running_statistics(model), before, strict=True))
    assert not model[0].bn.training and model[0].bn.track_running_stats


def test_the_live_model_and_the_samples_never_notice(tiny, tmp_path, monkeypatch):
    """A run with re-estimation trains the same weights; its average is scored and saved with other statistics."""
    monkeypatch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
    values = {
        "data": str(tiny), "project": str(tmp_path), "device": "cpu", "workers": 0, "epochs": 2, "batch": 2, "nbs": 8,
        "norm": "batch", "imgsz": 64, "warmup_epochs": 0, "plots": False,
    }  # fmt: skip
    scored = []
    score = recipe.score
    monkeypatch.setattr(recipe, "score", lambda s, m, *more: scored.append(_statistics(m)) or score(s, m, *more))
    finished = []
    for policy in (BatchNormPolicy(), BatchNormPolicy(reestimate_images=6, reestimate_batch=4)):
        folder = train(build(TrainConfig, values), statistics=policy).folder
        finished.append([read_checkpoint(folder / "weights" / name) for name in ("last.pt", "best.pt")])
    (plain, _), (other, best) = finished
    assert all(torch.equal(value, other["weights"][name]) for name, value in plain["weights"].items())
    differing = {name for name, value in plain["ema"].items() if not torch.equal(value, other["ema"][name])}
    assert differing and all("running_" in name for name in differing)
    assert torch.equal(_statistics(other["ema"]), scored[4])  # of the last epoch
    assert torch.equal(_statistics(best["weights"]), scored[5])  # best.pt, scored once more at the end


def _statistics(model) -> torch.Tensor:
    state = model if isinstance(model, dict) else model.state_dict()
    return torch.cat([value.flatten() for name, value in state.items() if "running_" in name]).clone()
