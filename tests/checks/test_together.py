"""A check by two ranks: one answer for both, and every way in which they can fail to be one training is told."""

from __future__ import annotations

import json
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from io import StringIO

import pytest
import torch
from checks.toys import about_to_begin, pictures, toy_loss
from ranks import run_on_ranks

from visiontrain import cli, models
from visiontrain.checks import check, verdicts
from visiontrain.checks.check import look
from visiontrain.checks.equality import Pieces
from visiontrain.checks.preflight import Epoch, _equality, _slowest
from visiontrain.checks.rows import FAIL, NOTE, PASS, Row, merged
from visiontrain.checks.together import Places, one_process_row, same_on_all
from visiontrain.checks.trial import Counts, Seen, Window, full_windows, observe
from visiontrain.config.build import build
from visiontrain.config.schema import CheckConfig
from visiontrain.training.ledger import Ledger
from visiontrain.training.reduction import Reduction
from visiontrain.training.run import micro_batches

TWO = ("rank 0 (cpu)", "rank 1 (cpu)")


def nothing(setup, job, patch):
    pass


def other_weights(setup, job, patch):
    if job.ranks.rank == 1:
        next(job.state.model.parameters()).data.mul_(1.5)


def keeps_its_own(job, tensors):
    """Rank 1 takes part in the reduction and goes on with what it had."""
    reduce = job.reduction.reduce

    def skipped(sums):
        own = [t.clone() for t in tensors()]
        reduce(sums)
        for tensor, value in zip(tensors(), own, strict=True):
            tensor.copy_(value)

    if job.ranks.rank == 1:
        job.reduction.reduce = skipped


def own_gradient(setup, job, patch):
    keeps_its_own(job, lambda: [p.grad for p in job.reduction.parameters])


def own_statistics(setup, job, patch):
    keeps_its_own(job, lambda: job.reduction.statistics)


def other_optimizer(setup, job, patch):
    if job.ranks.rank == 1:
        first = next(job.state.model.parameters())
        job.state.optimizer.register_step_post_hook(lambda *arguments: first.data.mul_(1.001))


def not_shared(setup, job, patch):
    """Both ranks load rank 0's pictures, and the trainer's own guard sleeps."""
    patch.setattr(Ledger, "close", lambda *arguments: None)
    job.micro_batches = micro_batches(replace(setup, ranks=replace(setup.ranks, rank=0)), job.state)


FAULTS = {
    nothing: {},
    other_weights: {"ranks": "rank 1 (cpu) began window 1 with other parameters"},
    own_gradient: {"ranks": "rank 1 (cpu) got another gradient in window 1: the reduction did not reach all ranks"},
    own_statistics: {"ranks": "rank 1 (cpu) has other running statistics after window 1"},
    other_optimizer: {"ranks": "rank 1 (cpu) has other parameters after window 1: with equal gradients"},
    not_shared: {"same samples": "position 0 of a window is delivered 2 times"},
}


def rows_with(ranks, data, fault, nbs):
    with pytest.MonkeyPatch.context() as patch:
        setup, job = about_to_begin(data, ranks, batch=4, nbs=nbs)
        fault(setup, job, patch)
        seen, _ = observe(job, full_windows(job.plan, 2))
        by_rank, places = ranks.gather(seen), Places.of(ranks)
        rows = verdicts.of_windows(by_rank, job.plan, job.schedule, True, places.words)
        return [*rows, same_on_all(by_rank, places, job.plan.reduction)]


def one_process(ranks, data, factor, nbs):
    """The row, where the reduction multiplies by ``factor`` what it should leave alone."""
    reduce = Reduction.reduce

    def averaged(self, sums):
        reduce(self, sums)
        torch._foreach_mul_([p.grad for p in self.parameters], factor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reduction, "reduce", averaged)
        _, job = about_to_begin(data, ranks, batch=4, nbs=nbs)
        return one_process_row(Pieces(toy_loss, ranks), job.state.model, pictures(), job.plan)


def with_sync(ranks, data):
    """Statistics of all ranks: they run equally many passes, and one process compares what is theirs together."""
    setup, job = about_to_begin(data, ranks, batch=4, nbs=8, norm="sync")
    windows, places = full_windows(job.plan, 2), Places.of(ranks)
    seen, first = observe(job, windows)
    rows = verdicts.of_windows(ranks.gather(seen), job.plan, job.schedule, True, places.words)
    return rows + _equality(setup, job, windows[0], first, places)


def tried(ranks, data):
    found = {fault.__name__: rows_with(ranks, data, fault, 8) for fault in FAULTS}
    return (
        found,
        rows_with(ranks, data, nothing, 4),
        [one_process(ranks, data, *c) for c in ((1, 8), (1, 4), (0.5, 8))],
        with_sync(ranks, data),
    )


def test_what_two_ranks_show_and_every_difference_between_them(tiny):
    ours, theirs = run_on_ranks(2, tried, str(tiny))
    assert theirs == ours, "each rank has the same answers"
    found, ddp, (window, overlapping, averaged), sync = ours
    for fault, expected in FAULTS.items():
        failed = {row.name: row.meaning for row in found[fault.__name__] if row.verdict == FAIL}
        assert failed.keys() == expected.keys(), (fault.__name__, failed)
        assert all(failed[name].startswith(words) for name, words in expected.items()), failed
    sound = {row.name: row for row in found["nothing"]}
    assert sound["ranks"].meaning.startswith("on 1 host, reduction window: parameters, running statistics and gradient")
    assert sound["boundaries"].meaning == "rank 0 (cpu): as planned: 2 x 2 images, 2 + 1 images. rank 1 (cpu) 3 passes"
    assert "13 delivered here are the planned ones, each by one of 2 ranks" in sound["same samples"].meaning
    assert {row.verdict for row in ddp} == {PASS} and "reduction ddp" in ddp[-1].meaning
    assert window.verdict == overlapping.verdict == PASS and max(window.number, overlapping.number) <= 1e-12
    assert {row.verdict for row in sync} == {PASS, NOTE}, [row for row in sync if row.verdict == FAIL]
    by_name = {row.name: row.meaning for row in sync}
    assert "when its statistics are taken of 4 images and of all 8" in by_name["operations"], "over both ranks"
    assert by_name["boundaries"].startswith("rank 0 (cpu): as planned: 2 x 2 images, 2 + 1 images")
    assert averaged.verdict == FAIL and "not the gradient of one process, it is 0.5 times that" in averaged.meaning


def checked(ranks, data, twice):
    """A whole check with a narrow network: what was told, and what came of it."""
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
        values = {"data": data, "device": "cpu", "workers": 0, "imgsz": 64, "batch": 4, "nbs": 8, "warmup_epochs": 0}
        result = look(build(CheckConfig, values), told.append, ranks)
    return told, typed(ranks, twice), result.exit_code, result.rows, result.preflight.epoch, len(result.findings)


def typed(ranks, data):
    """What the command prints on this rank, and its exit code."""
    words = ["check", f"data={data}", "preflight=false", "format=json", "device=cpu"]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as said:
        patch.setattr(check, "joined", lambda timeout: nullcontext(ranks))
        code = cli.main(words)
    return code, said.getvalue()


def test_a_whole_check_by_two_ranks(tiny, tmp_path):
    twice = tmp_path / "data.yaml"
    twice.write_text(f"path: {tiny.parent}\ntrain: images/train\nval: images/train\nnames: [sun, sea]\n")
    (told, (code, said), *result), (_, (their_code, their_words), *theirs) = run_on_ranks(
        2, checked, str(tiny), str(twice), timeout=240
    )
    assert (code, their_code, their_words) == (3, 3, ""), "rank 0 alone speaks, all end alike"
    assert len(json.loads(said.splitlines()[-1])["findings"]) >= 13
    assert theirs == result
    code, rows, epoch, _ = result
    assert [row.name for row in rows] == [
        "same samples",
        "boundaries",
        "same parameters",
        "finite gradients",
        "effect",
        "update counts",
        "schedule",
        "ranks",
        "memory",
        "kept tensors",
        "divided once",
        "weighted loss",
        "one batch",
        "operations",
        "one process",
    ]
    by_name = {row.name: row for row in rows}
    assert code == 0, [row for row in rows if row.verdict == FAIL]
    assert "this rank's 4 images of the window" in by_name["one batch"].meaning
    assert all(place in by_name["memory"].meaning for place in TWO)
    assert "of the fullest, rank" in epoch.of and "the slowest is rank" in epoch.of
    assert epoch.validation_images == 4, "each rank scores its share: twice the images of its micro-batch"
    assert "2 ranks on 1 host" in "".join(told)


def rows(**named):
    return [Row(name.replace("_", " "), *value) for name, value in named.items()]


def test_of_several_answers_the_worst_is_told_with_its_rank():
    one = rows(effect=(PASS, "3", "fine"), memory=(PASS, "10 MB", "peaks: 10 MB", "", 10.0))
    two = rows(effect=(FAIL, "0", "no effect", "step"), memory=(PASS, "20 MB", "peaks: 20 MB", "", 20.0))
    effect, memory = merged([one, two], TWO)
    assert (effect.verdict, effect.meaning, effect.remedy) == (FAIL, "rank 1 (cpu): no effect. rank 0 (cpu) 3", "step")
    assert (memory.value, memory.meaning) == ("20 MB", "rank 1 (cpu): peaks: 20 MB. rank 0 (cpu) 10 MB")
    assert [row.meaning for row in merged([one[:1], one[:1]], TWO)] == ["on each rank: fine"]
    assert merged([one], TWO[:1]) == one, "with one rank nothing is added"


def test_a_rank_that_was_not_asked_is_not_named_and_of_many_a_few_are():
    (row,) = merged([[], rows(one_batch=(NOTE, "A = 1", "equal"))], TWO)
    assert row.meaning == "rank 1 (cpu): equal"
    many = [rows(memory=(PASS, f"{n} MB", "peaks", "", float(n))) for n in range(20)]
    (row,) = merged(many, [f"rank {n}" for n in range(20)])
    assert row.meaning == f"rank 19: peaks. {', '.join(f'rank {n} {n} MB' for n in range(7))}, and 12 more"


def test_the_slowest_and_the_fullest_rank_count():
    slow, full = Epoch(60, 6, 10, 10, "memory", 2, 16, 4, 100), Epoch(50, 6, 12, 30, "memory", 2, 16, 4, 100)
    found = _slowest([slow, full], TWO)
    assert (found.seconds, found.peak, found.images_per_second) == (60, 30, 10)
    assert found.of == "memory, of the fullest, rank 1 (cpu); the slowest is rank 0 (cpu)"


def seen(before=1, gradients=(0.5,), after=2, statistics=3):
    counts = Counts(gradients=list(gradients))
    return Seen(Window(0, 0, 4), (0, 1), counts, before, after, statistics, 1, 1, 4, 0.1, 100)


def test_whoever_differs_from_most_is_named():
    places = Places((("a", "cuda:0"), ("a", "cuda:1"), ("b", "cuda:0")))
    row = same_on_all([[seen(), seen(after=9)], [seen(), seen()], [seen(), seen()]], places, "window")
    assert row.value == "3 ranks" and row.number == 1
    assert row.meaning.startswith("rank 0 (cuda:0 of a) has other parameters after window 2")
    assert same_on_all([[seen()]] * 3, places, "window").meaning.startswith("on 2 hosts, reduction window: ")


def test_ranks_that_share_a_device_share_its_memory():
    places = Places((("a", "cpu"), ("a", "cpu"), ("b", "cpu")))
    assert [places.sharers(rank) for rank in range(3)] == [2, 2, 1]
