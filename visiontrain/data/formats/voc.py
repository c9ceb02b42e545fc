"""Pascal VOC XML: a file per picture with the corners of each object in pixels, in Annotations beside JPEGImages."""

# Paths are strings here: a million of them pass, and a Path each is slow.
# ruff: noqa: PTH112, PTH118, PTH119, PTH120, PTH122, PTH123, PTH208
from __future__ import annotations

import difflib
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from visiontrain.data.description import Description
from visiontrain.data.formats.placed import Placed, pixels, write_new
from visiontrain.data.formats.voc_xml import EDGES, Annotation, NotXml, VocObject, parse
from visiontrain.data.image import is_picture
from visiontrain.data.labels import Finding, Labels, PixelRows, no_labels
from visiontrain.data.recognise import voc_home
from visiontrain.data.splits import entries_of, in_folder, lines_of, listed, places_of, some
from visiontrain.errors import DataError

_HOMES = re.compile(r"(^|[/\\])(JPEGImages|images)(?=[/\\])(?!.*[/\\](JPEGImages|images)[/\\])", re.DOTALL)
_OF_A_CLASS = re.compile(r"\S+\s+-?[01]")


class VocSplit:
    """One split of a data set with Pascal VOC labels."""

    HOME = "JPEGImages"
    IGNORED = "with difficult=1"

    def __init__(self, description: Description, split: str) -> None:
        self.description = description
        self.split = split
        self._numbers = {name: number for number, name in reversed(list(enumerate(description.names)))}
        self._folder = description.annotations.get(split)

    def pictures(self) -> list[str]:
        """The paths of the split's pictures, sorted, each once."""
        if self._folder and not self._folder.is_dir():
            file = self.description.file
            raise DataError(f"{file}: annotations of {self.split}: there is no folder {str(self._folder)!r}")
        found: set[str] = set()
        for entry in entries_of(self.description, self.split):
            found.update(self._of_entry(entry))
        return some(found, self.description, self.split)

    def labels(self, picture: str, size: tuple[int, int]) -> Labels:
        """Labels of one picture; its sides as written are only compared, since they may be missing.

        Raises:
            DataError: a label file is there but cannot be opened.
        """
        for file in (tried := self._places(picture)):
            try:
                with open(file, "rb") as stream:
                    return self._read(file, stream.read(), size)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise DataError(f"{file}: cannot be opened: {error.strerror}") from error
        return no_labels(tried[0])

    def conclude(self, read: Sequence[Labels]) -> list[Finding]:
        """Verdicts on the split as a whole.

        Raises:
            DataError: no label file was found, or no object of them can be used.
        """
        missing = [labels.file for labels in read if not labels.found]
        if len(missing) == len(read):
            raise DataError(self._nothing_found(missing))
        rows, kept = sum(labels.rows for labels in read), sum(len(labels.classes) for labels in read)
        ignored = sum(len(labels.ignored) for labels in read)
        if rows and not kept + ignored:
            first = [str(finding) for labels in read for finding in labels.findings][:5]
            raise DataError(f"{self._where()}: none of the {rows} objects can be used:\n  " + "\n  ".join(first))
        return list(self._counted(len(read), missing, rows, ignored))

    def places(self, pictures: Sequence[str]) -> set[str]:
        """Files and folders that decide what ``pictures`` and ``labels`` say."""
        entries = self.description.splits[self.split]
        homes = [home / "JPEGImages" for entry in entries if (home := voc_home(entry))]
        others = [entry for entry in entries if not voc_home(entry)]
        found = {str(entry) for entry in entries} | places_of([*homes, *others], self.description.root)
        folders = found | {os.path.dirname(picture) for picture in pictures}
        labels = {os.path.dirname(file) for folder in folders for file in self._places(os.path.join(folder, "any"))}
        return folders | labels

    def strays(self, pictures: Sequence[str]) -> list[Finding]:
        """XML files in the folders of the labels that belong to no picture of any split."""
        every = {os.path.splitext(os.path.basename(path))[0] for path in (*pictures, *self._elsewhere())}
        for folder in {os.path.dirname(picture) for picture in pictures}:
            every.update(os.path.splitext(name)[0] for name in os.listdir(folder) if is_picture(name))
        places = {os.path.dirname(file) for picture in pictures for file in self._places(picture)}
        found = []
        for place in sorted(place for place in places if os.path.isdir(place)):
            names = [name for name in sorted(os.listdir(place)) if name.lower().endswith(".xml")]
            strays = [os.path.join(place, name) for name in names if name[:-4] not in every]
            text = "no picture of this name is in the folder of its pictures"
            found += [Finding("labels_without_picture", path, 0, text) for path in strays]
        return found

    @staticmethod
    def write(root: Path, split: str, pictures: Sequence[Placed], names: Sequence[str]) -> dict[str, str]:
        """Write Annotations/<split>/<name>.xml for each picture, and ImageSets/Main/<split>.txt that lists them."""
        for picture in pictures:
            if picture.labels.found:
                path = root / "JPEGImages" / split / picture.name
                write_new(Path(_HOMES.sub(r"\1Annotations", str(path))).with_suffix(".xml"), _as_xml(picture, names))
        listed = [f"{split}/{os.path.splitext(picture.name)[0]}\n" for picture in pictures]
        file = f"ImageSets/Main/{split}.txt"
        write_new(root / file, "".join(listed))
        return {split: file}

    def _of_entry(self, entry: Path) -> Iterator[str]:
        home = voc_home(entry)
        if entry == home:
            yield from in_folder(str(entry / "JPEGImages"))
        elif entry.is_dir():
            yield from in_folder(str(entry))
        elif home and entry.suffix.lower() == ".txt":
            yield from self._of_list(entry, home / "JPEGImages")
        else:
            yield from listed(entry, self.description.root)

    def _of_list(self, file: Path, folder: Path) -> Iterator[str]:
        """The pictures of a list in ImageSets, which names them without folder and ending."""
        by_stem: dict[str, list[str]] = {}
        for path in in_folder(str(folder)):
            name = os.path.relpath(path, folder).replace(os.sep, "/")
            by_stem.setdefault(os.path.splitext(name)[0], []).append(path)
            by_stem[name] = [path]
        for number, line in enumerate(lines_of(file), 1):
            name = line.strip()
            if not name:
                continue
            paths = by_stem.get(name) or by_stem.get(name.replace("\\", "/")) or []
            if len(paths) > 1:
                raise DataError(
                    f"{file}:{number}: {name!r} is both {' and '.join(sorted(paths))}; write the ending too"
                )
            if not paths and _OF_A_CLASS.fullmatch(name):
                raise DataError(
                    f"{file}:{number}: {name!r}: a list of one class, with a flag behind each picture; give the list of"
                    " the split itself, for example ImageSets/Main/train.txt"
                )
            yield paths[0] if paths else str(folder / name)

    def _places(self, picture: str) -> list[str]:
        """Where the labels of a picture may lie, the likeliest first."""
        stem = os.path.splitext(picture)[0] + ".xml"
        if self._folder:
            below = [os.path.relpath(stem, entry) for entry in self._roots if stem.startswith(f"{entry}{os.sep}")]
            return list(dict.fromkeys(os.path.join(self._folder, end) for end in (*below, os.path.basename(stem))))
        ways = [_HOMES.sub(rf"\1{name}", stem) for name in ("Annotations", "annotations")]
        return list(dict.fromkeys((*ways, stem)))

    @cached_property
    def _roots(self) -> list[str]:
        return [str(entry) for entry in self.description.splits[self.split]]

    def _read(self, file: str, data: bytes, size: tuple[int, int]) -> Labels:
        rows = PixelRows(file, size)
        try:
            annotation = parse(data)
        except NotXml as error:
            rows.stop("labels_unreadable", error.line, str(error))
            return rows.labels()
        self._compare(rows, annotation, size)
        rows.rows = len(annotation.objects)
        for each in annotation.objects:
            self._take(rows, each)
        return rows.labels()

    def _compare(self, rows: PixelRows, annotation: Annotation, size: tuple[int, int]) -> None:
        written = annotation.size
        if min(written) > 0 and written != size:
            text = (
                f"{written[1]} x {written[0]} pixels there, {size[1]} x {size[0]} in the picture;"
                " boxes are taken as pixels of the picture"
            )
            rows.fault("size_differs", 0, text)

    def _take(self, rows: PixelRows, each: VocObject) -> None:
        number = self._numbers.get(each.name)
        if number is None:
            rows.stop("class_unknown", each.line, _unknown(each.name, self.description.names))
            return
        missing = [edge for edge in EDGES if edge not in each.box]
        if missing:
            rows.fault("row_columns", each.line, f"{each.name!r} has no {', '.join(missing)} in bndbox, dropped")
            return
        written = f"{each.name} " + " ".join(f"{edge}={each.box[edge]}" for edge in EDGES)
        x1, y1, x2, y2 = (_number(each.box[edge]) for edge in EDGES)
        if x2 < x1 or y2 < y1:
            rows.fault("row_inverted", each.line, f"corners in the wrong order, taken in the right one: {written}")
            x1, x2, y1, y2 = min(x1, x2), max(x1, x2), min(y1, y2), max(y1, y2)
        rows.add(each.line, number, (x1, y1, x2, y2), written, each.difficult)

    def _elsewhere(self) -> Iterator[str]:
        """Pictures of the other splits, of those that are there: their labels may lie in the same folder."""
        for split, entries in self.description.splits.items():
            if split != self.split and all(entry.exists() for entry in entries):
                yield from VocSplit(self.description, split).pictures()

    def _counted(self, total: int, missing: Sequence[str], rows: int, ignored: int) -> Iterator[Finding]:
        file = str(self.description.file)
        if missing:
            text = f"{len(missing)} of {total} {self.split} pictures have no XML file and count as background, e.g. no {missing[0]}"
            yield Finding("labels_missing", file, 0, text)
        if ignored:
            text = f"{ignored} difficult objects of {self.split} are left out of training, and ignored in scoring"
            yield Finding("ignored", file, 0, text)
        if not rows:
            text = f"the XML files of {self.split} have no objects: {total} pictures of background"
            yield Finding("labels_empty", file, 0, text)
        if self.description.recognised:
            yield Finding("format_recognised", file, 0, f"read as Pascal VOC: {self.description.recognised}")

    def _nothing_found(self, missing: Sequence[str]) -> str:
        return (
            f"{self._where()}: no XML file was found for any of {len(missing)} pictures, for example no\n  "
            + "\n  ".join(missing[:3])
            + "\nLabels lie in Annotations beside JPEGImages (or beside images), beside the picture, or in a folder that the "
            "description names, for example annotations: voc/Annotations"
        )

    def _where(self) -> str:
        return f"{self.description.file}, {self.split}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _unknown(name: str, names: Sequence[str]) -> str:
    lower = [each.lower() for each in names]
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    hint = f"; did you mean {names[lower.index(near[0])]}?" if near else ""
    allowed = f"allowed are {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
    return f"class {name!r} is not in the description; {allowed}{hint}"


def _as_xml(picture: Placed, names: Sequence[str]) -> str:
    root = ET.Element("annotation")
    folder, name = os.path.split(picture.name)
    _add(root, "folder", folder or "JPEGImages")
    _add(root, "filename", name)
    size = ET.SubElement(root, "size")
    for tag, value in (("width", picture.width), ("height", picture.height), ("depth", 3)):
        _add(size, tag, str(value))
    labels = picture.labels
    for boxes, classes, difficult in (
        (labels.boxes, labels.classes, "0"),
        (labels.ignored, labels.ignored_classes, "1"),
    ):
        for corners, klass in zip(picture.corners(boxes), classes.tolist(), strict=True):
            each = ET.SubElement(root, "object")
            _add(each, "name", names[klass])
            _add(each, "difficult", difficult)
            box = ET.SubElement(each, "bndbox")
            for edge, place in zip(EDGES, corners, strict=True):
                _add(box, edge, pixels(place))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def _add(above: ET.Element, tag: str, text: str) -> None:
    ET.SubElement(above, tag).text = text
