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
from visiontrain.models.foreign import DEFAULT_IMGSZ, LONGEST_NAME, MOST_CLASS_WIDTH, MOST_CLASSES, MOST_LAYERS
from visiontrain.models.pickled import Refused, StoredTensor, printable
from visiontrain.models.yolov9 import HEAD
from visiontrain.paths import datasets_dir

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
    wrong = next((name for name, tensor in state.items() if type(tensor) is not StoredTensor), "")
    if wrong:
        raise Refused(f"its model has a weight that is no tensor, {printable(wrong, 80)}")
    for name, tensor in state.items():
        if _BINS.search(name) and not torch.equal(archive.tensor(tensor).flatten(), torch.arange(16.0)):
            raise Refused(f"the bins of its distances are not 0 to 15 ({printable(name, 80)})")
    stored = {_our_name(name): tensor for name, tensor in state.items() if not _BINS.search(name)}
    model = _fitting({name: tensor.shape for name, tensor in stored.items()})
    model.licence = LICENCE
    return {
        "schema_version": 1,
        "kind": "model",
        "model": model.description() | {"imgsz": DEFAULT_IMGSZ},
        "settings": {"imgsz": DEFAULT_IMGSZ},
        "given": [],
        "data_fingerprint": "",
        "versions": {},
        "weights": _unsaid(model) | {name: _float(archive.tensor(tensor)) for name, tensor in stored.items()},
    }


def class_names(classes: int) -> list[str]:
    """COCO's where there are 80, for the file names none; else class0, class1, ..."""
    if classes != 80:
        return [f"class{number}" for number in range(classes)]
    import yaml

    text = (datasets_dir() / "coco.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load(text)["names"].values())


def _state(content: Any) -> dict[str, Any]:
    """The state dict by their names, empty if there is none."""
    if not isinstance(content, dict):
        return {}
    for state, start in ((content, ""), *((content.get(key), start) for key, start in PLACES)):
        if isinstance(state, dict) and start + FIRST in state:
            if len(state) > MOST_LAYERS or not all(type(k) is str and len(k) <= LONGEST_NAME for k in state):
                raise Refused(f"its model has more than {MOST_LAYERS:,} weights, or some not named by short text")
            return {name.removeprefix(start): tensor for name, tensor in state.items() if name.startswith(start)}
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
    names, helped = class_names(last[0]), any(name.startswith("auxiliary.") for name in shapes)
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


def _float(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
