"""Where a description says its data can be had: addresses of archives, as data; nothing in a description is ever run."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from visiontrain.errors import DataError
from visiontrain.source import Source, untrusted

_KEYS = ("url", "bytes", "sha256", "to")
_NOTHING = ("null", "~", "none", "false", "no")  # as YAML and people write it; a description is read as words


@dataclass(frozen=True, slots=True)
class Sources:
    """The ``archives`` of a description, or why nothing can be fetched, in ``refused``."""

    archives: tuple[Source, ...] = ()
    refused: str = ""

    def __bool__(self) -> bool:
        return bool(self.archives)


def sources_of(file: Path, written: Any) -> Sources:
    """What ``download:`` of a description says.

    Args:
        file: the description, for the message.
        written: an address; a map of url, bytes, sha256 and to; or a list of these.

    Returns:
        Sources that are ``refused`` where it is a script, or no address that can be trusted: the description can still
        be used with pictures that are there.

    Raises:
        DataError: a map with a key or a value that cannot be.
    """
    nothing = not written or (isinstance(written, str) and written.strip().lower() in _NOTHING)
    entries = [] if nothing else written if isinstance(written, list) else [written]
    archives = []
    for entry in entries:
        source = _source(file, entry) if isinstance(entry, dict) else Source(str(entry).strip())
        if refused := untrusted(source.url):
            return Sources(refused=f"{file}: download: {refused}")
        archives.append(source)
    return Sources(tuple(archives))


def _source(file: Path, entry: dict[str, Any]) -> Source:
    for key in entry:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_KEYS)}"
            raise DataError(f"{file}: download: no {key!r}; {hint}")
    url, size, digest, to = (str(entry.get(key) or "").strip() for key in _KEYS)
    if not url:
        raise DataError(f"{file}: download: url is missing in {entry!r:.80}")
    if size and not (size.isdecimal() and int(size)):
        raise DataError(
            f"{file}: download: bytes is the exact size of the archive, for example bytes: 815585330, not {size!r}"
        )
    if digest and not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        raise DataError(f"{file}: download: sha256 has 64 digits 0 to 9 and a to f, not {digest!r:.80}")
    if PurePosixPath(to).is_absolute() or ".." in PurePosixPath(to).parts or re.search(r"[:\\]", to):
        raise DataError(f"{file}: download: to is a folder inside path, for example to: images, not {to!r}")
    return Source(url, int(size or 0), digest.lower(), to)
