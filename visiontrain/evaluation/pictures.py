"""Pictures of an evaluation: what is there, beside what was found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from visiontrain.data import image
from visiontrain.data.index import Index
from visiontrain.evaluation.objects import Objects
from visiontrain.record.events import Pictures

MOST_IMAGES = 16
SHOWN_FROM = 0.25  # confidence


def labels_and_predictions(index: Index, found: Objects) -> Iterator[Pictures]:
    """The first pictures of a split twice: with what is there, and with what was found at confidence 0.25."""
    shown = range(min(len(index), MOST_IMAGES))
    images = tuple(image.read_or_grey(index.path(i), index.size(i))[0] for i in shown)
    captions = tuple(Path(index.path(i)).name for i in shown)
    rows = [(found.image == i) & (found.scores >= SHOWN_FROM) for i in shown]
    yield Pictures(
        f"{index.split}_labels",
        images,
        tuple(index.pixel_boxes(i) for i in shown),
        tuple(np.asarray(index.classes(i)) for i in shown),
        None,
        index.names,
        captions,
    )
    yield Pictures(
        f"{index.split}_predictions",
        images,
        tuple(found.boxes[r] for r in rows),
        tuple(found.classes[r] for r in rows),
        tuple(found.scores[r] for r in rows),
        index.names,
        captions,
    )
