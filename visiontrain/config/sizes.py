"""The sizes of the model families, and what is known of a model by its name alone: nothing is built, no torch."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from visiontrain.errors import ConfigError
from visiontrain.paths import cfg_dir

COUNTED = "counted"  # the key beside a size's settings
CLASSES = 80  # that the counts in the files are of
CHECKPOINTS = (".pt", ".safetensors")  # how the name of a checkpoint of ours ends
FOREIGN = (".pth",)  # and those of others, beside .pt
# And that of an exported file.
EXPORTED = {"onnx": ".onnx", "torchscript": ".torchscript", "openvino": "_openvino_model"}


@dataclass(frozen=True, slots=True)
class Counts:
    """Of a model with so many ``classes``: trainable ``parameters``, and ``channels`` of all its BatchNorms together."""

    name: str
    classes: int
    parameters: int
    channels: int


def read_sizes(family: str) -> dict[str, dict[str, Any]]:
    """Everything that cfg/models says of a family, by size."""
    import yaml  # only now: most commands ask for no size

    content: dict[str, dict[str, Any]] = yaml.safe_load(
        (cfg_dir() / "models" / f"{family}.yaml").read_text(encoding="utf-8")
    )
    return content


def families() -> list[str]:
    """The families there are."""
    return [file.stem for file in sorted((cfg_dir() / "models").glob("*.yaml"))]


def model_names() -> list[str]:
    """Every family with every size, for example yolov8n."""
    return [family + size for family in families() for size in read_sizes(family)]


def counts_of(name: str, classes: int = CLASSES) -> Counts:
    """What a model holds, by its name.

    Args:
        name: family and size, for example yolov8n.
        classes: that it tells apart.

    Raises:
        ConfigError: no such family or size.
    """
    known = {family + size: entry[COUNTED] for family in families() for size, entry in read_sizes(family).items()}
    if name not in known:
        raise no_such_model(name, list(known))
    counted = known[name]
    branch, heads = counted.get("branch", "plain"), counted.get("heads", 1)
    (parameters, channels), (same, as_many) = (
        class_branches(counted["head"], n, branch, heads) for n in (classes, CLASSES)
    )
    return Counts(name, classes, counted["parameters"] + parameters - same, counted["norms"] + channels - as_many)


def family_named(name: str) -> str:
    """The family whose size a model's name is; empty where there is none."""
    return next((f for f in families() if name.startswith(f) and name.removeprefix(f) in read_sizes(f)), "")


def class_branches(head: Sequence[int], classes: int, branch: str = "plain", heads: int = 1) -> tuple[int, int]:
    """Parameters and BatchNorm channels of what alone depends on the number of classes (nn/head.py).

    Args:
        head: channels of the levels.
        classes: the number of them.
        branch: plain: on each level two 3x3 convolutions; depthwise: twice a depth-wise 3x3 and a 1x1 one; with BatchNorm,
            and then a 1x1 convolution with bias. fixed: of the branch that last one alone depends on the classes.
        heads: so many, all alike.
    """
    if branch == "fixed":
        return sum((level + 1) * classes for level in head), 0
    width = max(head[0], min(classes, 100))
    if branch == "plain":
        each = [(9 * width * (level + width), 2 * width) for level in head]
    else:
        each = [(9 * (level + width) + width * (level + width), level + 3 * width) for level in head]
    parameters = sum(weights + 2 * channels + (width + 1) * classes for weights, channels in each)
    return heads * parameters, heads * sum(channels for _, channels in each)


def is_checkpoint(model: str) -> bool:
    """Whether ``model`` is the path of a checkpoint or an exported file; else it is the name of a family and size."""
    return model.endswith((*CHECKPOINTS, *FOREIGN)) or is_exported(model)


def is_exported(model: str) -> bool:
    """Whether ``model`` is the path of an exported file, or of the folder that OpenVINO has."""
    return model.rstrip("/\\").endswith(tuple(EXPORTED.values()))


def no_such_model(name: str, known: Sequence[str]) -> ConfigError:
    """The error about a name that is neither a model nor a checkpoint."""
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return ConfigError(
        f"model={name}: no such model{hint} Known are {', '.join(known)}, or a path to a .pt, .pth or .safetensors file."
    )
