from __future__ import annotations

import inspect
import json
import os
import pydoc
import sys
from types import SimpleNamespace

import pytest

import visiontrain
from visiontrain import actions, api
from visiontrain.api import YOLO, Metrics, Run
from visiontrain.config.parse import parse_keywords
from visiontrain.config.schema import (
    CheckConfig,
    CompareConfig,
    ConvertConfig,
    ExportConfig,
    PlanConfig,
    PredictConfig,
    TrainConfig,
    ValConfig,
)
from visiontrain.config.values import leaves_of
from visiontrain.errors import ConfigError


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """The settings that reach training, and a run that it leaves."""
    seen = []

    def train(config, callbacks=()):
        seen.append(config)
        (tmp_path / "weights").mkdir()
        (tmp_path / "weights" / "best.pt").touch()
        return Run(tmp_path, Metrics(ap=0.5), "finished", {})

    monkeypatch.setattr(api, "run_training", train)
    return seen


def test_train_takes_the_names_of_the_command_line(trained):
    run = visiontrain.train(data="shapes", batch=8, lr0=1e-3)
    assert run.metrics["ap"] == run.metrics.ap == run.metrics.map == 0.5
    assert (trained[0].batch, trained[0].optim.lr0, trained[0].model) == (8, 0.001, "yolov8n")


def test_unknown_names_are_refused_as_on_the_command_line(trained):
    with pytest.raises(ConfigError, match="did you mean batch"):
        visiontrain.train(data="shapes", bacth=8)
    assert not trained


def test_yolo_brings_its_model_and_then_stands_for_the_best_checkpoint(trained, tmp_path, monkeypatch):
    model = YOLO("yolov8s")
    model.train(data="shapes")
    assert trained[0].model == "yolov8s"
    assert model.model == str(tmp_path / "weights" / "best.pt")
    seen = []
    monkeypatch.setattr(api, "run_validation", seen.append)
    model.val(split="train")
    assert (seen[0].model, seen[0].split) == (model.model, "train")


def test_plan_from_python():
    assert visiontrain.plan(batch=8, images=640).updates_per_epoch == 10


def test_a_metric_that_is_not_there_is_named():
    with pytest.raises(AttributeError, match="no metric 'map90'; there are ap, ap50"):
        _ = Metrics(ap=0.5, ap50=0.8).map90


def test_record_and_plots_come_from_the_folder(tmp_path, capsys):
    (tmp_path / "run.json").write_text(json.dumps({"outcome": "finished"}))
    run = Run(tmp_path, Metrics(), "finished", {})
    assert run.record == {"outcome": "finished"}
    assert run.plot() == [] and "plots=False" in capsys.readouterr().out
    (tmp_path / "results.png").touch()
    assert run.plot() == [tmp_path / "results.png"]
    assert str(tmp_path / "results.png") in capsys.readouterr().out


def test_figures_show_inline_in_a_notebook(tmp_path, monkeypatch):
    shown = []
    display = SimpleNamespace(Image=lambda filename: filename, display=lambda *images: shown.extend(images))
    kernel = SimpleNamespace(kernel=object())
    monkeypatch.setitem(__import__("sys").modules, "IPython", SimpleNamespace(get_ipython=lambda: kernel))
    monkeypatch.setitem(__import__("sys").modules, "IPython.display", display)
    (tmp_path / "results.png").touch()
    Run(tmp_path, Metrics(), "finished", {}).plot()
    assert shown == [str(tmp_path / "results.png")]


def test_an_unknown_public_name_is_an_error():
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = visiontrain.trian


@pytest.mark.parametrize(("name", "value", "kept"), [("", "", "1000"), ("OMP_WAIT_POLICY", "active", None)])
def test_waiting_threads_sleep_soon_unless_the_user_says_otherwise(monkeypatch, name, value, kept):
    for variable in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(variable, "")  # first set, so that the end of the test takes back what the call sets
        monkeypatch.delenv(variable)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    if name:
        monkeypatch.setenv(name, value)
    actions.calm_threads()
    assert os.environ.get("GOMP_SPINCOUNT") == kept


SHOWN = [
    (visiontrain.train, TrainConfig, "callbacks"),
    (visiontrain.val, ValConfig, ""),
    (visiontrain.predict, PredictConfig, "stream"),
    (visiontrain.plan, PlanConfig, ""),
    (visiontrain.check, CheckConfig, ""),
    (visiontrain.convert, ConvertConfig, ""),
    (visiontrain.export, ExportConfig, ""),
    (visiontrain.compare, CompareConfig, "a b more"),
    (YOLO.train, TrainConfig, "callbacks"),
    (YOLO.val, ValConfig, ""),
    (YOLO.predict, PredictConfig, "stream"),
    (YOLO.export, ExportConfig, ""),
]


@pytest.mark.parametrize(("function", "settings", "own"), SHOWN, ids=lambda value: getattr(value, "__qualname__", ""))
def test_help_and_signature_show_every_setting_with_its_default(function, settings, own):
    parameters = inspect.signature(function).parameters
    brought = {"model"} if function.__qualname__.startswith("YOLO") else set()
    brought |= {"runs"} if function is visiontrain.compare else set()  # the words without a name
    assert {*parameters} - {"self", "cfg", *own.split()} == leaves_of(settings).keys() - brought
    said = pydoc.plain(pydoc.render_doc(function))
    for name, leaf in leaves_of(settings).items():
        if name not in brought and parameters[name].kind == inspect.Parameter.KEYWORD_ONLY:
            assert f"\n        {name}={parameters[name].default!r} " in said or f"\n    {name}=" in said
            assert leaf.help.split()[0] in said


def test_the_defaults_that_are_shown_are_those_that_apply():
    """Each may be typed as it stands, and changes nothing."""
    shown = {n: p.default for n, p in inspect.signature(visiontrain.train).parameters.items()}
    assert (shown["batch"], shown["imgsz"], shown["workers"], shown["resume"]) == (16, 640, "auto", "")
    given = {name: value for name, value in shown.items() if name not in ("callbacks", "cfg", "data")}
    assert parse_keywords(TrainConfig, {"data": "d", **given}) == parse_keywords(TrainConfig, {"data": "d"})
    shown = {n: p.default for n, p in inspect.signature(visiontrain.predict).parameters.items()}
    assert (shown["save"], shown["source"]) == (False, "")


def test_what_is_shown_is_not_given(trained):
    YOLO().train(data="shapes", epochs=100)
    assert trained[0].given == {"model", "data", "epochs"}


def test_the_tab_key_of_a_notebook_offers_settings():
    completer = pytest.importorskip("IPython.core.completer")
    names = completer.IPCompleter(namespace={})._default_arguments(YOLO("yolov8n").train)
    assert {"epochs", "lr0", "val_minutes", "callbacks"} <= set(names)
