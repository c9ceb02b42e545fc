"""The arithmetic of windows (GA-03, GA-09, GA-12 of the known failures among it)."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visiontrain.config.parse import parse_words
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError
from visiontrain.training.normalisation import Normalisation
from visiontrain.training.plan import Plan, accumulate, decay_used, make_plan, ramp, windows_of_epoch


def plan_of(**changes) -> Plan:
    known = {"batch": 8, "nbs": 64, "images": 205, "epochs": 10, "weight_decay": 5e-4, "warmup_epochs": 3.0}
    return make_plan(**{**known, **changes})


@pytest.mark.parametrize(
    ("batch", "expected"), [(16, 4), (8, 8), (24, 3), (48, 1), (96, 1), (128, 1), (1, 64), (64, 1), (2, 32)]
)
def test_micro_batches_of_a_window(batch, expected):
    assert accumulate(64, batch) == expected


def test_halves_round_to_even():
    assert [accumulate(nbs, 4) for nbs in (6, 10, 14)] == [2, 2, 4]


@pytest.mark.parametrize(
    ("m", "a", "ranks", "images"), [(2, 8, 2, 32), (1, 16, 2, 32), (4, 4, 2, 32), (2, 8, 1, 16), (4, 8, 4, 128)]
)
def test_images_per_update(m, a, ranks, images):
    plan = plan_of(batch=m * ranks, nbs=m * ranks * a, ranks=ranks)
    assert (plan.accumulate, plan.images_per_update) == (a, images)
    assert f"{m} image{'s' * (m > 1)} x {a} micro-batches x {ranks} rank{'s' * (ranks > 1)} = {images} images" in str(
        plan.sentences()
    )


@pytest.mark.parametrize(("batch", "factor"), [(16, 1), (24, 72 / 64), (48, 48 / 64), (128, 2)])
def test_decay_follows_the_images_of_a_window(batch, factor):
    assert decay_used(5e-4, batch, accumulate(64, batch), 64) == pytest.approx(5e-4 * factor, rel=1e-12)
    assert plan_of(batch=batch).weight_decay_used == pytest.approx(5e-4 * factor, rel=1e-12)


def test_the_plan_of_the_specification_word_for_word():
    assert plan_of(images=118287).sentences()[0] == (
        "8 images x 8 micro-batches x 1 rank = 64 images per update (nbs 64); 118287 images = 14786 micro-batches"
        " = 1849 updates per epoch; weight decay 0.0005 x 64/64"
    )


def test_images_that_differ_from_nbs_are_said():
    told = plan_of(batch=24).sentences()
    assert "weight decay 0.0005 x 72/64" in told[0]
    assert told[1] == "An update sees 72 images, not 64: batch 24 does not divide nbs 64; 3 updates per epoch, at 64 4."
    assert plan_of(batch=24, images=0).sentences()[1].endswith("batch 24 does not divide nbs 64.")
    assert "An update sees 96 images, not 64" in plan_of(batch=96).sentences()[1]
    assert not any("An update sees" in sentence for sentence in plan_of(batch=16).sentences())


@pytest.mark.parametrize(("last_window", "ours", "theirs"), [("use", 14, 16), ("drop", 13, 15)])
def test_updates_of_an_epoch_are_said_for_both_sizes_of_an_update(last_window, ours, theirs):
    """Rule 40: another number of images per update is another number of updates for the same images."""
    plan = plan_of(batch=24, images=1000, last_window=last_window)
    assert f"{ours} updates per epoch, at 64 {theirs}." in plan.sentences()[1]
    assert plan.updates_per_epoch == ours
    assert plan_of(batch=16, images=1000, last_window=last_window).updates_per_epoch == theirs


def test_batch_counts_all_ranks_and_m_those_of_one():
    """Rule 1."""
    facts = plan_of(batch=8, ranks=2).facts()
    assert (facts["batch"], facts["images_per_rank"], facts["accumulate"]) == (8, 4, 8)


def test_ramp_begins_at_one_micro_batch_and_ends_full():
    assert ramp(8, 0, 615.0) == 1
    assert ramp(8, 615, 615.0) == ramp(8, 10**9, 615.0) == 8
    assert ramp(8, 0, 0.0) == 8


@given(full=st.integers(1, 128), warmup=st.floats(0, 1e9), a=st.integers(0, 10**9), b=st.integers(0, 10**9))
def test_ramp_never_falls(full, warmup, a, b):
    early, late = ramp(full, min(a, b), warmup), ramp(full, max(a, b), warmup)
    assert 1 <= early <= late <= full


def slow_windows(images, batch, full, dealt_before, warmup_images, last_window):
    """The definition, window by window."""
    found, start = [], 0
    while start < images:
        size = batch * ramp(full, dealt_before + start, warmup_images)
        if start + size <= images or last_window == "use":
            found.append((start, min(start + size, images)))
        start += size
    return found


ARITHMETIC = {
    "images": st.integers(1, 700),
    "batch": st.integers(1, 40),
    "nbs": st.integers(1, 130),
    "epochs": st.integers(1, 6),
    "warmup_epochs": st.floats(0, 7),
}


@given(**ARITHMETIC)
@settings(deadline=None)
def test_every_position_is_dealt_once(images, batch, nbs, epochs, warmup_epochs):
    plan = plan_of(images=images, batch=batch, nbs=nbs, epochs=epochs, warmup_epochs=warmup_epochs)
    updates = 0
    for epoch in range(epochs):
        windows = plan.windows(epoch)
        dealt = [p for window in windows for a, b in plan.micro_batches(*window) for p in range(a, b)]
        assert dealt == list(range(images))
        assert windows == slow_windows(images, batch, plan.accumulate, epoch * images, plan.warmup_images, "use")
        assert plan.dealt_before(epoch) == epoch * images
        updates += len(windows)
    assert plan.updates == updates
    assert plan.images_planned == epochs * images


@given(**ARITHMETIC)
@settings(deadline=None)
def test_dropped_windows_are_out_of_the_counts(images, batch, nbs, epochs, warmup_epochs):
    numbers = {"images": images, "batch": batch, "nbs": nbs, "epochs": epochs, "warmup_epochs": warmup_epochs}
    try:
        plan = plan_of(**numbers, last_window="drop")
    except ConfigError:
        use = plan_of(**numbers)
        assert images < use.images_per_update  # only then can an epoch be left with nothing
        return
    dealt = updates = 0
    for epoch in range(epochs):
        windows = plan.windows(epoch)
        assert windows == slow_windows(images, batch, plan.accumulate, dealt, plan.warmup_images, "drop")
        assert windows
        assert all((stop - start) % batch == 0 for start, stop in windows)
        dealt, updates = dealt + sum(stop - start for start, stop in windows), updates + len(windows)
    assert (plan.images_planned, plan.updates) == (dealt, updates)


def test_tail_window_used_and_dropped():
    assert windows_of_epoch(205, 8, 8, 0, 0.0, "use") == [(0, 64), (64, 128), (128, 192), (192, 205)]
    assert windows_of_epoch(205, 8, 8, 0, 0.0, "drop") == [(0, 64), (64, 128), (128, 192)]
    assert plan_of().micro_batches(192, 205) == [(192, 200), (200, 205)]
    used, dropped = plan_of(warmup_epochs=0), plan_of(warmup_epochs=0, last_window="drop")
    assert (used.updates_per_epoch, dropped.updates_per_epoch) == (4, 3)
    assert (used.facts()["images_left_out_per_epoch"], dropped.facts()["images_left_out_per_epoch"]) == (0, 13)
    assert any("holds 13 images and is exact" in s for s in used.sentences())
    assert any("last 13 images of an epoch's order are left out" in s for s in dropped.sentences())


def test_an_epoch_that_drop_would_leave_empty_is_an_error():
    with pytest.raises(ConfigError, match=r"last_window=drop.*63 images.*64.*last_window=use"):
        plan_of(images=63, last_window="drop")
    assert plan_of(images=64, last_window="drop").updates_per_epoch == 1


def test_ga03_an_epoch_shorter_than_a_window_still_updates():
    plan = plan_of(images=3, batch=1, nbs=8, epochs=1, warmup_epochs=0)
    assert plan.windows(0) == [(0, 3)]
    assert plan.updates == 1


@pytest.mark.parametrize("name", ["batch", "nbs", "epochs", "ranks"])
def test_ga03_zero_is_refused(name):
    with pytest.raises(ConfigError, match=f"{name}=0: must be at least 1"):
        plan_of(**{name: 0})


@pytest.mark.parametrize("batch", [16, 48])
def test_ga09_the_ramp_ends_after_warmup_epochs_for_every_batch(batch):
    plan = plan_of(images=1000, batch=batch, warmup_epochs=5, epochs=8)
    full = plan.images_per_update
    assert plan.dealt_before(5) == plan.warmup_images == 5000
    assert plan.windows(5)[0] == (0, full)
    assert batch == full or plan.windows(4)[0][1] < full


def test_ga12_what_alters_an_update_is_in_the_plan_and_pinned():
    facts = plan_of().facts()
    assert facts["images_per_update"] == 64
    pinned = {"batch": 16, "nbs": 64, "warmup_epochs": 3.0, "weight_decay": 5e-4, "last_window": "use"}
    defaults = TrainConfig(data="shapes").leaves()
    assert {name: defaults[name] for name in pinned} == pinned


def test_accumulation_needs_no_flag():
    """Rule 78: batch=8 alone makes windows of eight micro-batches."""
    config = parse_words(TrainConfig, ["data=coco.yaml", "batch=8"])
    plan = plan_of(batch=config.batch, nbs=config.nbs, warmup_epochs=config.optim.warmup_epochs)
    assert (plan.accumulate, plan.images_per_update) == (8, 64)


@pytest.mark.parametrize(
    ("batch", "ranks", "nearest"), [(7, 2, "6 and 8"), (10, 4, "8 and 12"), (1, 2, "nearest valid: 2")]
)
def test_a_batch_that_ranks_cannot_share_names_its_neighbours(batch, ranks, nearest):
    with pytest.raises(ConfigError, match=nearest):
        plan_of(batch=batch, ranks=ranks)


def test_big_numbers_are_counted_without_being_dealt(monkeypatch):
    calls = 0

    def counted(*arguments):
        nonlocal calls
        calls += 1
        return ramp(*arguments)

    monkeypatch.setattr("visiontrain.training.plan.ramp", counted)
    plan = plan_of(images=10**8, batch=16, epochs=10**6)
    assert plan.updates_per_epoch == 1_562_500
    assert plan.images_planned == 10**14
    assert plan.updates > 10**6 * 1_562_500
    assert plan.sentences()
    assert calls < 1000  # no window is made to be counted


def test_without_images_the_window_is_known_and_the_epoch_is_not():
    plan = plan_of(images=0)
    assert plan.sentences()[0] == (
        "8 images x 8 micro-batches x 1 rank = 64 images per update (nbs 64); weight decay 0.0005 x 64/64"
    )
    facts = plan.facts()
    assert (facts["accumulate"], facts["updates_per_epoch"], facts["images"]) == (8, None, None)


def test_batchnorm_is_named_where_micro_batches_are_small():
    assert any("BatchNorm sees 8 images at a time" in s for s in plan_of(batch=8).sentences())
    assert not any("BatchNorm" in s for s in plan_of(batch=16).sentences())
    assert not any("BatchNorm" in s for s in plan_of(batch=8, nbs=8).sentences())


def test_bn03_few_images_for_batchnorm_are_said_with_the_remedies():
    """Known failure BN-03; and accumulation must not be taken for one of them."""
    told = plan_of(batch=8, ranks=2).sentences()[-1]
    assert "sees 4 images at a time on each rank; no accumulation changes that." in told
    assert "norm=group" in told and "norm=frozen" in told and "checkpoint" in told
    assert "sees 1 image at" in plan_of(batch=1, nbs=1).sentences()[-1]  # one pass per update: as few
    assert "norm=group" not in plan_of(batch=6).sentences()[-1]
    group = Normalisation("group", "norm=group")
    assert plan_of(batch=2, normalisation=group).sentences()[-1] == "GroupNorm (norm=group) in place of BatchNorm."


def test_a_plan_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan_of().batch = 4
