"""Columns of numbers and lines of text in one file: a JSON header, then bytes that are mapped and never copied.

The file begins with the word VTCOLUM1, the length of the header and its checksum (two little-endian uint32). The header
says of each column its dtype, shape and place, of the lines their place, and holds what else is to be known.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_START = struct.Struct("<8sII")
_WORD = b"VTCOLUM1"  # another one with another layout
_ALIGNED = 64
_KINDS = frozenset("iufb")  # no objects: what is mapped is numbers, whoever wrote the file


class Damaged(Exception):
    """The file is not as it was written; it is made again, so no person needs to hear of it."""


@dataclass(frozen=True, slots=True)
class Header:
    """``about`` is what the writer wanted to be known; ``identity`` is that of the content."""

    about: dict[str, Any]
    identity: str
    columns: dict[str, tuple[str, tuple[int, ...], int]]  # name: dtype, shape, first byte
    lines: tuple[int, int, int]  # how many, first byte, bytes
    checksum: int
    body: int  # where the bytes begin

    @property
    def end(self) -> int:
        """Bytes of the whole file."""
        return self.body + self.lines[1] + self.lines[2]


def write(file: Path, columns: Mapping[str, np.ndarray], lines: Iterable[bytes], about: Mapping[str, Any]) -> str:
    """Write a file that is there whole or not at all, whoever else writes it at the same time; returns its identity.

    Raises:
        OSError: the folder cannot be made or written, or the disk is full; nothing is left behind.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".tmp", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            identity = _write(stream, columns, list(lines), about)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return identity


def read_header(file: Path) -> Header:
    """What the file says of itself.

    Raises:
        OSError: it cannot be opened.
        Damaged: it is not whole, or something else.
    """
    with file.open("rb") as stream:
        start = stream.read(_START.size)
        if len(start) < _START.size or not start.startswith(_WORD):
            raise Damaged
        _, length, checksum = _START.unpack(start)
        text = stream.read(length)
        if not text or len(text) < length or zlib.crc32(text) != checksum:
            raise Damaged
        header = json.loads(text)
        columns = {name: (kind, tuple(shape), first) for name, (kind, shape, first) in header["columns"].items()}
        lines, body = tuple(header["lines"]), _aligned(_START.size + length)
        read = Header(header["about"], _identity(text), columns, lines, header["checksum"], body)
        if os.fstat(stream.fileno()).st_size != read.end:
            raise Damaged
    return read


def read(file: Path, *, verify: bool) -> tuple[Header, dict[str, np.ndarray], memoryview]:
    """The header, the columns as read-only views of the mapped file, and the lines' bytes.

    Args:
        verify: read all of it once, to find bytes that have changed.

    Raises:
        OSError: it cannot be opened or mapped.
        Damaged: as of ``read_header``, or a byte has changed.
    """
    header = read_header(file)
    with file.open("rb") as stream:
        whole = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    if len(whole) != header.end:
        raise Damaged
    view = memoryview(whole)
    if verify and zlib.crc32(view[header.body :]) != header.checksum:
        raise Damaged
    columns = {
        name: np.ndarray(shape, np.dtype(kind), whole, header.body + first)
        for name, (kind, shape, first) in header.columns.items()
    }
    start = header.body + header.lines[1]
    return header, columns, view[start : start + header.lines[2]]


def remove_left_behind(folder: Path, before: float) -> None:
    """Remove what writers left that were killed: temporary files last written before a time (seconds since the epoch)."""
    for path in folder.glob(".*.tmp"):
        with suppress(OSError):  # another process did it
            if path.stat().st_mtime < before:
                path.unlink()


def _write(stream: Any, columns: Mapping[str, np.ndarray], lines: list[bytes], about: Mapping[str, Any]) -> str:
    flat = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    assert all(column.dtype.kind in _KINDS for column in flat.values())
    text = b"\n".join(lines)
    places, place, checksum = {}, 0, 0
    chunks: list[bytes | memoryview] = []
    for name, column in flat.items():
        places[name] = column.dtype.newbyteorder("<").str, column.shape, place
        gap = bytes(_aligned(column.nbytes) - column.nbytes)
        chunks += [column.astype(column.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data, gap]
        place += column.nbytes + len(gap)
    chunks.append(text)
    for chunk in chunks:
        checksum = zlib.crc32(chunk, checksum)
    header = {"about": about, "columns": places, "lines": (len(lines), place, len(text)), "checksum": checksum}
    encoded = json.dumps(header).encode()
    stream.write(_START.pack(_WORD, len(encoded), zlib.crc32(encoded)))
    stream.write(encoded)
    stream.write(bytes(_aligned(_START.size + len(encoded)) - _START.size - len(encoded)))
    for chunk in chunks:
        stream.write(chunk)
    return _identity(encoded)


def _identity(header: bytes) -> str:
    """Of the whole file: the header has the checksum of the rest."""
    return hashlib.blake2b(header, digest_size=8).hexdigest()


def _aligned(count: int) -> int:
    return -(-count // _ALIGNED) * _ALIGNED
