"""A file as torch.save writes it: a zip of stored records. Opened without trusting what it says of itself.

Nothing is allocated before it is known that the file has the bytes: no record is compressed, and all records together are
no larger than the file.
"""

from __future__ import annotations

import sys
import zipfile
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from visiontrain.models.pickled import MOST_BYTES, STORAGES, Refused, Storage, StoredTensor, follow

MOST_DIRECTORY = 4 << 20  # bytes of the zip's table of contents; a record takes about 80
MOST_NODES, DEEPEST = 200_000, 32  # of plain content: values, and how deep they are nested


class Archive:
    """The records of one file; a context manager.

    Raises:
        Refused: the file is no such zip, or what it says of its records cannot be true.
    """

    def __init__(self, path: Path) -> None:
        self._file = _Directory(path)
        try:
            self._zip = zipfile.ZipFile(self._file)
            self._file.most = sys.maxsize
            self._records = _records(self._zip.infolist(), self._file.bytes)
            self._read = 0
            self._storages: dict[str, Tensor] = {}
            self._tensors: dict[int, tuple[StoredTensor, Tensor]] = {}
            byteorder = self._records.get("byteorder")
            if byteorder and (byteorder.file_size > 8 or self._bytes(byteorder) != sys.byteorder.encode()):
                raise Refused(f"its numbers are not {sys.byteorder}-endian, as this machine's are")
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
            self._file.close()
            raise Refused(f"it is no zip as torch.save writes it, or damaged ({error})") from error
        except Refused:
            self._file.close()
            raise

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()

    def content(self) -> Any:
        """What the pickle in it stands for; tensors are StoredTensors, which ``tensor`` reads."""
        program = self._records.get("data.pkl")
        if program is None:
            raise Refused("it has no data.pkl, which torch.save writes")
        if program.file_size > MOST_BYTES:
            raise Refused(f"its pickle has {program.file_size:,} bytes; {MOST_BYTES:,} are read at most")
        return follow(self._bytes(program))

    def tensor(self, stored: StoredTensor) -> Tensor:
        """Read a tensor; those of one storage share it."""
        if id(stored) not in self._tensors:
            self._read += stored.bytes
            if self._read > self._file.bytes:
                raise Refused("its tensors together are larger than the file")
            storage = self._storage(stored.storage)
            self._tensors[id(stored)] = stored, torch.as_strided(storage, stored.shape, stored.strides, stored.offset)
        return self._tensors[id(stored)][1]

    def plain(self, value: Any) -> Any:
        """The content as numbers, text, lists, dictionaries and tensors.

        Raises:
            Refused: it has objects of other classes, or is nested deeply or without end.
        """
        left = MOST_NODES

        def read(value: Any, depth: int) -> Any:
            nonlocal left
            left -= 1
            if left < 0 or depth > DEEPEST:
                raise Refused(f"its content has more than {MOST_NODES:,} values, or is nested more than {DEEPEST} deep")
            if isinstance(value, StoredTensor):
                return self.tensor(value)
            if isinstance(value, dict):
                return {key: read(item, depth + 1) for key, item in value.items()}
            if isinstance(value, list | tuple | set):
                return type(value)(read(item, depth + 1) for item in value)
            if value is None or isinstance(value, bool | int | float | str):
                return value
            raise Refused(f"it has an object that is no plain value: {getattr(value, 'kind', type(value).__name__)}")

        return read(value, 0)

    def _storage(self, storage: Storage) -> Tensor:
        kind, size = STORAGES[storage.kind]
        dtype = getattr(torch, kind)
        if storage.key not in self._storages:
            record = self._records.get(f"data/{storage.key}")
            if record is None:
                raise Refused(f"its storage {storage.key[:40]!r} is missing")
            if record.file_size != storage.count * size:
                raise Refused(
                    f"its storage {storage.key[:40]!r} should have {storage.count:,} elements of {size} bytes and has "
                    f"{record.file_size:,} bytes"
                )
            content = bytearray(self._bytes(record))
            self._storages[storage.key] = (
                torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
            )
        found = self._storages[storage.key]
        if found.dtype != dtype or len(found) != storage.count:
            raise Refused(f"its storage {storage.key[:40]!r} is described in two ways")
        return found

    def _bytes(self, record: zipfile.ZipInfo) -> bytes:
        try:
            content = self._zip.read(record)
        except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, OSError) as error:
            raise Refused(f"its record {record.filename[:80]!r} cannot be read ({error})") from error
        if len(content) != record.file_size:
            raise Refused(f"its record {record.filename[:80]!r} ends too early")
        return content


def write_archive(content: dict[str, Any], file: BinaryIO) -> None:
    """torch.save.

    Raises:
        OSError: the disk's own; torch says of a full disk that a position was not expected.
    """
    told = _Told(file)
    try:
        torch.save(content, told)
    except RuntimeError:
        if told.error:
            raise told.error from None
        raise


class _Told:
    """A file to write to that remembers what went wrong."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None
        self.flush = file.flush

    def write(self, content: bytes) -> int:
        try:
            return self._file.write(content)
        except OSError as error:
            self.error = error
            raise


class _Directory(FileIO):
    """A file of which no more than ``most`` bytes are read at once: zipfile reads the whole table of contents in one go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.bytes = path.stat().st_size
        self.most = MOST_DIRECTORY

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = self.bytes - self.tell() if size is None or size < 0 else size
        if wanted > self.most:
            raise Refused(f"its table of contents has {wanted:,} bytes; {MOST_DIRECTORY:,} are read at most")
        return super().read(wanted) or b""


def _records(entries: list[zipfile.ZipInfo], most: int) -> dict[str, zipfile.ZipInfo]:
    """The records by their names below the folder that all are in.

    Raises:
        Refused: a record is compressed, encrypted, twice there or outside of the folder, or all are larger than the file.
    """
    found: dict[str, zipfile.ZipInfo] = {}
    root = entries[0].filename.partition("/")[0] if entries else ""
    for entry in entries:
        folder, _, name = entry.filename.partition("/")
        shown = entry.filename[:80]
        if folder != root or not name or ".." in entry.filename.split("/") or "\\" in entry.filename:
            raise Refused(f"its record {shown!r} is not in one folder with the others, as torch.save writes them")
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size or entry.flag_bits & 1:
            raise Refused(f"its record {shown!r} is compressed or encrypted; torch.save stores records as they are")
        if name in found:
            raise Refused(f"its record {shown!r} is there twice")
        found[name] = entry
    if sum(entry.file_size for entry in entries) > most:
        raise Refused(f"its records together are larger than the file of {most:,} bytes")
    return found
