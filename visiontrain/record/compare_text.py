"""A comparison of runs as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from visiontrain.config.schema import TrainConfig
from visiontrain.config.values import leaves_of, show
from visiontrain.record.compare import Comparison, RunFolder, Values, differ, difference
from visiontrain.terminal import PLAIN, Look

WIDTH = 100  # columns of a terminal that a table keeps to; what is cut for it, the JSON has whole
WIDEST, NARROWEST = 34, 9  # characters of a value
Row = tuple[str, list[str]]  # a name, and a cell of each column


def as_text(comparison: Comparison, look: Look = PLAIN) -> str:
    """The whole comparison, what a person should mind at its end."""
    names, runs = comparison.letters, comparison.runs
    last = [f"{names[1]} - {names[0]}"] if len(runs) == 2 else []
    parts = [
        "\n".join(f"{name}  {_headline(run)}" for name, run in zip(names, runs, strict=True)),
        "\n".join(f"{sentence}." for sentence in comparison.verdict()),
        _table("settings that differ", names, [(n, shown(setting, n, v)) for n, v in comparison.given.items()]),
        _table("computed values that differ", names, [(n, shown(value, n, v)) for n, v in comparison.computed.items()]),
        _table("measured", names + last, [_row(n, v) for n, v in comparison.measured.items() if worth_a_row(v)]),
        _table(
            f"{runs[0].record['metric']} at {runs[0].record['axis']}",
            names + last,
            [(f"{images}", _row("best.ap", values)[1]) for images, values in comparison.points()],
        ),
        *(look.led("warning: ", "yellow", warning) for warning in comparison.warnings),
    ]
    return "\n\n".join(parts)


def shown(show_value: Any, name: str, values: Values) -> list[str]:
    """Each of the values in words."""
    return [show_value(name, one) for one in values]


def worth_a_row(values: Values) -> bool:
    """Numbers always, words only where they differ."""
    return differ(values) or isinstance(values[0], int | float)


def setting(name: str, value_: Any) -> str:
    """As one would type it; a dash where the run's version had no such setting."""
    leaves: Mapping[str, Any] = leaves_of(TrainConfig)
    if name not in leaves or (value_ is None and not leaves[name].optional):
        return value(name, value_)
    return show(leaves[name], value_) or "''"


def value(name: str, value_: Any) -> str:
    """A number with six digits, anything else as it is."""
    if value_ is None:
        return "-"
    return f"{value_:.6g}" if isinstance(value_, float) else str(value_)


def figure(name: str, value_: Any) -> str:
    """Something measured, with its unit."""
    if value_ is None:
        return "-"
    if name == "memory_peak":
        return f"{value_ / 1e6:.0f} MB"
    if name == "clipped_share":
        return f"{100 * value_:.1f} %"
    if is_metric(name) and isinstance(value_, float):
        return f"{value_:.4f}"
    return f"{value_:.4g}" if isinstance(value_, float) else str(value_)


def is_metric(name: str) -> bool:
    """Whether it is a metric of an evaluation, of which more is better."""
    return name.startswith(("best.", "last.")) and not name.endswith(".epoch")


def _headline(run: RunFolder) -> str:
    measured = run.measured
    return f"{run.folder}: {run.record['outcome']}, {measured['epochs']} epochs, {measured['images_seen']} images seen"


def _row(name: str, values: Values) -> Row:
    """Two with the difference after them; of more, the highest metric with a star."""
    cells = shown(figure, name, values)
    if len(values) == 2:
        apart = difference(values)
        return name, [*cells, "" if apart is None else figure(name, apart)]
    numbers = [v for v in values if v is not None]
    starred = is_metric(name) and differ(values) and len(numbers) > 1
    return name, [
        f"{cell}{'*' if starred and v == max(numbers) else ' '}" for cell, v in zip(cells, values, strict=True)
    ]


def _table(title: str, columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Rows under a title, in several blocks where the columns do not stand beside each other; without any, the sentence that says so."""
    if not rows:
        return f"{title}: nothing"
    names = max(len(name) for name in (title, *(name for name, _ in rows)))
    many = max((WIDTH - names) // (NARROWEST + 2), 1)
    return "\n\n".join(
        _block(title, columns[at : at + many], [(name, cells[at : at + many]) for name, cells in rows])
        for at in range(0, len(columns), many)
    )


def _block(title: str, columns: Sequence[str], rows: Sequence[Row]) -> str:
    names = max(len(name) for name in (title, *(name for name, _ in rows)))
    room = min(WIDEST, max((WIDTH - names) // len(columns) - 2, NARROWEST))
    lines = [(title, list(columns)), *((name, _cut(cells, room)) for name, cells in rows)]
    widths = [max(len(cells[n]) for _, cells in lines) for n in range(len(columns))]
    return "\n".join(
        "  ".join([f"{name:<{names}}", *(f"{cell:>{w}}" for cell, w in zip(cells, widths, strict=True))]).rstrip()
        for name, cells in lines
    )


def _cut(cells: Sequence[str], room: int) -> list[str]:
    """Cells no longer than ``room``: their beginnings, or where those are alike, their ends."""
    for head in (room - 2, room // 2, 0):
        short = [c if len(c) <= room else f"{c[:head]}..{c[len(c) - (room - 2 - head) :]}" for c in cells]
        if len(set(short)) == len(set(cells)):
            break
    return short
