"""Which class is taken for which: the confusion matrix as SVG, and its largest cells as a list."""

from __future__ import annotations

from typing import Any

import numpy as np

from visiontrain.record.report.markup import Html, tag

MOST_CLASSES = 120  # more would be smaller than a pixel on most screens; the list stays
_WRITTEN = 24  # up to so many classes the counts stand in the cells


def mix_ups(curves: dict[str, Any]) -> list[tuple[str, str, int, float]]:
    """(predicted, true, count, share of the true class) of pairs of different classes, the most frequent first."""
    names, cells = curves["names"], curves["confusion"]
    totals: dict[int, int] = {}
    for _, true, count in cells:
        totals[true] = totals.get(true, 0) + count
    wrong = [cell for cell in cells if cell[0] != cell[1] and len(names) not in cell[:2]]
    wrong.sort(key=lambda cell: -cell[2])
    return [(names[predicted], names[true], count, count / totals[true]) for predicted, true, count in wrong]


def confusion_matrix(curves: dict[str, Any]) -> Html:
    """Rows predicted, columns true, the background last; shaded by the share of the true class. Empty above 120 classes."""
    names = [*curves["names"], "background"]
    if len(names) > MOST_CLASSES + 1:
        return Html("")
    counts = np.zeros((len(names), len(names)))
    for predicted, true, count in curves["confusion"]:
        counts[predicted, true] = count
    cell = float(np.clip(340 / len(names), 12, 64))
    letters = 11 if cell >= 18 else 9
    longest = min(max(map(len, names)), 14)
    room, side = longest * letters * 0.56 + 26, cell * len(names)
    width, height = room + side + 2, side + room + 2
    drawn = [
        tag("rect", x=f"{room:.1f}", y=1, width=f"{side:.1f}", height=f"{side:.1f}", class_="frame"),
        *_cells(counts, names, cell, room),
        *_labels(names, cell, room, side, letters),
    ]
    svg = tag("svg", *drawn, viewBox=f"0 0 {width:.0f} {height:.0f}", role="img", aria_label="confusion matrix", class_="matrix",
              style=f"min-width:{min(width, 960 if cell < 18 else 0):.0f}px;max-width:{1.25 * width:.0f}px")  # fmt: skip
    return tag("div", svg, class_="scroll")


def _cells(counts: np.ndarray, names: list[str], cell: float, room: float) -> list[Html]:
    share = counts / np.maximum(counts.sum(0, keepdims=True), 1)
    drawn = []
    for row, column in np.argwhere(counts):
        part, count = float(share[row, column]), int(counts[row, column])
        x, y = room + column * cell, 1 + row * cell
        told = tag("title", f"{_what(names, row, column)}: {count:,} ({part:.0%})")
        square = tag("rect", told, x=f"{x + 0.5:.1f}", y=f"{y + 0.5:.1f}", width=f"{cell - 1:.1f}", height=f"{cell - 1:.1f}",
                     fill_opacity=f"{0.06 + 0.94 * part**0.8:.2f}")  # fmt: skip
        drawn.append(square)
        if len(names) <= _WRITTEN + 1:
            drawn.append(tag("text", f"{count:,}", x=f"{x + cell / 2:.1f}", y=f"{y + cell / 2 + 4:.1f}", text_anchor="middle",
                             class_="on" if part > 0.4 else "off"))  # fmt: skip
    return drawn


def _what(names: list[str], row: int, column: int) -> str:
    ground = len(names) - 1
    if row == ground:
        return f"{names[column]} missed"
    if column == ground:
        return f"{names[row]} found where nothing is"
    return f"{names[column]} found" if row == column else f"{names[column]} taken for {names[row]}"


def _labels(names: list[str], cell: float, room: float, side: float, letters: int) -> list[Html]:
    drawn = []
    for place, name in enumerate(names):
        middle, short = (place + 0.5) * cell, name if len(name) <= 14 else name[:13] + "\u2026"
        style = f"font-size:{letters}px"
        drawn.append(
            tag("text", short, x=f"{room - 6:.1f}", y=f"{middle + 1 + letters / 3:.1f}", text_anchor="end", style=style)
        )
        x, y = room + middle + letters / 3, side + 8
        drawn.append(
            tag("text", short, transform=f"translate({x:.1f} {y:.1f}) rotate(-90)", text_anchor="end", style=style)
        )
    ends = f"translate(10 {side / 2:.1f}) rotate(-90)"
    drawn.append(tag("text", "predicted", transform=ends, text_anchor="middle", class_="name"))
    drawn.append(
        tag("text", "true", x=f"{room + side / 2:.1f}", y=f"{side + room - 2:.1f}", text_anchor="middle", class_="name")
    )
    return drawn
