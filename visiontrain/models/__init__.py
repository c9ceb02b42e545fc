"""Model families. MODELS maps a family to its class; a model's name is the family and a size: yolov8n."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import yaml

from visiontrain.errors import ConfigError
from visiontrain.models.detector import Detector
from visiontrain.models.yolov8 import YOLOv8
from visiontrain.paths import cfg_dir

MODELS: dict[str, type[Detector]] = {"yolov8": YOLOv8}


def model_names() -> list[str]:
    """Every name that ``build_model`` takes."""
    return [family + size for family in MODELS for size in _sizes(family)]


def build_model(name: str, class_names: Sequence[str]) -> Detector:
    """A model with fresh weights, drawn from torch's random state.

    Args:
        name: family and size, for example yolov8n.
        class_names: one for each class.

    Raises:
        ConfigError: no such family or size.
    """
    for family, kind in MODELS.items():
        size = _sizes(family).get(name.removeprefix(family)) if name.startswith(family) else None
        if size is not None:
            return kind(name, class_names, **size)
    near = difflib.get_close_matches(name.lower(), model_names(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ConfigError(
        f"model={name}: no such model{hint} Known are {', '.join(model_names())}, or a path to a .pt file."
    )


def _sizes(family: str) -> dict[str, dict[str, Any]]:
    return yaml.safe_load((cfg_dir() / "models" / f"{family}.yaml").read_text(encoding="utf-8"))
