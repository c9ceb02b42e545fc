"""curves.json: what precision and recall curves and the confusion matrix are drawn from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from visiontrain.record.events import Curves, Event, RunStarted
from visiontrain.record.files import SCHEMAS, write_text


class CurvesJson:
    """Written when a run has scored best.pt at its end; a run that goes on has no such curves until it ends again."""

    name = "curves.json"

    def __init__(self, folder: Path) -> None:
        self._path = folder / self.name

    def __call__(self, event: Event) -> None:
        """Write the numbers of a ``Curves``."""
        if isinstance(event, RunStarted):
            self._path.unlink(missing_ok=True)
        elif isinstance(event, Curves):
            write_text(self._path, json.dumps(curves_content(event), ensure_ascii=False, separators=(",", ":")) + "\n")


def curves_content(event: Curves) -> dict[str, Any]:
    """Plain values; the confusion matrix as its cells that are not 0, which for a thousand classes are few."""
    confidence = {
        "precision": event.confidence_precision,
        "recall": event.confidence_recall,
        "f1": event.confidence_f1,
    }
    return {
        "schema_version": SCHEMAS["curves.json"],
        "names": list(event.class_names),
        "precision_over_recall": _rows(event.precision),
        "over_confidence": {name: _rows(values) for name, values in confidence.items()},
        "confusion": [
            [int(row), int(column), int(event.confusion[row, column])] for row, column in np.argwhere(event.confusion)
        ],
    }


def _rows(values: np.ndarray) -> list[list[float] | None]:
    """A list for each class, None for a class without labels."""
    return [[round(float(v), 4) for v in row] if np.isfinite(row).all() else None for row in values]
