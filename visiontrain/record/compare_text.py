"""A comparison of two runs as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from visiontrain.config.schema import TrainConfig
from visiontrain.config.values import leaves_of, show
from visiontrain.record.compare import Comparison, Pair, RunFolder
from visiontrain.terminal import PLAIN, Look

WIDEST = 34  # characters of a value; what is longer is cut, the JSON has all of it
Row = tuple[str, str, str, str]


def as_text(comparison: Comparison, look: Look = PLAIN) -> str:
    """The whole comparison, what a person should mind at its end."""
    measured = comparison.measured
    parts = [
        "\n".join(f"{letter}  {_headline(run)}" for letter, run in (("A", comparison.a), ("B", comparison.b))),
        _table("settings that differ", [_row(n, p, _setting) for n, p in comparison.given.items()]),
        _table("computed values that differ", [_row(n, p, _value) for n, p in comparison.computed.items()]),
        _table(
            "measured", [_row(n, p, _figure, p.difference) for n, p in measured.items() if _worth_a_row(p)], "B - A"
        ),
        _table(
            f"{comparison.a.record['metric']} at {comparison.a.record['axis']}",
            [_row(f"{images}", pair, _metric, pair.difference) for images, pair in comparison.points()],
            "B - A",
        ),
        *(look.led("warning: ", "yellow", warning) for warning in comparison.warnings),
    ]
    return "\n\n".join(parts)


def _headline(run: RunFolder) -> str:
    measured = run.measured
    return f"{run.folder}: {run.record['outcome']}, {measured['epochs']} epochs, {measured['images_seen']} images seen"


def _table(title: str, rows: Sequence[Row], last: str = "") -> str:
    """Rows under a title; without any, the sentence that says so."""
    if not rows:
        return f"{title}: nothing"
    head: Row = (title, "A", "B", last)
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(4)]
    return "\n".join(_line(row, widths) for row in (head, *rows))


def _line(row: Row, widths: Sequence[int]) -> str:
    name, *values = row
    cells = [f"{value:>{width}}" for value, width in zip(values, widths[1:], strict=True)]
    return "  ".join([f"{name:<{widths[0]}}", *cells]).rstrip()


def _row(name: str, pair: Pair, show_value: Any, difference: float | None = None) -> Row:
    a, b = (_cut(show_value(name, value)) for value in (pair.a, pair.b))
    return name, a, b, "" if difference is None else show_value(name, difference)


def _worth_a_row(pair: Pair) -> bool:
    """Numbers always, words only where they differ."""
    return pair.difference is not None or pair.a != pair.b


def _setting(name: str, value: Any) -> str:
    """As one would type it; a dash where the run's version had no such setting."""
    leaves: Mapping[str, Any] = leaves_of(TrainConfig)
    if name not in leaves or (value is None and not leaves[name].optional):
        return _value(name, value)
    return show(leaves[name], value) or "''"


def _value(name: str, value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _figure(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "memory_peak":
        return f"{value / 1e6:.0f} MB"
    if name == "clipped_share":
        return f"{100 * value:.1f} %"
    if name.startswith(("best.", "last.")) and isinstance(value, float):
        return _metric(name, value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _metric(name: str, value: float) -> str:
    return f"{value:.4f}"


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 2] + ".."
