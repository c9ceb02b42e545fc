"""Checkpoints as files: read safely, check, build the model in them. Nothing in a file is run."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from visiontrain.config.sizes import is_exported
from visiontrain.errors import WeightsError
from visiontrain.models import MODELS, build_model, family_of, model_names
from visiontrain.models.archive import Archive
from visiontrain.models.detector import Detector
from visiontrain.models.exported import load_exported
from visiontrain.models.foreign import is_foreign, read_foreign
from visiontrain.models.megvii import is_megvii, read_megvii
from visiontrain.models.network import Network
from visiontrain.models.pickled import Refused, printable
from visiontrain.models.published import catalogue
from visiontrain.models.safetensors import read_safetensors
from visiontrain.models.techlab import is_techlab, read_techlab
from visiontrain.nn.norm import NORMS, alone, swap_norms
from visiontrain.nn.pooling import set_sppf_activation

SCHEMA_VERSION = 1
# What every checkpoint has; the rest is looked at where it is used.
_KINDS: dict[str, type] = {
    "kind": str,
    "settings": dict,
    "weights": dict,
    "model": dict,
    "model.family": str,
    "model.name": str,
    "model.names": list,
    "model.norm": str,
}


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU: tensors and plain values only.

    Args:
        path: one of ours, as .pt or .safetensors, or an Ultralytics .pt, YOLOX's .pth, or the MIT project's v9 .pt or .ckpt, whose
            content is given as that of one of ours.

    Raises:
        WeightsError: no such file, not a checkpoint, of a newer version, or one that is not safe to read.
    """
    path = Path(path)
    if is_exported(str(path)):
        raise WeightsError(
            f"{path}: an exported file. It can be validated, and pictures predicted with it; to train, resume, convert or "
            "export give the checkpoint that it was made from, a .pt file."
        )
    if not path.is_file():
        raise WeightsError(
            f"{path}: no such checkpoint. Give the path of a last.pt or best.pt of a run{_instead(path)}."
        )
    try:
        content = read_safetensors(path) if path.suffix == ".safetensors" else _read_archive(path)
    except Refused as refused:
        raise WeightsError(f"{path}: {refused}.") from refused
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error})") from error
    return _of_this_version(content, path)


def about_checkpoint(path: str | Path) -> dict[str, Any]:
    """What a checkpoint says of its model (docs/contracts.md); read once while the file stays as it is.

    Raises:
        WeightsError: as ``read_checkpoint``.
    """
    path = Path(path)
    version = (path.stat().st_mtime_ns, path.stat().st_size) if path.is_file() else None
    return dict(_about(path.absolute(), version))


@lru_cache(maxsize=4)
def _about(path: Path, version: tuple[int, int] | None) -> dict[str, Any]:
    about: dict[str, Any] = read_checkpoint(path)["model"]
    return about


def _instead(path: Path) -> str:
    """What else to write where a file that is not there has the name of a model."""
    if path.stem not in model_names():
        return ""
    free = [entry.name for entry in catalogue().values() if entry.family == family_of(path.stem)]
    listed = (
        f"or for free weights one of {', '.join(free)}" if free else "no weights of it are published that are fetched"
    )
    return f", or write {path.stem} to start from scratch; {listed}"


def _read_archive(path: Path) -> Any:
    with Archive(path) as archive:
        content = archive.content()
        if is_megvii(content):
            return read_megvii(content, archive)
        if is_techlab(content):
            return read_techlab(content, archive)
        return read_foreign(content, archive) if is_foreign(content) else archive.plain(content)


def _of_this_version(content: Any, path: Path) -> dict[str, Any]:
    if not isinstance(content, dict) or "schema_version" not in content or "model" not in content:
        raise WeightsError(
            f"{path}: holds no visiontrain checkpoint (no schema_version), nor a model of Ultralytics, of YOLOX or of YOLOv9's MIT "
            "project as their trainers write it. Give a last.pt or best.pt of a run."
        )
    version = content["schema_version"]
    if version != SCHEMA_VERSION:
        raise WeightsError(
            f"{path}: checkpoint schema {version}, this version reads {SCHEMA_VERSION}. "
            "Update visiontrain, or train again with this version."
        )
    wrong = [name for name, kind in _KINDS.items() if not isinstance(_part(content, name), kind)]
    if not wrong and not all(isinstance(name, str) for name in content["model"]["names"]):
        wrong.append("model.names")
    wrong += [name for name in ("weights", "ema") if name not in wrong and not _are_tensors(content.get(name, {}))]
    if wrong or (content["kind"] == "training" and "ema" not in content):
        raise WeightsError(
            f"{path}: no checkpoint of visiontrain, or damaged: {wrong[0] if wrong else 'ema'} is not there."
        )
    return content


def _part(content: dict[str, Any], name: str) -> Any:
    outer, _, inner = name.partition(".")
    value = content.get(outer)
    return value.get(inner) if inner and isinstance(value, dict) else value


def _are_tensors(weights: dict[str, Any]) -> bool:
    return all(isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in weights.items())


def licence_sentence(model: Network) -> str:
    """What is to be told of weights that came from elsewhere; empty for those that were trained here from scratch."""
    if not model.licence:
        return ""
    stored = "" if model.licence.endswith(")") else " (as stored in the file)"
    return (
        f"{model.name}, {len(model.class_names)} classes, weights that came from elsewhere, licence {model.licence}{stored}; "
        "weights under that licence keep it, also when they are trained on."
    )


def load_network(path: str | Path) -> tuple[Network, dict[str, Any]]:
    """What a file detects with, on the CPU and in evaluation mode, and the settings of its training.

    Raises:
        WeightsError: the file cannot be used.
    """
    if is_exported(str(path)):
        return load_exported(Path(path))
    content = read_checkpoint(path)
    model = model_of(content, path)
    model.leave_out_auxiliary()
    return model, content["settings"]


def load_model(path: str | Path) -> Detector:
    """The model to evaluate: the moving average of a training checkpoint, or the weights of a finished one."""
    return model_of(read_checkpoint(path), path)


def model_of(content: dict[str, Any], path: str | Path) -> Detector:
    """Build the model that a checkpoint's content describes and fill it.

    Raises:
        WeightsError: an unknown family or normalisation, or weights that do not fit.
    """
    about = content["model"]
    if about["family"] not in MODELS:
        raise WeightsError(
            f"{path}: model family {about['family']!r} is not known here; known are {', '.join(MODELS)}."
        )
    if about["name"] not in model_names():
        raise WeightsError(f"{path}: model {about['name']!r} is not known here; known are {', '.join(model_names())}.")
    if about["norm"] not in NORMS:
        raise WeightsError(
            f"{path}: normalisation {about['norm']!r} is not known here; known are {', '.join(NORMS)}. Update visiontrain."
        )
    model = build_model(about["name"], about["names"], about.get("class_width"), bool(about.get("auxiliary")))
    swap_norms(model, alone(about["norm"]))
    if "sppf_activation" in about:  # older checkpoints are of a family that always has one
        set_sppf_activation(model, bool(about["sppf_activation"]))
    model.licence = printable(str(about.get("licence", "")), 100)
    fill(model, content["ema"] if content["kind"] == "training" else content["weights"], path)
    return model.eval()


def fill(model: torch.nn.Module, weights: dict[str, torch.Tensor], path: str | Path) -> None:
    """Load every tensor; a missing, foreign or misshapen one is an error, never skipped.

    Raises:
        WeightsError: the weights do not fit the model.
    """
    try:
        model.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        lines = str(error).splitlines()
        raise WeightsError(f"{path}: the weights do not fit the model:\n" + "\n".join(lines[1:6])) from error
