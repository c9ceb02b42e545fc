from __future__ import annotations

import ast
import dataclasses
import runpy
from pathlib import Path

import pytest

import visiontrain
from visiontrain.config.build import INSTEAD, NOT_YET, build
from visiontrain.config.image_size import ImageSize
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
from visiontrain.config.values import leaves_of, written
from visiontrain.errors import ConfigError

SETTINGS = [TrainConfig, ValConfig, PlanConfig, CheckConfig, CompareConfig, ConvertConfig, ExportConfig, PredictConfig]


def test_leaves_are_flat_and_build_is_the_inverse():
    config = build(TrainConfig, {"data": "d.yaml", "lr0": 0.02, "mosaic": 0.0, "name": "x", "deterministic": True})
    leaves = config.leaves()
    assert (leaves["lr0"], leaves["mosaic"], leaves["batch"], leaves["deterministic"]) == (0.02, 0.0, 16, True)
    assert "given" not in leaves and "optim" not in leaves
    assert build(TrainConfig, leaves) == config
    assert config.optim.lr0 == 0.02 and config.augment.mosaic == 0.0 and config.output.name == "x"


def test_given_holds_what_the_user_gave_and_no_default():
    assert build(TrainConfig, {"data": "d", "lr0": 0.01}).given == {"data", "lr0"}
    assert build(TrainConfig, {"data": "d"}, given=frozenset()).given == frozenset()


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_default_is_allowed_and_described(settings):
    for leaf in leaves_of(settings).values():
        assert build(settings, {leaf.name: leaf.default}).leaves()[leaf.name] == written(leaf.default)
        assert leaf.help and leaf.help.isascii()


def test_defaults_of_the_field():
    expected = {
        "model": "yolov8n", "epochs": 100, "batch": 16, "nbs": 64, "imgsz": 640, "optimizer": "auto", "lr0": 0.01,
        "lrf": 0.01, "momentum": 0.937, "weight_decay": 5e-4, "warmup_epochs": 3.0, "warmup_momentum": 0.8,
        "warmup_bias_lr": 0.1, "box": 7.5, "cls": 0.5, "dfl": 1.5, "hsv_h": 0.015, "hsv_s": 0.7, "hsv_v": 0.4,
        "translate": 0.1, "scale": 0.5, "fliplr": 0.5, "mosaic": 1.0, "close_mosaic": 10, "patience": 100, "iou": 0.7,
        "max_det": 300, "seed": 0, "amp": True, "deterministic": None, "workers": -1, "device": "auto",
    }  # fmt: skip
    leaves = TrainConfig(data="d").leaves()
    assert {name: leaves[name] for name in expected} == expected


def test_a_setting_cannot_be_edited():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig(data="d").batch = 4


def test_direct_construction_is_checked_too():
    with pytest.raises(ConfigError, match="batch=0: must be at least 1") as caught:
        TrainConfig(data="d", batch=0, imgsz=ImageSize(100, 100))
    assert "imgsz=100: must be a multiple of 32" in str(caught.value)
    assert "96 and 128" in str(caught.value)


@pytest.mark.parametrize("settings", SETTINGS)
def test_no_setting_is_without_effect(settings):
    """Each is read somewhere outside the settings themselves."""
    package = Path(visiontrain.__file__).parent
    read = {
        node.attr
        for path in package.rglob("*.py")
        if path.parent.name != "config"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    assert set(leaves_of(settings)) <= read


@pytest.mark.parametrize("name", [*NOT_YET, *INSTEAD])
def test_names_that_cannot_be_honoured_are_refused_with_a_reason(name):
    assert [settings for settings in SETTINGS if name in leaves_of(settings)] in ([], [ConvertConfig], [PredictConfig])
    with pytest.raises(ConfigError) as caught:
        build(TrainConfig, {"data": "d", name: "1"})
    reason = NOT_YET.get(name) or INSTEAD[name]
    assert reason in str(caught.value)
    assert "did you mean" not in str(caught.value)


def test_a_setting_of_another_verb_is_told_apart_from_a_typo():
    with pytest.raises(ConfigError, match="lr0 changes nothing in plan"):
        build(PlanConfig, {"lr0": 0.1})


def test_default_yaml_is_up_to_date(checkout):
    written = (checkout / "cfg" / "default.yaml").read_text(encoding="utf-8")
    render = runpy.run_path(str(checkout / "tools" / "write_default_config.py"))["render"]
    assert written == render(), "run: python tools/write_default_config.py"
