"""YOLO text labels: a file per picture, a row per object: class cx cy w h, or class and the corners of a polygon."""

# Paths are strings here: a million of them pass, and a Path each is slow.
# ruff: noqa: PTH112, PTH118, PTH120, PTH122, PTH123, PTH208
from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from visiontrain.data.description import Description
from visiontrain.data.formats.placed import Placed, fraction, write_new
from visiontrain.data.image import is_picture
from visiontrain.data.labels import ROUNDING, Finding, Labels, no_labels, overshoot_kind
from visiontrain.data.splits import pictures_of, places_of
from visiontrain.errors import DataError

_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?")
_IMAGES = re.compile(r"(^|[/\\])images(?=[/\\])(?!.*[/\\]images[/\\])", re.DOTALL)


class YoloSplit:
    """One split of a data set with YOLO labels."""

    HOME = "images"
    IGNORED = ""

    def __init__(self, description: Description, split: str) -> None:
        self.description = description
        self.split = split
        self._numbers = {name: number for number, name in enumerate(description.names)}

    def pictures(self) -> list[str]:
        """The paths of the split's pictures, sorted, each once."""
        return pictures_of(self.description, self.split)

    def labels(self, picture: str, size: tuple[int, int]) -> Labels:
        """Labels of one picture; YOLO rows are fractions, so its size does not matter.

        Raises:
            DataError: a label file is there but cannot be opened.
        """
        usual, beside = label_paths(picture)
        for file in dict.fromkeys((usual, beside)):
            data = _read(file)
            if data is not None:
                return self._parse(file, data, beside=file != usual)
        return no_labels(usual)

    def conclude(self, read: Sequence[Labels]) -> list[Finding]:
        """Verdicts on the split as a whole.

        Raises:
            DataError: no label file was found, or no row of them can be used.
        """
        missing = [labels.file for labels in read if not labels.found]
        if read and len(missing) == len(read):
            raise DataError(self._nothing_found(missing))
        rows, kept = sum(labels.rows for labels in read), sum(len(labels.classes) for labels in read)
        if rows and not kept:
            first = [str(finding) for labels in read for finding in labels.findings][:5]
            raise DataError(f"{self._where()}: none of the {rows} label rows can be used:\n  " + "\n  ".join(first))
        return self._counted(read, missing, rows)

    def places(self, pictures: Sequence[str]) -> set[str]:
        """Files and folders that decide what ``pictures`` and ``labels`` say."""
        found = places_of(self.description.splits[self.split], self.description.root)
        folders = found | {os.path.dirname(picture) for picture in pictures}
        labels = {os.path.dirname(file) for folder in folders for file in label_paths(os.path.join(folder, "any"))}
        return folders | labels

    def strays(self, pictures: Sequence[str]) -> list[Finding]:
        """Label files near those of ``pictures`` that belong to no picture on the disk, or to one that has another."""
        places: dict[str, set[str]] = {}  # folder of labels -> folders of pictures
        for folder in {os.path.dirname(picture) for picture in pictures}:
            for file in label_paths(os.path.join(folder, "any")):
                places.setdefault(os.path.dirname(file), set()).add(folder)
        labels = {place: _labels_in(place) for place in places}
        found = []
        for place, folders in places.items():
            stems = {os.path.splitext(name)[0] for folder in folders for name in os.listdir(folder) if is_picture(name)}
            others = [os.path.dirname(label_paths(os.path.join(folder, "any"))[0]) for folder in folders]
            for stem in sorted(labels[place]):
                path = os.path.join(place, f"{stem}.txt")
                if stem not in stems and _holds_labels(path):
                    text = "no picture of this name is in the folder of its pictures"
                    found.append(Finding("labels_without_picture", path, 0, text))
                elif other := next((each for each in others if each != place and stem in labels.get(each, ())), ""):
                    text = f"not read: the labels of its picture are taken from {os.path.join(other, stem)}.txt"
                    found.append(Finding("labels_in_two_places", path, 0, text))
        return found

    @staticmethod
    def write(root: Path, split: str, pictures: Sequence[Placed], names: Sequence[str]) -> dict[str, str]:
        """Write labels/<split>/<name>.txt for each picture that has labels; an empty file says that it has no object."""
        for picture in pictures:
            if picture.labels.found:
                file = label_paths(str(root / "images" / split / picture.name))[0]
                write_new(Path(file), "".join(_rows(picture.labels)))
        return {split: f"images/{split}"}

    def _counted(self, read: Sequence[Labels], missing: Sequence[str], rows: int) -> list[Finding]:
        findings, total, file = [], len(read), str(self.description.file)
        if missing:
            text = f"{len(missing)} of {total} {self.split} pictures have no label file and count as background, e.g. no {missing[0]}"
            findings.append(Finding("labels_missing", file, 0, text))
        beside = [labels.file for labels in read if labels.beside]
        if beside:
            text = f"{len(beside)} of {total} {self.split} label files were found beside their pictures, not under labels/, e.g. {beside[0]}"
            findings.append(Finding("labels_beside", file, 0, text))
        if read and not rows:
            text = f"the label files of {self.split} are all empty: {total} pictures of background"
            findings.append(Finding("labels_empty", file, 0, text))
        return findings

    def _nothing_found(self, missing: Sequence[str]) -> str:
        folder = os.path.dirname(missing[0])
        other = _other_format(str(self.description.root))
        return (
            f"{self._where()}: no label file was found for any of {len(missing)} pictures. Looked for\n  "
            + "\n  ".join(missing[:3])
            + ("\n  ..." if len(missing) > 3 else "")
            + f"\nand beside the pictures; {_what_is_there(folder)}. "
            "Labels lie where the last folder named images of a picture's path is replaced by labels, or beside the picture, "
            f"as <picture name>.txt{other}"
        )

    def _where(self) -> str:
        return f"{self.description.file}, {self.split}"

    def _parse(self, file: str, data: bytes, beside: bool) -> Labels:
        boxes, classes, lines, findings, unknown, rows, outlines = [], [], [], [], [], 0, 0
        seen: dict[tuple[float | str, ...], int] = {}
        for line, text in enumerate(data.decode("utf-8-sig", errors="replace").splitlines(), 1):
            words = text.split()
            if not words:
                continue
            rows += 1
            number, problem = self._class(words)
            if problem:
                unknown.append(Finding("class_unknown", file, line, problem))
                continue
            box, kind, problem = _box(words)
            row = tuple(words) if box is None else (number, *map(float, words[1:]))
            if box is not None and row in seen:
                box, kind, problem = None, "row_duplicate", f"same as line {seen[row]}, dropped: {text.strip()!r}"
            if kind:
                findings.append(Finding(kind, file, line, problem))
            if box is not None:
                seen[row] = line
                boxes.append(box)
                classes.append(number)
                lines.append(line)
                outlines += len(words) > 5
        return Labels(
            np.array(boxes, np.float64).reshape(-1, 4),
            np.array(classes, np.int64),
            file,
            found=True,
            beside=beside,
            rows=rows,
            findings=findings,
            unknown=unknown,
            lines=lines,
            outlines=outlines,
        )

    def _class(self, words: Sequence[str]) -> tuple[int, str]:
        names, word = self.description.names, words[0]
        allowed = f"allowed are 0 to {len(names) - 1} ({', '.join(names[:5])}{', ...' if len(names) > 5 else ''})"
        try:
            value = float(word)
        except ValueError:
            hint = f"; the number of {word!r} is {self._numbers[word]}" if word in self._numbers else ""
            return -1, f"class {word!r} is not a number; {allowed}{hint}"
        if not math.isfinite(value) or value != int(value):
            return -1, f"class {word} is not a whole number; {allowed}"
        if not 0 <= value < len(names):
            return -1, f"class {word} is not in the description; {allowed}"
        return int(value), ""


def label_paths(picture: str) -> tuple[str, str]:
    """Where the labels of a picture may lie: with its last folder ``images`` called ``labels``, and beside it."""
    beside = os.path.splitext(picture)[0] + ".txt"
    return _IMAGES.sub(r"\1labels", beside), beside


def _rows(labels: Labels) -> Iterator[str]:
    for klass, box in zip(labels.classes.tolist(), labels.boxes.tolist(), strict=True):
        yield f"{klass} {' '.join(map(fraction, box))}\n"


def _labels_in(folder: str) -> set[str]:
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return {name[:-4] for name in names if name.endswith(".txt")}


def _read(file: str) -> bytes | None:
    try:
        with open(file, "rb") as stream:
            return stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # too many open files, no permission: not a fault of the labels, and not background
        raise DataError(f"{file}: cannot be opened: {error.strerror}") from error


def _holds_labels(file: str) -> bool:
    """Whether it is empty or its first row looks like a label: a classes.txt or a note may lie among them."""
    words = (_read(file) or b"").decode("utf-8", errors="replace").strip().split("\n", 1)[0].split()
    return not words or (len(words) >= 5 and _NUMBER.fullmatch(words[0]) is not None)


def _box(words: Sequence[str]) -> tuple[tuple[float, float, float, float] | None, str, str]:
    """(box or None, kind of finding or nothing, message) of one row whose class is known."""
    row = " ".join(words)
    row = repr(row if len(row) <= 80 else row[:77] + "...")
    if len(words) == 6:
        return None, "row_columns", f"6 columns, perhaps a confidence: expected class cx cy w h; dropped: {row}"
    if len(words) < 5 or len(words) % 2 == 0:
        text = f"{len(words)} columns: expected 5, or class and three or more corners of a polygon; dropped: {row}"
        return None, "row_columns", text
    try:
        values = [float(word) for word in words[1:]]
    except ValueError:
        return None, "row_number", f"not all of it is numbers, dropped: {row}"
    if not all(map(math.isfinite, values)):
        return None, "row_number", f"nan or infinite, dropped: {row}"
    if len(values) == 4:
        cx, cy, w, h = values
    else:
        xs, ys = values[0::2], values[1::2]
        w, h = max(xs) - min(xs), max(ys) - min(ys)
        cx, cy = min(xs) + w / 2, min(ys) + h / 2
    if w <= 0 or h <= 0:
        return None, "row_size", f"width {w:g} and height {h:g} must be above 0, dropped: {row}"
    return _inside(cx, cy, w, h, row)


def _inside(
    cx: float, cy: float, w: float, h: float, row: str
) -> tuple[tuple[float, float, float, float] | None, str, str]:
    left, top, right, bottom = cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2
    over = max(-left, -top, right - 1, bottom - 1)
    if over <= 0:
        return (cx, cy, w, h), "", ""
    if not (0 <= cx <= 1 and 0 <= cy <= 1):
        hint = "; these look like pixels, YOLO labels are fractions of the picture" if max(cx, cy, w, h) > 2 else ""
        return None, "row_outside", f"the centre lies outside the picture, dropped{hint}: {row}"
    left, top, right, bottom = max(left, 0.0), max(top, 0.0), min(right, 1.0), min(bottom, 1.0)
    if right - left <= 0 or bottom - top <= 0:
        return None, "row_outside", f"nothing of the box lies in the picture, dropped: {row}"
    box = ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)
    if over <= ROUNDING:
        return box, "", ""
    return box, overshoot_kind(over), f"reaches {over:.2g} of the picture over its border, clipped: {row}"


def _other_format(root: str) -> str:
    """A hint at labels of another format in a folder or in its annotations, or ""."""
    for place in ("", "annotations", "Annotations"):
        folder = os.path.join(root, place)
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            if name.lower().endswith(".json"):
                return f". {folder} holds {name}: a COCO JSON is named as the split, train: {os.path.join(place, name)}"
            if name.lower().endswith(".xml"):
                return f". {folder} holds {name}: Pascal VOC labels are read with format: voc and annotations: {place or '.'}"
    return ""


def _what_is_there(folder: str) -> str:
    above = folder
    while above and not os.path.isdir(above) and os.path.dirname(above) != above:
        above = os.path.dirname(above)
    held = sorted(os.listdir(above))[:8] if os.path.isdir(above) else []
    which = f"the folder {folder} is there" if above == folder else f"there is no folder {folder}"
    return f"{which} ({above} holds {', '.join(held) or 'nothing'})"
