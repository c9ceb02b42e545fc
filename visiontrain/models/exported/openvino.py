"""OpenVINO folders, NAME_openvino_model/ with .xml, .bin and metadata.yaml, run by OpenVINO on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import torch
import yaml
from torch import Tensor

from visiontrain.errors import ConfigError, WeightsError
from visiontrain.models.exported.metadata import Metadata, from_values
from visiontrain.models.exported.network import Run

METADATA = "metadata.yaml"


def open_openvino(path: Path) -> tuple[Metadata, Run]:
    """What the folder says of itself, and how it is run.

    Raises:
        ConfigError: openvino is not installed.
        WeightsError: OpenVINO cannot read the model, or the folder is not one of ours.
    """
    models = sorted(path.glob("*.xml"))
    if len(models) != 1 or not (path / METADATA).is_file():
        raise WeightsError(f"{path}: an exported folder holds one .xml, its .bin and {METADATA}; export it again.")
    try:
        values = yaml.safe_load((path / METADATA).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise WeightsError(f"{path}: {METADATA} cannot be read ({error}); export it again.") from error
    metadata = from_values(values if isinstance(values, dict) else {}, path)
    openvino = import_openvino(str(path))
    # In full precision: on some processors OpenVINO would compute in bfloat16.
    options = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": "f32"}
    try:
        compiled = openvino.Core().compile_model(models[0], "CPU", options)
    except RuntimeError as error:
        raise WeightsError(f"{path}: OpenVINO cannot read it: {str(error).strip().splitlines()[-1]}") from error

    def run(images: Tensor) -> Tensor:
        return torch.from_numpy(compiled(images.numpy(force=True))[0].copy())

    return metadata, run


def import_openvino(what: str) -> ModuleType:
    """The package, without its telemetry, which would send that it was imported and make a folder in the user's home.

    Raises:
        ConfigError: it is not installed; ``what`` needs it.
    """
    told = sys.modules.get("openvino_telemetry")
    if told is None:
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # as if not installed: it then does without
    try:
        import openvino
    except ImportError as error:
        raise ConfigError(f"{what}: needs openvino; pip install 'visiontrain[openvino]'") from error
    finally:
        if told is None:
            del sys.modules["openvino_telemetry"]
    return openvino
