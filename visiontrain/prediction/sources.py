"""What is to be looked at: files, folders, patterns, lists, videos, cameras, addresses, and arrays in memory."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from visiontrain.data import image as pictures_io
from visiontrain.data.splits import lines_of
from visiontrain.errors import ConfigError, DataError
from visiontrain.fetching import fetch_file
from visiontrain.prediction.arrays import pixels_of

VIDEOS = frozenset({".asf", ".avi", ".gif", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ts", ".webm", ".wmv"})
MOST_BYTES = 4 * 2**30  # of what an address leads to
_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")


@dataclass(frozen=True, slots=True)
class Video:
    """Of a file or a camera: ``fps`` of what is looked at, all its ``frames``, 0 where it does not say; ``live`` has no end."""

    fps: float
    frames: int
    live: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture: ``image`` (H, W, 3) uint8 RGB; ``path`` names it, ``number`` is that of a video's frame, from 0.

    ``again`` makes the same image once more, so that nobody has to keep it; None where that is not possible.
    """

    image: np.ndarray
    path: str
    again: Callable[[], np.ndarray] | None
    number: int | None = None
    video: Video | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of the source: ``kind`` is picture, video, camera, address or array; ``what`` is its path, or the array."""

    kind: str
    name: str
    what: Any = None

    @property
    def moves(self) -> bool:
        """Whether it may have many frames."""
        return self.kind in ("video", "camera", "address")


def expand(source: Any, on_bad: Callable[[str], None]) -> list[Item]:
    """The entries of a source, in order; nothing is opened but lists.

    Args:
        source: what ``predict`` takes.
        on_bad: is told of paths that lead nowhere.

    Raises:
        ConfigError: it is, or holds, something that is no source; or an address that is not read.
    """
    return list(_items(source, on_bad, count()))


def describe(source: Any) -> str:
    """A source in a few words, for the record."""
    if isinstance(source, list | tuple):
        return f"{len(source)} sources"
    shape = getattr(source, "shape", None) or getattr(source, "size", "")
    return f"{type(source).__name__} {shape}".strip()


def _items(source: Any, on_bad: Callable[[str], None], numbers: Iterator[int]) -> Iterator[Item]:
    if isinstance(source, str | Path):
        yield from _named(str(source), on_bad)
    elif isinstance(source, int) and not isinstance(source, bool):
        yield _camera(source)
    elif isinstance(source, list | tuple):
        for entry in source:
            yield from _items(entry, on_bad, numbers)
    else:
        yield from (Item("array", f"image{next(numbers)}", pixels) for pixels in pixels_of(source))


def _camera(number: int) -> Item:
    return Item("camera", f"camera{number}", number)


def _named(text: str, on_bad: Callable[[str], None]) -> Iterator[Item]:
    path = Path(text).expanduser()
    if _ADDRESS.match(text):
        if text.split("://")[0].lower() not in ("http", "https", "file"):
            raise ConfigError(
                f"source={text}: http, https and file addresses are read; for a stream, save a piece of it"
            )
        yield Item("address", text, text)
    elif text.isdecimal() and not path.exists():
        yield _camera(int(text))
    elif path.is_dir():
        found = sorted(each for each in path.iterdir() if _is_read(each))
        if not found:
            on_bad(
                f"{text}: no picture or video in this folder; for those below it write '{text.rstrip('/')}/**/*.jpg'"
            )
        yield from map(_file, found)
    elif path.suffix.lower() == ".txt" and path.is_file():
        for line in lines_of(path):
            if (entry := line.strip()) and not entry.startswith("#"):
                yield from _named(entry if _ADDRESS.match(entry) else str(path.parent / entry), on_bad)
    elif glob.has_magic(text) and not path.exists():
        found = sorted(each for each in map(Path, glob.glob(str(path), recursive=True)) if _is_read(each))  # noqa: PTH207
        if not found:
            on_bad(f"{text}: no picture or video has such a path")
        yield from map(_file, found)
    elif path.exists():
        yield _file(path)
    else:
        on_bad(f"{text}: no such file or folder")


def _is_read(path: Path) -> bool:
    return path.is_file() and (pictures_io.is_picture(path.name) or path.suffix.lower() in VIDEOS)


def _file(path: Path) -> Item:
    return Item("video" if path.suffix.lower() in VIDEOS else "picture", str(path), path)


def frames(items: Iterable[Item], vid_stride: int, on_bad: Callable[[str], None]) -> Iterator[Frame]:
    """The pictures of the entries, one after another.

    Args:
        items: from ``expand``.
        vid_stride: every so many frames of a video.
        on_bad: is told of what cannot be read, with the reason; the others follow.
    """
    for item in items:
        try:
            yield from _frames(item, vid_stride, on_bad)
        except DataError as error:
            on_bad(str(error))


def _frames(item: Item, vid_stride: int, on_bad: Callable[[str], None]) -> Iterator[Frame]:
    if item.kind == "array":
        yield Frame(item.what(), item.name, item.what)
    elif item.kind == "address":
        fetched = fetch_file(item.what, MOST_BYTES)
        here = Item(_file(fetched).kind, item.name, fetched)
        yield from _frames(here, vid_stride, on_bad)
    elif item.kind == "picture":
        again = partial(pictures_io.read, item.what)
        yield Frame(again(), item.name, again)
    else:
        yield from _video(item, vid_stride, on_bad)


def _video(item: Item, vid_stride: int, on_bad: Callable[[str], None]) -> Iterator[Frame]:
    live = item.kind == "camera"
    capture = cv2.VideoCapture(item.what if live else str(item.what))
    try:
        expected = 0 if live else max(int(capture.get(cv2.CAP_PROP_FRAME_COUNT)), 0)
        video, number = Video(capture.get(cv2.CAP_PROP_FPS) / vid_stride, expected, live), 0
        while capture.grab():
            if number % vid_stride == 0:
                done, picture = capture.retrieve()
                if not done:
                    break
                again = None if live else partial(frame_of, str(item.what), number)
                yield Frame(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), item.name, again, number, video)
            number += 1
    finally:
        capture.release()
    if not number:
        what = "no camera answers" if live else "no video that OpenCV can decode, nor a picture"
        on_bad(f"{item.name}: {what}")
    elif number < 0.9 * expected:
        on_bad(f"{item.name}: the video ends at frame {number} of {expected}; what came before was looked at")


def frame_of(path: str, number: int) -> np.ndarray:
    """A frame of a video, (H, W, 3) uint8 RGB, by decoding all before it: seeking is not exact in every format.

    Raises:
        DataError: it is not there any more.
    """
    capture = cv2.VideoCapture(path)
    try:
        if all(capture.grab() for _ in range(number + 1)):
            done, picture = capture.retrieve()
            if done:
                return cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)
    finally:
        capture.release()
    raise DataError(f"{path}: frame {number} cannot be read any more")
