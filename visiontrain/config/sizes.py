"""The sizes of the model families, and what is known of a model by its name alone: nothing is built, no torch."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from visiontrain.errors import ConfigError
from visiontrain.paths import cfg_dir

COUNTED = "counted"  # the key beside a size's settings
AUXILIARY = "auxiliary"  # and inside, for what layers that help in training add
CLASSES = 80  # that the counts in the files are of
CHECKPOINTS = (".pt", ".safetensors")  # how the name of a checkpoint of ours ends
FOREIGN = (".pth", ".ckpt")  # and those of others, beside .pt
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


def counts_of(name: str, classes: int = CLASSES, auxiliary: bool = False) -> Counts:
    """What a model holds, by its name.

    Args:
        name: family and size, for example yolov8n.
        classes: that it tells apart.
        auxiliary: with the layers that help in training alone.

    Raises:
        ConfigError: no such family or size, or one that has no such layers.
    """
    known = {family + size: entry[COUNTED] for family in families() for size, entry in read_sizes(family).items()}
    if name not in known:
        raise no_such_model(name, list(known))
    if auxiliary and AUXILIARY not in known[name]:
        raise no_auxiliary(name, [model for model, counted in known.items() if AUXILIARY in counted])
    parts = [known[name], *([known[name] | known[name][AUXILIARY]] if auxiliary else [])]
    parameters, channels = map(sum, zip(*(_counted(part, classes) for part in parts), strict=True))
    return Counts(name, classes, parameters, channels)


def family_named(name: str) -> str:
    """The family whose size a model's name is; empty where there is none."""
    return next((f for f in families() if name.startswith(f) and name.removeprefix(f) in read_sizes(f)), "")


def _counted(counted: dict[str, Any], classes: int) -> tuple[int, int]:
    """Parameters and BatchNorm channels of a part with another number of classes than was counted."""
    shape = counted["head"], counted.get("branch", "plain"), counted.get("heads", 1), counted.get("widen", (1, 100))
    (parameters, channels), (same, as_many) = (class_branches(n, *shape) for n in (classes, CLASSES))
    return counted["parameters"] + parameters - same, counted["norms"] + channels - as_many


def class_branches(
    classes: int, head: Sequence[int], branch: str = "plain", heads: int = 1, widen: Sequence[int] = (1, 100)
) -> tuple[int, int]:
    """Parameters and BatchNorm channels of what alone depends on the number of classes (nn/head.py).

    Args:
        classes: the number of them.
        head: channels of the levels.
        branch: plain: on each level two 3x3 convolutions; depthwise: twice a depth-wise 3x3 and a 1x1 one; with BatchNorm,
            and then a 1x1 convolution with bias. fixed: of the branch that last one alone depends on the classes.
        heads: so many, all alike.
        widen: the branch is so many times the classes wide, at most so many channels; at least as the first level.
    """
    if branch == "fixed":
        return sum((level + 1) * classes for level in head), 0
    width = max(head[0], min(widen[0] * classes, widen[1]))
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


def no_auxiliary(name: str, known: Sequence[str]) -> ConfigError:
    """The error about a model that has no layers which help in training alone."""
    return ConfigError(
        f"auxiliary=true: {name} has no auxiliary head; leave it out. Those that have one: {', '.join(known)}."
    )


def no_such_model(name: str, known: Sequence[str]) -> ConfigError:
    """The error about a name that is neither a model nor a checkpoint."""
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return ConfigError(
        f"model={name}: no such model{hint} Known are {', '.join(known)}, or a path to a .pt, .pth, .ckpt or .safetensors file."
    )
