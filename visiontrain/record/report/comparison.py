"""The page of a comparison: who is ahead, what to mind, curves over images seen, what differs, speed and memory, pictures."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from visiontrain.record.amounts import clock, gigabytes
from visiontrain.record.compare import Comparison, Standing, Values, differ, difference, flat, side_by_side
from visiontrain.record.compare_text import figure, is_metric, setting, shown, value
from visiontrain.record.files import write_text
from visiontrain.record.report.markup import Html, join, tag
from visiontrain.record.report.page import (
    Number,
    Section,
    bars,
    bullets,
    cards,
    folded,
    grid,
    heading,
    number,
    page,
    panel,
    picture,
    pill,
    sentences,
    table,
)
from visiontrain.record.report.pictures import small
from visiontrain.record.report.svg import COLOURS, Series, chart, thinned

Show = Callable[[str, Any], str]  # name and value, as text
MOST_ROWS = 30  # of a table before the rest is folded
NAME_LENGTH = 22  # characters of a label in charts and bars
MOST_OTHERS = 5  # named below the best figure
MOODS = {"finished": "good", "stopped early": "good", "running": "busy", "interrupted": "warn"}
FRAME_HEIGHT = 760  # pixels of the page in a notebook


def write_page(comparison: Comparison, path: Path) -> None:
    """Write the page as one file; the run folders it names are linked from where it lies."""
    write_text(path, comparison_page(comparison, path.parent))


def framed_page(comparison: Comparison) -> str:
    """The page in a frame of its own, so that its style stays out of a notebook."""
    inside = escape(comparison_page(comparison), quote=True)
    style = f"width:100%;height:{FRAME_HEIGHT}px;border:0;border-radius:8px"
    return f'<iframe sandbox="allow-scripts" title="comparison of runs" style="{style}" srcdoc="{inside}"></iframe>'


def comparison_page(comparison: Comparison, near: Path | None = None) -> str:
    """The whole page.

    Args:
        comparison: of two or more runs.
        near: the folder it will lie in, for links to the runs; None: paths are text alone.
    """
    sections = [
        Section("mind", "What to mind", _warnings(comparison)),
        Section("runs", "Runs", _runs(comparison, near)),
        Section("curves", "Curves", _curves(comparison)),
        Section("differences", "What differs", _differences(comparison)),
        Section("speed", "Speed and memory", _speed(comparison)),
        Section("pictures", "Pictures", _pictures(comparison)),
    ]
    title = f"Comparison: {', '.join(comparison.labels)}"
    command = shlex.join(["visiontrain", "compare", *(str(run.folder) for run in comparison.runs)])
    return page(title, _header(comparison), sections, footer=tag("code", command, class_="line"))


def _header(comparison: Comparison) -> Html:
    record = comparison.runs[0].record
    over = tag("p", pill(f"{len(comparison.runs)} runs", "good"), record["metric"], class_="over")
    said = sentences(". ".join(comparison.verdict()), ".")
    return join([over, tag("h1", _headline(comparison)), said, cards(_winners(comparison))])


def _headline(comparison: Comparison) -> Html:
    end, equal = comparison.at_end(), comparison.at_equal() or comparison.at_end()
    if equal.first == end.first:
        return _ahead(comparison, end, " is ahead")
    return join([_ahead(comparison, end, " is ahead at the end, "), _ahead(comparison, equal, " at equal images")])


def _ahead(comparison: Comparison, standing: Standing, where: str) -> Html:
    return join(["No run" if standing.first is None else _run(comparison, standing.first), where])


def _run(comparison: Comparison, at: int, label: bool = True) -> Html:
    """What a run is called, in its colour."""
    return tag(
        "span", comparison.letters[at], f" {comparison.labels[at]}" if label else "", class_=f"run {_colour(at)}"
    )


def _name(comparison: Comparison, at: int) -> str:
    """The same in a few characters, for places that are narrow."""
    label = comparison.labels[at]
    short = label if len(label) <= NAME_LENGTH else f"{label[: NAME_LENGTH // 2]}..{label[-(NAME_LENGTH // 2 - 2) :]}"
    return f"{comparison.letters[at]} {short}"


def _colour(at: int) -> str:
    return f"c{at % COLOURS + 1}"


def _winners(comparison: Comparison) -> Iterator[tuple[str, object, object]]:
    """Of each figure that one asks for, the run that has the best."""
    equal, measured = comparison.at_equal(), comparison.measured
    after = f"AP after {equal.images_seen:,} images each" if equal else ""
    if comparison.ended_alike:
        yield after.replace("AP", "AP at the end,"), *_best(comparison, comparison.at_end().ap, ".3f")
    else:
        yield "AP at the end", *_best(comparison, comparison.at_end().ap, ".3f")
        if equal:
            yield after, *_best(comparison, equal.ap, ".3f")
    yield "AP of best.pt", *_best(comparison, measured.get("best.ap", ()), ".3f")
    yield "Images per second", *_best(comparison, tuple(v or None for v in measured["images_per_second"]), ".3g")
    memory = tuple(peak / 1e9 if peak else None for peak in measured["memory_peak"])
    yield "Peak memory, GB", *_best(comparison, memory, ".2f", min)


def _best(comparison: Comparison, values: Values, form: str, best: Callable[..., Any] = max) -> tuple[object, object]:
    """(run and value, those of the others)."""
    known = {at: v for at, v in enumerate(values) if v is not None}
    if not known:
        return "-", "no run has one"
    first = best(known.values())
    who = [_run(comparison, at, label=False) for at, v in known.items() if v == first]
    others = [f"{comparison.letters[at]} {v:{form}}" for at, v in known.items() if v != first]
    return tag("span", join([*who, f"{first:{form}}"], " ")), ", ".join(others[:MOST_OTHERS]) + (
        ", ..." if len(others) > MOST_OTHERS else ""
    )


def _warnings(comparison: Comparison) -> Html:
    if not comparison.warnings:
        return Html("")
    return tag("div", bullets(("warn", _sentence(warning)) for warning in comparison.warnings), class_="panel mind")


def _sentence(warning: str) -> str:
    return f"{warning[0].upper()}{warning[1:]}."


def _runs(comparison: Comparison, near: Path | None) -> Html:
    """A row of each; AP at equal images only where it is not the one at the end."""
    equal = None if comparison.ended_alike else comparison.at_equal()
    then = [f"AP after {equal.images_seen:,}"] if equal else []
    header = ["run", "AP at the end", *then, "AP of best.pt", "images seen", "epochs", "images/s", "memory", "outcome"]
    rows = [
        [
            _run(comparison, at) + tag("div", _link(run.folder, near), class_="soft path"),
            number(comparison.at_end().ap[at], ".4f"),
            *([number(equal.ap[at], ".4f")] if equal else []),
            number(run.measured["metrics"]["best"].get("ap"), ".4f"),
            number(run.measured["images_seen"], ","),
            number(run.measured["epochs"], "d"),
            number(run.measured["images_per_second"], ".1f"),
            Number(run.measured["memory"]["peak"], gigabytes(run.measured["memory"]["peak"])),
            pill(run.record["outcome"], MOODS.get(run.record["outcome"], "bad")),
        ]
        for at, run in enumerate(comparison.runs)
    ]
    return tag("div", table(header, rows), class_="panel runs")


def _link(folder: Path, near: Path | None) -> Html:
    """The folder's path; where the page lies beside it, a link to its report, or to itself."""
    if near is None:
        return tag("span", str(folder))
    target = folder / "report.html" if (folder / "report.html").is_file() else folder
    return tag("a", str(folder), href=quote(os.path.relpath(target.resolve(), near.resolve())))


def _curves(comparison: Comparison) -> Html:
    names = dict.fromkeys(name for run in comparison.runs for row in run.epochs for name in row)
    losses = [name for name in names if name.startswith("train/")]
    titles = {
        "metrics/ap": "AP",
        "metrics/ap50": "AP50",
        **{n: n.removeprefix("train/").replace("_", " ") for n in losses},
    }
    seen = [row["images_seen"] for run in comparison.runs for row in run.epochs]
    drawn: dict[bool, list[Html]] = {True: [], False: []}  # of several runs, of one alone
    for name, title in {**titles, "lr": "learning rate"}.items() if seen else ():
        series = [line for line in _series(comparison, name) if len(line.x)]
        drawn[len(series) > 1].append(chart(title, series, x_range=(0.0, max(seen))))
    if not seen:
        return Html("")
    alone = folded("Curves that one run alone has", grid(drawn[False])) if any(drawn[False]) else ""
    families = {run.record["computed"]["model"]["family"] for run in comparison.runs}
    more = " Losses of different models are not on one scale: compare their shapes." if len(families) > 1 else ""
    return sentences(f"Over images seen, never over updates or time.{more}") + grid(drawn[True]) + alone


def _series(comparison: Comparison, name: str) -> list[Series]:
    drawn = []
    for at, run in enumerate(comparison.runs):
        rows = [row for row in run.epochs if name in row]
        line = thinned(
            _name(comparison, at),
            [row["images_seen"] for row in rows],
            [row[name] for row in rows],
            at % COLOURS + 1,
        )
        drawn.append(line if at < COLOURS else Series(line.name, line.x, line.y, line.colour, style="dashed"))
    return drawn


def _differences(comparison: Comparison) -> Html:
    """Three tables of what differs; all values in a fold."""
    parts = [
        ("Settings", setting, comparison.given),
        ("Computed from them", value, comparison.computed),
        ("Measured", figure, {n: v for n, v in comparison.measured.items() if differ(v)}),
    ]
    shown_ = [heading(title) + _long_table(comparison, show, values) for title, show, values in parts]
    return panel(*shown_, folded("Everything, equal values too", _everything(comparison)))


def _everything(comparison: Comparison) -> Html:
    given = side_by_side([run.record["given"]["settings"] for run in comparison.runs])
    computed = side_by_side([dict(flat(run.record["computed"])) for run in comparison.runs])
    parts = (("Settings", setting, given), ("Computed", value, computed), ("Measured", figure, comparison.measured))
    return join(heading(title) + _table(comparison, show, list(values.items())) for title, show, values in parts)


def _long_table(comparison: Comparison, show: Show, values: dict[str, Values]) -> Html:
    rows = list(values.items())
    if not rows:
        return sentences("Nothing.")
    rest = rows[MOST_ROWS:]
    more = folded(f"{len(rest)} more", _table(comparison, show, rest)) if rest else ""
    return join([_table(comparison, show, rows[:MOST_ROWS]), more])


def _table(comparison: Comparison, show: Show, rows: Sequence[tuple[str, Values]]) -> Html:
    runs = range(len(comparison.runs))
    last = [f"{comparison.letters[1]} - {comparison.letters[0]}" if show is figure else ""] if len(runs) == 2 else []
    header = ["", *(_run(comparison, at, label=False) for at in runs), *last]
    content = table(header, [[tag("code", name), *_cells(show, name, values)] for name, values in rows])
    return tag("div", content, class_="across", style=f"--runs:{len(header) - 1}")


def _cells(show: Show, name: str, values: Values) -> list[object]:
    """The highest metric is bold; of two values, what was measured has the difference behind it."""
    numbers = [v for v in values if isinstance(v, int | float)]
    best = max(numbers) if is_metric(name) and len(numbers) > 1 and differ(values) else None
    cells: list[object] = [
        tag("b", text) if best is not None and v == best else text
        for text, v in zip(shown(show, name, values), values, strict=True)
    ]
    apart = difference(values) if show is figure else None
    return [*cells, *(["" if apart is None else figure(name, apart)] if len(values) == 2 else [])]


def _speed(comparison: Comparison) -> Html:
    measured = comparison.measured
    names = [_name(comparison, at) for at in range(len(comparison.runs))]
    parts = [
        heading(title) + bars((n, v or 0, show(v or 0)) for n, v in zip(names, measured[key], strict=True))
        for key, title, show in (
            ("images_per_second", "Images per second, training, last epoch", "{:.1f}".format),
            ("memory_peak", "Peak memory", gigabytes),
            ("seconds", "Time of the whole run", clock),
        )
    ]
    devices = [_sentence(told) for told in comparison.warnings if told.startswith("the devices differ")]
    return join(
        [bullets(("warn", warning) for warning in devices), tag("div", grid(map(panel, parts)), class_="by-run")]
    )


def _pictures(comparison: Comparison) -> Html:
    """What each run found on the first validation pictures, and what there is to find."""
    runs = comparison.runs
    files = {str(at): run.folder / "val_predictions.jpg" for at, run in enumerate(runs)}
    if not differ([run.measured["data"]["val_fingerprint"] for run in runs]):
        labels = [run.folder / "val_labels.jpg" for run in runs]
        files |= {"labels": next(filter(Path.is_file, labels), labels[0])}
    uris = small({name: file for name, file in files.items() if file.is_file()})
    found = [at for at in range(len(runs)) if str(at) in uris]
    if not found:
        return Html("")
    drawn = [picture(uris[str(at)], f"predictions of {comparison.labels[at]}", _run(comparison, at)) for at in found]
    if "labels" in uris:
        drawn.append(picture(uris["labels"], "labels", "Labels: what there is to find"))
    lacking = ", ".join(name for at, name in enumerate(comparison.letters) if at not in found)
    told = f" No such picture was left by {lacking}." if lacking else ""
    return sentences(f"Predictions of best.pt on the first validation pictures.{told}") + grid(drawn, wide=True)
