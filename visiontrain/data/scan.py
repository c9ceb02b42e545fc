"""The files of a split, each read for itself, and the verdicts on the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from visiontrain.data import image
from visiontrain.data.description import Description
from visiontrain.data.formats import Format, open_split
from visiontrain.data.labels import Finding, Labels
from visiontrain.data.parallel import in_order, processes_for
from visiontrain.errors import DataError

_PART = 64  # pictures that one process or thread reads at a time
_ENOUGH = 4096  # pictures: from here on processes pay


@dataclass(frozen=True, slots=True)
class Scanned:
    """A picture that can be used: its sides in pixels as displayed, its file's size in bytes, its labels."""

    path: str
    height: int
    width: int
    bytes: int
    labels: Labels


@dataclass(frozen=True, slots=True)
class Scan:
    """What the files of a split say, each for itself; ``findings`` are about pictures that cannot be used."""

    description: Description
    split: str
    source: Format
    pictures: list[Scanned]
    findings: list[Finding]

    @property
    def labels(self) -> list[Labels]:
        """Of each picture, in order."""
        return [picture.labels for picture in self.pictures]


def scan_split(description: Description, split: str, on_progress: Callable[[int, int], None] | None = None) -> Scan:
    """Read the labels and picture sizes of a split without a verdict on the whole; nothing is written.

    Raises:
        DataError: the pictures of the split cannot be listed, or a file cannot be opened for a reason of the machine.
    """
    source = open_split(description, split)
    results = [result for part in read_parts(source, source.pictures(), on_progress) for result in part]
    findings = [result for result in results if isinstance(result, Finding)]
    return Scan(description, split, source, [result for result in results if isinstance(result, Scanned)], findings)


def read_parts(
    source: Format, pictures: Sequence[str], on_progress: Callable[[int, int], None] | None
) -> Iterator[list[Scanned | Finding]]:
    """What the pictures and their labels say, some pictures at a time, in order.

    Raises:
        DataError: a file cannot be opened for a reason of the machine.
    """

    def one(path: str) -> Scanned | Finding:
        try:
            height, width, length = image.probe(path)
        except FileNotFoundError:
            return Finding("picture_missing", path, 0, "listed, but not there; left out")
        except image.BadPicture as error:
            return Finding(error.kind, path, 0, f"{str(error).removeprefix(path + ': ')}; left out")
        except OSError as error:  # too many open files, a lost disk: no verdict on the picture
            raise DataError(f"{path}: cannot be opened: {error.strerror}") from error
        return Scanned(path, height, width, length, source.labels(path, (height, width)))

    total, done = len(pictures), 0
    parts = [pictures[start : start + _PART] for start in range(0, total, _PART)]
    for part in in_order(lambda part: [one(path) for path in part], parts, processes_for(total, _ENOUGH)):
        yield part
        done += len(part)
        if on_progress:
            on_progress(done, total)


def verdicts(scan: Scan) -> list[Finding]:
    """Findings on the split as a whole.

    Raises:
        DataError: no picture or no label of it can be used, or a class is not in the description.
    """
    if not scan.pictures:
        raise DataError(_none_left(scan.description, scan.split, scan.findings))
    _refuse_unknown(scan.description, scan.split, scan.labels)
    return scan.source.conclude(scan.labels)


def _refuse_unknown(description: Description, split: str, labels: Sequence[Labels]) -> None:
    unknown = [finding for each in labels for finding in each.unknown]
    if unknown:
        more = f"\n  ... and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        rows = "\n  ".join(map(str, unknown[:5]))
        classes = {finding.kind for finding in unknown} == {"class_unknown"}
        what = "label rows have a class that names does not have" if classes else "labels cannot be used"
        raise DataError(f"{description.file}, {split}: {len(unknown)} {what}:\n  {rows}{more}")


def _none_left(description: Description, split: str, findings: Sequence[Finding]) -> str:
    first = "\n  ".join(map(str, findings[:3]))
    return f"{description.file}, {split}: none of {len(findings)} pictures can be used, for example\n  {first}"
