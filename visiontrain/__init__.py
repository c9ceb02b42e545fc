"""Train object detectors; every update has the exact gradient of its window.

The public names load on first use: ``import visiontrain`` costs milliseconds and no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "YOLO": "visiontrain.api",
    "train": "visiontrain.api",
    "val": "visiontrain.api",
    "predict": "visiontrain.api",
    "plan": "visiontrain.api",
    "check": "visiontrain.api",
    "convert": "visiontrain.api",
    "compare": "visiontrain.api",
    "report": "visiontrain.api",
    "export": "visiontrain.api",
    "Callback": "visiontrain.record.callback",
    "TrainConfig": "visiontrain.config.schema",
    "VisionTrainError": "visiontrain.errors",
}
__all__ = [
    "YOLO",
    "Callback",
    "TrainConfig",
    "VisionTrainError",
    "__version__",
    "check",
    "compare",
    "convert",
    "export",
    "plan",
    "predict",
    "report",
    "train",
    "val",
]

if TYPE_CHECKING:
    from visiontrain.api import YOLO, check, compare, convert, export, plan, predict, report, train, val
    from visiontrain.config.schema import TrainConfig
    from visiontrain.errors import VisionTrainError
    from visiontrain.record.callback import Callback


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'visiontrain' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
