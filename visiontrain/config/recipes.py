"""What a model family is trained with where the user says nothing: cfg/recipes/FAMILY.yaml, differences from the defaults alone."""

from __future__ import annotations

from typing import Any

from visiontrain.config.build import Settings, assemble, check
from visiontrain.config.files import read_entries
from visiontrain.config.values import leaves_of, show
from visiontrain.paths import cfg_dir


def read_recipe(settings: type, family: str) -> dict[str, Any]:
    """The values that a family's recipe has for the settings of a verb; none where it has no recipe."""
    file = cfg_dir() / "recipes" / f"{family}.yaml"
    if not file.is_file():
        return {}
    entries, _ = read_entries(file)
    good, _ = check(settings, {entry.name: entry.text for entry in entries if entry.name in leaves_of(settings)})
    return good


def with_recipe(config: Settings, family: str) -> Settings:
    """The settings with those of the family's recipe in place of defaults; what the user gave stays."""
    recipe = {n: value for n, value in read_recipe(type(config), family).items() if n not in config.given}
    return assemble(type(config), {**config.values(), **recipe}, config.given) if recipe else config


def recipe_sentence(config: Settings, family: str) -> str:
    """What of a family's recipe is used, for the plan; empty where there is nothing."""
    values, leaves = config.values(), leaves_of(type(config))
    used = {n: v for n, v in read_recipe(type(config), family).items() if n not in config.given and v == values[n]}
    named = ", ".join(f"{name} {show(leaves[name], value)}" for name, value in used.items())
    return f"{family}'s recipe, where nothing else was given: {named} (cfg/recipes/{family}.yaml)." if used else ""
