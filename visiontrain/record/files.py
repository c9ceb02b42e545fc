"""Files that are there whole or not at all, and the folder of a run: its versions, its rows."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from visiontrain.errors import ConfigError

# Version of each contract of docs/contracts.md that a run writes by.
SCHEMAS = {
    "run.json": 1,
    "updates.jsonl": 1,
    "metrics.csv": 1,
    "validations.csv": 1,
    "checkpoint": 1,
    "description": 1,
    "data_findings.txt": 1,
    "curves.json": 1,
}


def write_atomic(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Replace ``path`` by what ``write`` puts into the open file: after a crash or a full disk the old file stands.

    Args:
        path: the file; its folder exists.
        write: gets a temporary file in the same folder, open for binary writing.

    Raises:
        OSError: the disk is full or the folder not writable; the temporary file is gone and ``path`` as it was.
    """
    # One fixed name per file: what a killed process left behind is overwritten by the next write, not added to.
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    write_atomic(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically; numbers that are not finite become null (JSON has no word for them)."""
    write_text(path, json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """The same value in what JSON knows: paths as text, tuples as lists, not finite numbers as None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "item"):  # a NumPy scalar
        return plain(value.item())
    return str(value)


def run_folder(project: str, name: str = "", exist_ok: bool = False) -> Path:
    """Make the folder of a new run: ``project/name``, or name2, name3 and so on where that is taken.

    Args:
        project: folder of the runs, made where it is missing.
        name: empty takes ``run``.
        exist_ok: use ``project/name`` even if it is there.

    Raises:
        ConfigError: a file stands in the way, or the folder cannot be made.
    """
    wanted = Path(project) / (name or "run")
    for number in count(1):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}{number}")
        try:
            folder.mkdir(parents=True, exist_ok=exist_ok)  # making it is the test: two runs never get the same one
        except FileExistsError as error:
            if exist_ok:
                raise ConfigError(f"project={project} name={name}: {folder} is a file; choose another name") from error
            continue
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(
                f"project={project}: cannot make {folder} ({reason}); choose a folder of yours"
            ) from error
        return folder
    raise AssertionError("count never ends")


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut; only POSIX opens folders."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_epochs(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics.csv as numbers, without the cells that are empty; none where no epoch was closed."""
    return read_rows(folder / "metrics.csv")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The same of metrics.csv or validations.csv."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        rows = [{key: float(text) for key, text in row.items() if text != ""} for row in csv.DictReader(file)]
    return [{**row, "epoch": int(row["epoch"])} for row in rows]
