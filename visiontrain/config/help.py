"""The help of the command line, derived from the settings; what does not work yet is not listed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import groupby

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
from visiontrain.config.values import Leaf, interval, leaves_of, one_of, show

VERBS: dict[str, tuple[type | None, str, str]] = {
    "train": (
        TrainConfig,
        "train a detector",
        "visiontrain train data=shapes model=yolov8n epochs=20 imgsz=320 batch=8",
    ),
    "val": (
        ValConfig,
        "score a checkpoint on a split",
        "visiontrain val model=runs/train/run/weights/best.pt split=val",
    ),
    "predict": (
        PredictConfig,
        "find objects in pictures and videos",
        "visiontrain predict model=runs/train/run/weights/best.pt source=pictures",
    ),
    "export": (
        ExportConfig,
        "write a checkpoint as ONNX, TorchScript or OpenVINO, compared with it",
        "visiontrain export model=runs/train/run/weights/best.pt format=onnx",
    ),
    "plan": (PlanConfig, "print the arithmetic of windows and updates", "visiontrain plan batch=8 images=118287"),
    "check": (
        CheckConfig,
        "find what is wrong in data and settings before a training",
        "visiontrain check data=shapes imgsz=160 batch=4",
    ),
    "convert": (
        ConvertConfig,
        "write a data set in another label format, or a checkpoint as one of ours",
        "visiontrain convert data=shapes format=coco out=shapes_coco",
    ),
    "compare": (
        CompareConfig,
        "two or more runs side by side",
        "visiontrain compare runs/train/run runs/train/run2 out=comparison.html",
    ),
    "help": (None, "this text, or that of a verb", "visiontrain help train"),
    "version": (None, "the version", "visiontrain version"),
}
WIDTH = 118


def overview() -> str:
    """The page that ``visiontrain help`` prints."""
    verbs = "\n".join(f"  {verb:<9}{what}" for verb, (_, what, _) in VERBS.items())
    examples = "\n".join(f"  {example}" for settings, _, example in VERBS.values() if settings)
    return (
        "visiontrain VERB name=value ...\n\n"
        f"{verbs}\n\nFor example\n{examples}\n\n"
        "visiontrain help VERB lists its settings with defaults and ranges. cfg=file.yaml reads settings from a file;\n"
        "words on the command line go over it."
    )


def page(verb: str) -> str:
    """The page of one verb: its settings by group, each with default, range and meaning."""
    settings, what, example = VERBS[verb]
    if settings is None:
        return f"visiontrain {verb}: {what}. For example: {example}"
    lines = [f"visiontrain {verb} name=value ...: {what}", f"For example: {example}"]
    for title, leaves in groupby(leaves_of(settings).values(), key=lambda leaf: leaf.title):
        lines += ["", title or "Settings", *(line for leaf in leaves for line in _lines(leaf))]
    lines += ["", "cfg=file.yaml reads any of these from a file of 'name: value' lines; words go over it."]
    return "\n".join(lines)


def _lines(leaf: Leaf) -> Iterator[str]:
    allowed = one_of(leaf.meta["choices"]) if leaf.meta["choices"] else interval(leaf)
    text = leaf.help + (f" [{allowed}]" if allowed else "")
    default = show(leaf, leaf.default)
    head = f"  {leaf.name + '=' + default:<24} "
    yield from textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * 27)
