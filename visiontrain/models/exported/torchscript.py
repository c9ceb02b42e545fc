"""TorchScript files, run by torch. They hold code in TorchScript, a small language of its own, which loading and calling run."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import torch

from visiontrain.errors import WeightsError
from visiontrain.models.exported.metadata import Metadata, from_values
from visiontrain.models.exported.network import Run

INSIDE = "visiontrain.json"  # the extra file with the metadata


def open_torchscript(path: Path) -> tuple[Metadata, Run]:
    """What the file says of itself, and how it is run.

    Raises:
        WeightsError: torch cannot read the file, or it is not one of ours.
    """
    extra = {INSIDE: ""}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch means to give TorchScript up one day
            module = torch.jit.load(path, map_location="cpu", _extra_files=extra)
        values = json.loads(extra[INSIDE] or "{}")
    except (RuntimeError, ValueError) as error:
        raise WeightsError(f"{path}: torch cannot read it: {str(error).strip().splitlines()[0]}") from error
    return from_values(values, path), module.eval()
