"""average_best: the mean of the best epochs, kept if it helps, on disk as long as it is needed."""

from __future__ import annotations

import json
import os
import signal

import pytest
import torch

from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import Interrupted
from visiontrain.models.weights import read_checkpoint
from visiontrain.record.events import Checkpointed, EpochEnded
from visiontrain.training import run as recipe
from visiontrain.training.average import mean_of
from visiontrain.training.run import train

EPOCHS = [0.1, 0.4, 0.2, 0.3]


@pytest.fixture
def settings(short_run, narrow):
    return {**short_run, "epochs": 4, "val": True, "average_best": 2, "norm": "batch"}


@pytest.fixture
def planted(monkeypatch):
    """Plants the AP of the epochs and, after them, of the mean."""

    def plant(mean):
        score = recipe.score

        def found(setup, model, record, state):
            result = score(setup, model, record, state)
            result.metrics["ap"] = [*EPOCHS, mean][state.epoch]
            return result

        monkeypatch.setattr(recipe, "score", found)

    return plant


def go(values, *callbacks):
    return train(build(TrainConfig, values), callbacks)


def keeper(copies):
    """A callback that takes a copy of the averaged weights of each epoch, as last.pt has them."""

    def callback(event):
        if isinstance(event, Checkpointed) and event.why == "epoch":
            content = read_checkpoint(event.path)
            copies[content["state"]["epoch"]] = content["ema"]
            kept = {path.name for path in (event.path.parent / "top").iterdir()}
            assert len(kept) <= 3 and {f"epoch{int(epoch)}.pt" for epoch, _ in content["state"]["top"]} <= kept

    return callback


@pytest.mark.parametrize(("mean", "kept"), [(0.5, True), (0.4, False)])
def test_the_mean_of_the_best_becomes_best_pt_only_where_it_is_better(settings, planted, mean, kept):
    planted(mean)
    copies = {}
    folder = go(settings, keeper(copies)).folder
    best = read_checkpoint(folder / "weights" / "best.pt")
    for name, tensor in best["weights"].items():
        expected = copies[2][name]
        if kept and tensor.is_floating_point():
            expected = ((copies[2][name].double() + copies[4][name].double()) / 2).to(tensor.dtype)
        assert torch.equal(tensor, expected), name
    assert best["metrics"]["ap"] == max(mean, 0.4)
    told = json.loads((folder / "run.json").read_text())["measured"]["average_best"]
    assert told == {"epochs": [2, 4], "mean": mean, "best": 0.4, "kept": kept}
    assert not (folder / "weights" / "top").exists()
    state = read_checkpoint(folder / "weights" / "last.pt")["state"]
    assert state["top"] == [] and state["best_fitness"] == max(mean, 0.4)


def test_it_survives_a_resume_and_a_finished_run_averages_once(settings, planted):
    planted(0.5)

    def stop(event):
        if isinstance(event, EpochEnded) and event.epoch == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        go(settings, stop)
    again = {"resume": "true", "project": settings["project"]}
    folder = go(again).folder
    assert json.loads((folder / "run.json").read_text())["measured"]["average_best"]["epochs"] == [2, 4]
    before = (folder / "weights" / "best.pt").read_bytes()
    assert go(again).outcome == "finished"
    assert (folder / "weights" / "best.pt").read_bytes() == before


def test_whole_numbers_are_those_of_the_best(settings, planted, tmp_path):
    planted(0.0)
    folder = go({**settings, "epochs": 2}).folder
    content = torch.load(folder / "weights" / "best.pt", weights_only=True)
    for number, path in enumerate(paths := [tmp_path / "one.pt", tmp_path / "two.pt"]):
        shifted = {
            n: t + number if t.is_floating_point() else t * 0 + 7 + 2 * number for n, t in content["weights"].items()
        }
        torch.save({**content, "weights": shifted}, path)
    mean = mean_of(paths).state_dict()
    counts = [name for name in mean if name.endswith("num_batches_tracked")]
    assert counts and all(mean[name] == 7 for name in counts)
    assert torch.allclose(mean["model.0.conv.weight"], content["weights"]["model.0.conv.weight"] + 0.5)
