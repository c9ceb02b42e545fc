"""The columnar index of a split: what training needs of every picture but its pixels, in a few flat arrays."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from visiontrain.data import image
from visiontrain.data.description import Description
from visiontrain.data.formats import Format, open_split
from visiontrain.data.labels import Finding, Labels
from visiontrain.errors import DataError

_CHUNK = 256  # pictures per call of the progress bar
_FINGERPRINT = b"visiontrain index 1"
_EMPTY = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Index:
    """Pictures and labels of one split.

    ``path_bytes`` and ``path_ends`` hold the paths end to end: flat arrays stay shared between forked workers, where
    a list of strings would be copied page by page. ``sizes`` is (n, 2) int32 height and width as displayed; rows
    ``box_ends[i - 1]`` to ``box_ends[i]`` of ``all_boxes`` (N, 4) float32 cx cy w h (fractions of the picture) and
    ``all_classes`` (N,) int32 belong to picture i. The ``ignored`` columns are likewise, of objects that are neither
    learned nor scored (crowd, difficult), and empty where no picture has any.
    """

    path_bytes: np.ndarray
    path_ends: np.ndarray
    sizes: np.ndarray
    box_ends: np.ndarray
    all_boxes: np.ndarray
    all_classes: np.ndarray
    names: tuple[str, ...]
    findings: list[Finding]
    fingerprint: str
    split: str = "train"
    ignored_ends: np.ndarray = field(default_factory=lambda: _EMPTY)
    ignored_boxes: np.ndarray = field(default_factory=lambda: _EMPTY.reshape(0, 4))
    ignored_classes: np.ndarray = field(default_factory=lambda: _EMPTY)
    told: tuple[str, ...] = ()  # what was left out because it was asked for

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def targets(self) -> int:
        """Objects in all pictures."""
        return len(self.all_classes)

    def path(self, i: int) -> str:
        """Path of picture i."""
        start = int(self.path_ends[i - 1]) if i else 0
        return os.fsdecode(self.path_bytes[start : int(self.path_ends[i])].tobytes())

    def size(self, i: int) -> tuple[int, int]:
        """(height, width) of picture i as displayed."""
        height, width = self.sizes[i]
        return int(height), int(width)

    def boxes(self, i: int) -> np.ndarray:
        """(N, 4) float32: cx cy w h of the objects of picture i, as fractions of the picture."""
        return self.all_boxes[_rows(self.box_ends, i)]

    def pixel_boxes(self, i: int) -> np.ndarray:
        """(N, 4) float64: x1 y1 x2 y2 of the objects of picture i in its pixels."""
        height, width = self.size(i)
        boxes = self.boxes(i).astype(np.float64)
        half = boxes[:, 2:] / 2
        corners = np.concatenate((boxes[:, :2] - half, boxes[:, :2] + half), axis=1)
        return corners * np.array((width, height, width, height), np.float64)

    def classes(self, i: int) -> np.ndarray:
        """(N,) int32 classes of the objects of picture i."""
        return self.all_classes[_rows(self.box_ends, i)]

    def ignored(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Boxes (M, 4) as ``boxes`` gives them and classes (M,) of what is ignored in picture i."""
        rows = _rows(self.ignored_ends, i) if len(self.ignored_ends) else slice(0)
        return self.ignored_boxes[rows], self.ignored_classes[rows]


def _rows(ends: np.ndarray, i: int) -> slice:
    return slice(int(ends[i - 1]) if i else 0, int(ends[i]))


def read_split(description: Description, split: str, on_progress: Callable[[int, int], None] | None = None) -> Index:
    """Read the labels and picture sizes of a split; nothing is written.

    Args:
        split: train, val or test.
        on_progress: called with (pictures done, pictures in all) now and then.

    Raises:
        DataError: no pictures or no labels are found, none of them can be used, or a class is not in the description.
    """
    scan = scan_split(description, split, on_progress)
    return index_of(scan, verdicts(scan))


def verdicts(scan: Scan) -> list[Finding]:
    """Findings on the split as a whole.

    Raises:
        DataError: no picture or no label of it can be used, or a class is not in the description.
    """
    if not scan.pictures:
        raise DataError(_none_left(scan.description, scan.split, scan.findings))
    _refuse_unknown(scan.description, scan.split, scan.labels)
    return scan.source.conclude(scan.labels)


@dataclass(frozen=True, slots=True)
class Scanned:
    """A picture that can be used: its sides in pixels as displayed, its file's size in bytes, its labels."""

    path: str
    height: int
    width: int
    bytes: int
    labels: Labels


@dataclass(frozen=True, slots=True)
class Scan:
    """What the files of a split say, each for itself; ``findings`` are about pictures that cannot be used."""

    description: Description
    split: str
    source: Format
    pictures: list[Scanned]
    findings: list[Finding]

    @property
    def labels(self) -> list[Labels]:
        """Of each picture, in order."""
        return [picture.labels for picture in self.pictures]


def scan_split(description: Description, split: str, on_progress: Callable[[int, int], None] | None = None) -> Scan:
    """Read the labels and picture sizes of a split without a verdict on the whole; nothing is written.

    Raises:
        DataError: the pictures of the split cannot be listed, or a file cannot be opened for a reason of the machine.
    """
    source = open_split(description, split)
    results = list(_scan(source, source.pictures(), on_progress))
    findings = [result for result in results if isinstance(result, Finding)]
    return Scan(description, split, source, [result for result in results if isinstance(result, Scanned)], findings)


def index_of(scan: Scan, verdicts: Sequence[Finding] = ()) -> Index:
    """The index of a scan with at least one picture; rows of unknown classes are not in it.

    Args:
        verdicts: findings on the split as a whole.
    """
    findings = [*scan.findings, *(finding for each in scan.labels for finding in each.findings), *verdicts]
    return _build(scan.description, scan.split, scan.pictures, findings)


def _scan(
    source: Format, pictures: Sequence[str], on_progress: Callable[[int, int], None] | None
) -> Iterator[Scanned | Finding]:
    def one(path: str) -> Scanned | Finding:
        try:
            height, width, length = image.probe(path)
        except FileNotFoundError:
            return Finding("picture_missing", path, 0, "listed, but not there; left out")
        except image.BadPicture as error:
            return Finding(error.kind, path, 0, f"{str(error).removeprefix(path + ': ')}; left out")
        except OSError as error:  # too many open files, a lost disk: no verdict on the picture
            raise DataError(f"{path}: cannot be opened: {error.strerror}") from error
        return Scanned(path, height, width, length, source.labels(path, (height, width)))

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(pictures), _CHUNK):
            yield from pool.map(one, islice(pictures, start, start + _CHUNK))
            if on_progress:
                on_progress(min(start + _CHUNK, len(pictures)), len(pictures))


def _build(description: Description, split: str, scanned: Sequence[Scanned], findings: list[Finding]) -> Index:
    encoded = [os.fsencode(picture.path) for picture in scanned]
    labels = [result.labels for result in scanned]
    sizes = np.array([(result.height, result.width) for result in scanned], np.int32)
    counts = np.cumsum([len(each.classes) for each in labels])
    boxes = np.concatenate([each.boxes for each in labels]).astype(np.float32)
    classes = np.concatenate([each.classes for each in labels]).astype(np.int32)
    lengths = np.array([result.bytes for result in scanned], np.int64)
    relative = [os.fsencode(_relative(picture.path, description.root)) for picture in scanned]
    index = Index(
        path_bytes=np.frombuffer(b"".join(encoded), np.uint8),
        path_ends=np.cumsum([len(path) for path in encoded]),
        sizes=sizes,
        box_ends=counts,
        all_boxes=boxes,
        all_classes=classes,
        names=description.names,
        findings=findings,
        fingerprint=_fingerprint(description.names, relative, sizes, lengths, counts, boxes, classes),
        split=split,
    )
    return replace(index, **_ignored(labels)) if any(len(each.ignored) for each in labels) else index


def _ignored(labels: Sequence[Labels]) -> dict[str, Any]:
    return {
        "ignored_ends": np.cumsum([len(each.ignored) for each in labels]),
        "ignored_boxes": np.concatenate([each.ignored for each in labels]).astype(np.float32),
        "ignored_classes": np.concatenate([each.ignored_classes for each in labels]).astype(np.int32),
    }


def _fingerprint(names: Sequence[str], paths: Sequence[bytes], *columns: np.ndarray) -> str:
    """A hash of what is learned from: the same on every machine, another after any edit of a label."""
    digest = hashlib.sha256(_FINGERPRINT)
    for part in (*(name.encode() for name in names), b"", *paths):
        digest.update(len(part).to_bytes(8, "little") + part)
    for column in columns:
        digest.update(np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()[:32]


def _relative(path: str, root: Path) -> str:
    start = f"{root}{os.sep}"
    return path.removeprefix(start).replace(os.sep, "/")


def _refuse_unknown(description: Description, split: str, labels: Sequence[Labels]) -> None:
    unknown = [finding for each in labels for finding in each.unknown]
    if unknown:
        more = f"\n  ... and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        rows = "\n  ".join(map(str, unknown[:5]))
        classes = {finding.kind for finding in unknown} == {"class_unknown"}
        what = "label rows have a class that names does not have" if classes else "labels cannot be used"
        raise DataError(f"{description.file}, {split}: {len(unknown)} {what}:\n  {rows}{more}")


def _none_left(description: Description, split: str, findings: Sequence[Finding]) -> str:
    first = "\n  ".join(map(str, findings[:3]))
    return f"{description.file}, {split}: none of {len(findings)} pictures can be used, for example\n  {first}"
