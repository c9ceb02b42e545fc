"""A family's recipe stands in place of defaults, and of nothing that was given."""

from __future__ import annotations

import pytest
import yaml

import visiontrain
from visiontrain.config.build import build
from visiontrain.config.files import read_entries
from visiontrain.config.parse import parse_words
from visiontrain.config.recipes import read_recipe, recipe_sentence, with_recipe
from visiontrain.config.schema import PlanConfig, TrainConfig
from visiontrain.config.values import leaves_of
from visiontrain.errors import ConfigError
from visiontrain.models import MODELS
from visiontrain.paths import cfg_dir
from visiontrain.training.start import of_its_family

RECIPES = sorted(file.stem for file in (cfg_dir() / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("family", RECIPES)
def test_every_line_of_a_recipe_is_a_setting_that_differs(family):
    entries, problems = read_entries(cfg_dir() / "recipes" / f"{family}.yaml")
    recipe, leaves = read_recipe(TrainConfig, family), leaves_of(TrainConfig)
    assert family in MODELS and not problems
    assert list(recipe) == [entry.name for entry in entries]
    assert all(leaves[name].default != value for name, value in recipe.items())


def test_what_was_given_stays():
    config = with_recipe(build(TrainConfig, {"box": 6, "model": "yolox_s"}), "yolox")
    assert (config.loss.box, config.loss.cls, config.optim.warmup_epochs, config.optim.cos_lr) == (6, 1, 5, True)
    assert config.given == {"box", "model"}
    said = recipe_sentence(config, "yolox")
    assert "cls 1, " in said and "box" not in said and "cfg/recipes/yolox.yaml" in said
    plain = build(TrainConfig, {})
    assert with_recipe(plain, "yolov8") is plain and recipe_sentence(plain, "yolov8") == ""


def test_a_plan_has_it_too():
    assert with_recipe(PlanConfig(model="yolox_s"), "yolox").warmup_epochs == 5
    assert visiontrain.plan(model="yolox_s", images=640, epochs=10, batch=8).warmup_images == 5 * 640
    assert visiontrain.plan(model="yolox_s", images=640, epochs=10, batch=8, warmup_epochs=1).warmup_images == 640


def test_a_setting_that_changes_nothing_for_a_family_is_refused():
    with pytest.raises(ConfigError, match=r"dfl=2.0: changes nothing for yolox: its boxes are numbers without bins"):
        of_its_family(build(TrainConfig, {"model": "yolox_tiny", "dfl": 2}))
    assert of_its_family(build(TrainConfig, {"model": "yolov8n", "dfl": 2})).loss.dfl == 2


@pytest.mark.usefixtures("narrow")
def test_a_run_says_and_keeps_what_it_was_trained_with(short_run, capsys):
    run = visiontrain.train(**{**short_run, "model": "yoloxn", "cls": 0.75, "epochs": 2, "close_mosaic": 1})
    said = capsys.readouterr().out
    assert "yolox's recipe, where nothing else was given: box 5, lrf 0.05, cos_lr true, momentum 0.9" in said
    assert "l1_loss counts in the last 1 epoch, which have no mosaic" in said
    kept = yaml.safe_load((run.folder / "args.yaml").read_text())
    assert (kept["box"], kept["cls"], kept["dfl"]) == (5, 0.75, 1.5)
    again = of_its_family(parse_words(TrainConfig, [f"cfg={run.folder / 'args.yaml'}"]))
    assert again.loss == of_its_family(build(TrainConfig, {"model": "yoloxn", "cls": 0.75})).loss
    header, *rows = (line.split(",") for line in (run.folder / "metrics.csv").read_text().splitlines())
    column = header.index("train/l1_loss")
    assert float(rows[0][column]) == 0 < float(rows[1][column])
