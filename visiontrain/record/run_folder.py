"""What a comparison reads of run folders: the record, the rows of its epochs, and labels that tell the folders apart."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from visiontrain.errors import ConfigError
from visiontrain.record.files import SCHEMAS, read_epochs


@dataclass(frozen=True, slots=True)
class Point:
    """An evaluated epoch on the curve of a run."""

    epoch: int
    images_seen: int
    ap: float
    ap50: float


@dataclass(frozen=True)
class RunFolder:
    """What a run left behind: its ``record`` (run.json) and a row of metrics.csv for each closed epoch."""

    folder: Path
    record: dict[str, Any]
    epochs: tuple[dict[str, Any], ...] = ()

    @property
    def measured(self) -> dict[str, Any]:
        """The measured section of the record."""
        section: dict[str, Any] = self.record["measured"]
        return section

    @cached_property
    def curve(self) -> tuple[Point, ...]:
        """The epochs that were evaluated."""
        rows = [row for row in self.epochs if "metrics/ap" in row]
        return tuple(Point(r["epoch"], int(r["images_seen"]), r["metrics/ap"], r["metrics/ap50"]) for r in rows)


def read_run(folder: str | Path) -> RunFolder:
    """Read what ``compare`` needs of a run folder.

    Raises:
        ConfigError: it is none, or it was written by another version of the contracts.
    """
    path = Path(folder).expanduser()
    file = path / "run.json"
    if not os.path.isfile(file):  # noqa: PTH113 - Path.is_file fails for a name that is too long
        raise ConfigError(_no_run(path))
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(
            f"{file}: is not readable as JSON ({error}); a run writes it whole, so it was changed"
        ) from error
    _check_versions(record, file)
    return RunFolder(path, record, tuple(read_epochs(path)))


def labels_of(folders: Sequence[Path]) -> list[str]:
    """The name of each folder, with as much of the path before it as tells it from the others."""
    paths = [folder.resolve() for folder in folders]
    return [_label(path, set(paths) - {path}) for path in paths]


def _label(path: Path, others: set[Path]) -> str:
    for length in range(1, len(path.parts)):
        ending = path.parts[-length:]
        if all(other.parts[-length:] != ending for other in others):
            return "/".join(ending)
    return str(path)


def _no_run(path: Path) -> str:
    there = os.path.isdir(path)  # noqa: PTH112 - likewise
    inside = sorted(file.parent.name for file in path.glob("*/run.json")) if there else []
    if inside:
        more = ", ..." if len(inside) > 8 else ""
        return f"{path}: holds several runs; name those to compare: {', '.join(inside[:8])}{more}"
    what = "there is no run.json in it" if there else "there is no such folder"
    return f"{path}: no run folder ({what}); give what a training left, for example runs/train/run"


def _check_versions(record: Any, file: Path) -> None:
    written = record.get("schemas") if isinstance(record, dict) else None
    if not isinstance(written, dict):
        raise ConfigError(f"{file}: is no record of a run (it has no schemas); give the folder that a training left")
    for name in ("run.json", "metrics.csv"):
        if written.get(name) != SCHEMAS[name]:
            raise ConfigError(
                f"{file}: its {name} has version {written.get(name)}, and this visiontrain reads version {SCHEMAS[name]}; "
                "compare the runs with the newer of the two versions of visiontrain"
            )
