"""A detector as an OpenVINO folder, by way of ONNX."""

from __future__ import annotations

from pathlib import Path

import yaml

from visiontrain.config.sizes import EXPORTED
from visiontrain.exporters.layout import Layout
from visiontrain.exporters.onnx import write_onnx
from visiontrain.models.exported.metadata import Metadata
from visiontrain.models.exported.openvino import METADATA, import_openvino


def write_openvino(layout: Layout, metadata: Metadata, out: Path) -> None:
    """Write the folder, weights in float32.

    Raises:
        ConfigError: openvino, onnx or onnxscript is not installed.
    """
    openvino = import_openvino("format=openvino")
    out.mkdir()
    passing = out / "passing.onnx"
    write_onnx(layout, metadata, passing)
    model = openvino.Core().read_model(passing)
    openvino.save_model(model, out / f"{out.name.removesuffix(EXPORTED['openvino'])}.xml", compress_to_fp16=False)
    passing.unlink()
    text = yaml.safe_dump(metadata.values(), sort_keys=False, allow_unicode=True)
    (out / METADATA).write_text(text, encoding="utf-8")
