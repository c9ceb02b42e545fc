"""The columnar index of a split: what training needs of every picture but its pixels, in a few flat arrays."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, overload

import numpy as np

from visiontrain.data import columns as table
from visiontrain.data import kept, watch
from visiontrain.data.description import Description
from visiontrain.data.formats import Format, open_split
from visiontrain.data.labels import Finding
from visiontrain.data.scan import Scan, Scanned, read_parts, verdicts
from visiontrain.errors import DataError

_FINGERPRINT = b"visiontrain index 1"
_EMPTY = np.empty(0, np.int64)
_AT_ONCE = 4096  # pictures whose columns are made together
_DTYPES = {
    "path_bytes": np.uint8,
    "path_ends": np.int64,
    "sizes": np.int32,
    "lengths": np.int64,  # of files, bytes: in the fingerprint alone
    "box_ends": np.int64,
    "all_boxes": np.float32,
    "all_classes": np.int32,
    "ignored_ends": np.int64,
    "ignored_boxes": np.float32,
    "ignored_classes": np.int32,
}


@dataclass(frozen=True, slots=True)
class Index:
    """Pictures and labels of one split.

    ``path_bytes`` and ``path_ends`` hold the paths end to end: flat arrays stay shared between forked workers, where
    a list of strings would be copied page by page. ``sizes`` is (n, 2) int32 height and width as displayed; rows
    ``box_ends[i - 1]`` to ``box_ends[i]`` of ``all_boxes`` (N, 4) float32 cx cy w h (fractions of the picture) and
    ``all_classes`` (N,) int32 belong to picture i. The ``ignored`` columns are likewise, of objects that are neither
    learned nor scored (crowd, difficult), and empty where no picture has any.

    ``place`` is the file in the user's cache that the columns are mapped from, and its identity; ``not_kept`` is why there
    is none. Another process is sent the place; what ``replace`` makes has none and is sent whole.
    """

    path_bytes: np.ndarray
    path_ends: np.ndarray
    sizes: np.ndarray
    box_ends: np.ndarray
    all_boxes: np.ndarray
    all_classes: np.ndarray
    names: tuple[str, ...]
    findings: Sequence[Finding]
    fingerprint: str
    split: str = "train"
    ignored_ends: np.ndarray = field(default_factory=lambda: _EMPTY)
    ignored_boxes: np.ndarray = field(default_factory=lambda: _EMPTY.reshape(0, 4))
    ignored_classes: np.ndarray = field(default_factory=lambda: _EMPTY)
    told: tuple[str, ...] = ()  # what was left out because it was asked for
    not_kept: str = field(default="", repr=False)
    place: tuple[Path, str] | None = field(init=False, default=None, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def targets(self) -> int:
        """Objects in all pictures."""
        return len(self.all_classes)

    @property
    def owners(self) -> np.ndarray:
        """(N,) int64: the picture of each object."""
        return np.repeat(np.arange(len(self)), np.diff(self.box_ends, prepend=0))

    def path(self, i: int) -> str:
        """Path of picture i."""
        start = int(self.path_ends[i - 1]) if i else 0
        return os.fsdecode(self.path_bytes[start : int(self.path_ends[i])].tobytes())

    def size(self, i: int) -> tuple[int, int]:
        """(height, width) of picture i as displayed."""
        height, width = self.sizes[i].tolist()
        return height, width

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

    def __reduce__(self) -> tuple[Callable[..., Index], tuple[Any, ...]]:
        if self.place and mapped(self.place) is not None:
            return mapped_again, self.place
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        return _index_with, ({**given, "findings": list(self.findings)},)


def _rows(ends: np.ndarray, i: int) -> slice:
    return slice(int(ends[i - 1]) if i else 0, int(ends[i]))


def open_index(
    description: Description,
    split: str,
    on_progress: Callable[[int, int], None] | None = None,
    on_check: Callable[[int, int], None] | None = None,
) -> Index:
    """The index of a split as the user's cache has it; read and kept there where it has none, or where files have changed.

    Its columns are mapped, not copied: processes of one host share them.

    Args:
        split: train, val or test.
        on_progress: called with (pictures read, pictures in all) now and then.
        on_check: called with (files looked at, files in all) now and then, while it is asked whether they have changed.

    Raises:
        DataError: as ``read_split``.
    """
    name, facts = kept.name_of(description.file, split), {"description": repr(description), "split": split}
    found = kept.find(name, facts, on_check)
    if found and (index := mapped(found, verify=True)) is not None:
        return index
    before = watch.now()
    source = open_split(description, split)
    pictures = source.pictures()
    stamps = watch.stamps(source.places(pictures), on_check, before)
    index = _read(description, split, source, pictures, on_progress)
    said = {"names": index.names, "fingerprint": index.fingerprint, "split": split}
    lines = [json.dumps(astuple(finding)).encode() for finding in index.findings]
    try:
        place = kept.keep(name, facts, stamps, _columns_of(index), lines, {"index": said})
    except OSError as error:
        return replace(index, not_kept=f"{kept.folder()}: {error.strerror or error}")
    return mapped(place) or index


def mapped(place: tuple[Path, str], *, verify: bool = False) -> Index | None:
    """The index in a file of the cache, None where that is gone, another one or damaged.

    Args:
        place: file and identity.
        verify: look at each byte, not only at the header and the length.
    """
    try:
        header, columns, lines = table.read(place[0], verify=verify)
    except (OSError, table.Damaged):
        return None
    if header.identity != place[1]:
        return None
    said = header.about["index"]
    about = {"names": tuple(said["names"]), "fingerprint": said["fingerprint"], "split": said["split"]}
    index = _index_with({**columns, **about, "findings": _Lines(lines, header.lines[0])})
    object.__setattr__(index, "place", place)
    return index


def mapped_again(*place: Any) -> Index:
    """As ``mapped``, where it was a moment ago."""
    index = mapped(place)
    if index is None:
        raise DataError(f"{place[0]}: was removed or replaced while a run began that uses it; start the run again")
    return index


def read_split(description: Description, split: str, on_progress: Callable[[int, int], None] | None = None) -> Index:
    """Read the labels and picture sizes of a split, whatever the cache has; nothing is written.

    Args:
        split: train, val or test.
        on_progress: called with (pictures done, pictures in all) now and then.

    Raises:
        DataError: no pictures or no labels are found, none of them can be used, or a class is not in the description.
    """
    source = open_split(description, split)
    return _read(description, split, source, source.pictures(), on_progress)


class _Lines(Sequence[Finding]):
    """Findings as lines of JSON, read when they are asked for: there may be a million, and workers never ask."""

    def __init__(self, text: memoryview, count: int) -> None:
        self._text = text
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Finding]:
        return (Finding(*json.loads(line)) for line in bytes(self._text).splitlines())

    @overload
    def __getitem__(self, at: int) -> Finding: ...
    @overload
    def __getitem__(self, at: slice) -> list[Finding]: ...
    def __getitem__(self, at: int | slice) -> Finding | list[Finding]:
        if isinstance(at, slice) and not at.start and (at.stop or -1) >= 0 and at.step is None:
            return list(islice(self, at.stop))
        return list(self)[at]


def _columns_of(index: Index) -> dict[str, np.ndarray]:
    values = {each.name: getattr(index, each.name) for each in fields(index)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def _index_with(values: dict[str, Any]) -> Index:
    return Index(**values)


def index_of(scan: Scan, verdicts: Sequence[Finding] = ()) -> Index:
    """The index of a scan with at least one picture; rows of unknown classes are not in it.

    Args:
        verdicts: findings on the split as a whole.
    """
    builder = _Builder(scan.description)
    for start in range(0, len(scan.pictures), _AT_ONCE):
        builder.add(scan.pictures[start : start + _AT_ONCE])
    return builder.index(scan, verdicts)


def _read(
    description: Description,
    split: str,
    source: Format,
    pictures: Sequence[str],
    on_progress: Callable[[int, int], None] | None,
) -> Index:
    """As ``index_of(scan, verdicts(scan))``; what is in the columns already is not kept beside them."""
    builder, scan = _Builder(description), Scan(description, split, source, [], [])
    for part in read_parts(source, pictures, on_progress):
        usable = [result for result in part if isinstance(result, Scanned)]
        builder.add(usable)
        scan.pictures.extend(map(_counted, usable))
        scan.findings.extend(result for result in part if isinstance(result, Finding))
    return builder.index(scan, verdicts(scan))


def _counted(picture: Scanned) -> Scanned:
    """The same without its boxes, for the verdicts on the whole: of classes and boxes only their number is asked."""
    labels = picture.labels
    less = replace(
        labels,
        boxes=_blank(0),
        classes=_blank(len(labels.classes)),
        ignored=_blank(len(labels.ignored)),
        ignored_classes=_blank(0),
        lines=(),
    )
    return replace(picture, labels=less)


@cache
def _blank(count: int) -> np.ndarray:
    return np.zeros(count, np.uint8)


class _Builder:
    """Gathers the columns of an index, part after part."""

    def __init__(self, description: Description) -> None:
        self.description = description
        self._parts: dict[str, list[np.ndarray]] = {name: [] for name in _DTYPES}
        self._relative = hashlib.sha256(_FINGERPRINT)
        for part in (*(name.encode() for name in description.names), b""):
            _update(self._relative, part)

    def add(self, pictures: Sequence[Scanned]) -> None:
        """The next pictures, in order."""
        if not pictures:
            return
        paths = [os.fsencode(picture.path) for picture in pictures]
        for picture in pictures:
            _update(self._relative, os.fsencode(_relative(picture.path, self.description.root)))
        labels = [picture.labels for picture in pictures]
        part = {
            "path_bytes": np.frombuffer(b"".join(paths), np.uint8),
            "path_ends": [len(path) for path in paths],
            "sizes": [(picture.height, picture.width) for picture in pictures],
            "lengths": [picture.bytes for picture in pictures],
            "box_ends": [len(each.classes) for each in labels],
            "all_boxes": np.concatenate([each.boxes for each in labels]),
            "all_classes": np.concatenate([each.classes for each in labels]),
            "ignored_ends": [len(each.ignored) for each in labels],
            "ignored_boxes": np.concatenate([each.ignored for each in labels]),
            "ignored_classes": np.concatenate([each.ignored_classes for each in labels]),
        }
        for name, values in part.items():
            self._parts[name].append(np.asarray(values, _DTYPES[name]))

    def index(self, scan: Scan, verdicts: Sequence[Finding]) -> Index:
        """The index of all that was added; it leaves nothing here."""
        columns = {name: np.concatenate(self._parts.pop(name)) for name in _DTYPES}
        for name in ("path_ends", "box_ends", "ignored_ends"):
            columns[name] = np.cumsum(columns[name])
        lengths = columns.pop("lengths")
        learned = (columns["sizes"], lengths, *(columns[name] for name in ("box_ends", "all_boxes", "all_classes")))
        if not columns["ignored_ends"][-1]:
            columns = {name: column for name, column in columns.items() if not name.startswith("ignored")}
        about = {
            "names": scan.description.names,
            "findings": [*scan.findings, *(finding for each in scan.labels for finding in each.findings), *verdicts],
            "fingerprint": _fingerprint(self._relative, *learned),
            "split": scan.split,
        }
        return _index_with({**columns, **about})


def _fingerprint(digest: hashlib._Hash, *columns: np.ndarray) -> str:
    """A hash of what is learned from: the same on every machine, another after any edit of a label."""
    for column in columns:
        digest.update(np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<")).data)
    return digest.hexdigest()[:32]


def _update(digest: hashlib._Hash, part: bytes) -> None:
    digest.update(len(part).to_bytes(8, "little") + part)


def _relative(path: str, root: Path) -> str:
    start = f"{root}{os.sep}"
    return path.removeprefix(start).replace(os.sep, "/")
