"""A run under a cell: how it ended, the scores of its best epoch, two small curves, and where the rest is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from visiontrain.inline import BLUE, GREY, card, table
from visiontrain.record.sinks.drawings import read_metrics

SCORES = {"precision": "precision", "recall": "recall", "ap50": "AP50", "ap": "AP"}
CLASSES = 20  # with a row of their own; more would be a page
WIDE, HIGH = 260, 80  # pixels of a curve

Scores = Mapping[str, float | int | None]


def run_card(folder: Path, outcome: str, metrics: Scores, per_class: Mapping[str, Scores]) -> str:
    """HTML of a few kB; the pictures stay in the folder."""
    epochs = read_metrics(folder / "metrics.csv")
    shown = [("all", metrics), *(per_class.items() if 1 < len(per_class) <= CLASSES else ())]
    rows = [[name, *(_number(scores.get(key)) for key in SCORES)] for name, scores in shown]
    losses = [sum(v for k, v in row.items() if k.endswith("_loss")) for row in epochs]
    charts = _chart("training loss", losses) + _chart("AP", [row["metrics/ap"] for row in epochs])
    side_by_side = f'<div style="display:flex;flex-wrap:wrap;gap:1.5em">{charts}</div>'
    title = f"{outcome.capitalize()}, {len(epochs)} {'epoch' if len(epochs) == 1 else 'epochs'}"
    return card((), title, table(["class", *SCORES.values()], rows, marked=[0]) + side_by_side + _places(folder))


def _places(folder: Path) -> str:
    report = folder / "report.html"
    link = f' &middot; <a href="{_address(report)}">report.html</a>' if report.is_file() else ""
    return f'<div style="opacity:.8"><code style="background:none">{escape(str(folder))}</code>{link}</div>'


def _address(file: Path) -> str:
    """As a notebook's page resolves it: from the folder that the notebook lies in, where the kernel began."""
    path = file.absolute()
    here = Path.cwd()
    return quote(path.relative_to(here).as_posix()) if path.is_relative_to(here) else path.as_uri()


def _chart(title: str, values: Sequence[float]) -> str:
    """A line over the epochs, with its first and last value; nothing where there are not two."""
    known = [(i, value) for i, value in enumerate(values) if math.isfinite(value)]
    if len(known) < 2:
        return ""
    low, high = min(v for _, v in known), max(v for _, v in known)
    across, up = WIDE / known[-1][0], HIGH / ((high - low) or 1)
    line = " ".join(f"{i * across:.1f},{HIGH - (value - low) * up:.1f}" for i, value in known)
    return (
        f'<figure style="margin:.4em 0"><figcaption style="font-size:.85em">{title}'
        f' <span style="opacity:.7">{known[0][1]:.3f} to {known[-1][1]:.3f}</span></figcaption>'
        f'<svg width="{WIDE}" height="{HIGH}" viewBox="0 -2 {WIDE} {HIGH + 4}" role="img" aria-label="{title} over epochs">'
        f'<path d="M0 0V{HIGH}H{WIDE}" fill="none" stroke="{GREY}"/>'
        f'<polyline points="{line}" fill="none" stroke="{BLUE}" stroke-width="2"/></svg></figure>'
    )


def _number(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.3f}"
