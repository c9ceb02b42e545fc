"""What a checkpoint of Ultralytics means: which model, its classes, its weights, the licence in it. Their code is not needed.

Such a file stores the model as objects of their classes. They are read as records (pickled.py), and which model they make up
is decided by the names and shapes of its weights alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import nn

from visiontrain.config.sizes import counts_of
from visiontrain.models import build_model, model_names
from visiontrain.models.archive import DEEPEST, Archive
from visiontrain.models.detector import Detector
from visiontrain.models.pickled import Refused, StoredTensor, Thing, printable
from visiontrain.nn.pooling import set_sppf_activation
from visiontrain.paths import datasets_dir

MOST_LAYERS, LONGEST_NAME, MOST_CLASSES = 10_000, 200, 100_000  # layers, and likewise weights
FAMILIES = ("yolo11", "yolo26", "yolov8")  # that their files hold
UNKNOWN_LICENCE = "unknown: the file names none"
DEFAULT_IMGSZ = 640
MOST_CLASS_WIDTH = 4096
_LAST_OF_CLASS_BRANCH = re.compile(r"\.cv3\.0\.2\.weight$")

# Of layers that have weights or none: what changes their result and is not seen in the shapes.
_MATTERS = {
    "Conv2d": ("stride", "padding", "dilation", "groups"),
    "BatchNorm2d": ("eps",),
    "MaxPool2d": ("kernel_size", "stride", "padding"),
}


def is_foreign(content: Any) -> bool:
    """Whether a file's content has a model stored as an object, as Ultralytics writes it."""
    return isinstance(content, dict) and any(type(content.get(key)) is Thing for key in ("ema", "model"))


def read_foreign(content: Mapping[str, Any], archive: Archive) -> dict[str, Any]:
    """The content of an Ultralytics checkpoint as that of one of ours, its weights in float32.

    Raises:
        Refused: a model that is none of MODELS, or built in another way, or a fused export.
    """
    root = _detector(content["ema"] if type(content.get("ema")) is Thing else content["model"])
    layers = _layers(root)
    stored = _weights(layers)
    shapes = {name: tensor.shape for name, tensor in stored.items()}
    model = fitting(shapes, _class_names(root), _text(content.get("version")), FAMILIES)
    _require_same_layers(model, layers)
    strides = root.state.get("stride")
    if type(strides) is not StoredTensor or archive.tensor(strides).max().item() != model.stride:
        raise Refused(f"its strides are not known or do not end with {model.stride}")
    model.licence = _text(content.get("license")) or UNKNOWN_LICENCE
    imgsz = _imgsz(content.get("train_args"))
    versions = {"ultralytics": _text(content.get("version"))}
    return as_ours(model, imgsz, stored, archive, versions)


def as_ours(
    model: Detector, imgsz: int, stored: Mapping[str, StoredTensor], archive: Archive, versions: Mapping[str, str] = {}
) -> dict[str, Any]:
    """The content of a checkpoint of ours that holds this model, with the weights of another's file in float32."""
    tensors = {name: archive.tensor(tensor) for name, tensor in stored.items()}
    return {
        "schema_version": 1,
        "kind": "model",
        "model": model.description() | {"imgsz": imgsz},
        "settings": {"imgsz": imgsz},
        "given": [],
        "data_fingerprint": "",
        "versions": dict(versions),
        "weights": {name: t.float() if t.is_floating_point() else t for name, t in tensors.items()},
    }


def tensors_of(state: Mapping[Any, Any]) -> dict[str, StoredTensor]:
    """A state dict that is one.

    Raises:
        Refused: too many weights, names that are no short text, or a weight that is no tensor.
    """
    if len(state) > MOST_LAYERS:
        raise Refused(f"its model has more than {MOST_LAYERS:,} weights")
    if not all(type(name) is str and len(name) <= LONGEST_NAME for name in state):
        raise Refused("its model has a weight that is not named by short text")
    wrong = next((name for name, tensor in state.items() if type(tensor) is not StoredTensor), "")
    if wrong:
        raise Refused(f"its model has a weight that is no tensor, {printable(wrong, 80)}")
    return dict(state)


def unnamed_classes(count: int) -> list[str]:
    """Of a file that names none: COCO's where there are 80, else class0, class1, ..."""
    if count != 80:
        return [f"class{number}" for number in range(count)]
    import yaml

    text = (datasets_dir() / "coco.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load(text)["names"].values())


def _detector(root: Thing) -> Thing:
    """The model itself; distillation wraps it."""
    root = _children(root).get("student_model", root)
    if type(root) is not Thing or root.kind.name != "DetectionModel":
        raise Refused(f"it holds a {getattr(root, 'kind', type(root).__name__)}; of theirs, DetectionModel is read")
    return root


def _layers(root: Thing) -> dict[str, Thing]:
    """All layers by their paths, as torch names them."""
    found: dict[str, Thing] = {}
    todo = [("", root)]
    while todo:
        path, layer = todo.pop()
        found[path] = layer
        children = _children(layer)
        if len(found) + len(todo) + len(children) > MOST_LAYERS or path.count(".") > DEEPEST:
            raise Refused(
                f"its model has more than {MOST_LAYERS:,} layers, or they are nested more than {DEEPEST} deep"
            )
        todo += [(_join(path, name), child) for name, child in children.items()]
    return found


def _children(layer: Thing) -> dict[str, Thing]:
    children = {name: child for name, child in _table(layer, "_modules").items() if child is not None}
    if not all(type(child) is Thing for child in children.values()):
        raise Refused("its model has a layer that is none")
    return children


def _table(layer: Thing, name: str) -> dict[str, Any]:
    """One of the tables that torch keeps in a layer."""
    state = layer.state
    table = state.get(name, {}) if type(state) is dict else None
    if type(table) is not dict or not all(type(key) is str and len(key) <= LONGEST_NAME for key in table):
        raise Refused(f"its model has a {layer.kind} without the tables of a layer")
    return table


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _weights(layers: Mapping[str, Thing]) -> dict[str, StoredTensor]:
    """Parameters and buffers by the names of a state dict."""
    found: dict[str, StoredTensor] = {}
    for path, layer in layers.items():
        passing = layer.state.get("_non_persistent_buffers_set")
        passing = passing if type(passing) is set else set()
        tables = _table(layer, "_parameters") | {
            name: buffer for name, buffer in _table(layer, "_buffers").items() if name not in passing
        }
        if len(found) + len(tables) > MOST_LAYERS:
            raise Refused(f"its model has more than {MOST_LAYERS:,} weights")
        found |= {_join(path, name): tensor for name, tensor in tables.items() if tensor is not None}
    if not all(type(tensor) is StoredTensor for tensor in found.values()):
        raise Refused("its model has a weight that is no tensor")
    fused = next((name for name in found if name.endswith(".conv.bias")), "")
    if fused:
        raise Refused(
            f"its BatchNorm is folded into the convolutions ({printable(fused, 80)} is there): a fused export, which cannot be trained "
            "or taken apart again. Give the checkpoint that it was made from"
        )
    return found


def _class_names(root: Thing) -> list[str]:
    names = root.state.get("names")
    listed = [names.get(number) for number in range(len(names))] if type(names) is dict else names
    if type(listed) is not list or not 0 < len(listed) <= MOST_CLASSES:
        raise Refused("it does not name its classes")
    if not all(type(name) is str and len(name) <= LONGEST_NAME for name in listed):
        raise Refused("its classes are not named by short text, numbered from 0")
    return listed


def fitting(
    shapes: Mapping[str, tuple[int, ...]], class_names: list[str], version: str, families: Sequence[str]
) -> Detector:
    """The model of one of the families, without memory of its own, whose weights have these names and shapes.

    Raises:
        Refused: there is none.
    """
    nearest: tuple[int, str, str] | None = None
    parameters = sum(prod(shape) for name, shape in shapes.items() if name.endswith((".weight", ".bias")))
    width = next(
        (shape[1] for name, shape in shapes.items() if _LAST_OF_CLASS_BRANCH.search(name) and len(shape) == 4), 0
    )
    if width > MOST_CLASS_WIDTH:
        raise Refused(f"its class branch is {width:,} channels wide; {MOST_CLASS_WIDTH:,} are read at most")
    known = model_names(*families)
    likely = sorted(known, key=lambda name: abs(counts_of(name, len(class_names)).parameters - parameters))
    for name in likely:
        with torch.device("meta"):
            model = build_model(name, class_names, width)
        ours = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
        different = sorted(key for key in shapes.keys() | ours.keys() if shapes.get(key) != ours.get(key))
        if not different:
            return model
        nearest = min(nearest or (len(different), name, different[0]), (len(different), name, different[0]))
    count, name, key = nearest or (0, "", "")
    raise Refused(
        f"its {len(shapes)} tensors ({len(class_names)} classes, version {version or 'unknown'}) are those of no model here; nearest is "
        f"{name}, of which {count} differ, the first {printable(key, 80)}. Known are {', '.join(known)}"
    )


def _require_same_layers(model: Detector, layers: Mapping[str, Thing]) -> None:
    """What shapes do not tell: activations, strides, eps. SPPF's first activation differs between files and is taken over."""
    sppf = next((path for path, layer in layers.items() if layer.kind.name == "SPPF"), "none")
    first = f"{sppf}.cv1.act"
    if first in layers:
        _require_activation(first, layers[first], ("SiLU", "Identity"))
        set_sppf_activation(model, layers[first].kind.name == "SiLU")
    for path, ours in model.named_modules():
        theirs = layers.get(path)
        if theirs is None:
            continue
        if isinstance(ours, nn.SiLU | nn.Identity):
            _require_activation(path, theirs, (type(ours).__name__,))
        shortcut = getattr(ours, "shortcut", None)
        if shortcut is not None and theirs.state.get("add", shortcut) != shortcut:
            raise Refused(f"its {path} adds its input where {model.name} does not, or the other way round")
        for name in _MATTERS.get(theirs.kind.name, ()):
            if theirs.state.get(name) != getattr(ours, name, None):
                said = (
                    str(theirs.state.get(name))[:40] if type(theirs.state.get(name)) in (int, float, str) else "another"
                )
                raise Refused(f"its {path} has {said} {name}, {model.name} has {getattr(ours, name, None)}")


def _require_activation(path: str, layer: Thing, allowed: tuple[str, ...]) -> None:
    if layer.kind.name not in allowed:
        raise Refused(f"its {path} is {printable(layer.kind.name, 40)}, here it is {' or '.join(allowed)}")


def _imgsz(train_args: Any) -> int:
    """The size it was trained at, where that is one that is possible here."""
    size = train_args.get("imgsz") if type(train_args) is dict else None
    return size if type(size) is int and 32 <= size <= 8192 and size % 32 == 0 else DEFAULT_IMGSZ


def _text(value: Any) -> str:
    return printable(value, 100) if type(value) is str else ""
