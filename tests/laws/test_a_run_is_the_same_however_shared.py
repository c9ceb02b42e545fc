"""Laws 2 and 17 for whole runs: the same images per update and the same weights, by one process or by several ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from laws.toys import ALONE, flat, relative
from ranks import ends_of_ranks, run_on_ranks

from visiontrain import models
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.memory import is_out_of_memory
from visiontrain.nn.norm import running_statistics
from visiontrain.record.events import WindowClosed
from visiontrain.training import fit as loop
from visiontrain.training import run as recipe
from visiontrain.training import transaction
from visiontrain.training.interrupt import Interrupt
from visiontrain.training.precision import Precision
from visiontrain.training.resume import resume
from visiontrain.training.window import accumulate_window

NARROW = {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}}
SETTINGS = {
    "device": "cpu",
    "workers": 0,
    "plots": False,
    "val": False,
    "norm": "group",
    "imgsz": 96,
    "warmup_epochs": 0,
}


@dataclass
class Seen:
    """What a rank noted of its run."""

    positions: list[tuple[int, ...]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    shrinks: list[dict] = field(default_factory=list)
    ledger: dict = field(default_factory=dict)
    weights: torch.Tensor | None = None
    statistics: torch.Tensor | None = None
    metrics: dict = field(default_factory=dict)
    folder: Path | None = None
    told: tuple[str, ...] = ()


class Cut(Exception):
    """Ends a run where a power cut would."""


def run_of(ranks, values, fails_on=None, cut_after=0):
    """A run in float64 with a narrow network, on this rank.

    ``fails_on`` (rank, pass) runs out of memory once; with ``cut_after`` it ends after so many windows.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_sizes", lambda family: NARROW)
        patch.setattr(recipe, "choose_precision", lambda device, amp: Precision(device, torch.float64))
        build_state = recipe.new_state

        def in_double(setup):
            state = build_state(setup)
            state.model.double()
            state.ema.model.double()
            return state

        patch.setattr(recipe, "new_state", in_double)
        seen = Seen()
        accumulate = accumulate_window
        passes = 0

        def watched(*arguments, before, **more):
            def failing(batch):
                nonlocal passes
                passes += 1
                if fails_on == (ranks.rank, passes):
                    error = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
                    assert is_out_of_memory(error)
                    raise error
                before(batch)

            if cut_after and len(seen.positions) == cut_after:
                raise Cut
            sums = accumulate(*arguments, before=failing, **more)
            seen.positions.append(sums.positions)
            return sums

        patch.setattr(transaction, "accumulator", lambda reach: watched)

        def note(event):
            if isinstance(event, WindowClosed):
                seen.losses.append(sum(event.losses.values()))
                seen.rates.append(event.lr)

        given = build(TrainConfig, values if "resume" in values else SETTINGS | values)
        resumed = resume(given) if given.resume else None
        setup = recipe.prepare(resumed.config if resumed else given, resumed, ranks)
        job = recipe.begin(setup, note, Interrupt(alone=ranks.size == 1))
        try:
            loop.fit(job)
        except Cut:
            seen.folder = setup.folder
        finally:
            job.micro_batches.close()
            setup.val_loader.close()
        seen.told = resumed.told(setup.plan) if resumed else ()
        seen.shrinks = job.state.shrinks
        seen.ledger = dict(job.state.ledger.closed)
        seen.metrics = job.state.best_metrics
        seen.weights = flat([*job.state.model.parameters(), *job.state.ema.model.parameters()])
        seen.statistics = flat([t.double() for t in running_statistics(job.state.model)] or [torch.zeros(1)])
    return seen


def same(mine, theirs, tolerance=1e-9):
    assert mine.positions == theirs.positions
    assert mine.losses == pytest.approx(theirs.losses, rel=tolerance)
    assert mine.rates == theirs.rates
    assert relative(mine.weights, theirs.weights) <= tolerance


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """160 small pictures: ten updates of 16."""
    import cv2
    import numpy as np

    root = tmp_path_factory.mktemp("many")
    rng = np.random.default_rng(0)
    for split, count in (("train", 160), ("val", 7)):
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
        for i in range(count):
            picture = rng.integers(0, 255, (48, 64, 3), np.uint8)
            lines = []
            for _ in range(i % 3):
                x, y = rng.integers(0, 40), rng.integers(0, 24)
                picture[y : y + 20, x : x + 20] = (255, 30, 30) if i % 2 else (30, 255, 30)
                lines.append(f"{i % 2} {(x + 10) / 64:.6f} {(y + 10) / 48:.6f} {20 / 64:.6f} {20 / 48:.6f}\n")
            cv2.imwrite(str(root / "images" / split / f"{i:03}.png"), picture)
            (root / "labels" / split / f"{i:03}.txt").write_text("".join(lines))
    (root / "data.yaml").write_text("path: .\ntrain: images/train\nval: images/val\nnames: [red, green]\n")
    return root / "data.yaml"


def test_the_splits_of_one_update_size_agree_after_ten_updates(many, tmp_path):
    """(m, A, D) = (2, 4, 2), (1, 8, 2), (4, 2, 2), (8, 2, 1): the same sixteen images in each of ten updates."""
    common = {"data": str(many), "project": str(tmp_path), "epochs": 1, "nbs": 16, "mosaic": 0.5}
    one = run_of(ALONE, common | {"batch": 8})
    assert [len(positions) for positions in one.positions] == [16] * 10
    for m in (2, 1, 4):
        for two in run_on_ranks(2, run_of, common | {"batch": 2 * m}):
            same(two, one)


@pytest.mark.parametrize("norm", ["group", "batch", "sync"])
def test_three_ranks_with_uneven_tails_and_both_reductions(tiny, tmp_path, norm):
    """13 images: windows of 6 and 1 (two ranks without an image), or of 3; ddp and window."""
    for batch, nbs in ((3, 6), (3, 3)):
        common = {"data": str(tiny), "project": str(tmp_path), "epochs": 2, "batch": batch, "nbs": nbs, "norm": norm}
        outcomes = run_on_ranks(3, run_of, common)
        for other in outcomes[1:]:
            assert torch.equal(other.weights, outcomes[0].weights)
            assert torch.equal(other.statistics, outcomes[0].statistics)
            assert other.ledger == outcomes[0].ledger == {"applied": 26}
        if norm != "batch":  # the union's statistics are those of one process that sees whole micro-batches
            one = run_of(ALONE, common | {"norm": {"group": "group", "sync": "batch"}[norm]})
            # A window's gradient is held to 1e-12 elsewhere; small maps and AdamW make its last digits grow.
            same(outcomes[0], one, 1e-9 if norm == "group" else 1e-6)
            assert relative(outcomes[0].statistics, one.statistics) <= 1e-6 or norm == "group"


def test_a_rank_without_an_image_in_the_second_window_of_a_run_is_not_waited_for(tiny, tmp_path):
    """13 images, windows of 12 and 1: DistributedDataParallel makes its buckets anew before its second forward pass."""
    common = {"data": str(tiny), "project": str(tmp_path), "epochs": 2, "batch": 12, "nbs": 12}
    one = run_of(ALONE, common)
    assert [len(positions) for positions in one.positions] == [12, 1, 12, 1]
    for two in run_on_ranks(2, run_of, common, timeout=60):
        same(two, one)


def test_out_of_memory_on_one_rank_shrinks_all_and_costs_no_image(tiny, tmp_path):
    common = {"data": str(tiny), "project": str(tmp_path), "epochs": 2, "batch": 8, "nbs": 16}
    undisturbed = run_of(ALONE, common)
    for rank in run_on_ranks(2, run_of, common, (1, 3)):
        (shrink,) = rank.shrinks
        assert (shrink["before"], shrink["after"]) == (4, 2)
        assert rank.ledger == {"applied": 26}
        same(rank, undisturbed)


def test_out_of_memory_where_the_others_wait_ends_the_run_with_a_checkpoint_that_goes_on_smaller(tiny, tmp_path):
    """With synchronised statistics every layer is such a place."""
    common = {"data": str(tiny), "project": str(tmp_path), "epochs": 2, "batch": 8, "nbs": 16, "norm": "sync"}
    (good0, said0), (good1, said1) = ends_of_ranks(2, run_of, common, (1, 1))
    assert not good0 and not good1
    assert "RankLost: rank 1" in said0 and "ended: OutOfMemory" in said0
    assert "OutOfMemory: rank 1:" in said1 and "go on, with the smaller micro-batches, with" in said1
    resumed, _ = run_on_ranks(2, run_of, {"resume": str(next(tmp_path.glob("*/weights/last.pt")))})
    (shrink,) = resumed.shrinks
    assert (shrink["before"], shrink["after"]) == (4, 2)
    assert resumed.ledger == {"applied": 26}


def test_validation_is_shared_and_its_metrics_are_those_of_one(tiny, tmp_path):
    common = {"data": str(tiny), "project": str(tmp_path), "epochs": 2, "batch": 6, "nbs": 6, "val": True}
    one = run_of(ALONE, common)
    assert one.metrics
    for rank in run_on_ranks(3, run_of, common):
        assert rank.metrics == pytest.approx(one.metrics, rel=1e-9)


def test_resumed_by_other_ranks_in_other_batches_the_images_of_an_update_stay(tiny, tmp_path):
    """13 images, updates of 8 in the first epoch's middle: one process of 4, then two ranks of 1, then one of 8."""
    common = {"data": str(tiny), "project": str(tmp_path), "epochs": 4, "batch": 4, "nbs": 8, "save_minutes": 1e-6}
    whole = run_of(ALONE, common | {"name": "whole"})
    first = run_of(ALONE, common | {"name": "cut"}, cut_after=3)
    last = first.folder / "weights" / "last.pt"
    (second, _) = run_on_ranks(2, run_of, {"resume": str(last), "batch": 2}, None, 2)
    third = run_of(ALONE, {"resume": str(last), "batch": 8})
    assert first.positions + second.positions + third.positions == whole.positions
    assert relative(third.weights, whole.weights) <= 1e-9
    assert second.told == (
        "batch: 4 before, 2 from now on",
        "ranks: 1 before, 2 from now on",
        "an update still sees 8 images: learning rate, weight decay and schedule stay",
    )


def test_resumed_with_another_nbs_the_decay_is_derived_anew_and_no_image_is_lost(tiny, tmp_path):
    common = {"data": str(tiny), "project": str(tmp_path), "epochs": 2, "batch": 2, "nbs": 4, "save_minutes": 1e-6}
    first = run_of(ALONE, common, cut_after=2)
    second = run_of(ALONE, {"resume": str(first.folder / "weights" / "last.pt"), "nbs": 7})
    assert first.positions + second.positions == [
        (0, 1, 2, 3),
        (4, 5, 6, 7),
        (8, 9, 10, 11, 12),
        (0, 1, 2, 3, 4, 5, 6, 7),
        (8, 9, 10, 11, 12),
    ]
    assert second.ledger == {"applied": 26}
    assert "weight decay used 0.0005 before, 0.000571429 from now on" in second.told[-1]
