"""The shell of a page and what sections are made of: cards, charts, tables, pictures. One file, no address in it is fetched."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from visiontrain.record.report.markup import Html, join, tag
from visiontrain.record.report.script import SCRIPT
from visiontrain.record.report.style import STYLE

# Nothing is fetched, and no script runs but ours: also if a name ever came through unescaped.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16' "
    "rx='4' fill='%233d63dd'/%3E%3Cpath d='M3 11l3-4 3 2 4-5' fill='none' stroke='%23fff' stroke-width='1.6'/%3E%3C/svg%3E"
)


@dataclass(frozen=True, slots=True)
class Section:
    """``id`` is where the table of contents points; a section without content is left out of the page."""

    id: str
    title: str
    content: Html


class Number(NamedTuple):
    """A cell that is aligned at the right and sorted by ``value``; None sorts as the smallest."""

    value: float | None
    text: str


def number(value: float | None, form: str = ".3f") -> Number:
    """A cell with ``value`` as ``form`` writes it, a dash where there is none."""
    return Number(value, "-" if value is None else f"{value:{form}}")


def page(title: str, header: Html, sections: Sequence[Section], *, footer: object = "", reload: int = 0) -> str:
    """A whole page.

    Args:
        title: of the window.
        header: what stands above the sections, with the h1.
        sections: in order; empty ones are left out.
        footer: the last line.
        reload: seconds after which the page loads itself again, 0: never.
    """
    shown = [section for section in sections if section.content]
    contents = [tag("a", section.title, href=f"#{section.id}") for section in shown]
    bodies = [tag("section", tag("h2", section.title), section.content, id=section.id) for section in shown]
    layout = tag(
        "div",
        tag("nav", tag("b", "visiontrain"), *contents, aria_label="Contents"),
        tag("main", tag("header", header), *bodies, tag("footer", footer)),
        class_="layout",
    )
    return f"<!doctype html>\n{tag('html', _head(title, reload), tag('body', layout, _script()), lang='en')}\n"


def _head(title: str, reload: int) -> Html:
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY.format(digest=digest)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", http_equiv="refresh", content=reload) if reload else None,
        tag("title", title),
        tag("link", rel="icon", href=Html(_ICON)),
        tag("style", Html(STYLE)),
    )


def _script() -> Html:
    return tag("script", Html(SCRIPT))


def panel(*inside: object) -> Html:
    """Content on its own ground."""
    return tag("div", *inside, class_="panel")


def grid(items: Iterable[Html], wide: bool = False) -> Html:
    """Charts and panels beside each other as there is room, at least 320 pixels (440 where ``wide``) each."""
    items = [item for item in items if item]
    return tag("div", *items, class_="grid two" if wide else "grid") if items else Html("")


def pill(text: str, mood: str) -> Html:
    """A word about the state: ``mood`` is good, warn, bad or busy."""
    return tag("span", text, class_=f"pill {mood}")


def cards(items: Iterable[tuple[str, object, object]]) -> Html:
    """Figures of a run: (what, the figure, a small line below it) each; the first is the headline."""
    made = [
        tag("div", tag("span", what), tag("b", figure), tag("small", more), class_="card" if place else "card first")
        for place, (what, figure, more) in enumerate(items)
    ]
    return tag("div", *made, class_="cards")


def bullets(items: Iterable[object | tuple[str, object]]) -> Html:
    """Sentences; a pair is (mood, sentence) with good, warn or bad."""
    pairs = [item if isinstance(item, tuple) else ("", item) for item in items]
    made = [tag("li", sentence, class_=mood or None) for mood, sentence in pairs]
    return tag("ul", *made, class_="list") if made else Html("")


def facts(items: Iterable[tuple[str, object]]) -> Html:
    """Names and what they are."""
    return tag("dl", *(tag("dt", name) + tag("dd", value) for name, value in items))


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, sortable: bool = False) -> Html:
    """Rows of cells: ``Number`` at the right, all else as text. It scrolls by itself where the screen is narrow.

    Args:
        header: of the columns.
        rows: as long as the header; a column is of numbers where its first cell is one.
        sortable: a click on the header sorts.
    """
    rows = [list(row) for row in rows]
    first = rows[0] if rows else []
    heads = [
        tag(
            "th",
            tag("button", name, type="button") if sortable else name,
            class_="number" if index < len(first) and isinstance(first[index], Number) else None,
            scope="col",
        )
        for index, name in enumerate(header)
    ]
    body = tag("tbody", *(tag("tr", *map(_cell, row)) for row in rows))
    return tag("div", tag("table", tag("thead", tag("tr", *heads)), body), class_="scroll")


def _cell(value: object) -> Html:
    if isinstance(value, Number):
        key = -1e308 if value.value is None else value.value
        return tag("td", value.text, class_="number", data_value=key)
    return tag("td", value)


def bars(items: Iterable[tuple[str, float, str]], base: float = 0.0) -> Html:
    """Amounts as bars: (what, the amount, how it is written) each, the largest is full; up to ``base`` they are lighter."""
    items = list(items)
    most = max((amount for _, amount, _ in items), default=0) or 1
    cells = [
        tag("span", what)
        + tag("i", style=f"--w:{100 * amount / most:.1f}%;--b:{100 * min(base / (amount or 1), 1):.1f}%")
        + tag("em", text)
        for what, amount, text in items
    ]
    return tag("div", *cells, class_="meter")


def folded(summary: object, *inside: object) -> Html:
    """Content that opens when it is asked for."""
    return tag("details", tag("summary", summary), *inside)


def picture(uri: str, alt: str, caption: object, plate: bool = False) -> Html:
    """A picture that opens large. ``plate``: it was drawn for white ground."""
    shown = tag("img", src=uri, alt=alt, class_="plate" if plate else None)
    return tag(
        "figure", tag("button", shown, type="button", title="open large"), tag("figcaption", caption), class_="picture"
    )


def switch(name: str, first: tuple[str, Html], second: tuple[str, Html]) -> Html:
    """Two pictures in one place, (what the button says, the picture) each; both are printed. ``name`` is unique on the page."""
    buttons = [
        tag("input", type="radio", name=name, id=f"{name}-{number}", checked=number == 0)
        + tag("label", label, for_=f"{name}-{number}")
        for number, (label, _) in enumerate((first, second))
    ]
    return tag("div", *buttons, first[1], second[1], class_="switch")


def heading(text: str) -> Html:
    """Of a part of a section."""
    return tag("h3", text)


def sentences(*parts: object) -> Html:
    """A paragraph in the quiet colour."""
    return tag("p", join(parts), class_="lead")
