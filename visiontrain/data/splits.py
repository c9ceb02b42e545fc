"""The pictures of a split: folders searched to the bottom, list files, or several of them; sorted, each once."""

# Paths are strings here: a million of them pass, and a Path each is slow.
# ruff: noqa: PTH110, PTH117, PTH118
from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

from visiontrain.data.description import Description
from visiontrain.data.image import is_picture
from visiontrain.errors import DataError


def pictures_of(description: Description, split: str) -> list[str]:
    """Paths of the pictures of a split, in an order that no file system changes.

    Raises:
        DataError: the split is not in the description, a folder or list file is missing, or no picture is there.
    """
    if split not in description.splits:
        there = ", ".join(description.splits) or "none"
        near = difflib.get_close_matches(split, description.splits, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise DataError(f"{description.file}: no split {split!r}, it has: {there}{hint}")
    found: set[str] = set()
    for entry in description.splits[split]:
        if entry.is_dir():
            found.update(_in_folder(str(entry)))
        elif entry.is_file():
            found.update(_in_list(entry, description.root))
        else:
            raise DataError(_missing(description, split, entry))
    if not found:
        places = ", ".join(map(str, description.splits[split]))
        raise DataError(f"{description.file}, {split}: no picture (jpg, png, bmp, tif, webp) in {places}")
    return sorted(found)


def _in_folder(folder: str) -> Iterator[str]:
    walked: set[str] = set()  # links may lead back up
    for here, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in walked:
            folders.clear()
            continue
        walked.add(real)
        yield from (os.path.join(here, name) for name in files if is_picture(name))


def _in_list(file: Path, root: Path) -> Iterator[str]:
    if is_picture(file.name):
        yield str(file)
        return
    if file.suffix.lower() != ".txt":
        raise DataError(f"{file}: a split is a folder of pictures or a .txt file that lists them, one path a line")
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    for line in lines:
        text = line.strip()
        if text and not text.startswith("#"):
            yield _resolve(text, file.parent, root)


def _resolve(text: str, beside: Path, root: Path) -> str:
    if os.path.isabs(text):
        return os.path.normpath(text)
    ways = [text] if "\\" not in text or os.sep == "\\" else [text, text.replace("\\", "/")]
    tries = [os.path.normpath(os.path.join(folder, way)) for way in ways for folder in (beside, root)]
    return next((path for path in tries if os.path.exists(path)), tries[0])


def _missing(description: Description, split: str, entry: Path) -> str:
    parent = entry.parent
    while not parent.is_dir() and parent != parent.parent:
        parent = parent.parent
    names = sorted(path.name for path in parent.iterdir())
    near = difflib.get_close_matches(entry.name, names, n=3, cutoff=0.5) or names[:6]
    told = f"{parent} holds {', '.join(near) or 'nothing'}"
    fetch = f" The pictures can be fetched from {description.download}." if description.download else ""
    return (
        f"{description.file}, {split}: {str(entry)!r} is not there (path: {description.written_path!r} is {description.root});"
        f" {told}.{fetch}"
    )
