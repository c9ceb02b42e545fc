"""Pictures of an evaluation: what is there, beside what was found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from visiontrain.data import image
from visiontrain.data.index import Index
from visiontrain.evaluation.curves import SHOWN_FROM, Errors
from visiontrain.evaluation.objects import Objects
from visiontrain.record.events import Pictures

MOST_IMAGES = 16


def labels_and_predictions(index: Index, found: Objects, worst: Sequence[Errors] = ()) -> Iterator[Pictures]:
    """Pictures of a split twice, with what is there and with what was found at confidence 0.25: the first, and the worst.

    Args:
        index: the split.
        found: in its pictures, original pixels.
        worst: the pictures with the most errors.
    """
    first = {i: Path(index.path(i)).name for i in range(min(len(index), MOST_IMAGES))}
    yield from _twice(index, found, index.split, first)
    if worst:
        errors = {
            e.image: f"{Path(index.path(e.image)).name}: {e.missed} missed, {e.wrong} wrong"
            for e in worst[:MOST_IMAGES]
        }
        yield from _twice(index, found, f"{index.split}_worst", errors)


def _twice(index: Index, found: Objects, name: str, captions: Mapping[int, str]) -> Iterator[Pictures]:
    images = tuple(image.read_or_grey(index.path(i), index.size(i))[0] for i in captions)
    told = tuple(captions.values())
    yield Pictures(
        f"{name}_labels",
        images,
        tuple(index.pixel_boxes(i) for i in captions),
        tuple(np.asarray(index.classes(i)) for i in captions),
        None,
        index.names,
        told,
    )
    seen = [found.where((found.image == i) & (found.scores >= SHOWN_FROM)) for i in captions]
    yield Pictures(
        f"{name}_predictions",
        images,
        tuple(each.boxes for each in seen),
        tuple(each.classes for each in seen),
        tuple(each.scores for each in seen),
        index.names,
        told,
    )
