"""Detectors as files that other programs run. EXPORTERS: format -> who writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from visiontrain.exporters.layout import Layout
from visiontrain.exporters.onnx import write_onnx
from visiontrain.exporters.openvino import write_openvino
from visiontrain.exporters.torchscript import write_torchscript
from visiontrain.models.exported.metadata import Metadata

EXPORTERS: dict[str, Callable[[Layout, Metadata, Path], None]] = {
    "onnx": write_onnx,
    "torchscript": write_torchscript,
    "openvino": write_openvino,
}
