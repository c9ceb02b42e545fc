"""What a checkpoint of MultimediaTechLab's YOLO (the MIT project) means: a state dict by other names, read as one of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from visiontrain.models import build_model, model_names
from visiontrain.models.archive import Archive
from visiontrain.models.detector import Detector
from visiontrain.models.foreign import (
    DEFAULT_IMGSZ,
    MOST_CLASS_WIDTH,
    MOST_CLASSES,
    as_ours,
    tensors_of,
    unnamed_classes,
)
from visiontrain.models.pickled import Refused, printable
from visiontrain.models.yolov9 import HEAD

LICENCE = "MIT (of the published weights; the file names none)"
FIRST = "0.conv.weight"
# Where a state dict lies in a file, and what stands before its names: alone, or as training leaves it, the average first.
PLACES = (("model_state_dict", ""), ("state_dict", "ema.model."), ("state_dict", "model.model."))
_CLASSES, _WIDTH = (f"model.{HEAD}.cv3.0.{place}.weight" for place in ("2", "1.conv"))
_BINS = re.compile(r"\.heads\.\d\.anc2vec\.")
_RENAMED = (
    (re.compile(r"\bconv5\."), "cv2."),  # of the pooling block, whose others are pools
    (re.compile(r"\bconv(\d)\."), r"cv\1."),
    (re.compile(r"\bbottleneck\."), "m."),
    (re.compile(r"\bheads\.(\d)\.anchor_conv\."), r"cv2.\1."),
    (re.compile(r"\bheads\.(\d)\.class_conv\."), r"cv3.\1."),
)


def is_techlab(content: Any) -> bool:
    """Whether a file's content is a state dict whose layers are numbers, alone or as their training leaves it."""
    return bool(_state(content))


def read_techlab(content: Mapping[str, Any], archive: Archive) -> dict[str, Any]:
    """Its content as that of a checkpoint of ours, the weights in float32; auxiliary layers are read where it has them.

    Raises:
        Refused: not the layers of a yolov9 here.
    """
    state = _state(content)
    for name, tensor in state.items():
        if _BINS.search(name) and not torch.equal(archive.tensor(tensor).flatten(), torch.arange(16.0)):
            raise Refused(f"the bins of its distances are not 0 to 15 ({printable(name, 80)})")
    stored = {_our_name(name): tensor for name, tensor in state.items() if not _BINS.search(name)}
    model = _fitting({name: tensor.shape for name, tensor in stored.items()})
    model.licence = LICENCE
    made = as_ours(model, DEFAULT_IMGSZ, stored, archive)
    made["weights"] = _unsaid(model) | made["weights"]
    return made


def _state(content: Any) -> dict[str, Any]:
    """The state dict by their names, empty if there is none."""
    if not isinstance(content, dict):
        return {}
    for state, start in ((content, ""), *((content.get(key), start) for key, start in PLACES)):
        if isinstance(state, dict) and start + FIRST in state:
            state = tensors_of(
                {k: v for k, v in state.items() if not start or (type(k) is str and k.startswith(start))}
            )
            return {name.removeprefix(start): tensor for name, tensor in state.items()}
    return {}


def _our_name(name: str) -> str:
    number, _, rest = name.partition(".")
    for pattern, ours in _RENAMED:
        rest = pattern.sub(ours, rest)
    return f"{'auxiliary' if number.isdecimal() and int(number) > HEAD else 'model'}.{number}.{rest}"


def _fitting(shapes: Mapping[str, tuple[int, ...]]) -> Detector:
    """The model, without memory of its own, whose weights have these names and shapes."""
    last, inside = shapes.get(_CLASSES, ()), shapes.get(_WIDTH, ())
    if len(last) != 4 or len(inside) != 4 or not 0 < last[0] <= MOST_CLASSES or inside[0] > MOST_CLASS_WIDTH:
        raise Refused(f"its layer {HEAD} is no head of a YOLOv9 (22.heads.0.class_conv), so its classes are not known")
    names, helped = unnamed_classes(last[0]), any(name.startswith("auxiliary.") for name in shapes)
    nearest: list[tuple[int, str, str]] = []
    for name in model_names("yolov9"):
        with torch.device("meta"):
            model = build_model(name, names, inside[0], helped)
        ours = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
        theirs = {key: ours[key] for key in _unsaid(model)} | dict(shapes)
        different = sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key))
        if not different:
            return model
        nearest.append((len(different), name, different[0]))
    count, name, key = min(nearest)
    raise Refused(
        f"its {len(shapes)} tensors ({last[0]} classes) are those of no yolov9 here; nearest is {name}, of which {count} differ, "
        f"the first {printable(key, 80)}. Known are {', '.join(model_names('yolov9'))}"
    )


def _unsaid(model: Detector) -> dict[str, Tensor]:
    """What a file need not have: bins by our name, and how many batches a BatchNorm has seen, which nothing depends on."""
    ends = {"dfl.conv.weight": torch.arange(16.0).view(1, 16, 1, 1), "num_batches_tracked": torch.tensor(0)}
    return {name: made for name in model.state_dict() for end, made in ends.items() if name.endswith(end)}
