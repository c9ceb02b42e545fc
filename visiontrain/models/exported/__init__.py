"""Exported files as networks that validation and prediction take. READERS: the end of a file's name -> who opens it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from visiontrain.config.sizes import EXPORTED, is_exported
from visiontrain.errors import ConfigError, WeightsError
from visiontrain.models.exported.metadata import Metadata
from visiontrain.models.exported.network import Exported, Run
from visiontrain.models.exported.onnx import open_onnx
from visiontrain.models.exported.openvino import open_openvino
from visiontrain.models.exported.torchscript import open_torchscript

READERS: dict[str, Callable[[Path], tuple[Metadata, Run]]] = {
    EXPORTED["onnx"]: open_onnx,
    EXPORTED["torchscript"]: open_torchscript,
    EXPORTED["openvino"]: open_openvino,
}


def load_exported(path: Path) -> tuple[Exported, dict[str, Any]]:
    """What an exported file detects with, on the CPU, and the settings that validation needs.

    Raises:
        ConfigError: the package that runs such files is not installed.
        WeightsError: the file cannot be used.
    """
    if not path.exists():
        raise WeightsError(f"{path}: no such file. visiontrain export model=W format=onnx writes one.")
    ending = next(ending for ending in READERS if str(path).endswith(ending))
    metadata, run = READERS[ending](path)
    return Exported(path, metadata, run), {**metadata.settings, "imgsz": metadata.imgsz}


def device_for(model: str, device: str) -> str:
    """The device that ``device=`` means for a model: exported files run on the CPU.

    Raises:
        ConfigError: another device is asked for an exported file.
    """
    if not is_exported(model):
        return device
    if device.lower() not in ("auto", "cpu"):
        raise ConfigError(
            f"device={device}: exported files run on the CPU here (on CUDA that was never tried); leave device out, or "
            "give the checkpoint that the file was made from"
        )
    return "cpu"
