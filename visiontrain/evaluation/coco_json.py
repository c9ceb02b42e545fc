"""Detections as COCO's result JSON: written for other tools, read from them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from visiontrain.data.description import Description
from visiontrain.data.formats.coco import CocoSplit
from visiontrain.data.index import Index
from visiontrain.errors import DataError
from visiontrain.evaluation.objects import Objects
from visiontrain.record.files import write_text


@dataclass(frozen=True, slots=True)
class Ids:
    """What the JSON calls a picture, by its position in the split, and a class, by its number."""

    images: Sequence[int | str]
    categories: Sequence[int | str]


def ids_of(description: Description, index: Index) -> Ids:
    """The ids of the annotation file where the labels are one COCO JSON; else from 1, as ``convert format=coco`` gives them."""
    images, categories = CocoSplit(description, index.split).ids() if description.format == "coco" else ({}, {})
    return Ids(
        [images.get(index.path(i), i + 1) for i in range(len(index))],
        [categories.get(name, number) for number, name in enumerate(index.names, 1)],
    )


def write_detections(file: Path, found: Objects, ids: Ids, index: Index) -> None:
    """A list of image_id, category_id, bbox (x y w h, original pixels), score, and the picture's file_name, in every digit."""
    names = [Path(index.path(i)).name for i in range(len(index))]
    sides = found.boxes[:, 2:] - found.boxes[:, :2]
    boxes = np.concatenate((found.boxes[:, :2], sides), 1).tolist()
    rows = zip(found.image.tolist(), found.classes.tolist(), boxes, found.scores.tolist(), strict=True)
    content = [
        {
            "image_id": ids.images[image],
            "category_id": ids.categories[klass],
            "bbox": box,
            "score": score,
            "file_name": names[image],
        }
        for image, klass, box, score in rows
    ]
    write_text(file, json.dumps(content, ensure_ascii=False))


def read_detections(file: Path, ids: Ids) -> Objects:
    """Detections of a split.

    Raises:
        DataError: it cannot be read, or a row is not one of COCO's results or names what the split does not have.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise DataError(f"{file}: not valid JSON: {error}") from error
    if not isinstance(content, list):
        raise DataError(
            f"{file}: a list of detections is needed, each with image_id, category_id, bbox and score; this is a {type(content).__name__}"
        )
    images, classes = ({each: i for i, each in enumerate(known)} for known in (ids.images, ids.categories))
    table = np.array(list(_rows(file, content, images, classes)), np.float64).reshape(-1, 7)
    table[:, 4:6] += table[:, 2:4]
    return Objects(table[:, 0].astype(np.int64), table[:, 2:6], table[:, 1].astype(np.int64), table[:, 6])


def _rows(
    file: Path, content: Sequence[Any], images: dict[int | str, int], classes: dict[int | str, int]
) -> Iterator[tuple[float, ...]]:
    """image, class, x, y, w, h, score of each."""
    for number, each in enumerate(content):
        try:
            row = (
                images[each["image_id"]],
                classes[each["category_id"]],
                *map(float, each["bbox"]),
                float(each["score"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{file}: detection {number} (from 0): {_wrong(error, images, classes)}, has {each!r:.120}"
            ) from error
        if len(row) != 7 or not all(map(isfinite, row)) or min(row[4:6]) < 0:
            raise DataError(
                f"{file}: detection {number} (from 0): bbox must be x y w h and a score, finite, has {each!r:.120}"
            )
        yield row


def _wrong(error: Exception, images: dict[int | str, int], classes: dict[int | str, int]) -> str:
    if isinstance(error, KeyError) and error.args[0] not in ("image_id", "category_id", "bbox", "score"):
        some = [", ".join(map(repr, list(known)[:3])) for known in (images, classes)]
        return f"{error.args[0]!r} is no id of this split (images are {some[0]} .., categories {some[1]} ..)"
    return "needs image_id, category_id, bbox and score"
