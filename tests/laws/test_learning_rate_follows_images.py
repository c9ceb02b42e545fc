"""Law 18: equal progress, equal learning rate and momentum, for any A, m and D."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from visiontrain.training.plan import Plan, make_plan
from visiontrain.training.schedule import Schedule, horizon

BATCHES = (1, 2, 4, 8, 16, 32, 64, 48, 5)


def schedule_of(plan: Plan, **changes) -> Schedule:
    settings = {
        "lr0": 0.01,
        "lrf": 0.01,
        "momentum": 0.937,
        "warmup_momentum": 0.8,
        "warmup_bias_lr": 0.1,
        "cosine": True,
    }
    return Schedule(plan.images_planned, plan.warmup_images, **(settings | changes))


def plan_of(batch: int, ranks: int = 1, warmup_epochs: float = 3.0, images: int = 640) -> Plan:
    return make_plan(
        batch=batch,
        nbs=64,
        images=images,
        epochs=5,
        weight_decay=5e-4,
        warmup_epochs=warmup_epochs,
        ranks=ranks,
    )


def images_of(plan: Plan, window: tuple[int, int]) -> float:
    return window[1] - window[0]


def curve(plan: Plan, advance: Callable[[Plan, tuple[int, int]], float]) -> dict[float, tuple[float, float, float]]:
    """Learning rates and momentum by images really trained on, as an update loop would use them."""
    schedule, trained, counted, found = schedule_of(plan), 0.0, 0.0, {}
    for epoch in range(plan.epochs):
        for window in plan.windows(epoch):
            trained += images_of(plan, window)
            counted += advance(plan, window)
            rates = (schedule.learning_rate(counted), schedule.learning_rate(counted, bias=True))
            found[trained] = (*rates, schedule.momentum_at(counted))
    return found


def check_equal_progress_gives_equal_rates(advance: Callable[[Plan, tuple[int, int]], float]):
    reference = curve(plan_of(64), advance)
    for batch in BATCHES:
        for ranks in (1, 2, 4):
            if batch % ranks:
                continue
            ours = curve(plan_of(batch, ranks), advance)
            common = reference.keys() & ours.keys()
            assert 5 * 640 in common
            assert len(common) >= 5  # at least the ends of the epochs
            for images in common:
                assert ours[images] == pytest.approx(reference[images], rel=1e-12), (batch, ranks, images)


def test_equal_progress_gives_equal_rates():
    check_equal_progress_gives_equal_rates(images_of)


@pytest.mark.parametrize("batch", BATCHES)
def test_after_the_warmup_the_rate_is_the_decayed_lr0(batch):
    """GA-09: for every batch, also one that does not divide nbs."""
    plan = plan_of(batch)
    warm, cold = schedule_of(plan), schedule_of(plan_of(batch, warmup_epochs=0.0))
    at = 3 * 640
    assert warm.learning_rate(at) == pytest.approx(cold.learning_rate(at), rel=1e-12)
    assert warm.learning_rate(at - 64) < cold.learning_rate(at - 64)


def test_the_average_looks_back_over_equal_images():
    """The EMA's weight of an old state is the same after 64 images in one window or in eight."""
    planned = 3200.0
    fixed = horizon(planned)
    one = fixed.decay(64, 3000)
    eight = 1.0
    for k in range(8):
        eight *= fixed.decay(8, 3000 - 64 + 8 * (k + 1))
    assert eight == pytest.approx(one, rel=1e-9)
