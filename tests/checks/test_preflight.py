"""The whole preflight on a toy detector: what it runs, what it says, and that nothing of it stays."""

from __future__ import annotations

import torch

from visiontrain.checks import preflight as module
from visiontrain.checks.equality import Pieces
from visiontrain.checks.preflight import fitting_part, preflight
from visiontrain.checks.room import bytes_per_image
from visiontrain.checks.rows import FAIL, duration
from visiontrain.checks.trial import full_windows, observe


def run(begin, monkeypatch, **settings):
    """The preflight of the toy; its parts in the order in which they were announced."""
    setup, job = begin(**settings)
    monkeypatch.setattr(module, "new_state", lambda setup: job.state)
    monkeypatch.setattr(module, "sentences", lambda setup, model: ("the plan",))
    made = module.job_of

    def toy_job(*arguments):
        new = made(*arguments)
        new.criterion = job.criterion
        return new

    monkeypatch.setattr(module, "job_of", toy_job)
    monkeypatch.setattr(module, "_validation", lambda setup, job: (0.5, 5))
    told: list = []
    found = preflight(setup.config, setup.train, setup.val, lambda plan: told.append(plan), told.append)
    return found, told


def test_every_question_is_answered_and_the_plan_comes_first(begin, monkeypatch):
    found, told = run(begin, monkeypatch)
    assert told[0] == ("the plan",) and len(told) == 5
    assert [row.name for row in found.rows] == [
        "same samples",
        "boundaries",
        "same parameters",
        "finite gradients",
        "effect",
        "update counts",
        "schedule",
        "memory",
        "kept tensors",
        "divided once",
        "weighted loss",
        "one batch",
        "operations",
    ]
    assert not found.failed, found.failed


def test_time_and_memory_of_an_epoch_are_computed_from_the_later_windows(begin, monkeypatch):
    found, _ = run(begin, monkeypatch)
    epoch = found.epoch
    assert (epoch.windows, epoch.images, epoch.validation_images, epoch.epochs) == (2, 8, 5, 2)
    assert abs(epoch.seconds * epoch.images_per_second - 13) < 1e-6 and epoch.peak > 0
    assert epoch.validation_seconds == 0.5
    assert "Computed from 2 measured windows (8 images)" in epoch.sentence()


def test_a_window_of_one_micro_batch_has_nothing_to_compare(begin, monkeypatch):
    found, _ = run(begin, monkeypatch, batch=4, nbs=4)
    row = found.rows[-1]
    assert (row.name, row.value) == ("one batch", "A = 1") and not found.failed


def test_a_run_that_is_shorter_than_three_windows_is_tried_too(begin, monkeypatch):
    found, _ = run(begin, monkeypatch, nbs=64, epochs=1)
    assert found.epoch.windows == 1 and not found.failed


def first_window(begin, **settings):
    setup, job = begin(nbs=12, **settings)
    windows = full_windows(job.plan, 1)
    _, first = observe(job, windows)
    pieces = Pieces(job.criterion, job.ranks)
    return (
        setup,
        pieces,
        job.state.model,
        windows[0],
        first,
        bytes_per_image(job.state.model, job.criterion, first[0], setup.precision),
    )


def test_what_fits_is_compared_and_said(begin):
    setup, pieces, model, window, first, each = first_window(begin)
    whole, of = fitting_part(setup, pieces, model, window, first, 100 * each)
    assert whole == first and of == "the window's 12 images"
    part, of = fitting_part(setup, pieces, model, window, first, 7.5 * each)
    assert part == first[:3] and of.startswith("6 of the window's 12 images (")


def test_where_not_two_micro_batches_fit_the_pictures_get_smaller(begin):
    setup, pieces, model, window, first, each = first_window(begin, imgsz=96)
    part, of = fitting_part(setup, pieces, model, window, first, 2 * each)
    assert [len(batch) for batch in part] == [2, 2] and part[0].images.shape[-1] == 64
    assert part[0].positions == first[0].positions
    assert of.endswith("at 64 px, because two micro-batches at 96 px do not fit")


def test_random_state_and_determinism_of_the_caller_come_back(begin, monkeypatch):
    before = torch.are_deterministic_algorithms_enabled()
    run(begin, monkeypatch)
    assert torch.are_deterministic_algorithms_enabled() == before


def test_durations_read_like_a_clock():
    assert [duration(s) for s in (0.84, 42, 187, 7500)] == ["0.8 s", "42 s", "3:07 min", "2 h 05 min"]


def test_rows_that_fail_are_the_ones_that_count(begin, monkeypatch):
    monkeypatch.setattr(module, "_made_again", lambda *arguments: False)
    found, _ = run(begin, monkeypatch)
    assert [row.name for row in found.failed] == ["same samples"]
    assert "depend on the worker" in found.failed[0].meaning and found.failed[0].verdict == FAIL
