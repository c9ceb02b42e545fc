"""Model families. MODELS maps a family to its class; a model's name is the family and a size: yolov8n, yolox_s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from visiontrain.config.sizes import COUNTED, no_auxiliary, no_such_model, read_sizes
from visiontrain.models.backbones import ConvNeXt, ResNet
from visiontrain.models.detector import Detector
from visiontrain.models.yolo11 import YOLO11
from visiontrain.models.yolo26 import YOLO26
from visiontrain.models.yolov8 import YOLOv8
from visiontrain.models.yolov9 import YOLOv9
from visiontrain.models.yolox import YOLOX

MODELS: dict[str, type[Detector]] = {
    "convnext": ConvNeXt,
    "resnet": ResNet,
    "yolo11": YOLO11,
    "yolo26": YOLO26,
    "yolov8": YOLOv8,
    "yolov9": YOLOv9,
    "yolox": YOLOX,
}


def model_names(*families: str) -> list[str]:
    """Every name that ``build_model`` takes; of these families alone."""
    return [family + size for family in families or MODELS for size in _sizes(family)]


def build_model(
    name: str, class_names: Sequence[str], class_width: int | None = None, auxiliary: bool = False
) -> Detector:
    """A model with fresh weights, drawn from torch's random state.

    Args:
        name: family and size, for example yolov8n.
        class_names: one for each class.
        class_width: channels inside the class branch; None: as fits the classes.
        auxiliary: with the layers that help in training alone.

    Raises:
        ConfigError: no such family or size, or one that has no such layers.
    """
    family = family_of(name)
    kind, size = MODELS[family], _sizes(family)[name.removeprefix(family)]
    if auxiliary and not kind.has_auxiliary:
        raise no_auxiliary(name, model_names(*(other for other in MODELS if MODELS[other].has_auxiliary)))
    asked = {"class_width": class_width, "auxiliary": auxiliary}
    return kind(name, class_names, **size, **{key: value for key, value in asked.items() if value})


def family_of(name: str) -> str:
    """The family that a model's name begins with.

    Raises:
        ConfigError: no such family or size.
    """
    for family in MODELS:
        if name.startswith(family) and name.removeprefix(family) in _sizes(family):
            return family
    raise no_such_model(name, model_names())


def _sizes(family: str) -> dict[str, dict[str, Any]]:
    sizes = read_sizes(family)
    return {name: {key: value for key, value in size.items() if key != COUNTED} for name, size in sizes.items()}
