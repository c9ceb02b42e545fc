"""Flips: left to right and upside down, each with its probability."""

from __future__ import annotations

from dataclasses import replace

import cv2

from visiontrain.data.augment.draft import Context, Draft


def mirror(draft: Draft, context: Context) -> Draft:
    """Flip the picture and its boxes; both coins are tossed whatever the probabilities."""
    upside, sideways = context.rng.random(2) < (context.settings.flipud, context.settings.fliplr)
    if not upside and not sideways:
        return draft
    boxes = draft.boxes.copy()
    height, width = context.size
    if upside:
        boxes[:, (1, 3)] = height - boxes[:, (3, 1)]
    if sideways:
        boxes[:, (0, 2)] = width - boxes[:, (2, 0)]
    if draft.drawing:
        return replace(draft, drawing=draft.drawing.flipped(upside=upside, sideways=sideways), boxes=boxes)
    code = -1 if upside and sideways else int(sideways)
    return replace(draft, image=cv2.flip(draft.image, code), boxes=boxes)
