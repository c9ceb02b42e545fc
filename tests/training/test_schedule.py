from __future__ import annotations

import math
from itertools import pairwise

import pytest

from visiontrain.training.plan import make_plan
from visiontrain.training.schedule import LONGEST_HORIZON, Horizon, Schedule, horizon, lr_factor

PLAIN = {
    "images_planned": 1000.0,
    "warmup_images": 0.0,
    "lr0": 0.01,
    "lrf": 0.01,
    "momentum": 0.937,
    "warmup_momentum": 0.8,
    "warmup_bias_lr": 0.1,
    "cosine": False,
}


def schedule(**changes) -> Schedule:
    return Schedule(**(PLAIN | changes))


@pytest.mark.parametrize("cosine", [False, True])
def test_from_lr0_to_its_share(cosine):
    s = schedule(cosine=cosine)
    assert s.learning_rate(0) == pytest.approx(0.01)
    assert s.learning_rate(500) == pytest.approx(0.01 * (1 + 0.01) / 2)
    assert s.learning_rate(1000) == pytest.approx(0.01 * 0.01)
    assert s.learning_rate(2000) == s.learning_rate(1000)  # beyond the plan nothing turns around


def test_linear_and_cosine_differ_between():
    linear, cosine = schedule(), schedule(cosine=True)
    assert linear.learning_rate(250) == pytest.approx(0.01 * (0.01 + 0.99 * 0.75))
    assert cosine.learning_rate(250) == pytest.approx(0.01 * (0.01 + 0.99 * (1 + math.cos(math.pi / 4)) / 2))


def test_warmup_of_weights_and_biases():
    s = schedule(warmup_images=100.0)
    assert s.learning_rate(0) == 0
    assert s.learning_rate(0, bias=True) == pytest.approx(0.1)
    assert 0 < s.learning_rate(1) < 0.001  # the first update moves
    assert s.learning_rate(50) == pytest.approx(0.5 * schedule().learning_rate(50))
    after = [s.learning_rate(100), s.learning_rate(100, bias=True), schedule().learning_rate(100)]
    assert after == pytest.approx([after[0]] * 3)


def test_momentum():
    s = schedule(warmup_images=100.0)
    assert [s.momentum_at(x) for x in (0, 50, 100, 1000)] == pytest.approx([0.8, 0.8685, 0.937, 0.937])
    assert schedule().momentum_at(0) == 0.937


def test_the_rate_never_jumps():
    s = schedule(warmup_images=100.0, cosine=True)
    values = [s.learning_rate(x) for x in range(1001)]
    assert max(abs(a - b) for a, b in pairwise(values)) < 1.1 * 0.01 / 100


def test_a_short_run_averages_over_more_than_its_last_update():
    """A ramp over 2,000 updates would average almost nothing in a run of 200 updates of 64 images."""
    planned, window = 200 * 64, 64
    fitted = horizon(planned)
    weight, weights = 1.0, []
    for update in range(200, 0, -1):
        decay = fitted.decay(window, update * window)
        weights.append(weight * (1 - decay))
        weight *= decay
    assert weight < 1e-3  # nothing is left of the random start
    assert max(weights) < 0.2  # and the last update is not everything
    assert sum(weights[:20]) > 0.5  # while the end counts most


def test_the_horizon_is_bounded():
    assert horizon(20_000).images == 1000
    assert horizon(1e9).images == LONGEST_HORIZON


def test_the_average_starts_with_the_model():
    assert Horizon(1000.0).decay(64, 64) < 1e-3
    assert Horizon(1000.0).decay(64, 1e6) == pytest.approx(math.exp(-0.064))


@pytest.mark.parametrize("batch", [16, 48])
def test_after_the_warm_up_the_learning_rate_is_lr0_times_the_decay_for_every_batch(batch):
    """GA-09: with batch 48 (E 48) as with batch 16 (E 64) the warm-up ends after its epochs, not after some updates."""
    images, epochs = 1000, 10
    plan = make_plan(batch=batch, nbs=64, images=images, epochs=epochs, weight_decay=0, warmup_epochs=5)
    s = schedule(images_planned=plan.images_planned, warmup_images=plan.warmup_images, lr0=1e-4, lrf=0.1)
    assert s.learning_rate(6 * images) == pytest.approx(1e-4 * (0.1 + 0.9 * 0.4), rel=1e-12)


@pytest.mark.parametrize(
    ("images", "linear", "sqrt"),
    [(64, 1, 1), (16, 0.25, 0.5), (256, 4, 2), (72, 1.125, 1.125**0.5), (8192, 128, 128**0.5)],
)
def test_lr_factor_is_one_at_the_recipe_s_64_images(images, linear, sqrt):
    """Rule 70; 8,192 images are those of Goyal et al. 2017."""
    assert lr_factor("none", images) == 1
    assert lr_factor("linear", images) == pytest.approx(linear, rel=1e-12)
    assert lr_factor("sqrt", images) == pytest.approx(sqrt, rel=1e-12)
