"""Fetch what a description names, when asked to: resumed after a cut, checked, unpacked, all in the user's cache."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from visiontrain.data.sources import Sources
from visiontrain.data.unpack import BadArchive, unpack
from visiontrain.errors import DataError
from visiontrain.fetching import Cut, alone, fetched, short
from visiontrain.paths import cache_dir
from visiontrain.source import Source


def fetch(sources: Sources, home: Path, wanted: Sequence[Path], root: Path) -> None:
    """Fetch all archives and unpack them together into ``home``: whole, or not at all. Safe for several processes at once.

    Args:
        sources: of a description.
        home: in the user's cache; does not exist yet.
        wanted: folders and files below ``root`` that must be there afterwards.
        root: where the description says that the data are.

    Raises:
        DataError: not there, not what was described, not an archive that can be trusted, no room, or no network; what to
            fetch by hand, and where to put it, is said.
    """
    if not sources:
        nowhere = f"download=true: the description does not say where the data can be had; missing is {wanted[0]}"
        raise DataError(sources.refused or nowhere)
    inside = [path.relative_to(root) for path in wanted if path.is_relative_to(root)]
    folder = cache_dir() / "downloads"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        home.parent.mkdir(parents=True, exist_ok=True)
        with alone(folder / f"{short(str(home))}.lock"):
            if home.exists():  # another process was first
                _complete(home, inside, f"{home}: is there")
            else:
                _fetch(sources.archives, home, inside, folder)
    except OSError as error:
        raise DataError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from error


def by_hand(sources: Sources, home: Path, wanted: Sequence[Path], root: Path) -> str:
    """What to fetch and where to put it, for people without a network."""
    places = "\n  ".join(str(home / path.relative_to(root)) for path in wanted if path.is_relative_to(root))
    archives = "\n  ".join(map(str, sources.archives))
    return f"fetch\n  {archives}\nelsewhere and unpack it so that these are there:\n  {places}"


def _fetch(archives: Sequence[Source], home: Path, inside: Sequence[Path], folder: Path) -> None:
    try:
        files = [fetched(source, folder) for source in archives]
    except Cut as cut:
        told = by_hand(Sources(tuple(archives)), home, [home / path for path in inside], home)
        raise DataError(
            f"{cut}. What came is kept, and the same command goes on from there. Without a network, {told}"
        ) from cut
    staging = home.with_name(f".{home.name}.unpacking")
    shutil.rmtree(staging, ignore_errors=True)  # of a process that was killed: this one holds the lock
    staging.mkdir()
    try:
        for source, file in zip(archives, files, strict=True):
            unpack(file, staging / source.to)
        made = next((place for place in (staging, *_folders(staging)) if _has(place, inside)), staging)
        _complete(made, inside, f"{', '.join(source.url for source in archives)}: unpacked")
        made.rename(home)
    except BadArchive:
        _forget(archives, files)
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _forget(archives, files)


def _forget(archives: Sequence[Source], files: Sequence[Path]) -> None:
    for source, file in zip(archives, files, strict=True):
        if not source.url.startswith("file:"):
            file.unlink()


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir())


def _has(place: Path, inside: Sequence[Path]) -> bool:
    return all((place / path).exists() for path in inside)


def _complete(place: Path, inside: Sequence[Path], what: str) -> None:
    lacking = [str(path) for path in inside if not (place / path).exists()]
    if lacking:
        there = ", ".join(sorted(path.name for path in place.iterdir())[:8])
        remedy = f"; complete or remove {place}" if what.endswith("is there") else ""
        raise DataError(f"{what}, without {', '.join(lacking)}; it holds {there}{remedy}")
