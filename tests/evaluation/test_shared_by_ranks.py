"""Several ranks score a split as one does: every picture once, whatever the numbers, and memory that runs out on one."""

from __future__ import annotations

import numpy as np
import pytest
from evaluation.test_evaluator import NAMES, Cramped, Labels, Oracle, letterboxed, seen
from ranks import run_on_ranks

from visiontrain.batch import collate
from visiontrain.config.groups import ScoringConfig
from visiontrain.distributed import ALONE
from visiontrain.errors import DataError
from visiontrain.evaluation.evaluator import evaluate

PICTURES = 13


def split():
    """Pictures of several sizes, their labels, and answers that are partly right."""
    rng = np.random.default_rng(0)
    samples = [letterboxed(n, 64 + 8 * (n % 3), 48 + 4 * (n % 5)) for n in range(PICTURES)]
    rows = []
    for n in range(PICTURES):
        centres, sizes = rng.uniform(0.3, 0.7, (n % 4, 2)), rng.uniform(0.1, 0.4, (n % 4, 2))
        rows.append(np.column_stack((rng.integers(0, 3, n % 4), centres, sizes)))
    answers = [
        [
            (int(row[0]), float(rng.uniform(0.1, 0.9)), *seen(samples[n], row, jitter=float(rng.uniform(0, 4))))
            for row in of
        ]
        for n, of in enumerate(rows)
    ]
    return samples, rows, answers


def scored(ranks, batch=2, room=0, same=False):
    samples, rows, answers = split()
    batches = [collate(samples[i : i + batch], keep_samples=True) for i in range(0, PICTURES, batch)]
    mine = batches if same else batches[ranks.rank :: ranks.size]
    model = Cramped(answers, room) if room and ranks.rank == ranks.size - 1 else Oracle(answers)
    shrinks = []
    result = evaluate(
        model.eval(),
        mine,
        device="cpu",
        scoring=ScoringConfig(),
        class_names=NAMES,
        index=Labels(rows),
        on_shrink=lambda *shrink: shrinks.append(shrink[:2]),
        ranks=ranks,
    )
    return result, shrinks


@pytest.mark.parametrize("batch", [1, 4])
def test_metrics_are_those_of_one_rank(batch):
    one, _ = scored(ALONE, batch)
    assert 0.1 < one.metrics["ap"] < 0.9
    outcomes = [result for result, _ in run_on_ranks(3, scored, batch)]
    for result in outcomes:
        assert result.metrics == pytest.approx(one.metrics, rel=1e-9)
        assert result.per_class == one.per_class
        assert (result.images, result.targets) == (PICTURES, one.targets)
    assert np.array_equal(outcomes[0].found.boxes, one.found.boxes)
    assert len(outcomes[1].found) == 0


def test_more_ranks_than_batches():
    one, _ = scored(ALONE, 8)
    for result, _ in run_on_ranks(3, scored, 8):
        assert result.metrics == one.metrics


def test_memory_that_runs_out_on_one_rank_is_known_to_all_and_every_picture_is_scored_once():
    one, _ = scored(ALONE, 4)
    for result, shrinks in run_on_ranks(2, scored, 4, 2):
        assert shrinks == [(4, 2)]
        assert result.metrics == one.metrics


def refused(ranks):
    with pytest.raises(DataError, match="two ranks"):
        scored(ranks, 4, 0, True)


def test_a_picture_that_two_ranks_scored_is_an_error():
    run_on_ranks(2, refused)
