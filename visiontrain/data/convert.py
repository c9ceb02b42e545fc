"""A data set in another label format: a new tree with its own description. Nothing of the old one is touched."""

# Paths of pictures are strings here: a million of them pass, and a Path each is slow.
# ruff: noqa: PTH100, PTH120, PTH122
from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from visiontrain.data.description import Description
from visiontrain.data.formats import FORMATS
from visiontrain.data.formats.placed import Placed, write_new
from visiontrain.data.labels import Finding
from visiontrain.data.scan import Scan, scan_split, verdicts
from visiontrain.errors import ConfigError
from visiontrain.inline import Told

DESCRIPTION, FINDINGS = "data.yaml", "findings.txt"
_SHOWN = 5

Progress = Callable[[str, int, int], None]  # (what is done, pictures done, pictures in all)


@dataclass(frozen=True, slots=True, repr=False)
class Conversion(Told):
    """A finished conversion: ``description`` is what ``data=`` takes, ``counts`` pictures and boxes by split.

    ``lost`` are sentences about what the new format has no place for, ``findings`` what was wrong in the old files.
    """

    description: Path
    format: str
    counts: dict[str, tuple[int, int]]
    lost: tuple[str, ...]
    findings: tuple[Finding, ...]

    def sentences(self) -> list[str]:
        """For a person, a line each."""
        told = [f"{split}: {pictures} pictures, {boxes} boxes" for split, (pictures, boxes) in self.counts.items()]
        found = [f"  {finding}" for finding in self.findings[:_SHOWN]]
        if self.findings:
            file = self.description.with_name(FINDINGS)
            found.insert(0, f"{len(self.findings)} findings in the old labels, all of them in {file}:")
        return [*told, *self.lost, *found, f"written as {self.format}: train with data={self.description}"]


def convert(
    description: Description,
    form: str,
    out: Path,
    *,
    copy: bool = False,
    on_progress: Progress = lambda *_: None,
) -> Conversion:
    """Write all splits of a data set in a format, as a folder that is there complete or not at all.

    Args:
        description: of the data set.
        form: one of FORMATS.
        out: a folder that is not there yet.
        copy: copy the pictures; else they are symbolic links to where they lie.
        on_progress: called now and then.

    Raises:
        ConfigError: ``out`` is there already, or cannot be written, or lies among the pictures.
        DataError: the data set cannot be used, as in training.
    """
    _refuse(description, out)
    scans = {split: scan_split(description, split, _naming(on_progress, split)) for split in description.splits}
    findings = [finding for scan in scans.values() for finding in _findings(scan)]
    lost: Counter[str] = Counter()
    with _complete(out) as tree:
        entries: dict[str, object] = {"format": form}
        for split, scan in scans.items():
            pictures = list(_placed(scan, lost))
            _lost(pictures, form, lost)
            for done, picture in enumerate(pictures, 1):
                _bring(picture.source, tree / FORMATS[form].HOME / split / picture.name, copy)
                on_progress(f"{split} pictures", done, len(pictures))
            entries |= FORMATS[form].write(tree, split, pictures, description.names)
        text = yaml.safe_dump(entries | {"names": list(description.names)}, sort_keys=False, allow_unicode=True)
        write_new(tree / DESCRIPTION, text)
        if findings:
            write_new(tree / FINDINGS, "".join(f"{finding}\n" for finding in findings))
    counts = {
        split: (len(scan.pictures), sum(len(each.classes) for each in scan.labels)) for split, scan in scans.items()
    }
    told = tuple(f"{count} {what}" for what, count in lost.items() if count)
    return Conversion(out / DESCRIPTION, form, counts, told, tuple(findings))


def _refuse(description: Description, out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise ConfigError(f"out={out}: is there already, and nothing is written over; give the name of a new folder")
    for entry in (entry for entries in description.splits.values() for entry in entries):
        if entry.is_dir() and out.resolve().is_relative_to(entry.resolve()):
            raise ConfigError(f"out={out}: lies in {entry}, where {description.file} would find the pictures again")


def _naming(progress: Progress, split: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(f"{split} labels", done, total)


def _findings(scan: Scan) -> Iterator[Finding]:
    whole = verdicts(scan)
    yield from scan.findings
    for labels in scan.labels:
        yield from labels.findings
    yield from whole


@contextmanager
def _complete(out: Path) -> Iterator[Path]:
    """A folder beside ``out`` that becomes it when all is written, and is gone where something fails."""
    making = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        making.mkdir(parents=True)
        try:
            yield making
            making.rename(out)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    except OSError as error:
        raise ConfigError(f"out={out}: cannot be written: {error.filename or ''}: {error.strerror}") from error


def _placed(scan: Scan, lost: Counter[str]) -> Iterator[Placed]:
    """The pictures with their names below the folder that they share, so that they stay in order.

    Labels are found by the name without its ending: of two pictures that differ in that alone one gets another name.
    """
    above = os.path.commonpath([os.path.dirname(picture.path) for picture in scan.pictures])
    taken: set[str] = set()
    for picture in scan.pictures:
        name = os.path.relpath(picture.path, above).replace(os.sep, "/")
        stem, ending = os.path.splitext(name)
        free = next(s for s in _stems(stem) if s.casefold() not in taken)
        taken.add(free.casefold())
        lost["pictures have a new name, since their labels would be those of another"] += free != stem
        yield Placed(free + ending, picture.path, picture.height, picture.width, picture.labels)


def _stems(stem: str) -> Iterator[str]:
    yield stem
    number = 2
    while True:
        yield f"{stem}_{number}"
        number += 1


def _lost(pictures: Sequence[Placed], form: str, lost: Counter[str]) -> None:
    """Count what the format has no place for."""
    way = FORMATS[form].IGNORED
    ignored = (
        f"ignored objects (crowd, difficult) are {f'written {way}' if way else f'left out: {form} has no word for it'}"
    )
    lost["outlines are written as the boxes around them"] += sum(each.labels.outlines for each in pictures)
    lost[ignored] += sum(len(each.labels.ignored) for each in pictures)
    if form == "coco":
        lost["pictures without labels are pictures without annotations now"] += sum(
            not p.labels.found for p in pictures
        )


def _bring(source: str, target: Path, copy: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if copy:
        shutil.copy2(source, target)
    else:
        target.symlink_to(os.path.abspath(source))
