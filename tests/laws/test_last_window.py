"""Law 9: the short window at the end of an epoch is used exactly, or left out with its positions known."""

from __future__ import annotations

import pytest
from laws.toys import OURS, Pieces, Toy, gradient_by_hand, relative, run_window

from visiontrain.errors import ConfigError
from visiontrain.training.plan import make_plan, windows_of_epoch


def check_tail_window_is_exact(pieces: Pieces):
    """GA-02: 10 images, batch 2, four micro-batches: windows of 8 and of 2; the second equals a batch of its own."""
    world = Toy()
    batch = world.batch((2, 1, 0, 3, 1, 1, 2, 0, 5, 1))
    windows = windows_of_epoch(10, 2, 4, 0, 0.0, "use")
    assert windows == [(0, 8), (8, 10)]
    for start, stop in windows:
        images = batch.slice(start, stop)
        outcome = run_window(world, images.split(2), pieces, provisional=4.0)
        assert outcome.sums.images == stop - start
        assert relative(outcome.gradient, gradient_by_hand(world, images)) <= 1e-12


def test_tail_window_is_exact():
    check_tail_window_is_exact(OURS)


def check_each_position_once(windows):
    """Together the windows are the epoch: each position once, in order."""
    for images in (1, 7, 64, 100, 637):
        for batch in (1, 2, 8, 24, 64):
            for dealt, warmup in ((0, 0.0), (0, 300.0), (images, 3.0 * images)):
                dealt_positions = [
                    p for start, stop in windows(images, batch, 8, dealt, warmup, "use") for p in range(start, stop)
                ]
                assert dealt_positions == list(range(images))


def test_each_position_once():
    check_each_position_once(windows_of_epoch)


def plan(images: int, last_window: str, batch: int = 2, epochs: int = 3):
    return make_plan(
        batch=batch,
        nbs=8,
        images=images,
        epochs=epochs,
        weight_decay=5e-4,
        warmup_epochs=0.0,
        last_window=last_window,
    )


def test_drop_leaves_the_tail_out_and_names_it():
    used, dropped = plan(10, "use"), plan(10, "drop")
    assert used.windows(0) == [(0, 8), (8, 10)]
    assert dropped.windows(0) == [(0, 8)]
    left_out = set(range(10)) - {p for start, stop in dropped.windows(0) for p in range(start, stop)}
    assert left_out == {8, 9}
    assert (used.images_planned, dropped.images_planned) == (30, 24)
    assert (used.updates, dropped.updates) == (6, 3)
    assert any("2 images" in s and "left out" in s for s in dropped.sentences())


def test_drop_that_leaves_nothing_is_an_error():
    with pytest.raises(ConfigError, match="last_window=use"):
        plan(7, "drop")


def test_use_steps_at_least_once_in_an_epoch():
    """GA-03: three micro-batches and windows of four still make one update."""
    assert plan(6, "use").windows(0) == [(0, 6)]


def test_windows_never_cross_an_epoch():
    for epoch in range(3):
        assert plan(13, "use").windows(epoch)[-1][1] == 13
