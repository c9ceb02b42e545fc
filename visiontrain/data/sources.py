"""Where a description says its data can be had: addresses of archives, as data; nothing in a description is ever run."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from visiontrain.errors import DataError

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_KEYS = ("url", "bytes", "sha256", "to")
_NOTHING = ("null", "~", "none", "false", "no")  # as YAML and people write it; a description is read as words
_SCRIPTS = (".py", ".sh", ".bash", ".bat", ".ps1")
_LOOKS = "for example download: https://host/pictures.zip"


@dataclass(frozen=True, slots=True)
class Source:
    """An archive: its ``url``, its ``bytes`` (0: not known), its ``sha256`` ("": not known), the folder ``to`` unpack into."""

    url: str
    bytes: int = 0
    sha256: str = ""
    to: str = ""

    @property
    def name(self) -> str:
        """Of the file, without characters that mean something to a file system."""
        name = PurePosixPath(unquote(urlsplit(self.url).path)).name
        return re.sub(r"[^\w.-]", "_", name)[-80:] or "archive"

    def __str__(self) -> str:
        size = f"{self.bytes / 1e6:.1f} MB, " if self.bytes else ""
        check = f"SHA-256 {self.sha256}" if self.sha256 else "not verified: the description has no sha256"
        return f"{self.url} ({size}{check})"


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


def untrusted(url: str) -> str:
    """Why nothing is fetched from an address, or ""."""
    first = url.splitlines()[0] if url else ""
    if len(url.split()) != 1 or url.lower().endswith(_SCRIPTS):
        return f"a script ({first!r:.60}); no code of a description is run. Give the address of an archive, {_LOOKS}"
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        return f"{url}: what comes over http can be changed on its way; give an https address"
    if parts.scheme not in ("https", "http", "file") or (
        parts.scheme == "file" and parts.netloc not in ("", "localhost")
    ):
        return f"{url!r:.80}: no https:// or file:/// address, {_LOOKS}"
    if parts.path.endswith("/") or not parts.path:
        return f"{url}: a folder; name the archives in it, {_LOOKS}"
    return ""


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
