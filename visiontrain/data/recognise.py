"""Which label format a description means that does not say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from visiontrain.errors import DataError


def recognise(file: Path, splits: Mapping[str, Sequence[Path]]) -> tuple[str, str]:
    """(format, what it was told by); YOLO text, which needs no sign of its own, where nothing speaks for another.

    Args:
        file: the description, for the message.
        splits: its entries.

    Raises:
        DataError: some entries are JSON files, others not.
    """
    entries = [entry for each in splits.values() for entry in each]
    jsons = [entry for entry in entries if is_json(entry)]
    if jsons:
        other = next((entry for entry in entries if entry not in jsons), None)
        if other:
            raise DataError(f"{file}: {jsons[0]} is a COCO JSON and {other} is not; all splits have one format")
        return "coco", f"{jsons[0].name} is a JSON"
    homes = [voc_home(entry) for entry in entries]
    if homes[0] and all(homes):
        return "voc", f"{homes[0]} holds Annotations and JPEGImages"
    return "yolo", ""


def is_json(entry: Path) -> bool:
    """Whether a split is a COCO JSON, by its ending."""
    return entry.suffix.lower() == ".json"


def voc_home(entry: Path) -> Path | None:
    """The folder with Annotations and JPEGImages that a split is, or lies in as JPEGImages or ImageSets; else None."""
    around = [above for above in entry.parents if _child(entry, above) in ("JPEGImages", "ImageSets")]
    for home in (entry, *around):
        if (home / "Annotations").is_dir() and (home / "JPEGImages").is_dir():
            return home
    return None


def _child(entry: Path, above: Path) -> str:
    return entry.relative_to(above).parts[0]
