"""What is wrong with a data set, all of it, by file and line. Files are read and never changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from visiontrain.checks.kinds import KINDS
from visiontrain.checks.pictures import picture_findings
from visiontrain.config.image_size import ImageSize, image_size
from visiontrain.data.description import Description, class_lines
from visiontrain.data.labels import Finding, found_at
from visiontrain.data.scan import Scan, Scanned, scan_split
from visiontrain.errors import DataError

SAME_OBJECT = 0.95  # IoU of two boxes of a class above which they are probably one object
SMALLEST_SIDE = 2.0  # pixels at imgsz: below it nothing of an object is left to learn from

Progress = Callable[[str, int, int], None]  # (what is done, pictures done, pictures in all)


@dataclass(frozen=True, slots=True)
class DataReport:
    """All findings of a data set, worst kind first, the scans of the splits that could be read, and those of no use."""

    description: Description
    findings: list[Finding]
    scans: dict[str, Scan]
    seconds: float
    counts: dict[str, dict[str, int]]  # split -> class name -> boxes
    unusable: frozenset[str]  # splits that training would refuse as a whole

    @property
    def faults(self) -> list[Finding]:
        """What is wrong; the other findings are for a person to judge."""
        return [finding for finding in self.findings if KINDS[finding.kind].fault]


def examine(description: Description, imgsz: int | tuple[int, int], progress: Progress = lambda *_: None) -> DataReport:
    """Look at every label and every picture of all splits.

    Args:
        description: of the data set.
        imgsz: long side of a picture in training, pixels, or the (height, width) that it fits into.
        progress: called now and then.
    """
    began = time.perf_counter()
    scans: dict[str, Scan] = {}
    findings: list[Finding] = []
    unusable = set()
    for split in description.splits:
        try:
            scan = scan_split(description, split, _naming(progress, f"{split} labels"))
            scans[split] = scan
            findings += _of_split(scan, image_size(imgsz))
            # That labels are missing is told picture by picture.
            findings += [f for f in scan.source.conclude(scan.labels) if f.kind != "labels_missing"]
        except DataError as error:
            findings.append(Finding("split_unusable", str(description.file), 0, str(error)))
            unusable.add(split)
    counts = {split: _count(scan) for split, scan in scans.items()}
    findings += _unlabelled_classes(description, counts)
    findings += picture_findings(scans, _naming(progress, "pictures"))
    order = list(KINDS)
    unique = sorted(set(findings), key=lambda f: (order.index(f.kind), f.file, f.line, f.message))
    return DataReport(description, unique, scans, time.perf_counter() - began, counts, frozenset(unusable))


def _naming(progress: Progress, what: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(what, done, total)


def _of_split(scan: Scan, imgsz: ImageSize) -> Iterator[Finding]:
    yield from scan.findings
    for picture in scan.pictures:
        yield from _of_picture(picture, imgsz)
    yield from scan.source.strays([picture.path for picture in scan.pictures])


def _of_picture(picture: Scanned, imgsz: ImageSize) -> Iterator[Finding]:
    labels = picture.labels
    yield from labels.findings
    yield from labels.unknown
    if not labels.found:
        yield Finding("picture_without_labels", picture.path, 0, f"counts as background: there is no {labels.file}")
    elif not labels.rows:
        yield Finding("labels_empty", labels.file, 0, "no rows: the picture counts as background")
    for first, second, overlap in _doubles(labels.boxes, labels.classes):
        message = f"IoU {overlap:.3f} with {labels.unit} {labels.lines[first]}, of the same class"
        yield found_at("box_twice", labels.file, labels.unit, labels.lines[second], message)
    sides = labels.boxes[:, 2:] * (picture.width, picture.height)
    small = sides * imgsz.gain(picture.height, picture.width)
    for row in np.flatnonzero(small.min(1, initial=np.inf) < SMALLEST_SIDE):
        there, here = sides[row], small[row]
        message = (
            f"{here[0]:.1f} x {here[1]:.1f} px at imgsz={imgsz}, below {SMALLEST_SIDE:g} px on a side"
            f" ({there[0]:.1f} x {there[1]:.1f} px in the picture)"
        )
        yield found_at("box_vanishes", labels.file, labels.unit, labels.lines[int(row)], message)


def _doubles(boxes: np.ndarray, classes: np.ndarray) -> Iterator[tuple[int, int, float]]:
    """(first, second, IoU) of rows of one class that nearly coincide. Fractions do: IoU knows no scale along an axis."""
    half = boxes[:, 2:] / 2
    low, high = boxes[:, :2] - half, boxes[:, :2] + half
    area = boxes[:, 2:].prod(1)
    for second in range(1, len(boxes)):
        sides = np.minimum(high[:second], high[second]) - np.maximum(low[:second], low[second])
        shared = sides.clip(0).prod(1)
        overlap = shared / (area[:second] + area[second] - shared)
        overlap[classes[:second] != classes[second]] = 0
        first = int(overlap.argmax())
        if overlap[first] >= SAME_OBJECT:
            yield first, second, float(overlap[first])


def _count(scan: Scan) -> dict[str, int]:
    names = scan.description.names
    classes = np.concatenate([labels.classes for labels in scan.labels] or [np.empty(0, np.int64)])
    return dict(zip(names, np.bincount(classes, minlength=len(names)).tolist(), strict=True))


def _unlabelled_classes(description: Description, counts: dict[str, dict[str, int]]) -> Iterator[Finding]:
    """Classes without boxes in training cannot be learned, in validation not be scored; the test split may lack some."""
    for name, line in zip(description.names, class_lines(description), strict=True):
        lacking = [split for split in ("train", "val") if split in counts and not counts[split][name]]
        if lacking:
            yield Finding(
                "class_without_boxes", str(description.file), line, f"{name!r} has no box in {' and '.join(lacking)}"
            )
