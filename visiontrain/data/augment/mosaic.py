"""Mosaic: four pictures around a random centre of a canvas twice the size; without it, one picture in a letterbox."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from visiontrain.data.augment.draft import Context, Draft, Tile


def arrange(draft: Draft, context: Context) -> Draft:
    """Decide where pictures lie on the canvas; no pixel is read yet."""
    if not context.closed and context.rng.random() < context.settings.mosaic:
        return replace(draft, tiles=four_tiles(draft.index, context))
    return replace(draft, tiles=(one_tile(draft.index, context),))


def four_tiles(index: int, context: Context) -> tuple[Tile, ...]:
    """Four pictures that touch the centre, each filling ``size`` one way, the first at the top left.

    Source:
        Bochkovskiy et al., YOLOv4, arXiv:2004.10934, section 3.4.
    """
    size, rng = context.size, context.rng
    middle = np.array((size.width, size.height))
    x, y = rng.uniform(middle / 2, middle * 1.5)
    tiles = []
    for place, picture in enumerate((index, context.pick(), context.pick(), context.pick())):
        height, width = context.pictures.size(picture)
        gain = size.gain(height, width)
        left = x - width * gain if place in (0, 2) else x
        top = y - height * gain if place in (0, 1) else y
        tiles.append(Tile(picture, gain, left, top, (2 * size.height, 2 * size.width)))
    return tuple(tiles)


def one_tile(index: int, context: Context) -> Tile:
    """One picture in the middle of a canvas of ``size``, filling it one way."""
    height, width = context.pictures.size(index)
    size = context.size
    gain = size.gain(height, width)
    return Tile(index, gain, (size.width - width * gain) / 2, (size.height - height * gain) / 2, size)
