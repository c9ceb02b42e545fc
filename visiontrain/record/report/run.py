"""report.html: a run on one page, made from what lies in its folder alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from visiontrain.config.schema import TrainConfig
from visiontrain.config.values import leaves_of
from visiontrain.record.amounts import clock
from visiontrain.record.files import write_text
from visiontrain.record.report import words
from visiontrain.record.report.curves import memory_bars, scoring_charts, training_charts
from visiontrain.record.report.markup import Html, join, tag
from visiontrain.record.report.matrix import confusion_matrix, mix_ups
from visiontrain.record.report.page import (
    Section,
    bullets,
    cards,
    facts,
    folded,
    grid,
    heading,
    number,
    page,
    panel,
    pill,
    sentences,
    table,
)
from visiontrain.record.report.pictures import MOST_BYTES, drawn_curves, gallery, picture_files, small
from visiontrain.record.report.source import Source, read_source
from visiontrain.record.report.svg import spark

REPORT = "report.html"
LIMIT = 4_900_000  # bytes of the page
MOST_CLASSES = 24  # in the open table
WEAKEST = 10
RELOAD = 30  # seconds, while it runs
MOOD = {"running": "busy", "finished": "good", "stopped early": "good", "interrupted": "warn", "failed": "bad"}


def write_report(folder: str | Path) -> Path:
    """Write report.html into a run folder, from its other files; also of a run that runs, failed or is old.

    Args:
        folder: what a training left, for example runs/train/run.

    Returns:
        the file, under 5 MB.

    Raises:
        ConfigError: it is no run folder, or it was written by another version of the contracts.
        OSError: the file cannot be written.
    """
    source = read_source(folder)
    write_text(source.folder / REPORT, report_of(source))
    return source.folder / REPORT


def report_of(source: Source) -> str:
    """The page."""
    files = picture_files(source)
    bare = _page(source, {})
    uris = small(files, min(MOST_BYTES, LIMIT - len(bare.encode())))
    return _page(source, uris) if uris else bare


def _page(source: Source, uris: dict[str, str]) -> str:
    sections = [
        Section("glance", "At a glance", _glance(source)),
        Section("curves", "Curves", _curves(source)),
        Section("scores", "Scores of best.pt", _scores(source) + drawn_curves(uris)),
        Section("pictures", "Pictures", gallery(source, uris)),
        Section("record", "Plan and record", _record(source)),
        Section("memory", "Memory by phase", _memory(source)),
        Section("data", "Data", _data(source)),
        Section("settings", "Settings", _settings(source)),
        Section("environment", "Environment", _environment(source)),
    ]
    title = words.title(source)
    footer = f"Made by visiontrain {source.measured['versions']['visiontrain']} from the files of {source.folder}."
    reload = RELOAD if source.running else 0
    return page(f"{title} - {source.folder.name}", _header(source), sections, footer=footer, reload=reload)


def _header(source: Source) -> Html:
    record = source.record
    written = tag(
        "time", words.moment(record["updated"]), datetime=record["updated"], data_running="and again while it runs"
    )
    over = tag(
        "div",
        pill(record["outcome"], MOOD[record["outcome"]]),
        tag("span", str(source.folder)),
        tag("span", f"began {words.moment(record['started'])}"),
        tag("span", "written ", written, " ", tag("span", "")) if source.running else None,
        class_="over",
    )
    return join(
        [over, tag("h1", words.title(source)), sentences(words.lead(source)), _progress(source), cards(_cards(source))]
    )


def _progress(source: Source) -> Html:
    if not source.running:
        return Html("")
    seen, planned, left = source.images_seen, source.computed["images_planned"], words.time_left(source)
    told = f"{seen:,} of {planned:,} images" + (f", about {clock(left)} left" if left is not None else "")
    bar = tag("div", tag("i", style=f"width:{100 * min(seen / max(planned, 1), 1):.1f}%"), class_="progress")
    return tag("div", bar, tag("small", told), class_="pace")


def _cards(source: Source) -> Iterator[tuple[str, object, object]]:
    best, measured = source.best, source.measured
    epochs = source.settings["epochs"]
    if best:
        rows = source.validated
        line = spark([row["images_seen"] for row in rows], [row["metrics/ap"] for row in rows])
        yield "Best AP", join([f"{best['ap']:.3f}", line]), f"IoU 0.5 to 0.95; epoch {best['epoch']} of {epochs}"
        yield "AP50", f"{best['ap50']:.3f}", "IoU 0.5"
        yield "Precision", f"{best['precision']:.3f}", "at the best F1"
        yield "Recall", f"{best['recall']:.3f}", "at the best F1"
    else:
        yield "Best AP", "-", "no validation so far"
    yield "Images seen", f"{source.images_seen:,}", f"of {source.computed['images_planned']:,} planned"
    speed = f"{measured['images_per_second']:.1f} images/s" if measured["images_per_second"] else ""
    yield "Time", clock(measured["seconds"]), speed
    yield "Peak memory", words.peak(source), f"on {measured['device']['kind']}"


def _glance(source: Source) -> Html:
    said = words.stands_out(source)
    return panel(bullets(said)) if said else Html("")


def _curves(source: Source) -> Html:
    charts = training_charts(source)
    told = tag("p", "The numbers are the last values; the pointer shows the others.", class_="soft note")
    return charts + told if charts else charts


def _scores(source: Source) -> Html:
    rows = source.measured["per_class"]
    charts = scoring_charts(source.curves) if source.curves else []
    shown = grid(charts, wide=True) + (_confusion(source) if source.curves else Html(""))
    if not rows:
        return shown
    scored = [name for name, row in rows.items() if row["ap"] is not None]
    weakest = sorted(scored, key=lambda name: (rows[name]["ap"], -rows[name]["instances"]))[:WEAKEST]
    if len(rows) <= MOST_CLASSES:
        return shown + heading("By class") + panel(_classes(rows, list(rows)))
    every = folded(f"All {len(rows)} classes", panel(_classes(rows, list(rows))))
    return shown + heading(f"The {len(weakest)} weakest classes") + panel(_classes(rows, weakest)) + every


def _classes(rows: dict[str, dict[str, float | None]], names: list[str]) -> Html:
    header = ("class", "AP", "AP50", "precision", "recall", "objects", "images")
    cells = [
        [name, *(number(rows[name][key]) for key in ("ap", "ap50", "precision", "recall")),
         *(number(rows[name][key], ",d") for key in ("instances", "images"))]
        for name in names
    ]  # fmt: skip
    return table(header, cells, sortable=True)


def _confusion(source: Source) -> Html:
    assert source.curves is not None
    matrix, worst = confusion_matrix(source.curves), mix_ups(source.curves)[:12]
    listed = table(
        ("taken for", "is", "times", "of its objects"),
        [[predicted, true, number(count, ",d"), number(share, ".0%")] for predicted, true, count, share in worst],
        sortable=True,
    )
    note = tag("p", "The shade is the share of the true class; the last row was missed, the last column is found where nothing is.",
               class_="soft note")  # fmt: skip
    drawn = panel(matrix, note) if matrix else Html("")
    listing = panel(listed) if worst else Html("")
    many = len(source.curves["names"]) > MOST_CLASSES
    shown = listing + folded("The whole matrix", drawn) if many and drawn else grid([drawn, listing], wide=True)
    return heading("Which class is taken for which, at confidence 0.25") + shown


def _record(source: Source) -> Html:
    plan = panel(tag("h3", "Plan", class_="top"), bullets(source.record["plan"]))
    return grid([plan, panel(tag("h3", "What happened", class_="top"), bullets(words.happened(source)))], wide=True)


def _memory(source: Source) -> Html:
    shown = memory_bars(source)
    told = source.measured["memory"].get("phases_are", "")
    light = "Lighter: the baseline, with model, averaged model and optimizer in place."
    return shown + tag("p", f"Peak of each phase, {told}. {light}", class_="soft note") if shown else shown


def _data(source: Source) -> Html:
    data, names = source.measured["data"], source.computed["model"]["names"]
    known = panel(
        facts(
            [
                ("description", data["file"]),
                ("training", f"{words.counted(data['images'], 'image')}, {words.counted(data['targets'], 'object')}"),
                (
                    "validation",
                    f"{words.counted(data['val_images'], 'image')}, {words.counted(data['val_targets'], 'object')}",
                ),
                ("classes", f"{len(names)}: {', '.join(names[:40])}{', ...' if len(names) > 40 else ''}"),
                ("findings", words.counted(data["findings"], "finding")),
            ]
        )
    )
    if not source.findings:
        return known
    rest = len(source.findings) - 100
    more = tag("p", f"and {rest:,} more in data_findings.txt", class_="soft") if rest > 0 else None
    return known + panel(folded("What was found in labels and pictures", bullets(source.findings[:100]), more))


def _settings(source: Source) -> Html:
    leaves, given = leaves_of(TrainConfig), words.given_names(source)

    def row(name: str) -> list[object]:
        leaf = leaves.get(name)
        return [tag("code", name), tag("code", words.typed(name, source.settings[name])), leaf.help if leaf else ""]

    def listed(names: list[str]) -> Html:
        return tag("div", table(("setting", "value", "what it is"), map(row, names)), class_="panel settings")

    first = [name for name in source.settings if name in given]
    rest = [name for name in source.settings if name not in given]
    return (
        heading("Given for this run")
        + listed(first)
        + folded(f"The other {len(rest)}, at their defaults", listed(rest))
    )


def _environment(source: Source) -> Html:
    measured = source.measured
    device, places = measured["device"], measured["places"]
    rows = [
        ("device", f"{device['kind']}, {device['name']}"),
        ("threads, workers", f"{device['threads']}, {device['workers']}"),
        ("ranks", ", ".join(f"{place['rank']} on {place['host']} ({place['device']})" for place in places)),
        ("precision", source.computed["precision"]),
        ("versions", ", ".join(f"{name} {version}" for name, version in measured["versions"].items())),
        ("model", f"{source.computed['model']['name']}, {source.computed['model']['parameters']:,} parameters"),
        ("licence", source.computed["model"].get("licence") or "begun here"),
    ]
    return panel(facts(rows)) + heading("The same run again") + tag("code", words.command(source), class_="line")
