"""The planner over a run of many ranks, small: dealt once, drawn once, and what is not so is seen."""

from __future__ import annotations

import numpy as np
import pytest

from tools.simulate_plan import between, main, walk
from visiontrain.data.sampler import permutation
from visiontrain.errors import ConfigError, VisionTrainError
from visiontrain.training.plan import Plan, make_plan


def plan_of(**changes):
    known = {"batch": 96, "nbs": 200, "images": 10_007, "epochs": 3, "weight_decay": 0.0, "warmup_epochs": 1.5}
    return make_plan(**{**known, "ranks": 48, **changes})


@pytest.mark.parametrize("listed", [0, 2**24])
def test_each_position_is_dealt_once_and_each_picture_drawn_once(listed):
    plan = plan_of()
    for number in range(3):
        epoch = walk(plan, number, permutation(0, number, plan.images, listed))
        assert epoch.problems(plan.images) == []
        assert (epoch.places, epoch.pictures, epoch.windows) == (10_007, 10_007, len(plan.windows(number)))
        assert epoch.slices == sum(
            len(plan.shares(*window, rank)) for window in plan.windows(number) for rank in range(48)
        )
    assert epoch.idle == 48 - 10_007 % 192 % 96  # of the last micro-batch few get an image
    assert epoch.of_rank.sum() == 10_007 and np.ptp(epoch.of_rank) == 1


def test_what_drop_leaves_out_is_not_missed():
    plan = plan_of(last_window="drop", warmup_epochs=0)
    assert walk(plan, 0, permutation(0, 0, plan.images)).problems(10_007 // 192 * 192) == []


def test_a_planner_that_deals_twice_or_forgets_is_seen(monkeypatch):
    plan, shares = plan_of(), Plan.shares
    order = permutation(0, 0, plan.images)
    monkeypatch.setattr(Plan, "shares", lambda self, *window_and_rank: shares(self, *window_and_rank) * 2)
    assert walk(plan, 0, order).problems(plan.images) == [
        "10007 positions were planned, 20014 were dealt",
        "10007 positions were dealt again",
        "10007 pictures were drawn again",
    ]
    monkeypatch.setattr(Plan, "shares", lambda self, start, stop, rank: shares(self, start, stop, min(rank, 46)))
    assert any("were dealt again" in problem for problem in walk(plan, 0, order).problems(plan.images))
    with pytest.raises(VisionTrainError, match=r"epoch 1: .* were dealt"):
        main(["batch=96", "ranks=48", "images=1000", "epochs=1"])


def test_a_window_that_is_cut_otherwise_than_those_before_it_is_seen(monkeypatch):
    """The plan is asked again every 64 windows."""
    plan, shares = plan_of(warmup_epochs=0, images=96 * 2 * 70), Plan.shares
    late = 96 * 2 * 64
    monkeypatch.setattr(Plan, "shares", lambda self, start, *rest: shares(self, start, *rest) if start < late else [])
    assert walk(plan, 0, permutation(0, 0, plan.images)).problems(plan.images)


def test_an_order_that_repeats_a_picture_is_seen():
    plan = plan_of()
    order = permutation(0, 0, plan.images)
    order[7] = order[8]
    assert walk(plan, 0, order).problems(plan.images) == ["1 pictures were drawn again"]


def test_stretches():
    assert between(np.array([3, 10, 0]), np.array([5, 10, 3])).tolist() == [3, 4, 0, 1, 2]


def test_the_report(capsys):
    main(["batch=96", "ranks=48", "images=1000", "epochs=2", "seed=3"])
    said = capsys.readouterr().out
    assert said.startswith("2 images x 1 micro-batch x 48 ranks = 96 images per update")
    assert (
        "epoch 2: 11 windows (2 asked of the plan), 520 slices of micro-batches to 48 ranks, 8 of them without an image in the last"
        in said
    )
    assert "20 to 21 images a rank; 1000 positions dealt, each once; 1000 pictures drawn, each once" in said
    assert "peak memory of this process" in said


@pytest.mark.parametrize("words", [["batch=8"], ["seed=x", "images=9"], ["imagse=9"]])
def test_wrong_words_are_an_error(words):
    with pytest.raises(ConfigError):
        main(words)
