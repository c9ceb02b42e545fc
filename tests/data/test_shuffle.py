"""An order without a list is an order: every number once, by (seed, epoch, n) alone, and it looks shuffled."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from visiontrain.data.sampler import LISTED, permutation
from visiontrain.data.shuffle import Shuffle

N = 50_000


def listed(seed, epoch, n):
    """The order of the computed kind, as an array."""
    return permutation(seed, epoch, n, listed=0)[np.arange(n)]


def test_up_to_sixteen_million_pictures_it_is_numpys_bit_for_bit():
    """Every published figure was made with it."""
    for seed, epoch, n in ((0, 0, 205), (3, 7, 128), (2**32 - 1, 10**6, 1)):
        drawn = permutation(seed, epoch, n)
        assert isinstance(drawn, np.ndarray) and drawn.dtype == np.int64
        assert np.array_equal(drawn, np.random.default_rng([seed, epoch, 0, 1]).permutation(n))


def test_above_it_is_computed_and_no_list_is_kept():
    order = permutation(0, 0, LISTED + 1)
    assert isinstance(order, Shuffle) and len(order) == LISTED + 1
    assert len(pickle.dumps(order)) < 1000  # what a worker gets
    assert permutation(0, 0, 5, listed=5).tolist() == permutation(0, 0, 5).tolist()


@pytest.mark.parametrize("seed", [0, 1])
def test_every_number_comes_once(seed):
    for n in [*range(1, 300), 4095, 4096, 4097, 10_007]:
        assert np.array_equal(np.sort(listed(seed, 2, n)), np.arange(n)), n


def test_one_position_and_many_get_the_same_numbers():
    order = permutation(5, 1, 1000, listed=0)
    at = np.array([[0, 999], [7, 7]])
    assert order[at].tolist() == [[order[0], order[999]], [order[7], order[7]]]
    assert order[at].dtype == np.int64 and type(order[np.int64(7)]) is int
    assert [order[i] for i in range(1000)] == order[np.arange(1000)].tolist() == list(order)
    assert order[np.arange(0)].shape == (0,)


@pytest.mark.parametrize("at", [-1, 10, np.array([-1]), np.array([3, 10])])
def test_a_position_that_is_not_there_is_an_error(at):
    with pytest.raises(IndexError, match="of 10"):
        permutation(0, 0, 10, listed=0)[at]


def test_seeds_and_epochs_have_orders_of_their_own():
    orders = [listed(seed, epoch, N) for seed in (0, 1, 2**32 - 1) for epoch in (0, 1, 50)]
    for i, one in enumerate(orders):
        assert not any((one == other).mean() > 10 / N for other in orders[:i])  # one place in N agrees by chance
    assert np.array_equal(orders[0], listed(0, 0, N))


@pytest.mark.parametrize("epoch", range(3))
def test_it_looks_shuffled(epoch):
    """What a uniform permutation of N numbers shows, within five of its standard deviations."""
    order = listed(0, epoch, N)
    away = np.abs(order - np.arange(N))
    assert abs(away.mean() / N - 1 / 3) < 5 * np.sqrt(2 / 45 / N)  # Spearman's footrule: variance 2 N^3 / 45
    rises = np.diff(order) > 0
    assert abs(rises.mean() - 1 / 2) < 5 * np.sqrt(1 / 12 / N)  # descents: variance (N + 1) / 12
    assert (np.diff(order) == 1).sum() <= 8  # Poisson with mean 1
    for lag in (1, 2, 223, 224, 225, 448):  # 224 is the side
        assert abs(np.corrcoef(order[:-lag], order[lag:])[0, 1]) < 5 / np.sqrt(N)


def test_places_and_numbers_are_independent():
    """Chi-square over 20 x 20 fields of place and number: (19 * 19) degrees of freedom."""
    order = listed(1, 0, N)
    fields = np.histogram2d(np.arange(N), order, bins=20, range=[[0, N], [0, N]])[0]
    expected = N / 400
    chi = ((fields - expected) ** 2 / expected).sum()
    assert abs(chi - 361) < 5 * np.sqrt(2 * 361)


def test_the_numbers_stay_what_they_are():
    """A run of many pictures can be repeated with a later version: these were written down once."""
    order = permutation(0, 0, 10**8)
    assert order[np.arange(4)].tolist() == [55638064, 29970190, 94732018, 51837814]
    assert [permutation(1, 3, 10**12)[i] for i in (0, 10**12 - 1)] == [341497770021, 935159028071]
