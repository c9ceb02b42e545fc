"""What an exported file says of itself: the same keys in every format, as docs/contracts.md lists them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from visiontrain.errors import WeightsError
from visiontrain.models.pickled import printable

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """See docs/contracts.md. ``conf``, ``iou`` and ``max_det`` are None where the file has no such limit inside."""

    schema_version: int = SCHEMA_VERSION
    task: str = "detect"
    name: str
    family: str
    names: list
    stride: int
    imgsz: int | list  # pixels; height, width
    norm: str
    licence: str
    dynamic: bool
    batch: int | None
    nms: bool
    end_to_end: bool
    conf: float | int | None
    iou: float | int | None
    max_det: int | None
    settings: dict
    version: str
    date: str

    @property
    def rows(self) -> bool:
        """Whether the output is of detections, (B, max_det, 6); else of all anchors, (B, 4 + classes, A)."""
        return self.nms or self.end_to_end

    @property
    def height_width(self) -> tuple[int, int]:
        """``imgsz`` as a pair."""
        return (self.imgsz, self.imgsz) if isinstance(self.imgsz, int) else (self.imgsz[0], self.imgsz[1])

    def values(self) -> dict[str, Any]:
        """Plain values by name."""
        return asdict(self)

    def texts(self) -> dict[str, str]:
        """For files that hold texts alone: a text as it is, all else as JSON."""
        return {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in self.values().items()}


_KINDS = get_type_hints(Metadata)


def from_texts(texts: Mapping[str, str], path: Path) -> Metadata:
    """The inverse of ``texts``.

    Raises:
        WeightsError: as ``from_values``.
    """
    try:
        values = {name: text if _KINDS.get(name) is str else json.loads(text) for name, text in texts.items()}
    except json.JSONDecodeError as error:
        raise WeightsError(f"{path}: its metadata cannot be read ({error}); export it again.") from error
    return from_values(values, path)


def from_values(values: Mapping[str, Any], path: Path) -> Metadata:
    """What a file says of itself, each value of the right kind; keys that are not known here are left.

    Raises:
        WeightsError: the file is of another program or a newer version, or a value is missing or wrong.
    """
    version = values.get("schema_version")
    if version is None:
        raise WeightsError(
            f"{path}: not exported by visiontrain (no schema_version in its metadata), so its classes are not known. Make it "
            "with visiontrain export model=W."
        )
    if version != SCHEMA_VERSION:
        raise WeightsError(
            f"{path}: metadata schema {version}, this version reads {SCHEMA_VERSION}. Update visiontrain, or export again."
        )
    wrong = [f.name for f in fields(Metadata) if f.name not in values or not isinstance(values[f.name], _KINDS[f.name])]
    if wrong or not _fits(values):
        raise WeightsError(
            f"{path}: its metadata are damaged ({', '.join(wrong) or 'names or imgsz'}); export it again."
        )
    known = {f.name: values[f.name] for f in fields(Metadata)}
    return Metadata(**{**known, "licence": printable(known["licence"], 100), "name": printable(known["name"], 100)})


def _fits(values: Mapping[str, Any]) -> bool:
    """What the kinds do not tell."""
    sides = values["imgsz"] if isinstance(values["imgsz"], list) else [values["imgsz"]] * 2
    return (
        bool(values["names"])
        and all(isinstance(name, str) for name in values["names"])
        and len(sides) == 2
        and all(isinstance(side, int) and side > 0 for side in sides)
        and (values["dynamic"] or (values["batch"] or 0) > 0)
    )
