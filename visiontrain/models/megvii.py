"""What a checkpoint of YOLOX's authors (Megvii) means: a state dict by other names, read as the content of one of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from visiontrain.models.archive import Archive
from visiontrain.models.foreign import MOST_CLASSES, as_ours, fitting, tensors_of, unnamed_classes
from visiontrain.models.pickled import Refused, StoredTensor

LICENCE = "Apache-2.0 (of the published weights; the file names none)"
STEM, CLASSES = "backbone.backbone.stem.conv.conv.weight", "head.cls_preds.0.weight"
WHITE = 255.0  # pixels are in 0..255 there
SMALL = ("yolox_nano", "yolox_tiny")
SMALL_IMGSZ, IMGSZ = 416, 640  # that they were trained at
# Their layers by our numbers.
LAYERS = {
    "backbone.backbone.stem.conv": 0,
    "backbone.backbone.dark2.0": 1,
    "backbone.backbone.dark2.1": 2,
    "backbone.backbone.dark3.0": 3,
    "backbone.backbone.dark3.1": 4,
    "backbone.backbone.dark4.0": 5,
    "backbone.backbone.dark4.1": 6,
    "backbone.backbone.dark5.0": 7,
    "backbone.backbone.dark5.1": 8,
    "backbone.backbone.dark5.2": 9,
    "backbone.lateral_conv0": 10,
    "backbone.C3_p4": 13,
    "backbone.reduce_conv1": 14,
    "backbone.C3_p3": 17,
    "backbone.bu_conv2": 18,
    "backbone.C3_n3": 20,
    "backbone.bu_conv1": 21,
    "backbone.C3_n4": 23,
    "head": 24,
}
_BEGINNING = re.compile("|".join(sorted(map(re.escape, LAYERS), key=len, reverse=True)) + r"(?=\.)")
_INNER = re.compile(r"\.conv([123])\.")


def is_megvii(content: Any) -> bool:
    """Whether a file's content is a YOLOX as its authors store it: {"model": state dict}, with or without what training had."""
    return isinstance(content, dict) and isinstance(content.get("model"), dict) and STEM in content["model"]


def read_megvii(content: Mapping[str, Any], archive: Archive) -> dict[str, Any]:
    """Its content as that of a checkpoint of ours, the weights in float32.

    Raises:
        Refused: not the layers of a model here.
    """
    state = tensors_of(content["model"])
    stored = {_our_name(name): tensor for name, tensor in state.items()}
    shapes = {name: tensor.shape for name, tensor in stored.items()} | {"model.0.white": ()}
    model = fitting(shapes, unnamed_classes(_classes(state)), "", ["yolox"])
    model.licence = LICENCE
    made = as_ours(model, SMALL_IMGSZ if model.name in SMALL else IMGSZ, stored, archive)
    first = for_our_pixels(made["weights"]["model.0.conv.weight"])
    made["weights"] |= {"model.0.conv.weight": first, "model.0.white": torch.tensor(WHITE)}
    return made


def for_our_pixels(weight: Tensor) -> Tensor:
    """(c, 12, k, k) of the first convolution, its input channels in the order that nn/conv.py's Focus has; exact.

    There: of the upper left, lower left, upper right and lower right pixels blue, green, red. Here: of red, green and blue the upper
    left, upper right, lower left and lower right pixels.
    """
    return weight[:, [3 * (2 * right + lower) + 2 - c for c in range(3) for lower in (0, 1) for right in (0, 1)]]


def _our_name(name: str) -> str:
    found = _BEGINNING.match(name)
    if not found:
        return name
    return f"model.{LAYERS[found[0]]}" + _INNER.sub(r".cv\1.", name[found.end() :])


def _classes(state: Mapping[str, StoredTensor]) -> int:
    predictor = state.get(CLASSES)
    if predictor is None or len(predictor.shape) != 4 or not 0 < predictor.shape[0] <= MOST_CLASSES:
        raise Refused(f"its number of classes is not known: {CLASSES} is not there, or has another shape")
    return predictor.shape[0]
