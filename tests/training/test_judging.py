"""When a run is validated and saved, what is its best, and what patience waits for (EMA-02)."""

from __future__ import annotations

import csv
import json
import os
import signal

import pytest
import torch
from ranks import run_on_ranks

from visiontrain import models
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError, Interrupted
from visiontrain.models.weights import read_checkpoint
from visiontrain.record.events import Checkpointed, EpochEnded, EvaluationStarted, Validated
from visiontrain.training import run as recipe
from visiontrain.training.run import train


@pytest.fixture
def settings(short_run, narrow):
    """Four updates in an epoch."""
    return {**short_run, "epochs": 2, "val": True}


def go(values, *callbacks):
    return train(build(TrainConfig, values), callbacks)


def state_of(folder):
    content = read_checkpoint(folder / "weights" / "last.pt")
    flat = {f"{part}/{name}": t for part in ("weights", "ema") for name, t in content[part].items()}
    for number, values in content["optimizer"]["state"].items():
        flat |= {f"optimizer/{number}/{name}": torch.as_tensor(v) for name, v in values.items() if v is not None}
    return flat


def validations(folder):
    with (folder / "validations.csv").open() as file:
        return [(int(row["epoch"]), int(row["updates_applied"])) for row in csv.DictReader(file)]


def planted(monkeypatch, ends=False, **series):
    """The scores that the validations of a run find, one after the other; then the last ones again, or with ``ends`` a crash."""
    score, seen = recipe.score, []

    def found(*args):
        result = score(*args)
        seen.append(result)
        result.metrics.update(
            {
                name: values[len(seen) - 1 if ends else min(len(seen), len(values)) - 1]
                for name, values in series.items()
            }
        )
        return result

    monkeypatch.setattr(recipe, "score", found)


def best_epoch(result):
    return read_checkpoint(result.folder / "weights" / "best.pt")["epoch"]


@pytest.mark.parametrize("when", [{"val_updates": 3}, {"val_minutes": 1e-9}], ids=str)
def test_validation_inside_epochs_changes_no_bit_of_the_training(settings, when):
    settings["norm"] = "batch"
    plain, often = go({**settings, "name": "plain"}), go({**settings, "name": "often", **when})
    left, right = state_of(plain.folder), state_of(often.folder)
    assert [name for name in left if not torch.equal(left[name], right[name])] == []
    assert not (plain.folder / "validations.csv").exists()
    # An epoch's end begins the count anew, and is no validation inside.
    every = [(e, 4 * (e - 1) + u) for e in (1, 2) for u in (0, 1, 2, 3)]
    assert validations(often.folder) == ([(1, 3), (2, 7)] if "val_updates" in when else every)


def test_a_run_stopped_inside_such_a_validation_makes_up_for_it_and_none_stands_twice(settings):
    settings |= {"val_updates": 1, "save_updates": 1}
    seen = []

    def stop(event):
        if isinstance(event, EvaluationStarted):
            seen.append(event)
            if len(seen) == 2:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        go(settings, stop)
    result = go({"resume": "true", "project": settings["project"]})
    assert validations(result.folder) == [(1, 1), (1, 2), (1, 3), (2, 5), (2, 6), (2, 7)]


def test_rows_past_the_checkpoint_are_cut(settings, monkeypatch):
    """Killed in the validation at the end of the first epoch, with a checkpoint that is as old as the best one: update 1."""
    settings |= {"val_updates": 1}
    with monkeypatch.context() as patch, pytest.raises(IndexError):
        planted(patch, ap=[0.9, 0.1, 0.1], ends=True)
        go(settings)
    folder = go({"resume": "true", "project": settings["project"]}).folder
    assert validations(folder) == [(1, 1), (1, 2), (1, 3), (2, 5), (2, 6), (2, 7)]


def test_last_pt_is_written_every_so_many_updates(settings):
    saves = []
    go({**settings, "save_updates": 3}, lambda e: saves.append(e.why) if isinstance(e, Checkpointed) else None)
    assert [why for why in saves if why != "best"] == ["updates", "epoch"] * 2


def test_val_period_leaves_epochs_out_and_patience_counts_all_epochs(settings, monkeypatch):
    planted(monkeypatch, ap=[0.5, 0.4, 0.3])
    ends = []
    asked = {**settings, "epochs": 9, "val_period": 2, "patience": 3}
    result = go(asked, lambda e: ends.append((e.epoch, bool(e.metrics))) if isinstance(e, EpochEnded) else None)
    assert ends == [(n, n % 2 == 0) for n in range(1, 7)]  # the best is epoch 2; in epoch 6 four have passed
    assert (result.outcome, best_epoch(result)) == ("stopped early", 2)


@pytest.mark.parametrize(("after", "ended", "best"), [(0, "stopped early", 1), (1, "finished", 4)])
def test_an_early_spike_is_left_out_by_best_after(settings, monkeypatch, after, ended, best):
    planted(monkeypatch, ap=[0.9, 0.1, 0.2, 0.3, 0.25])
    result = go({**settings, "epochs": 5, "patience": 2, "best_after": after})
    assert (result.outcome, best_epoch(result)) == (ended, best)


def test_best_pt_has_most_of_what_was_asked_for(settings, monkeypatch):
    planted(monkeypatch, ap=[0.1, 0.9], ap50=[0.8, 0.7])
    result = go({**settings, "fitness": "ap50"})
    assert best_epoch(result) == 1
    plan = json.loads((result.folder / "run.json").read_text())["plan"]
    assert any(line.startswith("best.pt has the highest ap50") for line in plan)


def test_a_validation_inside_an_epoch_can_be_the_best(settings, monkeypatch):
    planted(monkeypatch, ap=[0.1, 0.2, 0.9, 0.3])
    seen = []
    result = go({**settings, "val_updates": 3}, lambda e: seen.append(e.best) if isinstance(e, Validated) else None)
    content = read_checkpoint(result.folder / "weights" / "best.pt")
    assert seen == [True, True] and content["metrics"]["ap"] == 0.9
    assert not torch.equal(
        content["weights"]["model.0.conv.weight"], state_of(result.folder)["ema/model.0.conv.weight"]
    )


def test_without_validation_there_is_nothing_to_time_or_choose():
    for name, value in {
        "val_period": 2,
        "val_updates": 5,
        "val_minutes": 1,
        "average_best": 3,
        "fitness": "ap50",
    }.items():
        with pytest.raises(ConfigError, match=f"{name}=.*val=false validates the last epoch alone"):
            build(TrainConfig, {"data": "d", "val": False, name: value})
    written = build(TrainConfig, {"data": "d", "val": False}).leaves()
    assert not build(TrainConfig, written).val  # as cfg=args.yaml and resume do: all settings are given
    with pytest.raises(ConfigError, match="best_after=3: must be below epochs=3"):
        build(TrainConfig, {"data": "d", "epochs": 3, "best_after": 3})


def work(ranks, values):
    """A run whose ranks have clocks of their own: rank 1 would never validate by the minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_sizes", lambda family: {"n": {"depth": 0.33, "width": 0.0625, "widest": 1024}})
        values = {**values, "val_minutes": 1e-9 if ranks.main else 1e9}
        jobs, begin = [], recipe.begin
        patch.setattr(recipe, "begin", lambda *args: jobs.append(begin(*args)) or jobs[-1])
        folder = recipe.carry_out(recipe.prepare(build(TrainConfig, values), None, ranks), ()).folder
        average = {name: tensor.clone() for name, tensor in jobs[0].state.ema.model.state_dict().items()}
        return validations(folder), jobs[0].state.best_epoch, average


def test_of_two_ranks_the_clock_of_the_first_says_when(settings):
    (one, best, mine), (two, other, theirs) = run_on_ranks(2, work, {**settings, "epochs": 1, "batch": 4, "nbs": 4})
    assert one == two == [(1, 0), (1, 1), (1, 2), (1, 3)] and best == other == 1
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)  # EMA-03
