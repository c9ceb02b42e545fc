"""Flips: left to right and upside down, each with its probability."""

from __future__ import annotations

from dataclasses import replace

from visiontrain.data.augment.draft import Context, Draft


def mirror(draft: Draft, context: Context) -> Draft:
    """Flip the picture and its boxes; both coins are tossed whatever the probabilities. Pixels move as a batch is made."""
    coins = context.rng.random(2).tolist()
    upside, sideways = coins[0] < context.settings.flipud, coins[1] < context.settings.fliplr
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
    return replace(draft, image=draft.image[:: -1 if upside else 1, :: -1 if sideways else 1], boxes=boxes)
