"""ONNX files of Ultralytics' exporter: as much of their metadata as is needed, read as values, never run."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from visiontrain.errors import WeightsError
from visiontrain.models.exported.metadata import Metadata
from visiontrain.models.pickled import printable

Shape = Sequence[int | str]  # a text is a side that may have any length


def of_ultralytics(texts: Mapping[str, str], given: Shape, output: Shape, path: Path) -> Metadata:
    """Metadata as ours, of a detector whose output has one of our two layouts.

    Args:
        texts: the file's own metadata.
        given: shape of its input.
        output: of its output.

    Raises:
        WeightsError: another task or layout, or metadata that cannot be read.
    """
    try:
        names = ast.literal_eval(texts["names"])
        names = list(names.values()) if isinstance(names, dict) else list(names)
        stride, imgsz = int(texts["stride"]), ast.literal_eval(texts["imgsz"])
    except (KeyError, ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise WeightsError(f"{path}: its metadata cannot be read ({type(error).__name__}: {error}).") from error
    rows = len(output) == 3 and output[2] == 6
    if texts.get("task") != "detect" or not (rows or (len(output) == 3 and output[1] == 4 + len(names))):
        raise WeightsError(
            f"{path}: task {texts.get('task')}, output {list(output)}: this version reads detectors whose output is "
            f"(images, {4 + len(names)}, anchors) or (images, detections, 6)."
        )
    sides: list[Any] = list(given[2:])
    dynamic = not all(isinstance(side, int) for side in (given[0], *sides))
    if dynamic and any(isinstance(side, int) for side in (given[0], *sides)):
        raise WeightsError(f"{path}: input {list(given)}: either all of batch, height and width may vary, or none.")
    return Metadata(
        name=printable(path.stem, 100),
        family="",
        names=[str(name) for name in names],
        stride=stride,
        imgsz=list(imgsz) if dynamic else sides,
        norm="batch",
        licence=printable(texts.get("license", ""), 100),
        dynamic=dynamic,
        batch=None if dynamic else int(given[0]),
        nms=False,
        end_to_end=rows,
        conf=None,
        iou=None,
        max_det=int(output[1]) if rows and isinstance(output[1], int) else None,
        settings={},
        version=f"ultralytics {printable(texts.get('version', ''), 20)}".strip(),
        date=printable(texts.get("date", ""), 40),
    )
