"""Rare classes: repeat factors and class weights by hand, and an order that follows from seed, epoch and position."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from visiontrain.config.groups import AugmentConfig, SamplingConfig
from visiontrain.data.balance import class_shares, class_weights, repeat_factors
from visiontrain.data.dataset import TrainSet
from visiontrain.data.index import Index
from visiontrain.data.sampler import Orders
from visiontrain.errors import ConfigError

# 8 of 10 pictures have a cat, 2 a dog, of which one has both and one has three boxes; no emu; one is empty.
PICTURES = [[0]] * 7 + [[0, 1], [1, 1, 1], []]


@pytest.fixture
def index():
    classes = [np.array(each, np.int32) for each in PICTURES]
    n, boxes = len(PICTURES), sum(map(len, PICTURES))
    return Index(
        path_bytes=np.frombuffer(b"x" * n, np.uint8),
        path_ends=np.arange(1, n + 1),
        sizes=np.full((n, 2), 50, np.int32),
        box_ends=np.cumsum([len(each) for each in classes]),
        all_boxes=np.full((boxes, 4), 0.5, np.float32),
        all_classes=np.concatenate(classes),
        names=("cat", "dog", "emu"),
        findings=[],
        fingerprint="",
    )


def test_shares_by_hand(index):
    assert class_shares(index, "images").tolist() == [0.8, 0.2, 0.0]
    assert class_shares(index, "boxes").tolist() == [8 / 12, 4 / 12, 0.0]


def test_repeat_factors_by_hand(index):
    """The mean share of the classes that there are is 0.5: cats are common, a dog is drawn sqrt(0.5 / 0.2) times."""
    dog = np.sqrt(0.5 / 0.2)
    np.testing.assert_allclose(repeat_factors(index, "images"), [1] * 7 + [dog, dog, 1])
    np.testing.assert_allclose(repeat_factors(index, "images", 0.8), [1] * 7 + [2, 2, 1])
    np.testing.assert_allclose(repeat_factors(index, "images", 0.1), np.ones(10))
    np.testing.assert_allclose(repeat_factors(index, "boxes")[7:], [np.sqrt(1.5), np.sqrt(1.5), 1])


def test_class_weights_by_hand(index):
    assert class_weights(index, "none") == ()
    weights = np.array(class_weights(index, "boxes"))
    np.testing.assert_allclose(weights[1] / weights[0], np.sqrt(2))
    assert (weights[:2] * (8, 4)).sum() / 12 == pytest.approx(1)  # the mean over boxes
    weights = np.array(class_weights(index, "images"))
    np.testing.assert_allclose(weights[1] / weights[0], 2)
    assert class_weights(index, "dog:2.5, 0:.5") == (0.5, 2.5, 1.0)
    with pytest.raises(ConfigError, match="did you mean dog"):
        class_weights(index, "dgo:2")


def test_pictures_are_drawn_as_often_as_their_factors_say(index):
    factors = repeat_factors(index, "images", 0.8)
    orders = [Orders(4, 10, factors)(epoch) for epoch in range(300)]
    counts = np.stack([np.bincount(order, minlength=10) for order in orders])
    expected = 10 * factors / factors.sum()
    assert (np.abs(counts - expected) < 1).all()  # its whole part, or one more, in every epoch
    np.testing.assert_allclose(counts.mean(axis=0), expected, atol=0.1)
    assert all(len(order) == 10 for order in orders)
    first = np.bincount([int(order[0]) for order in orders], minlength=10) / 300
    np.testing.assert_allclose(first, expected / 10, atol=0.08)  # no place has pictures of its own


def test_an_order_follows_from_seed_and_epoch(index):
    factors = repeat_factors(index, "images")
    one, two = Orders(4, 10, factors), pickle.loads(pickle.dumps(Orders(4, 10, factors)))
    assert [one(e).tolist() for e in (3, 1, 2)] == [two(e).tolist() for e in (3, 1, 2)]
    assert one(1).tolist() != one(2).tolist() != Orders(5, 10, factors)(2).tolist()


def test_training_samples_follow_the_order(index):
    sampling = SamplingConfig(balance="images", balance_threshold=0.8)
    samples = TrainSet(index, 64, AugmentConfig(), 4, 10, sampling)
    assert samples.order(2).tolist() == Orders(4, 10, repeat_factors(index, "images", 0.8))(2).tolist()
    assert len(samples) == 10


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"balance_threshold": 0.1}, "changes nothing with balance=none"),
        ({"single_cls": True, "balance": "images"}, "no class is rarer"),
        ({"single_cls": True, "class_weights": "boxes"}, "no class is rarer"),
        ({"class_weights": "cat"}, "cat:2,dog:0.5"),
        ({"class_weights": "cat:-1"}, "cat:2,dog:0.5"),
        ({"class_weights": "cat:0"}, "cat:2,dog:0.5"),
        ({"class_weights": ":2"}, "cat:2,dog:0.5"),
        ({"balance": "boxed"}, "none, images or boxes"),
    ],
)
def test_what_means_nothing_is_refused(values, said):
    with pytest.raises(ConfigError, match=said):
        SamplingConfig(**values)
