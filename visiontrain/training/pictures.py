"""Pictures for the run folder: what the model saw first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from visiontrain.batch import Batch
from visiontrain.record.events import Event, Pictures

TRAIN_BATCHES = 3
MOST_IMAGES = 16


def first_batches(record: Callable[[Event], None], class_names: Sequence[str]) -> Callable[[Batch], None]:
    """A function that turns the first micro-batches it is shown into pictures and ignores the rest."""
    left = list(range(TRAIN_BATCHES))

    def show(batch: Batch) -> None:
        if left:
            record(_of_batch(f"train_batch{left.pop(0)}", batch, class_names))

    return show


def _of_batch(name: str, batch: Batch, class_names: Sequence[str]) -> Pictures:
    count = min(len(batch), MOST_IMAGES)
    batch = batch.slice(0, count).painted()
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
