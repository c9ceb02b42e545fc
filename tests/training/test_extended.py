"""A run goes on to more epochs than planned: finished, interrupted, stopped early, twice, killed on the way (RES-08, RES-13)."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal

import pytest
import torch

from visiontrain import YOLO
from visiontrain.config.parse import parse_keywords, parse_words, words_of
from visiontrain.config.schema import PlanConfig, TrainConfig
from visiontrain.distributed import Ranks
from visiontrain.errors import ConfigError, Interrupted
from visiontrain.models.weights import read_checkpoint
from visiontrain.record.events import Notice, WindowClosed
from visiontrain.training import optimizer
from visiontrain.training import run as recipe
from visiontrain.training.run import taken_up, train


@pytest.fixture
def settings(short_run, narrow):
    return {
        **short_run,
        "epochs": 2,
        "warmup_epochs": 1,
        "close_mosaic": 1,
        "optimizer": "SGD",
        "lr0": 0.01,
        "val": True,
    }


def go(values, *callbacks):
    return train(parse_keywords(TrainConfig, values), callbacks)


def last_of(folder):
    return str(folder / "weights" / "last.pt")


def rows(folder):
    return [json.loads(line) for line in (folder / "updates.jsonl").read_text().splitlines()]


def state_of(folder):
    content = read_checkpoint(last_of(folder))
    flat = {f"{part}/{name}": t for part in ("weights", "ema") for name, t in content[part].items()}
    for number, values in content["optimizer"]["state"].items():
        flat |= {f"optimizer/{number}/{name}": torch.as_tensor(v) for name, v in values.items() if v is not None}
    return flat, {name: value for name, value in content["state"].items() if name != "seconds"}


def interrupt_after(windows):
    seen = []

    def callback(event):
        if isinstance(event, WindowClosed):
            seen.append(event)
            if len(seen) == windows:
                os.kill(os.getpid(), signal.SIGINT)

    return callback


def test_a_finished_run_goes_on_with_the_schedule_of_its_new_total_and_does_so_twice(settings):
    folder, told = go(settings).folder, []
    before = rows(folder)
    for planned in (3, 5):
        go(
            {"resume": last_of(folder), "epochs": f"+{planned - read_checkpoint(last_of(folder))['state']['epoch']}"},
            told.append,
        )
        record = json.loads((folder / "run.json").read_text())
        assert record["outcome"] == "finished" and record["reason"] == f"all {planned} epochs"
        assert record["computed"]["images_planned"] == planned * 13
    after = rows(folder)
    assert after[: len(before)] == before
    assert [row["updates_attempted"] for row in after] == list(range(1, len(after) + 1))
    with (folder / "metrics.csv").open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2", "3", "4", "5"]
    third = [row for row in after if row["epoch"] == 3]
    expected = [0.01 * (0.01 + 0.99 * (1 - row["images_seen"] / 39)) for row in third]
    assert [row["lr"] for row in third] == pytest.approx(expected)
    assert {row["momentum"] for row in third} == {0.937}  # no second warm-up
    first = "goes on to 3 epochs, 1 more than planned; the learning rate follows the schedule of 3 from here: 0.0034, "
    assert f"Changed on resume: {first}where that of 2 had 0.0001" in [e.text for e in told if isinstance(e, Notice)]
    changes = [resume["changes"] for resume in record["measured"]["resumes"]]
    assert changes[0] == [f"{first}where that of 2 had 0.0001"] and "goes on to 5 epochs, 2 more" in changes[1][0]


@pytest.mark.parametrize("windows", [1, 5])
def test_an_extended_run_that_is_killed_goes_on_to_its_new_end_with_the_same_bits(settings, windows):
    whole = go({**settings, "epochs": 1}).folder
    cut = whole.with_name("cut")
    shutil.copytree(whole, cut)
    go({"resume": last_of(whole), "epochs": "+2"})
    with pytest.raises(Interrupted):
        go({"resume": last_of(cut), "epochs": "+2"}, interrupt_after(windows))
    go({"resume": last_of(cut)})
    (left, plain), (right, other) = state_of(whole), state_of(cut)
    assert [name for name in left if not torch.equal(left[name], right[name])] == []
    assert plain == other and plain["epoch"] == 3
    assert [r["lr"] for r in rows(whole)] == [r["lr"] for r in rows(cut)]


def test_killed_before_its_first_new_window_an_extended_run_is_still_extended(settings, monkeypatch):
    folder = go({**settings, "epochs": 1}).folder
    with monkeypatch.context() as patch:
        patch.setattr(recipe, "fit", lambda job: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            go({"resume": last_of(folder), "epochs": "+1"})
    go({"resume": last_of(folder)})
    assert read_checkpoint(last_of(folder))["state"]["epoch"] == 2


def test_an_interrupted_run_takes_a_larger_and_a_smaller_total(settings):
    with pytest.raises(Interrupted):
        go({**settings, "epochs": 4}, interrupt_after(9))  # in the second epoch
    last = f"{settings['project']}/run/weights/last.pt"
    with pytest.raises(ConfigError, match=r"epochs=1: 1 epochs of this run .* are done.*at least 2"):
        go({"resume": last, "epochs": 1})
    assert go({"resume": last, "epochs": 2}).outcome == "finished"
    folder = go({"resume": last, "epochs": 3}).folder
    assert read_checkpoint(last)["state"]["epoch"] == 3 and rows(folder)[-1]["progress"] == 1
    assert go({"resume": last, "epochs": 3}).outcome == "finished"  # RES-13: nothing is left to do, and that is fine


def test_a_run_that_stopped_early_has_its_patience_anew(settings, monkeypatch):
    scores, score = iter([0.5, 0.4, 0.3, 0.6] + [0.1] * 9), recipe.score

    def planted(*args):
        result = score(*args)
        result.metrics["ap"] = next(scores)
        return result

    monkeypatch.setattr(recipe, "score", planted)
    settings |= {"epochs": 3, "patience": 1}
    result = go(settings)  # 0.5, 0.4 and best.pt once more
    assert (
        result.outcome == "stopped early"
        and read_checkpoint(result.folder / "weights" / "last.pt")["state"]["epoch"] == 2
    )
    result = go({"resume": last_of(result.folder), "epochs": "+3"})
    state = read_checkpoint(last_of(result.folder))["state"]
    assert (result.outcome, state["epoch"], state["best_epoch"]) == ("stopped early", 4, 3)


def test_the_kind_of_the_optimizer_stays_that_of_the_start(settings, monkeypatch):
    del settings["optimizer"], settings["lr0"]
    monkeypatch.setattr(optimizer, "LONG_RUN", 9)
    folder = go({**settings, "epochs": 1}).folder
    for _ in range(2):
        go({"resume": last_of(folder), "epochs": "+1"})
    plan = read_checkpoint(last_of(folder))["plan"]
    assert plan["updates_at_start"] < 9 < plan["updates"]
    assert json.loads((folder / "run.json").read_text())["computed"]["optimizer"]["kind"] == "AdamW"


def test_more_epochs_need_a_run(settings):
    with pytest.raises(ConfigError, match=r"epochs=\+20: adds epochs to a run that is there; give it too, resume="):
        parse_words(TrainConfig, ["data=d", "epochs=+20"])
    with pytest.raises(ConfigError, match="is a total here, without a plus"):
        parse_words(PlanConfig, ["images=8", "epochs=+20"])
    with pytest.raises(ConfigError, match="at least 1"):
        parse_words(TrainConfig, ["resume=true", "epochs=+0"])
    config = parse_words(TrainConfig, ["resume=true", "epochs=+20"])
    assert repr(config.epochs) == "+20" and parse_words(TrainConfig, words_of(config)) == config


def test_ranks_that_start_again_add_epochs_once(settings):
    """What a launcher says again to ranks in place of lost ones: resume=... epochs=+1."""

    class Again(Ranks):
        memory = {}  # noqa: RUF012

        def remember(self, name, value):
            self.memory[name] = value

        def recall(self, name):
            return self.memory.get(name, "")

    folder = go({**settings, "epochs": 1}).folder
    config = parse_keywords(TrainConfig, {"resume": last_of(folder), "epochs": "+1"})
    ranks = Again(torch.device("cpu"))
    for _ in range(2):
        resumed = taken_up(config, ranks)
        recipe.folder_of(resumed.config, resumed, ranks)
        assert resumed.config.epochs == 2
        recipe.carry_out(recipe.prepare(resumed.config, resumed, ranks), ())


def test_from_python_by_the_object_that_has_trained(settings):
    model = YOLO("yolov8n")
    folder = model.train(**{**settings, "epochs": 1}).folder
    assert model.train(resume=folder / "weights" / "last.pt", epochs="+1").outcome == "finished"
    assert read_checkpoint(last_of(folder))["state"]["epoch"] == 2


def test_the_learning_rate_is_not_said_to_stay_where_the_total_changes(settings):
    folder = go({**settings, "epochs": 1}).folder
    told = []
    go({"resume": last_of(folder), "epochs": "+1", "batch": settings["batch"] // 2}, told.append)
    said = [event.text for event in told if isinstance(event, Notice)]
    assert any(text.endswith("images: weight decay stays") for text in said)
    assert not any("schedule stay" in text for text in said)
