"""ONNX files, run by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from visiontrain.errors import ConfigError, WeightsError
from visiontrain.models.exported.foreign import of_ultralytics
from visiontrain.models.exported.metadata import Metadata, from_texts
from visiontrain.models.exported.network import Run

# All that ONNX Runtime raises of a file; the classes have no base of their own.
_REFUSALS = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NotImplemented", "RuntimeException")


def open_onnx(path: Path) -> tuple[Metadata, Run]:
    """What the file says of itself, and how it is run.

    Raises:
        ConfigError: onnxruntime is not installed.
        WeightsError: ONNX Runtime cannot read the file, or its layout is not known.
    """
    session = _session(path)
    texts: Mapping[str, str] = session.get_modelmeta().custom_metadata_map
    if "schema_version" not in texts and "names" in texts:
        metadata = of_ultralytics(texts, session.get_inputs()[0].shape, session.get_outputs()[0].shape, path)
    else:
        metadata = from_texts(texts, path)
    (given,) = (each.name for each in session.get_inputs())

    def run(images: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {given: images.numpy(force=True)})[0])

    return metadata, run


def _session(path: Path) -> Any:
    """With as many threads as torch has."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ConfigError(f"{path}: needs onnxruntime; pip install 'visiontrain[export]'") from error
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors; they are raised too
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except tuple(getattr(state, name) for name in _REFUSALS) as error:
        raise WeightsError(f"{path}: ONNX Runtime cannot read it: {str(error).strip().splitlines()[0]}") from error
