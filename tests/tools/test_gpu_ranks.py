"""The checks of several ranks on a GPU, with the CPU in its place: the functions are the same."""

from __future__ import annotations

import pytest
import torch
from ranks import run_on_ranks

from tools import gpu_ranks
from visiontrain import models
from visiontrain.training.reduction import Reduction


def on_the_cpu(ranks):
    """Both checks with a narrow network, then the first with a reduction that loses a quarter of the sum."""
    reduce = Reduction.reduce

    def less(reduction, sums):
        reduce(reduction, sums)
        torch._foreach_mul_([p.grad for p in reduction.parameters if p.grad is not None], 0.75)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
        told = gpu_ranks.gradients(ranks, 64), gpu_ranks.scaler(ranks, 64), gpu_ranks.statistics(ranks)
        patch.setattr(Reduction, "reduce", less)
        with pytest.raises(AssertionError, match=r"fp64.*window"):
            gpu_ranks.gradients(ranks, 64)
    return told


def test_the_checks_pass_on_two_ranks_and_can_fail():
    (gradients, scaler, statistics), _ = run_on_ranks(2, on_the_cpu)
    assert statistics.startswith("images [5, 0], float32 ")
    assert [word.rsplit(" ", 1)[0] for word in gradients.split(", ")] == [
        "fp64 window",
        "fp64 ddp",
        "fp32 window",
        "fp32 ddp",
    ]
    assert scaler == "skipped on 2 ranks at scale 1024, applied at 512"


def test_statistics_of_one_process_go_through_its_group():
    assert gpu_ranks.statistics_alone("cpu", "gloo").startswith("images [5], float32 ")


def test_a_rank_is_started_for_each_device():
    said = gpu_ranks.start("statistics", ["cpu", "cpu"], "gloo", "size=64")
    assert said.startswith("images [5, 0], float32 ")


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="there are several devices: run tools/gpu_check.py itself")
def test_what_needs_several_devices_is_left_out_with_the_reason():
    for name, check in gpu_ranks.CHECKS.items():
        if "a rank on each GPU" in name or "0,1" in name:
            with pytest.raises(gpu_ranks.LeftOut, match="needs two GPUs"):
                check()
