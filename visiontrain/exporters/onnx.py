"""A detector as an ONNX file of opset 18."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import torch

from visiontrain.errors import ConfigError, ExportError
from visiontrain.exporters.layout import Layout
from visiontrain.models.exported.metadata import Metadata

OPSET = 18
# Images and strides of the picture that is traced: none is 1, which torch would take for a constant.
_TRACED = 2, 2, 3


def write_onnx(layout: Layout, metadata: Metadata, out: Path) -> None:
    """Write the file.

    Raises:
        ConfigError: onnx or onnxscript is not installed.
        ExportError: torch has no ONNX for something in the model.
    """
    import_onnx()
    import onnx

    model = _exported(layout, metadata)
    _leave_out_what_is_of_this_machine(model)
    onnx.helper.set_model_props(model, metadata.texts())
    model.producer_name, model.producer_version = "visiontrain", metadata.version
    out.write_bytes(model.SerializeToString())


def import_onnx() -> None:
    """Raises ConfigError where a package that writes ONNX is not installed."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"writing ONNX needs {error.name}; pip install 'visiontrain[export]'") from error


def _exported(layout: Layout, metadata: Metadata) -> Any:
    """The ONNX model, with free batch, height and width where it is dynamic."""
    images, rows, columns = _TRACED
    batch, height, width = (torch.export.Dim(name, min=1) for name in ("batch", "rows", "columns"))
    stride = metadata.stride
    shape = (images, 3, rows * stride, columns * stride)
    if not metadata.dynamic:
        shape = (metadata.batch or 1, 3, *metadata.height_width)
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # about torch's own insides
            program = torch.onnx.export(
                layout,
                (torch.zeros(shape),),
                dynamo=True,
                external_data=False,
                opset_version=OPSET,
                input_names=["images"],
                output_names=["output0"],
                dynamic_shapes=({0: batch, 2: stride * height, 3: stride * width},) if metadata.dynamic else None,
                custom_translation_table={torch.ops.visiontrain.surviving.default: _surviving},
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise ExportError(f"torch {torch.__version__} cannot write this model as ONNX: {error}") from error
    finally:
        quiet.setLevel(level)
    return program.model_proto


def _surviving(boxes: Any, scores: Any, conf: float, iou: float, max_det: int) -> Any:
    """NMS in ONNX: scores (B, A, C) of what is selected, zero elsewhere. As prediction/nms.py: in each class, of all classes."""
    from onnxscript import opset18 as op

    by_class = op.Transpose(scores, perm=[0, 2, 1])
    most = op.Constant(value_ints=[max_det])
    limits = [op.Constant(value_floats=[limit]) for limit in (iou, conf)]
    kept = op.NonMaxSuppression(boxes, by_class, most, *limits)
    nothing = op.ConstantOfShape(op.Shape(by_class))
    return op.Transpose(op.ScatterND(nothing, kept, op.GatherND(by_class, kept)), perm=[0, 2, 1])


def _leave_out_what_is_of_this_machine(model: Any) -> None:
    """torch notes at each node which line of which file it comes from; the names of sides get readable instead."""
    graph = model.graph
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    graph.ClearField("value_info")
    free = {0: "batch", 2: "height", 3: "width"}
    for number, side in enumerate(graph.input[0].type.tensor_type.shape.dim):
        if side.dim_param:
            side.dim_param = free[number]
    for number, side in enumerate(graph.output[0].type.tensor_type.shape.dim):
        if side.dim_param:
            side.dim_param = "anchors" if number else "batch"
