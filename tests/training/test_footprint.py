"""What ranks will move and how: section 4 of the window's specification, counted before there is a model."""

from __future__ import annotations

import pytest
import torch

from visiontrain.config.build import build
from visiontrain.config.schema import CheckConfig, PlanConfig, TrainConfig
from visiontrain.config.sizes import counts_of
from visiontrain.errors import ConfigError
from visiontrain.models import build_model
from visiontrain.nn.norm import running_statistics, swap_norms
from visiontrain.training.footprint import Footprint, choose_reduction
from visiontrain.training.normalisation import Normalisation
from visiontrain.training.plan import make_plan


def plan_of(**changes):
    known = {"batch": 8, "nbs": 64, "images": 205, "epochs": 10, "weight_decay": 5e-4, "warmup_epochs": 3.0}
    return make_plan(**{**known, **changes})


@pytest.mark.parametrize(
    ("reduce", "accumulate", "ranks", "way"),
    [
        ("auto", 8, 2, "window"),
        ("auto", 2, 512, "window"),
        ("auto", 1, 2, "ddp"),
        ("window", 1, 2, "window"),
        ("ddp", 8, 2, "ddp"),
        ("auto", 8, 1, "none"),
        ("window", 8, 1, "none"),
        ("ddp", 1, 1, "none"),
    ],
)
def test_how_gradients_are_summed(reduce, accumulate, ranks, way):
    assert choose_reduction(reduce, accumulate, ranks) == way
    plan = plan_of(batch=64 * ranks // accumulate, nbs=64 * ranks, ranks=ranks, reduce=reduce)
    assert (plan.accumulate, plan.reduction, plan.facts()["reduction"]) == (accumulate, way, way)


def test_it_is_decided_by_the_nominal_window_and_not_by_the_ramp():
    plan = plan_of(ranks=2)
    assert plan.windows(0)[0] == (0, 8)  # one micro-batch
    assert plan.reduction == "window"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ranks": 2}, "The ranks sum their gradients once, at the end of a window (window, reduce=auto: a window is 8 micro-batches)."),
        ({"ranks": 2, "batch": 64}, "while the last backward pass of a window runs (ddp, reduce=auto: a window is one micro-batch)."),
        ({"ranks": 2, "reduce": "ddp"}, "The ranks sum their gradients while the last backward pass of a window runs (reduce=ddp)."),
        ({"ranks": 2, "batch": 64, "reduce": "window"}, "once, at the end of a window (reduce=window)."),
        ({"reduce": "ddp"}, "reduce=ddp: one rank reduces nothing."),
    ],
)  # fmt: skip
def test_the_plan_says_how_and_why(changes, said):
    assert any(said in sentence for sentence in plan_of(**changes).sentences())


def test_one_rank_hears_nothing_of_it():
    assert not any("reduc" in s or "ranks sum" in s for s in plan_of().sentences())


@pytest.mark.parametrize("settings", [TrainConfig, PlanConfig, CheckConfig])
def test_it_is_a_setting(settings):
    assert build(settings, {}).reduce == "auto"
    assert build(settings, {"reduce": "DDP"}).reduce == "ddp"
    with pytest.raises(ConfigError, match="must be auto, window or ddp"):
        build(settings, {"reduce": "ring"})


@pytest.mark.parametrize("norm", ["batch", "sync", "group", "frozen"])
def test_bytes_are_those_of_the_tensors_that_are_summed(norm):
    """As training/reduction.py sums them: gradients as they are, floating statistics in float64, unless they are alike."""
    with torch.device("meta"):
        model = build_model("yolov8n", ["a", "b", "c"])
        swap_norms(model, norm)
    moved = Footprint(counts_of("yolov8n", 3)).moved(4, norm)
    assert moved["gradient_bytes"] == sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    statistics = [t for t in running_statistics(model) if t.is_floating_point() and norm != "sync"]
    assert moved["statistics_bytes"] == 8 * sum(t.numel() for t in statistics)
    assert moved["ring_bytes"] == -(-6 * (moved["gradient_bytes"] + moved["statistics_bytes"]) // 4)


def test_what_synchronised_layers_sum_is_not_counted_and_said():
    sync = Normalisation("sync", "norm=sync")
    told = "\n".join(plan_of(ranks=2, footprint=Footprint(counts_of("yolov8n")), normalisation=sync).sentences())
    assert (
        "12.6 MB of gradient over the ranks" in told and "What SyncBatchNorm sums in every pass comes on top." in told
    )


def test_one_rank_moves_nothing():
    assert set(Footprint(counts_of("yolov8n")).moved(1, "batch").values()) == {0}


def test_what_is_assumed_is_said():
    known, assumed = Footprint(counts_of("yolov8n", 3), True, 50.25), Footprint(counts_of("yolov8n"))
    many = {"ranks": 2, "images": 10**7}
    told, guessed = ("\n".join(plan_of(**many, footprint=each).sentences()) for each in (known, assumed))
    assert "at 3 classes, 4 bytes each" in told and "50.25 its path," in told and "assumed" not in told
    assert "at 80 classes, which is assumed, 4 bytes each" in guessed and "64 its path (assumed)," in guessed
    assert "7.27 objects an image as in COCO 2017" in told
    assert not any("index" in sentence for sentence in plan_of(ranks=2, footprint=assumed).sentences())  # it is small
    facts = plan_of(images=0, footprint=assumed).facts()
    assert facts["index"] is None and facts["moved"]["gradient_bytes"] == 0
