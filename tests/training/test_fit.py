"""What the loop does around windows, seen from a whole run."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from visiontrain import models
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.record.events import WindowClosed
from visiontrain.training import transaction
from visiontrain.training.plan import make_plan
from visiontrain.training.run import train
from visiontrain.training.window import accumulate_window

RAMP = {"epochs": 2, "batch": 1, "nbs": 4, "warmup_epochs": 1}  # windows of 1 to 4 micro-batches, and a tail


@dataclass
class Watched:
    """``begun``: the positions of every micro-batch as each window begins; ``cleared``: calls of zero_grad."""

    begun: list[list[tuple[int, ...]]] = field(default_factory=list)
    cleared: int = 0
    closed: list[WindowClosed] = field(default_factory=list)


@pytest.fixture(scope="module")
def run(tiny, tmp_path_factory):
    """A run of a narrow model over the ramp."""
    watched, accumulate, clear = Watched(), accumulate_window, torch.optim.Optimizer.zero_grad

    def begins(model, criterion, micro_batches, **settings):
        watched.begun.append([batch.positions for batch in micro_batches])
        return accumulate(model, criterion, micro_batches, **settings)

    def clears(optimizer, *args, **settings):
        watched.cleared += 1
        clear(optimizer, *args, **settings)

    def closes(event):
        if isinstance(event, WindowClosed):
            watched.closed.append(event)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    settings = {"data": str(tiny), "project": str(tmp_path_factory.mktemp("fit")), "device": "cpu", "workers": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
        patch.setattr(transaction, "accumulator", lambda reach: begins)
        patch.setattr(torch.optim.Optimizer, "zero_grad", clears)
        train(build(TrainConfig, {**settings, **RAMP, "imgsz": 64, "plots": False, "close_mosaic": 0}), [closes])
    torch.set_num_threads(threads)
    return watched


def test_a_window_is_whole_before_its_first_forward(run):
    """Rule 19: all positions of a window, its micro-batches and its objects are known when it begins."""
    plan = make_plan(**RAMP, images=13, weight_decay=0.0)
    windows = [window for epoch in range(2) for window in plan.windows(epoch)]
    assert len({stop - start for start, stop in windows}) == 4  # the ramp is among them
    assert [[p for positions in window for p in positions] for window in run.begun] == [
        list(range(*w)) for w in windows
    ]
    assert [len(window) for window in run.begun] == [event.micro_batches for event in run.closed]


def test_gradients_are_cleared_once_for_each_window_of_the_ramp(run):
    """Rule 4: as often as there are windows, not micro-batches."""
    assert all(event.applied for event in run.closed)
    assert run.cleared == len(run.closed) < sum(event.micro_batches for event in run.closed)
