"""What was read of data sets, kept in the user's cache, and whether it still holds."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from visiontrain.data import columns as table
from visiontrain.data.watch import stamps
from visiontrain.paths import cache_dir

VERSION = 1  # of what is kept; the sources of this package count too (``reader``)
FEW = 3  # files of one split: a run may still map an older one
MOST = 48  # files of all splits
_NOT_A_WORD = re.compile(r"\W")  # nothing that a pattern of file names could mean
_DAY = 86_400.0  # seconds after which a temporary file has no writer any more


def name_of(description: Path, split: str) -> str:
    """What the files of a split begin with."""
    digest = hashlib.blake2b(os.fsencode(description), digest_size=6).hexdigest()
    return f"{_NOT_A_WORD.sub('_', description.stem)}-{split}-{digest}"


@cache
def reader() -> str:
    """Which code reads: another after any change of it, or of the library that decodes."""
    digest = hashlib.blake2b(f"{VERSION} {cv2.__version__}".encode(), digest_size=12)
    for path in sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()


def sources() -> list[Path]:
    """The files of that code, and some that do not read; not the augmentations."""
    here = Path(__file__).parent
    return sorted([*here.glob("*.py"), *here.glob("formats/*.py")])


def find(
    name: str, facts: Mapping[str, str], on_check: Callable[[int, int], None] | None = None
) -> tuple[Path, str] | None:
    """The newest file, and its identity, that was read by the same code from the same files, none of them changed since.

    Args:
        name: of the split.
        facts: what else must be the same.
        on_check: called with (names looked at, names in all) now and then.
    """
    seen: dict[str, str] = {}
    for file in _newest_first(f"{name}-*.index"):
        try:
            header = table.read_header(file)
        except (OSError, table.Damaged):
            continue
        watched = header.about.get("watched", {})
        if header.about.get("facts") != {**facts, "reader": reader()} or "" in watched.values():
            continue
        seen |= stamps(watched.keys() - seen.keys(), on_check)
        if all(seen[place] == stamp for place, stamp in watched.items()):
            with suppress(OSError):  # the cache may be read-only; then its order is that of writing
                os.utime(file)
            return file, header.identity
    return None


def keep(
    name: str,
    facts: Mapping[str, str],
    watched: Mapping[str, str],
    columns: Mapping[str, np.ndarray],
    lines: list[bytes],
    about: Mapping[str, Any],
) -> tuple[Path, str]:
    """Write it, and remove those that nobody will ask for; the file and its identity.

    Args:
        watched: stamps of the places that it was read from, from before they were read.
        columns, lines, about: the content.

    Raises:
        OSError: the cache cannot be written.
    """
    said = {"facts": {**facts, "reader": reader()}, "watched": dict(watched), **about}
    digest = hashlib.blake2b(json.dumps(said).encode(), digest_size=6).hexdigest()
    file = folder() / f"{name}-{digest}.index"
    identity = table.write(file, columns, lines, said)
    table.remove_left_behind(folder(), time.time() - _DAY)
    for old in [*list(_newest_first(f"{name}-*.index"))[FEW:], *list(_newest_first("*.index"))[MOST:]]:
        with suppress(OSError):  # another process was first, or maps it on a system that minds
            old.unlink()
    return file, identity


def why_not_kept(reason: str) -> str:
    """For a person: what follows when the cache cannot be written, and the remedy."""
    return (
        f"The index of the data is not kept ({reason}): it is in memory, and the next run reads all labels again. Make room "
        "there, or set VISIONTRAIN_CACHE to a folder that can be written."
    )


def folder() -> Path:
    """Where they are."""
    return cache_dir() / "index"


def _newest_first(pattern: str) -> Iterator[Path]:
    dated = []
    for path in folder().glob(pattern):
        with suppress(OSError):
            dated.append((path.stat().st_mtime_ns, path))
    return (path for _, path in sorted(dated, reverse=True))
