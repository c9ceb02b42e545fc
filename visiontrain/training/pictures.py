"""Pictures for the run folder: what the model saw first, and what it finds at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from visiontrain.batch import Batch
from visiontrain.data import image
from visiontrain.data.index import Index
from visiontrain.evaluation.scoring import Objects
from visiontrain.record.events import Event, Pictures

TRAIN_BATCHES = 3
MOST_IMAGES = 16
SHOWN_FROM = 0.25  # confidence


def first_batches(record: Callable[[Event], None], class_names: Sequence[str]) -> Callable[[Batch], None]:
    """A function that turns the first micro-batches it is shown into pictures and ignores the rest."""
    left = list(range(TRAIN_BATCHES))

    def show(batch: Batch) -> None:
        if left:
            record(_of_batch(f"train_batch{left.pop(0)}", batch, class_names))

    return show


def _of_batch(name: str, batch: Batch, class_names: Sequence[str]) -> Pictures:
    count = min(len(batch), MOST_IMAGES)
    rows = [batch.targets.image == i for i in range(count)]
    return Pictures(
        name=name,
        images=tuple(batch.images[i].permute(1, 2, 0).numpy() for i in range(count)),
        boxes=tuple(batch.targets.boxes[r].numpy() for r in rows),
        classes=tuple(batch.targets.classes[r].numpy() for r in rows),
        scores=None,
        class_names=tuple(class_names),
        captions=tuple(f"position {p}" for p in batch.positions[:count]),
    )


def labels_and_predictions(index: Index, found: Objects) -> Iterator[Pictures]:
    """The first pictures of a split twice: with what is there, and with what was found at confidence 0.25."""
    shown = range(min(len(index), MOST_IMAGES))
    images = tuple(image.read(index.path(i)) for i in shown)
    captions = tuple(Path(index.path(i)).name for i in shown)
    rows = [(found.image == i) & (found.scores >= SHOWN_FROM) for i in shown]
    yield Pictures(
        "val_labels",
        images,
        tuple(index.pixel_boxes(i) for i in shown),
        tuple(np.asarray(index.classes(i)) for i in shown),
        None,
        index.names,
        captions,
    )
    yield Pictures(
        "val_predictions",
        images,
        tuple(found.boxes[r] for r in rows),
        tuple(found.classes[r] for r in rows),
        tuple(found.scores[r] for r in rows),
        index.names,
        captions,
    )
