"""Decoded pictures in one file that every process of the host maps: in memory for a run, or on disk for the next ones too."""

# A million paths pass here, and a Path each is slow.
# ruff: noqa: PTH116
from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from visiontrain.data.index import Index
from visiontrain.data.kept import reader
from visiontrain.errors import DataError
from visiontrain.paths import cache_dir

_FORMAT = "visiontrain pictures 1"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Cache:
    """Pictures of a split at training size, each kept by whoever decodes it first.

    The file holds the pixels of all pictures end to end and then a byte for each, 1 where they are there. Two processes
    that keep the same picture write the same bytes. For another process it is the path, mapped anew. Its room is taken when
    it is made: a disk that fills up later would end whoever writes to the map without a word.

    Args:
        path: of the file, as long as ``length`` says.
        heights, widths: (n,) of the pictures, pixels.
        lasting: whether a later run finds it.
    """

    def __init__(self, path: str, heights: np.ndarray, widths: np.ndarray, *, lasting: bool = False) -> None:
        self.path = path
        self.lasting = lasting
        self.heights, self.widths = heights.astype(np.int32), widths.astype(np.int32)
        self._ends = np.cumsum(heights.astype(np.int64) * widths * 3)
        self._map: np.ndarray | None = None

    @property
    def pictures_bytes(self) -> int:
        """Of all pictures."""
        return int(self._ends[-1])

    @property
    def length(self) -> int:
        """Of the file, bytes."""
        return self.pictures_bytes + len(self._ends)

    def get(self, number: int) -> np.ndarray | None:
        """(h, w, 3) uint8 of a picture, not to be written to; None as long as nobody has kept it."""
        content = self._content()
        return self._rows(content, number) if content[self.pictures_bytes + number] else None

    @property
    def full(self) -> bool:
        """Whether all pictures are there, so that nobody writes any more."""
        return bool(self._content()[self.pictures_bytes :].all())

    def put(self, number: int, picture: np.ndarray) -> None:
        """Keep a picture."""
        content = self._content()
        self._rows(content, number)[...] = picture
        content[self.pictures_bytes + number] = 1

    def _rows(self, content: np.ndarray, number: int) -> np.ndarray:
        end, height, width = int(self._ends[number]), int(self.heights[number]), int(self.widths[number])
        return content[end - height * width * 3 : end].reshape(height, width, 3)

    def _content(self) -> np.ndarray:
        if self._map is None:
            with open(self.path, "r+b") as file:  # noqa: PTH123
                self._map = np.frombuffer(mmap.mmap(file.fileno(), self.length), np.uint8)
        return self._map

    def sync(self) -> None:
        """Have all that was kept written to the disk."""
        with open(self.path, "r+b") as file:  # noqa: PTH123
            os.fsync(file.fileno())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_map": None}


def in_memory(heights: np.ndarray, widths: np.ndarray) -> Cache:
    """A cache that ends with this process: other processes find it under the path of an open file of this one.

    Raises:
        DataError: where the system knows no file in memory it is a temporary one, and there is no room for it.
    """
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("visiontrain pictures")
        cache = Cache(f"/proc/{os.getpid()}/fd/{descriptor}", heights, widths)
        os.ftruncate(descriptor, cache.length)
        return cache
    folder = _folder()
    descriptor, path = tempfile.mkstemp(prefix="run-", suffix=".pictures", dir=folder)
    os.close(descriptor)
    return _sized(Cache(path, heights, widths))


def on_disk(index: Index, size: tuple[int, int], heights: np.ndarray, widths: np.ndarray) -> Cache:
    """The cache of a split in the user's cache, of this run and of earlier ones; made anew when a picture has changed.

    Args:
        size: (height, width) that pictures were shrunk to fit.

    Raises:
        DataError: it cannot be written, or the disk has too little room.
    """
    paths = hashlib.sha256(index.path_bytes.tobytes() + repr(size).encode()).hexdigest()[:24]
    folder = _folder() / paths
    cache = Cache(str(folder / "pixels.bin"), heights, widths, lasting=True)
    stamp = {"format": _FORMAT, "reader": reader(), "pictures": _stamp(index)}
    if _trusted(folder, stamp, cache.length):
        return cache
    shutil.rmtree(folder, ignore_errors=True)  # whoever still maps the old file keeps it until it ends
    folder.mkdir(parents=True, exist_ok=True)
    _sized(cache)
    _write_state(folder, {**stamp, "boot": _boot()})
    return cache


def close(cache: Cache) -> None:
    """At the end of a run: a file on disk that is full is made to last, one in memory is let go."""
    path = Path(cache.path)
    if cache.lasting:
        if cache.full:  # else another run may still write, and what it writes is not on the disk yet
            cache.sync()
            _write_state(path.parent, {**json.loads((path.parent / "state.json").read_text("utf-8")), "synced": True})
    elif path.parent.name == "fd":  # mapped pages live on until the last process has ended
        os.close(int(path.name))
    else:
        path.unlink(missing_ok=True)


def _folder() -> Path:
    folder = cache_dir() / "pictures"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"cache: {folder} cannot be written: {error.strerror}; set VISIONTRAIN_CACHE to a folder that can, or leave cache out"
        ) from error
    return folder


def _sized(cache: Cache) -> Cache:
    """Give the file its length, which the disk must have room for."""
    free = shutil.disk_usage(Path(cache.path).parent).free
    if cache.length > free:
        Path(cache.path).unlink(missing_ok=True)
        raise DataError(
            f"cache: {len(cache.heights)} pictures take {cache.length / 1e9:.1f} GB and {Path(cache.path).parent} has "
            f"{free / 1e9:.1f} GB left; make room, set VISIONTRAIN_CACHE, use a smaller imgsz or leave cache out"
        )
    with open(cache.path, "wb") as file:  # noqa: PTH123
        file.truncate(cache.length)
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, cache.length)
            except OSError as error:
                raise DataError(
                    f"cache: {cache.path} cannot have {cache.length / 1e9:.1f} GB: {error.strerror}"
                ) from error
    return cache


def _stamp(index: Index) -> str:
    """Another one after any change of a picture's file, ``touch -r`` included."""
    digest = hashlib.sha256(index.path_bytes.tobytes())
    for number in range(len(index)):
        try:
            found = os.stat(index.path(number))
        except OSError:  # gone since the index was made: what draws it tells
            digest.update(b"- ")
            continue
        digest.update(b"%d %d %d " % (found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    return digest.hexdigest()


def _trusted(folder: Path, stamp: dict[str, str], length: int) -> bool:
    """Whether what an earlier run left is whole, and read as it would be now: it was synced, or no power was lost since."""
    try:
        state = json.loads((folder / "state.json").read_text("utf-8"))
        there = (folder / "pixels.bin").stat().st_size
    except (OSError, ValueError):
        return False
    same = there == length and all(state.get(name) == value for name, value in stamp.items())
    return same and (state.get("synced") is True or (state.get("boot") == _boot() != ""))


def _write_state(folder: Path, state: dict[str, Any]) -> None:
    descriptor, name = tempfile.mkstemp(prefix="state-", dir=folder)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(state, file)
    Path(name).replace(folder / "state.json")


def _boot() -> str:
    """What this start of the machine is called, or nothing."""
    with contextlib.suppress(OSError):
        return _BOOT.read_text("ascii").strip()
    return ""
