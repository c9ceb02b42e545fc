"""Faults that others' training on several devices had, asked of ours. The names of the cases stand in each test."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys

import pytest
import torch
from laws.test_a_run_is_the_same_however_shared import NARROW, SETTINGS, run_of, same
from laws.test_ranks_are_one_process import Probe, TwoHeads
from laws.toys import ALONE, Toy, cut, flat, full_precision, reach_of, relative
from ranks import run_on_ranks

from visiontrain import models
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig, ValConfig
from visiontrain.errors import ConfigError
from visiontrain.evaluation.validation import _validate
from visiontrain.losses import LossSum, Term
from visiontrain.training import run as recipe
from visiontrain.training.plan import make_plan
from visiontrain.training.reduction import Reduction
from visiontrain.training.update import apply_update
from visiontrain.training.window import accumulate_window


def first_pictures(tiny, folder, count):
    """A description of the first training pictures of tiny alone."""
    pictures = sorted((tiny.parent / "images" / "train").iterdir())[:count]
    (folder / f"{count}.txt").write_text("".join(f"{picture}\n" for picture in pictures))
    val = tiny.parent / "images" / "val"
    (folder / f"{count}.yaml").write_text(f"train: {count}.txt\nval: {val}\nnames: [sun, sea]\n")
    return str(folder / f"{count}.yaml")


def runs_of(ranks, cases):
    return [run_of(ranks, case) for case in cases]


def test_as_many_updates_of_the_same_images_for_data_that_ranks_cannot_share_evenly(tiny, tmp_path):
    """DDP-06, DDP-13: 1, 3 and 5 images, updates of two or of four; a rank has no image in the last one."""
    common = {"project": str(tmp_path), "epochs": 1, "batch": 2, "imgsz": 64}
    sizes = [(1, 2), (3, 4), (5, 2)]
    cases = [common | {"data": first_pictures(tiny, tmp_path, images), "nbs": nbs} for images, nbs in sizes]
    alone = runs_of(ALONE, cases)
    for rank in run_on_ranks(2, runs_of, cases):
        for (images, nbs), mine, one in zip(sizes, rank, alone, strict=True):
            same(mine, one)
            assert mine.ledger == {"applied": images}
            assert len(mine.positions) == -(-images // nbs)


@pytest.mark.parametrize(("images", "batch", "ranks"), [(8, 4, 2), (13, 6, 3), (5, 8, 4)])
def test_ranks_have_equal_parts_of_a_batch_and_no_image_twice(images, batch, ranks):
    """DDP-08: batch is that of all ranks; the parts are disjoint and cover the data."""
    plan = make_plan(batch=batch, nbs=batch, images=images, epochs=1, weight_decay=0, warmup_epochs=0, ranks=ranks)
    dealt = []
    for window in plan.windows_from(0, 0):
        parts = [[p for start, stop in plan.shares(*window, rank) for p in range(start, stop)] for rank in range(ranks)]
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        if window[1] - window[0] == batch:
            assert {len(part) for part in parts} == {batch // ranks}
        dealt += [position for part in parts for position in part]
    assert dealt == list(range(images))


def heads_apart(ranks, way):
    """One head is used in the first micro-batch of every rank alone, the other in the last."""
    model = TwoHeads()
    del model.unused
    reduction, optimizer = Reduction(model, ranks, way), Probe(model)
    batch = Toy().batch([1] * 4)
    images = batch.images.clone()
    images[:, 0, 0, 0] = torch.tensor([1.0, -1.0, 1.0, -1.0])
    pieces = cut(batch.__class__(images, batch.targets, batch.positions), [1] * 4)
    overlap = way == "ddp"

    def criterion(outputs, targets):
        return LossSum({"toy": Term(outputs.square().sum(), torch.ones((), dtype=torch.float64) * len(targets))})

    before = flat(model.parameters()).clone()
    sums = accumulate_window(
        reduction.module,
        criterion,
        pieces if ranks.size == 1 else pieces[2 * ranks.rank : 2 * ranks.rank + 2],
        ranks=ranks,
        precision=full_precision(),
        overlap=overlap,
        meets=overlap,
    )
    try:
        apply_update(optimizer, sums, reach_of(model, "toy"), full_precision(), 1e9, reduction.reduce)
    except ConfigError as error:
        return str(error), torch.equal(before, flat(model.parameters()))
    return optimizer.seen[-1], flat(model.parameters())


def test_a_head_used_before_the_last_micro_batch_alone_is_summed_too_or_refused():
    """DDP-11: torch's wrapper sums what the last backward pass reached; ranks would drift apart and nobody would know."""
    gradient, _ = heads_apart(ALONE, "window")
    (seen, weights), (other, others) = run_on_ranks(2, heads_apart, "window")
    assert relative(seen, gradient) <= 1e-12
    assert torch.equal(seen, other)
    assert torch.equal(weights, others)
    for said, untouched in run_on_ranks(2, heads_apart, "ddp"):
        assert untouched
        assert "use reduce=window" in said


def whole_run(ranks, values, root):
    """What this rank wrote below ``root``, all that it averaged and scored: a run with workers and pictures, then val."""
    multiprocessing.current_process()._config["daemon"] = False  # else it could have no workers
    written: list[str] = []

    def note(event, arguments):
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if (writes or event in ("os.mkdir", "os.rename", "os.remove")) and str(arguments[0]).startswith(root):
            written.append(str(arguments[0]))

    sys.addaudithook(note)
    states = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_sizes", lambda family: NARROW)
        begin = recipe.begin

        def watched(*arguments):
            job = begin(*arguments)
            states.append(job.state)
            return job

        patch.setattr(recipe, "begin", watched)
        elsewhere = {} if ranks.main else {"data": "on-the-host-of-rank-0.yaml"}
        setup = recipe.prepare(build(TrainConfig, values | elsewhere), None, ranks)
        result = recipe.carry_out(setup, ())
        best = {"model": str(result.folder / "weights" / "best.pt"), "device": "cpu", "workers": 0, "plots": False}
        scores = _validate(build(ValConfig, best | {"project": root}), ranks)
    tensors = [*states[0].ema.model.state_dict().values(), *states[0].model.state_dict().values()]
    return written, flat([t.double() for t in tensors]), (result.metrics, scores.metrics)


def test_one_rank_writes_and_all_have_the_same_averages_and_workers_outlive_epochs(tiny, tmp_path):
    """DDP-09, EMA-03, BN-04, LOAD-04: processes that load, BatchNorm, validation of each epoch, two ranks."""
    more = {"data": str(tiny), "project": str(tmp_path), "epochs": 2, "batch": 4, "nbs": 8, "imgsz": 64}
    values = SETTINGS | more | {"norm": "batch", "val": True, "workers": 1, "plots": True}
    (first, averages, metrics), (other, others, theirs) = run_on_ranks(2, whole_run, values, str(tmp_path))
    assert any("run.json" in path for path in first)
    json.loads((tmp_path / "val" / "scores.json").read_text())
    assert other == []
    assert torch.equal(averages, others)
    assert metrics == theirs
