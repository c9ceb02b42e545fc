"""Pictures that cannot be used while others can: left out, named and counted, until there are too many."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from visiontrain.data.labels import Finding
from visiontrain.errors import DataError

KINDS = ("picture_missing", "picture_unreadable", "picture_truncated", "picture_too_large")

ONE_IN = 20  # more than one picture in so many, and no fewer than two, are too many to go on without


class BadPicture(DataError):
    """One picture cannot be used, while others can: it is left out, named and counted. ``kind`` is that of the finding."""

    def __init__(self, message: str, kind: str = "picture_unreadable") -> None:
        super().__init__(message, kind)
        self.kind = kind

    def __str__(self) -> str:
        return str(self.args[0])


def refuse_many(bad: Collection[str], pictures: int) -> None:
    """End what cannot mean much any more: a disk may be gone.

    Args:
        bad: what is wrong with each picture that went bad after the index was made.
        pictures: of the split.

    Raises:
        DataError: they are too many.
    """
    if len(bad) > max(1, pictures // ONE_IN) or (bad and len(bad) == pictures):
        first = "\n  ".join(list(bad)[:3])
        raise DataError(
            f"{len(bad)} of {pictures} pictures were readable when the index was made and are not any more, for example\n  "
            f"{first}\nOne in {ONE_IN} may be left out. Is the disk there? visiontrain check names them all."
        )


def refuse_mostly_bad(findings: Iterable[Finding], usable: int, where: str) -> None:
    """End what cannot be meant: more pictures of a split are bad than can be used.

    Args:
        findings: of the split.
        usable: its pictures that can be used.
        where: the split, for the message.

    Raises:
        DataError: most are bad.
    """
    bad = [finding for finding in findings if finding.kind in KINDS]
    if len(bad) > usable:
        first = "\n  ".join(map(str, bad[:3]))
        raise DataError(
            f"{where}: {len(bad)} pictures cannot be used and {usable} can, for example\n  {first}\nTraining goes on without "
            "bad pictures as long as most are good; visiontrain check names them all."
        )
