"""The result of a check, for a person and for scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from visiontrain.checks.data import DataReport
from visiontrain.checks.kinds import KINDS
from visiontrain.checks.preflight import PHASE, Preflight
from visiontrain.checks.rows import FAIL, NOTE, PASS, Row, duration
from visiontrain.data.labels import Finding
from visiontrain.terminal import PLAIN, Look, Style
from visiontrain.training.plan import counted

SCHEMA_VERSION = 1
SHOWN = 3  # findings of a kind on the screen


def data_text(report: DataReport, look: Look = PLAIN) -> str:
    """The findings by kind: how many, the first few by file and line, and what to do."""
    root = report.description.root
    told = f": {report.description.recognised}" if report.description.recognised else ""
    lines = [f"{look.paint('Data', 'bold')}: {report.description.file} (format {report.description.format}{told})"]
    for split, scan in report.scans.items():
        background = sum(not len(labels.classes) for labels in scan.labels)
        boxes = sum(report.counts[split].values())
        told = f"{split}: {len(scan.pictures)} pictures, {background} without objects; {boxes} boxes{_extremes(report.counts[split])}"
        lines += look.fold(told, "  ", "    ")
    faults = len(report.faults)
    notes = len(report.findings) - faults
    lines.append(
        f"  {counted(faults, 'fault')}, {counted(notes, 'note')} in {duration(report.seconds)}; no file was changed"
    )
    for kind, found in groupby(report.findings, key=lambda finding: finding.kind):
        lines += ["", *_kind(kind, list(found), root, look)]
    return "\n".join(lines)


def _kind(kind: str, found: Sequence[Finding], root: Path, look: Look) -> Iterator[str]:
    about = KINDS[kind]
    mark = look.paint("FAULT", "red") if about.fault else look.paint("note ", "yellow")
    yield f"  {mark} {len(found):>5}  {look.paint(about.title, 'bold')}"
    indent = " " * 15
    for finding in found[:SHOWN]:
        yield from look.fold(str(finding).replace(f"{root}/", ""), indent, f"{indent}  ")
    if len(found) > SHOWN:
        yield f"{indent}... and {len(found) - SHOWN} more; format=json lists all"
    yield from look.fold(f"-> {about.remedy}", indent, f"{indent}   ")


def plan_text(plan: Sequence[str], look: Look = PLAIN) -> str:
    """The plan, before a window is run."""
    return "\n".join(
        ["", look.paint("Plan", "bold"), *(line for sentence in plan for line in look.fold(sentence, "  ", "    "))]
    )


def preflight_text(found: Preflight, look: Look = PLAIN) -> str:
    """The rows as a table, and what an epoch will take."""
    head = f"{look.paint('Preflight', 'bold')}: {counted(found.epoch.windows + 1, 'window')} run and thrown away, {duration(found.seconds)} in all"
    return "\n".join(["", head, *_table(found.rows, look), "", *look.fold(found.epoch.sentence())])


def export_text(rows: Sequence[Row], look: Look = PLAIN) -> str:
    """The rows of the exports as a table."""
    head = f"{look.paint('Export', 'bold')}: the model as training begins it, written to the cache and removed"
    return "\n".join(["", head, *_table(rows, look)])


def _table(rows: Sequence[Row], look: Look) -> list[str]:
    lines = []
    names, values = (max(len(getattr(row, field)) for row in rows) for field in ("name", "value"))
    for row in rows:
        mark, style = _MARK[row.verdict]
        head = f"  {mark}  {row.name:<{names}}  {row.value:>{values}}  "
        first, *more = look.fold(row.meaning, head, " " * len(head))
        lines += [first.replace(mark, look.paint(mark, style), 1), *more]
        if row.remedy:
            lines += look.fold(f"-> {row.remedy}", " " * len(head), " " * (len(head) + 3))
    return lines


def summary(
    report: DataReport, found: Preflight | None, not_run: str, exports: Sequence[Row] = (), look: Look = PLAIN
) -> str:
    """The last line: what it all comes to."""
    tried = f"the preflight was not run ({not_run})" if not found else f"{counted(len(found.failed), 'failed check')}"
    failed = sum(row.verdict == FAIL for row in exports)
    exported = f", {failed} of {counted(len(exports), 'export')} failed" if exports else ""
    passed = _passed(report, found, exports)
    sentence = f"{counted(len(report.faults), 'fault')} in the data, {tried}{exported}."
    return "\n" + look.paint(sentence, "green" if passed else "red")


def _passed(report: DataReport, found: Preflight | None, exports: Sequence[Row]) -> bool:
    return not (report.faults or (found and found.failed) or any(row.verdict == FAIL for row in exports))


_MARK: dict[str, tuple[str, Style]] = {PASS: ("pass ", "green"), FAIL: ("FAIL ", "red"), NOTE: ("note ", "yellow")}


def as_json(
    report: DataReport, found: Preflight | None, not_run: str, settings: dict[str, Any], exports: Sequence[Row] = ()
) -> dict[str, Any]:
    """Everything, as docs/contracts.md describes it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "phase": PHASE,
        "passed": _passed(report, found, exports),
        "settings": settings,
        "data": {
            "file": str(report.description.file),
            "seconds": report.seconds,
            "images": {split: len(scan.pictures) for split, scan in report.scans.items()},
            "boxes": report.counts,
        },
        "findings": [
            {
                "kind": f.kind,
                "level": "fault" if KINDS[f.kind].fault else "note",
                "file": f.file,
                "line": f.line,
                "message": f.message,
            }
            for f in report.findings
        ],
        "remedies": {kind: KINDS[kind].remedy for kind in dict.fromkeys(f.kind for f in report.findings)},
        "not_run": not_run,
        "plan": list(found.plan) if found else [],
        "preflight": [asdict(row) for row in found.rows] if found else [],
        "exports": [asdict(row) for row in exports],
        "epoch": {"how": "computed from measured windows", **asdict(found.epoch)} if found else None,
    }


def _extremes(counts: dict[str, int]) -> str:
    most, least = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    return f", from {counts[least]} of {least} to {counts[most]} of {most}" if len(counts) > 1 else ""
