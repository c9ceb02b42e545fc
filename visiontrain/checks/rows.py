"""A row of the preflight's table: one question, its answer, and what to do where the answer is bad."""

from __future__ import annotations

from dataclasses import dataclass

PASS, FAIL, NOTE = "pass", "fail", "note"


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
