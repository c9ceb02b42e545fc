"""An address of a file that may be fetched, and whether it can be trusted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_SCRIPTS = (".py", ".sh", ".bash", ".bat", ".ps1")
_LOOKS = "for example download: https://host/pictures.zip"


@dataclass(frozen=True, slots=True)
class Source:
    """An archive: its ``url``, its ``bytes`` (0: not known), its ``sha256`` ("": not known), the folder ``to`` unpack into."""

    url: str
    bytes: int = 0
    sha256: str = ""
    to: str = ""
    said_by: str = "the description"  # who knows size and sum

    @property
    def name(self) -> str:
        """Of the file, without characters that mean something to a file system."""
        name = PurePosixPath(unquote(urlsplit(self.url).path)).name
        return re.sub(r"[^\w.-]", "_", name)[-80:] or "archive"

    def __str__(self) -> str:
        size = f"{self.bytes / 1e6:.1f} MB, " if self.bytes else ""
        check = f"SHA-256 {self.sha256}" if self.sha256 else f"not verified: {self.said_by} has no sha256"
        return f"{self.url} ({size}{check})"


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
