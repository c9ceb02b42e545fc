"""Mosaic: four pictures around a random centre of a canvas twice the size; without it, one picture in a letterbox."""

from __future__ import annotations

from dataclasses import replace

from visiontrain.data.augment.draft import Context, Draft, Tile


def arrange(draft: Draft, context: Context) -> Draft:
    """Decide where pictures lie on the canvas; no pixel is read yet."""
    height, width = context.size
    if not context.closed and context.rng.random() < context.settings.mosaic:
        return replace(draft, tiles=four_tiles(draft.index, context), canvas=(2 * height, 2 * width))
    return replace(draft, tiles=(one_tile(draft.index, context),), canvas=(height, width))


def four_tiles(index: int, context: Context) -> tuple[Tile, ...]:
    """Four pictures that touch the centre, each as large as fits into ``size``, the first at the top left.

    Source:
        Bochkovskiy et al., YOLOv4, arXiv:2004.10934, section 3.4.
    """
    height, width = context.size
    x, y = width * (0.5 + context.rng.random()), height * (0.5 + context.rng.random())
    tiles = []
    for place, picture in enumerate((index, context.pick(), context.pick(), context.pick())):
        wide, high = _fitted(picture, context)
        tiles.append(Tile(picture, x - wide if place in (0, 2) else x, y - high if place in (0, 1) else y, wide, high))
    return tuple(tiles)


def one_tile(index: int, context: Context) -> Tile:
    """One picture in the middle of a canvas of ``size``, as large as fits."""
    height, width = context.size
    wide, high = _fitted(index, context)
    return Tile(index, (width - wide) / 2, (height - high) / 2, wide, high)


def _fitted(picture: int, context: Context) -> tuple[float, float]:
    """(width, height) of a picture enlarged or shrunk until it fills ``size``."""
    height, width = context.pictures.index.size(picture)
    gain = context.size.gain(height, width)
    return width * gain, height * gain
