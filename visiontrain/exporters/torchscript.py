"""A detector as a TorchScript file, for C++ and for Python without this package."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import torch

from visiontrain.exporters.layout import Layout
from visiontrain.models.exported.metadata import Metadata
from visiontrain.models.exported.torchscript import INSIDE


def write_torchscript(layout: Layout, metadata: Metadata, out: Path) -> None:
    """Write the file. Traced at one size; sizes are computed from the picture, so that it takes any."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch means to give TorchScript up; len() of a fixed tensor is a constant
        shape = (2, 3, 2 * metadata.stride, 3 * metadata.stride)
        traced = torch.jit.trace(layout, torch.zeros(shape), check_trace=False)
        torch.jit.save(traced, out, _extra_files={INSIDE: json.dumps(metadata.values(), ensure_ascii=False)})
