"""Checkpoints as files: read safely, check, build the model in them. Nothing in a file is run."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from visiontrain.errors import WeightsError
from visiontrain.models import MODELS, build_model
from visiontrain.models.detector import Detector
from visiontrain.nn.norm import NORMS, alone, swap_norms

SCHEMA_VERSION = 1


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The content of one of our checkpoints, on the CPU: tensors and plain values only.

    Raises:
        WeightsError: no such file, not a checkpoint of ours, or of a newer version.
    """
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"{path}: no such checkpoint. Give the path of a last.pt or best.pt of a run.")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, zipfile.BadZipFile, EOFError, RuntimeError, ValueError, KeyError) as error:
        raise WeightsError(
            f"{path}: not a checkpoint of visiontrain, or damaged; only tensors and plain values are read, and nothing "
            f"in a file is run ({type(error).__name__}: {str(error).splitlines()[0][:120]})."
        ) from error
    if not isinstance(content, dict) or "schema_version" not in content or "model" not in content:
        raise WeightsError(
            f"{path}: holds no visiontrain checkpoint (no schema_version). Give a last.pt or best.pt of a run."
        )
    version = content["schema_version"]
    if version != SCHEMA_VERSION:
        raise WeightsError(
            f"{path}: checkpoint schema {version}, this version reads {SCHEMA_VERSION}. "
            "Update visiontrain, or train again with this version."
        )
    return content


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
    if about["norm"] not in NORMS:
        raise WeightsError(
            f"{path}: normalisation {about['norm']!r} is not known here; known are {', '.join(NORMS)}. Update visiontrain."
        )
    model = build_model(about["name"], about["names"], about.get("class_width"))
    swap_norms(model, alone(about["norm"]))
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
