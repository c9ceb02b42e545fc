"""How large the index of a split is, before it is read: numbers alone."""

from __future__ import annotations

PER_IMAGE = 24  # bytes: the end of its path, height and width, the end of its boxes (index.py); its path comes on top
PER_OBJECT = 20  # bytes: four sides and the class


def images_kept(images: int, fraction: float) -> int:
    """How many of the pictures of a split ``fraction`` keeps, at least one."""
    return max(round(images * fraction), 1)


def index_bytes(images: int, objects: float, path_bytes: float) -> int:
    """Bytes of the columns of an index.

    Args:
        images: pictures in it.
        objects: in all of them.
        path_bytes: of all paths, which are kept whole.
    """
    return round(images * PER_IMAGE + objects * PER_OBJECT + path_bytes)
