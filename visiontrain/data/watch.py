"""Whether files are as they were: a stamp of every folder and file that an index was read from.

The time of a folder tells that a name in it came or went, and nothing of a file that was written to where it lies. So the
stamp of a folder is over its names and over size and times of each picture and label file in it. Of times both are
taken: ``cp -p`` and ``touch -r`` restore the one that people see, and not the other.
"""

# Paths are strings here: a million of them pass, and a Path each is slow.
# ruff: noqa: PTH116, PTH208
from __future__ import annotations

import hashlib
import math
import os
import time
from array import array
from collections.abc import Callable, Iterable
from itertools import accumulate

from visiontrain.data.image import SUFFIXES
from visiontrain.data.parallel import in_order, processes_for

LABELS = frozenset({".txt", ".xml", ".json"})
SETTLED = 2 * 10**9  # nanoseconds: below the grain of a file system's clock two edits can have one time
ENOUGH = 20_000  # names: from here on processes pay
_PART = 4096  # names
_ENDINGS = tuple(sorted(SUFFIXES | LABELS))

Part = tuple[str, list[str]]


def now() -> int:
    """Nanoseconds since the epoch, by the clock that files are dated with."""
    return time.time_ns()


def stamps(
    places: Iterable[str], on_progress: Callable[[int, int], None] | None = None, settled_before: int | None = None
) -> dict[str, str]:
    """A stamp of each folder (itself, not what lies below) or file: another after any change of names, sizes or times.

    Args:
        places: paths.
        on_progress: called with (names done, names in all) now and then.
        settled_before: as ``now()`` told before the files were read. What has changed since, or shortly before, may
            change once more without a trace in size and time: its stamp is "".
    """
    parts = [part for place in sorted(places) for part in _parts(place)]
    total = sum(len(names) for _, names in parts)
    done = accumulate(len(names) for _, names in parts)
    digests: dict[str, list[bytes]] = {}
    newest: dict[str, int] = {}
    for (place, _), (digest, latest), count in zip(
        parts, in_order(_stamp, parts, processes_for(total, ENOUGH)), done, strict=True
    ):
        digests.setdefault(place, []).append(digest)
        newest[place] = max(newest.get(place, 0), latest)
        if on_progress:
            on_progress(count, total)
    limit = math.inf if settled_before is None else settled_before - SETTLED
    return {
        place: hashlib.blake2b(b"".join(some), digest_size=12).hexdigest() if newest[place] <= limit else ""
        for place, some in digests.items()
    }


def _parts(place: str) -> list[Part]:
    """The names of a folder in pieces; one piece with the name "" for a file, and for what is not there."""
    try:
        names = sorted(os.listdir(place))
    except OSError:  # also a folder that is closed to us: its own state is all there is to see
        return [(place, [""])]
    return [(place, names[start : start + _PART]) for start in range(0, max(len(names), 1), _PART)]


def _stamp(part: Part) -> tuple[bytes, int]:
    """(digest, newest time) of some names of a folder; its own time counts as one of theirs, and is not in the digest."""
    place, names = part
    numbers, newest = array("q"), _changed(place)
    for name in names:
        if name and not name.lower().endswith(_ENDINGS):
            continue
        try:
            found = os.stat(f"{place}{os.sep}{name}" if name else place)
        except OSError:  # a link to nowhere
            numbers.extend((-1, -1, -1))
            continue
        numbers.extend((found.st_size, found.st_mtime_ns, found.st_ctime_ns))
        newest = max(newest, found.st_ctime_ns)
    digest = hashlib.blake2b(b"\0".join(map(os.fsencode, names)) + b"\0\0", digest_size=16)
    digest.update(numbers.tobytes())
    return digest.digest(), newest


def _changed(place: str) -> int:
    try:
        return os.stat(place).st_ctime_ns
    except OSError:
        return 0
