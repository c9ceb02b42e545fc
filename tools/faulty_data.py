"""Does `visiontrain check` name every fault? Copy a data set with YOLO labels, plant one fault of each kind, and see.

    python tools/faulty_data.py data=../shared/data/bccd/data.yaml [pictures=40] [imgsz=320]

The original is only read. The copy is hashed before and after the check: no file of it may change. A fault that is not named
by kind, file and line exits with code 1.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import cv2

from visiontrain import cli
from visiontrain.data.description import load_description
from visiontrain.data.formats.yolo import label_paths
from visiontrain.data.splits import pictures_of


@dataclass(frozen=True)
class Planted:
    """A fault and where a check must name it (line 0: the whole file)."""

    kind: str
    file: Path
    line: int


class Copy:
    """A copy of some pictures of a data set, which hands out one after the other to be spoiled."""

    def __init__(self, data: str, folder: Path, pictures: int) -> None:
        description = load_description(data)
        self.root = folder
        self.names = list(description.names)
        for split in ("train", "val"):
            for picture in pictures_of(description, split)[:pictures]:
                label = Path(label_paths(picture)[0])
                if label.is_file():
                    self._put(Path(picture), folder / "images" / split)
                    self._put(label, folder / "labels" / split)
        self._left = sorted((folder / "images" / "train").iterdir())
        self.write_description()

    def _put(self, file: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / file.name)  # not the mode: the original may be read-only

    def write_description(self) -> Path:
        file = self.root / "data.yaml"
        names = "".join(f"  {number}: {name}\n" for number, name in enumerate(self.names))
        file.write_text(f"train: images/train\nval: images/val\nnames:\n{names}")
        return file

    def picture(self) -> Path:
        """A training picture that no other fault has."""
        return self._left.pop()

    def labels(self, picture: Path) -> Path:
        return Path(label_paths(str(picture))[0])

    def row(self, text: str | Callable[[str], str]) -> tuple[Path, int]:
        """Add a row to the labels of a fresh picture: text, or made of its first row; returns where it stands."""
        file = self.labels(self.picture())
        rows = file.read_text().splitlines()
        file.write_text("\n".join([*rows, text if isinstance(text, str) else text(rows[0])]) + "\n")
        return file, len(rows) + 1


def _shifted(row: str) -> str:
    number, cx, cy, w, h = row.split()
    return f"{number} {float(cx) + 0.01 * float(w):.6f} {cy} {w} {h}"


def _class_without_boxes(copy: Copy) -> tuple[Path, int]:
    copy.names.append("ghost")
    return copy.write_description(), 3 + len(copy.names)


def _in_both(copy: Copy) -> tuple[Path, int]:
    picture = copy.picture()
    twin = copy.root / "images" / "val" / "twin.jpg"
    shutil.copyfile(picture, twin)
    shutil.copyfile(copy.labels(picture), copy.labels(twin))
    return twin, 0


def _nearly_in_both(copy: Copy) -> tuple[Path, int]:
    picture = copy.picture()
    twin = copy.root / "images" / "val" / "again.jpg"
    pixels = cv2.imread(str(picture))
    cv2.imwrite(str(twin), cv2.resize(pixels, None, fx=0.8, fy=0.8), [cv2.IMWRITE_JPEG_QUALITY, 60])
    shutil.copyfile(copy.labels(picture), copy.labels(twin))
    return twin, 0


def _cut(copy: Copy, share: float) -> tuple[Path, int]:
    picture = copy.picture()
    picture.write_bytes(picture.read_bytes()[: int(picture.stat().st_size * share)])
    return picture, 0


def _no_picture(copy: Copy) -> tuple[Path, int]:
    file = copy.root / "labels" / "train" / "nobody.txt"
    file.write_text("0 0.5 0.5 0.2 0.2\n")
    return file, 0


def _no_labels(copy: Copy) -> tuple[Path, int]:
    picture = copy.picture()
    copy.labels(picture).unlink()
    return picture, 0


def _emptied(copy: Copy) -> tuple[Path, int]:
    file = copy.labels(copy.picture())
    file.write_text("")
    return file, 0


FAULTS: dict[str, Callable[[Copy], tuple[Path, int]]] = {
    "class_unknown": lambda copy: copy.row(f"{len(copy.names) + 4} 0.5 0.5 0.2 0.2"),
    "row_columns": lambda copy: copy.row("0 0.5 0.5 0.2"),
    "row_number": lambda copy: copy.row("0 0.5 o.5 0.2 0.2"),
    "row_size": lambda copy: copy.row("0 0.5 0.5 -0.2 0.2"),
    "row_outside": lambda copy: copy.row("0 320 240 64 48"),
    "row_clipped": lambda copy: copy.row("0 0.5 0.5 1.0008 0.4"),
    "row_duplicate": lambda copy: copy.row(lambda row: row),
    "box_twice": lambda copy: copy.row(_shifted),
    "box_vanishes": lambda copy: copy.row("0 0.31 0.47 0.002 0.1"),
    "picture_in_both": _in_both,
    "picture_nearly_in_both": _nearly_in_both,
    "picture_truncated": lambda copy: _cut(copy, 0.6),
    "picture_unreadable": lambda copy: _cut(copy, 0.002),
    "labels_without_picture": _no_picture,
    "picture_without_labels": _no_labels,
    "labels_empty": _emptied,
    "class_without_boxes": _class_without_boxes,
}


def plant(copy: Copy) -> list[Planted]:
    """One fault of each kind, each in a picture of its own."""
    return [Planted(kind, *fault(copy)) for kind, fault in FAULTS.items()]


def hashes(folder: Path) -> dict[str, str]:
    """Of every file below a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def named(planted: Planted, findings: Sequence[dict]) -> bool:
    return any((f["kind"], f["file"], f["line"]) == (planted.kind, str(planted.file), planted.line) for f in findings)


def main(words: Sequence[str]) -> int:
    given = {"pictures": "40", "imgsz": "320"} | dict(word.split("=", 1) for word in words)
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(given["data"], Path(folder).resolve(), int(given["pictures"]))
        faults = plant(copy)
        before = hashes(copy.root)
        said = StringIO()
        with redirect_stdout(said):
            code = cli.main(
                [
                    "check",
                    f"data={copy.root / 'data.yaml'}",
                    f"imgsz={given['imgsz']}",
                    "preflight=false",
                    "format=json",
                ]
            )
        changed = hashes(copy.root) != before
        text, _, line = said.getvalue().rstrip().rpartition("\n")
        found = json.loads(line)
    print(text)
    missed = [fault for fault in faults if not named(fault, found["findings"])]
    for fault in faults:
        place = f"{fault.file.relative_to(copy.root)}:{fault.line}"
        print(f"{'MISSED' if fault in missed else 'named'}  {fault.kind:<24} {place}")
    others = len(found["findings"]) - len(faults) + len(missed)
    print(
        f"{len(faults) - len(missed)} of {len(faults)} planted faults named by file and line in {found['data']['seconds']:.1f} s,"
        f" {others} other findings; exit code {code}; the copy was {'CHANGED' if changed else 'not changed'}"
    )
    return 1 if missed or changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
