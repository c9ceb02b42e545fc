"""The pictures of a split: folders searched to the bottom, list files, or several of them; sorted, each once."""

# Paths are strings here: a million of them pass, and a Path each is slow.
# ruff: noqa: PTH110, PTH117, PTH118, PTH120
from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from visiontrain.data.description import Description, fetched_home
from visiontrain.data.image import is_picture
from visiontrain.errors import DataError


def pictures_of(description: Description, split: str) -> list[str]:
    """Paths of the pictures of a split, in an order that no file system changes.

    Raises:
        DataError: the split is not in the description, a folder or list file is missing, or no picture is there.
    """
    found: set[str] = set()
    for entry in entries_of(description, split):
        found.update(in_folder(str(entry)) if entry.is_dir() else listed(entry, description.root))
    return some(found, description, split)


def entries_of(description: Description, split: str) -> tuple[Path, ...]:
    """The folders and files of a split, all of them there.

    Raises:
        DataError: the split is not in the description, or one of them is missing.
    """
    if split not in description.splits:
        there = ", ".join(description.splits) or "none"
        near = difflib.get_close_matches(split, description.splits, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise DataError(f"{description.file}: no split {split!r}, it has: {there}{hint}")
    for entry in description.splits[split]:
        if not entry.exists():
            raise DataError(_missing(description, split, entry))
    return description.splits[split]


def some(found: Iterable[str], description: Description, split: str) -> list[str]:
    """The pictures in order.

    Raises:
        DataError: there are none.
    """
    pictures = sorted(found)
    if not pictures:
        places = ", ".join(map(str, description.splits[split]))
        raise DataError(f"{description.file}, {split}: no picture (jpg, png, bmp, tif, webp) in {places}")
    return pictures


def in_folder(folder: str) -> Iterator[str]:
    """The pictures under a folder, to the bottom."""
    for here, files in _walk(folder):
        yield from (os.path.join(here, name) for name in files if is_picture(name))


def places_of(entries: Iterable[Path], root: Path) -> set[str]:
    """Folders and files that decide which pictures the entries of a split have, those included that may appear yet."""
    found: set[str] = set()
    for entry in entries:
        found.add(str(entry))
        if entry.is_dir():
            found.update(here for here, _ in _walk(str(entry)))
        elif entry.suffix.lower() == ".txt":
            found.update(os.path.dirname(way) for line in _named(entry) for way in _ways(line, entry.parent, root))
    return found


def _walk(folder: str) -> Iterator[tuple[str, list[str]]]:
    """A folder and each below it, with the names of its files."""
    walked: set[str] = set()  # links may lead back up
    for here, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in walked:
            folders.clear()
            continue
        walked.add(real)
        yield here, files


def listed(file: Path, root: Path) -> Iterator[str]:
    """The pictures of a list file, or the one picture that the file is.

    Raises:
        DataError: it is neither.
    """
    if is_picture(file.name):
        yield str(file)
        return
    if file.suffix.lower() != ".txt":
        raise DataError(f"{file}: a split is a folder of pictures or a .txt file that lists them, one path a line")
    for line in _named(file):
        ways = _ways(line, file.parent, root)
        yield next((path for path in ways if os.path.exists(path)), ways[0]) if len(ways) > 1 else ways[0]


def _named(file: Path) -> Iterator[str]:
    for line in lines_of(file):
        text = line.strip()
        if text and not text.startswith("#"):
            yield text


def lines_of(file: Path) -> list[str]:
    """The lines of a list file.

    Raises:
        DataError: it is not text.
    """
    try:
        return file.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text: {error.reason} at byte {error.start}") from error


def _ways(text: str, beside: Path, root: Path) -> list[str]:
    """What a line of a list file may mean, the likeliest first."""
    if os.path.isabs(text):
        return [os.path.normpath(text)]
    ways = [text] if "\\" not in text or os.sep == "\\" else [text, text.replace("\\", "/")]
    return [os.path.normpath(os.path.join(folder, way)) for way in ways for folder in (beside, root)]


def _missing(description: Description, split: str, entry: Path) -> str:
    parent = entry.parent
    while not parent.is_dir() and parent != parent.parent:
        parent = parent.parent
    names = sorted(path.name for path in parent.iterdir())
    near = difflib.get_close_matches(entry.name, names, n=3, cutoff=0.5) or names[:6]
    told = f"{parent} holds {', '.join(near) or 'nothing'}"
    return (
        f"{description.file}, {split}: {str(entry)!r} is not there (path: {description.written_path!r} is {description.root});"
        f" {told}.{_to_fetch(description, entry)}"
    )


def _to_fetch(description: Description, entry: Path) -> str:
    """How the data come here, where the description tells."""
    sources = description.download
    if sources.refused:
        return f" They cannot be fetched: {sources.refused.removeprefix(f'{description.file}: ')}."
    if not sources:
        return ""
    archives = "\n  ".join(map(str, sources.archives))
    home = fetched_home(description.file, description.root, sources)
    return f"\nAdd download=true to fetch\n  {archives}\ninto {home}, or unpack it yourself so that {entry} is there."
