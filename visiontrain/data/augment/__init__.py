"""Augmentations of a training sample: one file each, and its line here. The list is the order."""

from __future__ import annotations

from collections.abc import Callable

from visiontrain.data.augment import affine, album, colour, flip, mixup, mosaic
from visiontrain.data.augment.draft import Context, Draft

AUGMENTATIONS: dict[str, Callable[[Draft, Context], Draft]] = {
    "mosaic": mosaic.arrange,
    "affine": affine.place,
    "mixup": mixup.blend,
    "album": album.vary,
    "colour": colour.jitter,
    "flip": flip.mirror,
}


def augment(index: int, context: Context) -> Draft:
    """The training sample about picture ``index``: every augmentation in turn."""
    draft = Draft(index)
    for step in AUGMENTATIONS.values():
        draft = step(draft, context)
    return draft
