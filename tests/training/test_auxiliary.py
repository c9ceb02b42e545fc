"""Runs with and without the auxiliary head: what is said, kept, taken over and left out."""

from __future__ import annotations

import json

import pytest
import torch
from training.test_sampling import go

import visiontrain
from visiontrain.checks.preflight import preflight
from visiontrain.config.build import build
from visiontrain.config.schema import TrainConfig
from visiontrain.errors import ConfigError
from visiontrain.models import build_model
from visiontrain.models.weights import load_model, load_network, read_checkpoint
from visiontrain.training.run import prepare
from visiontrain.training.start import starting_model

pytestmark = pytest.mark.usefixtures("narrow")


@pytest.fixture
def settings(short_run):
    return {**short_run, "model": "yolov9n", "norm": "batch"}


@pytest.fixture
def checkpoint(tmp_path, settings):
    """Writes one of two classes with numbers of its own, with auxiliary layers or without."""

    def write(auxiliary):
        torch.manual_seed(3)
        model = build_model("yolov9n", ["sun", "sea"], auxiliary=auxiliary)
        for weight in model.parameters():
            weight.data += 0.05 * torch.rand_like(weight) * weight.requires_grad
        about = {"schema_version": 1, "kind": "model", "model": model.description()}
        stored = {"settings": build(TrainConfig, settings).leaves(), "weights": model.state_dict()}
        torch.save({**about, **stored}, tmp_path / "x.pt")
        return tmp_path / "x.pt", model

    return write


def test_with_it_windows_run_twice_and_without_it_once(settings):
    """The plan says which; best.pt keeps what was trained, and so does its average; a resumed run goes on as it began."""
    for on, passes, sentence in (
        (False, 1, "yolov9n learns without its auxiliary head (auxiliary=false), in one pass."),
        (True, 2, "M parameters) help in training alone; nothing else runs them."),
    ):
        run = go({**settings, "auxiliary": on, "name": f"{on}"})
        record = json.loads((run.folder / "run.json").read_text())
        said = "\n".join(record["plan"])
        assert sentence in said and ("so each window runs twice" in said) is on
        assert record["computed"]["window_passes"] == passes
        for file, parts in (("best.pt", ["weights"]), ("last.pt", ["weights", "ema"])):
            content = read_checkpoint(run.folder / "weights" / file)
            assert content["model"]["auxiliary"] is on
            for part in parts:
                assert any(name.startswith("auxiliary.") for name in content[part]) is on
    header = (run.folder / "metrics.csv").read_text()
    assert all(f"aux_{part}_loss" in header for part in ("box", "cls", "dfl"))
    with pytest.raises(ConfigError, match="auxiliary=False: this run was begun with auxiliary=True"):
        go({"resume": str(run.folder / "weights/last.pt"), "auxiliary": False})


def test_where_there_is_none_it_is_refused_before_anything_is_written(short_run, tmp_path):
    with pytest.raises(ConfigError, match="auxiliary=true: yolov8n has no auxiliary head; leave it out"):
        go({**short_run, "model": "yolov8n", "auxiliary": True})
    with pytest.raises(ConfigError, match="auxiliary=true: yolov8n has no auxiliary head"):
        visiontrain.plan(model="yolov8n", auxiliary=True, images=100)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("now", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_a_checkpoint_is_trained_on_with_or_without(settings, checkpoint, before, now):
    path, old = checkpoint(before)
    config = build(TrainConfig, {**settings, "model": str(path), "auxiliary": now})
    model, given = starting_model(config, ["sea", "sun"]), old.state_dict()
    became = {(False, True): " (the auxiliary layers are fresh)", (True, False): " (the auxiliary layers are left out)"}
    state = model.state_dict()
    taken, rows = [name for name in state if name in given], model.class_tensors()
    assert model.origin[0].startswith(
        f"Transferred {len(taken)} of {len(state)} tensors{became.get((before, now), '')}"
    )
    assert bool(model.auxiliary) is now and len(taken) > 100
    for name in taken:
        assert torch.equal(state[name], given[name].flip(0) if name in rows else given[name]), name
    assert any(name.startswith("auxiliary.") for name in rows) is now


def test_evaluation_and_exports_do_without(checkpoint, tmp_path):
    path, _ = checkpoint(True)
    network, whole, images = load_network(path)[0], load_model(path), torch.rand(1, 3, 64, 64)
    assert whole.auxiliary and not any("auxiliary" in name for name in network.state_dict())
    with torch.no_grad():
        assert torch.equal(network(images).scores, whole(images).scores)
    made = visiontrain.export(model=path, format="torchscript", out=tmp_path / "x.torchscript", pictures=1)
    exported = torch.jit.load(made.file).state_dict()
    assert len(exported) > 100 and not any("auxiliary" in name for name in exported)


def test_a_check_tries_windows_with_it(settings):
    setup = prepare(build(TrainConfig, {**settings, "auxiliary": True}), None)
    found = preflight(setup.config, setup.train, setup.val, lambda plan: None, lambda what: None)
    assert not found.failed, found.failed
