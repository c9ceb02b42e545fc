"""A row of the preflight's table: one question, its answer, and what to do where the answer is bad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

PASS, FAIL, NOTE = "pass", "fail", "note"
OTHERS = 7  # ranks that are named beside the one that is told of


@dataclass(frozen=True, slots=True)
class Row:
    """``verdict`` is pass, fail or note; ``number`` is what was measured, ``value`` the same in words with its unit.

    ``meaning`` says what it tells, a fault's cause included; ``remedy`` what to do, empty where nothing is to be done.
    """

    name: str
    verdict: str
    value: str
    meaning: str
    remedy: str = ""
    number: float | None = None


def judged(
    name: str, good: bool, value: str, meaning: str, wrong: str, remedy: str, number: float | None = None
) -> Row:
    """A row that passes or fails: ``meaning`` where it is good, ``wrong`` and ``remedy`` where it is not."""
    if good:
        return Row(name, PASS, value, meaning, "", number)
    return Row(name, FAIL, value, wrong, remedy, number)


def merged(answers: Sequence[Sequence[Row]], places: Sequence[str]) -> list[Row]:
    """One row for each question that ranks were asked, in the order of the first that was: the worst answer, and whose it is.

    Args:
        answers: of each rank; one may have been asked less.
        places: of the ranks, in words.
    """
    if len(answers) == 1:
        return list(answers[0])
    found: dict[str, dict[str, Row]] = {}
    for place, rows in zip(places, answers, strict=True):
        for row in rows:
            found.setdefault(row.name, {})[place] = row
    return [_worst(rows, len(answers)) for rows in found.values()]


def _worst(found: dict[str, Row], ranks: int) -> Row:
    """Fails before notes before passes; of equal verdicts the larger number, then the first rank."""
    place, worst = max(found.items(), key=lambda item: (_SEVERITY.index(item[1].verdict), item[1].number or 0.0))
    if len(found) == ranks and all(row == worst for row in found.values()):
        return replace(worst, meaning=f"on each rank: {worst.meaning}")
    rest = [f"{other} {row.value}" for other, row in found.items() if other != place]
    more = [f"and {len(rest) - OTHERS} more"] if len(rest) > OTHERS else []
    others = f". {', '.join(rest[:OTHERS] + more)}" if rest else ""
    return replace(worst, meaning=f"{place}: {worst.meaning}{others}")


_SEVERITY = (PASS, NOTE, FAIL)


def megabytes(size: float) -> str:
    """Bytes for a person."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def duration(seconds: float) -> str:
    """Seconds for a person: 0.8 s, 42 s, 3:07 min, 2 h 05 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
