"""COCO JSON: the pictures of a split, their categories and boxes x y w h in pixels, all in one file."""

# Paths are strings here: a million of them pass, and a Path each is slow.
# ruff: noqa: PTH110, PTH118, PTH120
from __future__ import annotations

import difflib
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from visiontrain.data.description import Description
from visiontrain.data.formats.placed import Placed, rounded, write_new
from visiontrain.data.labels import Finding, Labels, PixelRows
from visiontrain.data.recognise import is_json
from visiontrain.data.splits import entries_of
from visiontrain.errors import DataError

_TRIED = 20  # pictures that are looked for to find their folder
_BAD = float("nan")


class CocoSplit:
    """One split of a data set with COCO JSON labels, in one file or several."""

    HOME = "images"
    IGNORED = "with iscrowd=1"

    def __init__(self, description: Description, split: str) -> None:
        self.description = description
        self.split = split

    def pictures(self) -> list[str]:
        """The paths of the split's pictures, sorted, each once.

        Raises:
            DataError: a JSON is missing or not COCO's, or its pictures are nowhere.
        """
        return sorted(self._entries)

    def labels(self, picture: str, size: tuple[int, int]) -> Labels:
        """Labels of one picture; its sides as written are only compared, since they may be missing."""
        first = self._entries[picture][0][0]
        rows = PixelRows(str(first.file), size, "annotation")
        for table, image in self._entries[picture]:
            written = table.sizes[image]
            if min(written) > 0 and written != size:
                text = (
                    f"{picture}: {written[1]} x {written[0]} pixels there, {size[1]} x {size[0]} in the picture;"
                    " boxes are taken as pixels of the picture"
                )
                rows.findings.append(Finding("size_differs", str(table.file), 0, text))
            table.into(rows, image)
        return rows.labels()

    def conclude(self, read: Sequence[Labels]) -> list[Finding]:
        """Verdicts on the split as a whole.

        Raises:
            DataError: boxes are of categories that names does not have, or none of them can be used.
        """
        self._refuse_unknown()
        rows, kept = sum(labels.rows for labels in read), sum(len(labels.classes) for labels in read)
        ignored = sum(len(labels.ignored) for labels in read)
        if rows and not kept + ignored:
            first = [str(finding) for labels in read for finding in labels.findings][:5]
            raise DataError(f"{self._where()}: none of the {rows} annotations can be used:\n  " + "\n  ".join(first))
        return list(self._counted(len(read), rows, ignored))

    def ids(self) -> tuple[dict[str, int | str], dict[str, int | str]]:
        """The ids that the JSON gives: of pictures by path, of categories by name; none of several JSONs, which may clash."""
        if len(self._tables) > 1:
            return {}, {}
        (table,) = self._tables
        images = {path: table.image_ids[places[0][1]] for path, places in self._entries.items()}
        return images, table.category_ids

    def places(self, pictures: Sequence[str]) -> set[str]:
        """The JSONs, and the folders of their pictures."""
        return {str(table.file) for table in self._tables} | {os.path.dirname(picture) for picture in pictures}

    def strays(self, pictures: Sequence[str]) -> list[Finding]:
        """None: labels are in no file of their own, and ``conclude`` counts annotations without a picture."""
        return []

    @staticmethod
    def write(root: Path, split: str, pictures: Sequence[Placed], names: Sequence[str]) -> dict[str, str]:
        """Write annotations/instances_<split>.json; ids count from 1 in the order of pictures, boxes and names."""
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for number, picture in enumerate(pictures, 1):
            images.append({"id": number, "file_name": picture.name, "width": picture.width, "height": picture.height})
            labels = picture.labels
            for boxes, classes, crowd in (
                (labels.boxes, labels.classes, 0),
                (labels.ignored, labels.ignored_classes, 1),
            ):
                for (x1, y1, x2, y2), klass in zip(picture.corners(boxes), classes.tolist(), strict=True):
                    annotations.append(
                        {
                            "id": len(annotations) + 1,
                            "image_id": number,
                            "category_id": klass + 1,
                            "bbox": [x1, y1, rounded(x2 - x1), rounded(y2 - y1)],
                            "area": rounded((x2 - x1) * (y2 - y1)),
                            "iscrowd": crowd,
                        }
                    )
        categories = [{"id": number, "name": name} for number, name in enumerate(names, 1)]
        file = f"annotations/instances_{split}.json"
        write_new(root / file, _as_text(annotations=annotations, categories=categories, images=images))
        return {split: file}

    @cached_property
    def _tables(self) -> list[_Table]:
        files = entries_of(self.description, self.split)
        return [_Table.read(file, self._numbers) for file in files]

    @cached_property
    def _entries(self) -> dict[str, list[tuple[_Table, int]]]:
        """Where the labels of each picture are: table and row of its images. A picture may be in several."""
        found: dict[str, list[tuple[_Table, int]]] = {}
        for table in self._tables:
            folder = self._folder(table)
            for image, name in enumerate(table.names):
                path = os.path.normpath(os.path.join(folder, _here(folder, name)))
                found.setdefault(path, []).append((table, image))
        if not found:
            raise DataError(f"{self._where()}: images is empty in {', '.join(str(t.file) for t in self._tables)}")
        return found

    @property
    def _numbers(self) -> dict[str, int]:
        names = self.description.names
        return {name: number for number, name in reversed(list(enumerate(names)))}

    def _folder(self, table: _Table) -> str:
        given = self.description.pictures.get(self.split)
        if given:
            if not given.is_dir():
                raise DataError(f"{self.description.file}: pictures of {self.split}: there is no folder {str(given)!r}")
            return str(given)
        places = [str(place) for place in dict.fromkeys(_places(table.file, self.description.root, self.split))]
        tried = table.names[:_TRIED]
        for place in places:
            if any(os.path.exists(os.path.join(place, _here(place, name))) for name in tried):
                return place
        if not tried:
            return places[0]
        raise DataError(
            f"{self._where()}: {table.file} names pictures such as {tried[0]!r}, which is in none of\n  "
            + "\n  ".join(places)
            + "\nSay in the description where they are, for example\n  pictures: {train: images/train, val: images/val}"
        )

    def _refuse_unknown(self) -> None:
        unknown = Counter[str]()
        for table in self._tables:
            unknown.update(table.unknown)
        if not unknown:
            return
        names = self.description.names
        told = [f"{name}: {count} annotations{_near(name, names)}" for name, count in unknown.most_common(20)]
        raise DataError(
            f"{self._where()}: {len(unknown)} categories have annotations and are not in names"
            f" ({', '.join(names[:8])}{', ...' if len(names) > 8 else ''}):\n  " + "\n  ".join(told)
        )

    def _counted(self, total: int, rows: int, ignored: int) -> Iterator[Finding]:
        for table in self._tables:
            if table.orphans:
                text = f"{len(table.orphans)} annotations are of pictures that images does not have, e.g. {table.orphans[0]}"
                yield Finding("labels_without_picture", str(table.file), 0, text)
        file = str(self.description.file)
        if ignored:
            text = (
                f"{ignored} crowd boxes of {self.split} are left out of training, and ignored in scoring as COCO does"
            )
            yield Finding("ignored", file, 0, text)
        if not rows:
            yield Finding("labels_empty", file, 0, f"{self.split} has no annotations: {total} pictures of background")

    def _where(self) -> str:
        return f"{self.description.file}, {self.split}"


@dataclass(frozen=True, slots=True)
class _Table:
    """One JSON as columns. Rows ``ends[i - 1]`` to ``ends[i]`` of the annotations belong to image i.

    ``sizes`` are (height, width) as written, 0 where missing; ``boxes`` (N, 4) float64 x y w h, nan where there is none;
    ``classes`` (N,) int32, -1 for those of ``unknown``, which are counted there by name.
    """

    file: Path
    names: list[str]
    sizes: list[tuple[int, int]]
    ends: np.ndarray
    image_ids: list[int | str]
    category_ids: dict[str, int | str]
    ids: list[Any]
    boxes: np.ndarray
    areas: np.ndarray
    classes: np.ndarray
    ignored: np.ndarray
    unknown: Counter[str]
    orphans: list[str]

    @classmethod
    def read(cls, file: Path, numbers: dict[str, int]) -> _Table:
        """Read a JSON; ``numbers`` are the classes by name."""
        content = _load(file)
        categories = _by_id(file, content, "categories", "name")
        places = {image: row for row, image in enumerate(_by_id(file, content, "images", "file_name"))}
        rows: list[tuple[int, int, dict[str, Any]]] = []
        orphans: list[str] = []
        for number, each in enumerate(content["annotations"]):
            if not isinstance(each, dict):
                raise DataError(f"{file}: annotation {number} (from 0) is {each!r:.60}, not a map")
            place = places.get(each.get("image_id", ""))
            if place is None:
                orphans.append(f"annotation {each.get('id', number)} of image {each.get('image_id')!r}")
            else:
                rows.append((place, number, each))
        rows.sort(key=lambda row: row[:2])
        images = content["images"]
        known = [_class(each, categories, numbers) for _, _, each in rows]
        boxes = [_box(each) for _, _, each in rows]
        return cls(
            file,
            [image["file_name"] for image in images],
            [(_side(image, "height"), _side(image, "width")) for image in images],
            np.cumsum(np.bincount([place for place, _, _ in rows], minlength=len(images))),
            list(places),
            {name: number for number, name in categories.items()},
            [each.get("id", number) for _, number, each in rows],
            np.array(boxes, np.float64).reshape(-1, 4),
            np.array([_outline_area(each) for _, _, each in rows], np.float64),
            np.array([-1 if isinstance(klass, str) else klass for klass in known], np.int32),
            np.array([bool(each.get("iscrowd") or each.get("ignore")) for _, _, each in rows], bool),
            Counter(klass for klass in known if isinstance(klass, str)),
            orphans,
        )

    def into(self, rows: PixelRows, image: int) -> None:
        """Add the annotations of an image."""
        start, stop = int(self.ends[image - 1]) if image else 0, int(self.ends[image])
        rows.rows += stop - start
        rows.outlines += int((self.areas[start:stop] > 0).sum())
        for row in range(start, stop):
            if self.classes[row] < 0:  # counted by name; conclude stops at them
                continue
            x, y, w, h = self.boxes[row].tolist()
            written = f"{self.names[image]}, bbox [{x:g}, {y:g}, {w:g}, {h:g}]"
            corners = (x, y, x + w, y + h)
            ignored, area = bool(self.ignored[row]), float(self.areas[row])
            rows.add(self.ids[row], int(self.classes[row]), corners, written, ignored, area)


def category_names(file: Path) -> tuple[str, ...]:
    """The names of the categories of a JSON by ascending id, each once.

    Raises:
        DataError: it is missing or not COCO's.
    """
    categories = _by_id(file, _load(file), "categories", "name")
    order = sorted(categories, key=lambda number: (isinstance(number, str), number))
    return tuple(dict.fromkeys(categories[number] for number in order))


def _load(file: Path) -> dict[str, Any]:
    if not is_json(file):
        raise DataError(f"{file}: with format: coco a split is a JSON file (.json), or a list of them")
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise DataError(f"{file}: cannot be opened: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise DataError(f"{file}:{error.lineno}: not valid JSON: {error.msg}, column {error.colno}") from error
    for key in ("images", "annotations", "categories"):
        lists = isinstance(content, dict) and isinstance(content.get(key), list)
        if not lists:
            has = ", ".join(map(str, content)) if isinstance(content, dict) else f"a {type(content).__name__}"
            raise DataError(
                f"{file}: a COCO JSON is a map with lists images, annotations, categories: no {key} in {has}"
            )
    return content


def _by_id(file: Path, content: dict[str, Any], key: str, wanted: str) -> dict[int | str, str]:
    """``wanted`` of the entries of a list by their id, in their order."""
    found: dict[Any, str] = {}
    for number, entry in enumerate(content[key]):
        value = entry.get(wanted) if isinstance(entry, dict) else None
        if not isinstance(value, str) or not isinstance(entry.get("id"), int | str):
            raise DataError(f"{file}: {key}, entry {number} (from 0): needs an id and a {wanted}, has {entry!r:.80}")
        if entry["id"] in found:
            raise DataError(f"{file}: {key}: id {entry['id']!r} is of both {found[entry['id']]!r} and {value!r}")
        found[entry["id"]] = value
    return found


def _class(annotation: dict[str, Any], categories: dict[Any, str], numbers: dict[str, int]) -> int | str:
    """The class, or of one that names does not have what to call it."""
    number = annotation.get("category_id")
    name = categories.get(number) if isinstance(number, int | str) else None
    if name is None:
        return f"category_id {number!r}, which categories does not have"
    return numbers.get(name, repr(name))


def _box(annotation: dict[str, Any]) -> list[float]:
    """x y w h; of an outline without bbox the box around it."""
    box, outline = annotation.get("bbox"), annotation.get("segmentation")
    if not box and isinstance(outline, list) and outline and all(isinstance(part, list) for part in outline):
        numbers = [value for part in outline for value in part]
        xs, ys = numbers[0::2], numbers[1::2]
        if xs and all(isinstance(value, int | float) for value in numbers):
            return [min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)]
    if isinstance(box, list) and len(box) == 4 and all(isinstance(value, int | float) for value in box):
        return box
    return [_BAD] * 4


def _outline_area(annotation: dict[str, Any]) -> float:
    """0 where there is no outline."""
    area = annotation.get("area") if annotation.get("segmentation") else 0.0
    return float(area) if isinstance(area, int | float) else 1.0


def _side(image: dict[str, Any], key: str) -> int:
    value = image.get(key)
    return int(value) if isinstance(value, int | float) else 0


def _places(file: Path, root: Path, split: str) -> Iterator[Path]:
    """Folders where the pictures of a JSON usually are, the likeliest first."""
    beside = file.parent
    above = beside.parent if beside.name == "annotations" else beside
    tail = file.stem.split("_")[-1]  # train2017 of instances_train2017
    for start in (above, root):
        yield from (start / "images" / tail, start / tail, start / "images" / split, start / split)
    yield from (beside, above, root, above / "images", root / "images")


def _here(folder: str, name: str) -> str:
    """A name as this system writes it: a JSON from Windows has its own separators."""
    if "\\" not in name or os.sep == "\\" or os.path.exists(os.path.join(folder, name)):
        return name
    return name.replace("\\", "/")


def _near(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name.strip("'").lower(), [each.lower() for each in names], n=1)
    return f"; did you mean {next(each for each in names if each.lower() == near[0])}?" if near else ""


def _as_text(**lists: list[dict[str, Any]]) -> str:
    """A JSON with an entry a line, keys sorted: the same bytes for the same data, and lines that can be compared."""
    parts = []
    for key, entries in sorted(lists.items()):
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False, sort_keys=True) for entry in entries)
        parts.append(f'"{key}": [\n{lines}\n]')
    return "{" + ",\n".join(parts) + "}\n"
