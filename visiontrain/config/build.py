"""Names and values as given -> a settings object, or all that is wrong with them at once."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

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
from visiontrain.config.values import Leaf, leaves_of, problem, read
from visiontrain.errors import ConfigError

Settings = TypeVar(
    "Settings",
    TrainConfig,
    ValConfig,
    PlanConfig,
    CheckConfig,
    CompareConfig,
    ConvertConfig,
    ExportConfig,
    PredictConfig,
)

# Names that people bring along. Where this version cannot do the thing, it says so; it never takes a word without effect.
NOT_YET = {
    "cutmix": "mosaic and mixup are there",
    "copy_paste": "mosaic and mixup are there",
    "compile": "models run uncompiled",
    "dropout": "the models have none",
    "int8": "files compute in float32",
    "label_smoothing": "the assigned scores are the targets",
    "save": "last.pt and best.pt are always written",
}
INSTEAD = {
    "accumulate": "it follows from nbs and batch: round(nbs / batch) micro-batches, at least 1; set nbs",
    "pretrained": "give the checkpoint as model=path/best.pt; a name such as model=yolov8n starts from scratch",
    "weights": "give the checkpoint as model=path/best.pt",
    "batch_size": "write batch=8",
    "batch-size": "write batch=8",
    "img": "write imgsz=640",
    "imgs": "write imgsz=640",
    "img_size": "write imgsz=640",
    "img-size": "write imgsz=640",
    "lr": "write lr0=0.01",
    "learning_rate": "write lr0=0.01",
    "agnostic_nms": "write agnostic=true",
    "augmentations": "write albumentations=mine.yaml, or give a Compose in Python",
    "cls_pw": "write class_weights=boxes",
    "gpu": "write device=0",
    "gpus": "write device=0",
    "hyp": "write cfg=file.yaml",
    "hsv": "write hsv_h=0.015 hsv_s=0.7 hsv_v=0.4",
    "opset": "ONNX files have opset 18; leave it out",
    "simplify": "ONNX files are simplified as they are written; leave it out",
    "verb": "the verb comes first: visiontrain train data=coco128.yaml",
    "mode": "the verb comes first: visiontrain train data=coco128.yaml",
    "task": "the task is detection; leave it out",
    "verbose": "leave it out; without a terminal the output is plain",
}


def unknown(settings: type, name: str) -> str:
    """The sentence for a name that the class has no setting for."""
    if name in INSTEAD:
        return f"{name} is no setting here: {INSTEAD[name]}"
    if name in NOT_YET:
        return f"{name}: this version cannot do that ({NOT_YET[name]}); leave it out"
    owners = [c for c in Settings.__constraints__ if name in leaves_of(c)]
    if owners:
        verb = settings.__name__.removesuffix("Config").lower()
        return f"{name} changes nothing in {verb} (it is a setting of {owners[0].__name__.removesuffix('Config').lower()}); leave it out"
    near = difflib.get_close_matches(name.lower(), leaves_of(settings), n=1)
    return f"no setting {name!r}" + (f"; did you mean {near[0]}?" if near else "; see visiontrain help")


def check(settings: type, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Read values into those of the class's settings.

    Returns:
        the values that are right, and for each name that is wrong the sentence about it.
    """
    good: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    leaves = leaves_of(settings)
    for name, value in values.items():
        if name not in leaves:
            wrong[name] = unknown(settings, name)
            continue
        try:
            read_value = read(leaves[name], value)
        except ConfigError as error:
            wrong[name] = str(error)
            continue
        except ValueError as error:
            wrong[name] = f"takes {error} ({leaves[name].help})"
            continue
        if sentence := problem(leaves[name], read_value):
            wrong[name] = f"{sentence} ({leaves[name].help})"
        else:
            good[name] = read_value
    return good, wrong


def build(settings: type[Settings], values: Mapping[str, Any], given: frozenset[str] | None = None) -> Settings:
    """Build a settings object from flat values; the inverse of ``leaves``.

    Args:
        settings: the class of a verb.
        values: by the names the user knows; names left out get their default.
        given: the names that the user gave; None: all of ``values``.

    Raises:
        ConfigError: names all that is unknown, of the wrong kind or out of range.
    """
    good, wrong = check(settings, values)
    if wrong:
        raise ConfigError("\n".join(f"{name}={values[name]}: {sentence}" for name, sentence in wrong.items()))
    return assemble(settings, good, frozenset(values) if given is None else given)


def assemble(settings: type[Settings], good: Mapping[str, Any], given: frozenset[str]) -> Settings:
    """Put checked values into the object and its groups."""
    by_group: dict[str, dict[str, Any]] = {}
    leaves: Mapping[str, Leaf] = leaves_of(settings)
    for name, value in good.items():
        by_group.setdefault(leaves[name].path, {})[name] = value
    groups = {
        f.name: f.metadata["group"](**by_group.get(f.name, {}))
        for f in dataclasses.fields(settings)
        if "group" in f.metadata
    }
    return settings(**by_group.get("", {}), **groups, given=given)
