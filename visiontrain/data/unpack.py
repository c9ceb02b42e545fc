"""Archives of pictures and labels, unpacked without trusting them: nothing lands outside, nothing but files, no bombs."""

from __future__ import annotations

import gzip
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from visiontrain.errors import DataError

MOST_FILES = 2_000_000
MOST_TIMES = 100  # pictures hardly shrink in an archive, label texts to a fourth
ALWAYS = 100 * 2**20  # bytes that the rule above does not forbid
MOST_BYTES = 200 * 2**30
_CHUNK = 1 << 20


class BadArchive(DataError):
    """An archive that cannot be used, whoever tries again with the same file."""


def unpack(archive: Path, into: Path) -> None:
    """Unpack .zip, .tar or .tar.gz, told by its content, into a folder that nobody else writes to.

    Links and devices are refused, modes and owners left out, so that what is written is new files below ``into``.

    Raises:
        BadArchive: it is none, is damaged, reaches out of its folder, holds more than files, or unpacks to far more than
            it is.
        DataError: the disk is full, or does not take a name.
    """
    room = _Room(archive)
    try:
        with archive.open("rb") as raw:
            for name, content in _members(raw, room):
                _write(into, name, content, room)
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise room.bad(f"damaged: {error}") from error
    except (NotImplementedError, RuntimeError) as error:  # a compression that Python lacks, or a password
        raise room.bad(str(error)) from error
    except OSError as error:
        raise DataError(f"{into}: cannot be written: {error.strerror or error}") from error


class _Room:
    """What may still come out of an archive."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        self.bytes = min(MOST_BYTES, max(ALWAYS, MOST_TIMES * archive.stat().st_size))
        self.files = MOST_FILES

    def bad(self, what: str) -> BadArchive:
        return BadArchive(f"{self.archive}: {what}; it is not used")

    def take(self, size: int) -> None:
        self.bytes -= size
        if self.bytes < 0:
            raise self.bad(
                f"unpacks to more than {MOST_TIMES} times its {self.archive.stat().st_size} bytes, which pictures never do"
            )

    def count(self) -> None:
        self.files -= 1
        if self.files < 0:
            raise self.bad(f"holds more than {MOST_FILES} files")


Content = Callable[[int], bytes]  # reads up to so many bytes


def _members(raw: IO[bytes], room: _Room) -> Iterator[tuple[str, Content | None]]:
    """The name and the content of each file; no content: a folder."""
    head = raw.read(262)
    raw.seek(0)
    if head[:2] == b"\x1f\x8b":
        return _in_tar(gzip.GzipFile(fileobj=raw), room)
    if head[257:] == b"ustar":
        return _in_tar(raw, room)
    if zipfile.is_zipfile(raw):
        return _in_zip(raw, room)
    raise room.bad(f"no zip, tar or tar.gz; it begins with {head[:40]!r}")


def _in_zip(raw: IO[bytes], room: _Room) -> Iterator[tuple[str, Content | None]]:
    with zipfile.ZipFile(raw) as file:
        for member in file.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise room.bad(f"{member.filename!r} is a link or a device")
            if member.is_dir():
                yield member.filename, None
                continue
            if member.file_size > room.bytes:  # as declared; what really comes is counted too
                room.take(member.file_size)
            with file.open(member) as content:
                yield member.filename, content.read


def _in_tar(raw: Any, room: _Room) -> Iterator[tuple[str, Content | None]]:
    bounded = _Bounded(raw, room)
    with tarfile.open(fileobj=bounded, mode="r:") as file:  # type: ignore[call-overload]
        while (member := file.next()) is not None:
            if member.isdir():
                yield member.name, None
            elif not member.isreg() or member.issparse():
                raise room.bad(f"{member.name!r} is a link or a device")
            else:
                if member.size > room.bytes:
                    room.take(member.size)
                content = file.extractfile(member)
                assert content is not None, "a regular file has content"
                yield member.name, content.read
            file.members = []  # a million of them would stay in memory


class _Bounded:
    """The bytes of a tar: none of its headers may be as large as it likes, and neither may the whole."""

    def __init__(self, raw: IO[bytes], room: _Room) -> None:
        self.raw, self.room = raw, room
        self.most = room.bytes + 1024 * MOST_FILES

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _CHUNK:
            raise self.room.bad(f"has a header of {size} bytes")
        return self.raw.read(size)

    def tell(self) -> int:
        return self.raw.tell()

    def seek(self, place: int, whence: int = 0) -> int:
        if not 0 <= place <= self.most:
            raise self.room.bad(f"leads to byte {place} of it")
        return self.raw.seek(place, whence)


def _write(into: Path, name: str, content: Content | None, room: _Room) -> None:
    room.count()
    parts = name.replace("\\", "/").split("/")
    if not parts[0] or ".." in parts or "\0" in name or re.match(r"[A-Za-z]:", name):
        raise room.bad(f"{name!r} reaches out of the folder that it is unpacked into")
    place = into.joinpath(*(part for part in parts if part not in ("", ".")))
    if content is None:
        place.mkdir(parents=True, exist_ok=True)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("wb") as file:
        while chunk := content(_CHUNK):
            room.take(len(chunk))
            file.write(chunk)
