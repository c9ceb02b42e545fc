"""Pictures that went bad after the index was made: the run goes on, says which, and ends where they are too many."""

from __future__ import annotations

from collections.abc import Sequence

from visiontrain.data.bad import refuse_many
from visiontrain.record.events import FactsChanged, Notice
from visiontrain.training.job import Job

NAMED = 5  # each by a notice; the record has all


def mind(job: Job, bad: Sequence[str]) -> None:
    """Tell and keep what is new; the same on every rank.

    Args:
        bad: what is wrong with the pictures of a window that could not be read.

    Raises:
        DataError: too many pictures of the run could not be read.
    """
    new = [each for each in dict.fromkeys(bad) if each not in job.unreadable]
    if not new:
        return
    for number, each in enumerate(new, len(job.unreadable) + 1):
        if number <= NAMED:
            job.record(Notice(f"{each}. Left out: its place in training samples is grey, without objects.", "warning"))
        elif number == NAMED + 1:
            job.record(Notice("More pictures cannot be read; run.json lists all, as unreadable.", "warning"))
    job.unreadable.update(dict.fromkeys(new))
    job.record(FactsChanged({"unreadable": list(job.unreadable)}))
    refuse_many(job.unreadable, job.plan.images)
