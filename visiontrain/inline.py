"""What a notebook shows under a cell: sentences, tables and bars as small HTML, in the notebook's own colours, light or dark."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from tqdm import tqdm

from visiontrain.place import in_notebook

GREY = "rgba(127,127,127,.3)"  # lines and grounds that are seen on white and on black
BLUE = "#3b82f6"
_NUMBERS = "font-variant-numeric:tabular-nums"


class Told:
    """Something that says itself in sentences: a card in a notebook, a line each elsewhere."""

    __slots__ = ()

    def sentences(self) -> Sequence[str]:
        """For a person, a line each."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def _repr_html_(self) -> str:
        return card(self.sentences())


def card(sentences: Iterable[str], title: str = "", more: str = "") -> str:
    """Sentences one under the other below a title; ``more`` is HTML that follows."""
    head = f'<div style="font-weight:600">{escape(title)}</div>' if title else ""
    lines = "".join(f"<div>{escape(sentence)}</div>" for sentence in sentences)
    style = f"border-left:3px solid {GREY};margin:.2em 0 .5em;padding:.1em 0 .1em .8em;line-height:1.5;max-width:60em"
    return f'<div style="{style}">{head}{lines}{more}</div>'


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], marked: Sequence[int] = (), note: str = "") -> str:
    """Rows of text under titles: the first column to the left, numbers to the right; ``marked`` rows stand out."""
    lines = [_row("th", titles), *(_row("td", row, i in marked) for i, row in enumerate(rows))]
    under = f'<div style="opacity:.75">{escape(note)}</div>' if note else ""
    return f'<style>{_TABLE}</style><table class="visiontrain">{"".join(lines)}</table>{under}'


def _row(kind: str, cells: Sequence[str], marked: bool = False) -> str:
    bold = ' style="font-weight:600"' if marked else ""
    return f"<tr{bold}>{''.join(f'<{kind}>{escape(cell)}</{kind}>' for cell in cells)}</tr>"


_TABLE = (
    f"table.visiontrain{{border-collapse:collapse;{_NUMBERS};margin:.3em 0}}"
    f"table.visiontrain tr{{border-bottom:1px solid {GREY}}}"
    "table.visiontrain :is(th,td){padding:.15em .6em;text-align:right;white-space:nowrap}"
    "table.visiontrain :is(th,td):first-child{text-align:left}"
)


def gallery(pictures: Iterable[tuple[bytes, str]], note: str = "") -> str:
    """JPEGs side by side, as many as there is room for, each with words below it; words alone where there are no bytes."""
    tiles = []
    for jpeg, words in pictures:
        source = f"data:image/jpeg;base64,{b64encode(jpeg).decode()}"
        picture = f'<img src="{source}" style="max-width:100%">' if jpeg else ""
        tiles.append(f'<figure style="margin:0;width:15em">{picture}<figcaption>{escape(words)}</figcaption></figure>')
    style = "display:flex;flex-wrap:wrap;gap:1em;font-size:.85em;line-height:1.3"
    return f'<div style="{style}">{"".join(tiles)}</div><div style="opacity:.75">{escape(note)}</div>'


class Area:
    """A place under the cell that shows one thing at a time: what the notebook's file holds of it does not grow."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, html: str, text: str = "") -> None:
        """Show this in place of what is there; ``text`` is for a front end without HTML."""
        from IPython.display import display

        both = {"text/html": html, "text/plain": text}
        if self._handle is not None:
            self._handle.update(both, raw=True)
        elif html:
            self._handle = display(both, raw=True, display_id=True)


def show_page(page: str, height: int) -> None:
    """A whole page in a frame. Its text travels in the frame: an address would be one of the browser's machine."""
    style = f"width:100%;height:{height}px;border:1px solid {GREY};border-radius:.3em"
    Area().show(f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts" style="{style}"></iframe>', "a report")


class InlineBar(tqdm):
    """A bar of HTML; unlike tqdm's own it needs no ipywidgets.

    Args:
        area: where others were before and more will come; None: one of its own, empty afterwards.
        options: tqdm's; a ``bar_format`` says what stands beside the bar.
    """

    monitor_interval = 0  # no thread that draws: it would not know under which cell

    def __init__(self, area: Area | None = None, **options: Any) -> None:
        self._area, self._own = area or Area(), area is None
        shown = options.get("disable") is not True  # None: where it can move, and here it can
        usual = {"miniters": 1, "mininterval": 0.25}
        super().__init__(**{**usual, **options, "disable": not shown, "gui": True})  # gui: tqdm prints nothing itself
        if shown and not self.delay:
            self.display()

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draw it."""
        form = self.bar_format or (BESIDE if self.total else WITHOUT_END)
        words = self.format_meter(**{**self.format_dict, "bar_format": form, "ncols": None})
        self._area.show(_bar(min(self.n / self.total, 1) if self.total else None, words.strip()), words)

    def set_postfix_str(self, s: str = "", refresh: bool = False) -> None:
        """Text at the end, shown with the next step: there are many a second."""
        super().set_postfix_str(s, refresh=refresh)

    def clear(self, nolock: bool = False) -> None:
        """Text does not run into a bar here."""

    def close(self) -> None:
        """End it. A line that is used again stays as high as it is: what is below must not jump."""
        if not self.disable:
            super().close()
            self._area.show("" if self._own else "<div>&nbsp;</div>")


BESIDE = "{desc} {percentage:3.0f}%  {n_fmt}/{total_fmt}, {rate_fmt}{postfix}, {remaining} left"
WITHOUT_END = "{desc} {n_fmt}{unit}, {rate_fmt}{postfix}"


def _bar(share: float | None, words: str) -> str:
    inside = f'<div style="width:{share or 0:.1%};height:100%;background:{BLUE}"></div>'
    rail = f"flex:0 0 12em;height:.6em;border-radius:.3em;overflow:hidden;background:{GREY}"
    drawn = f'<div style="{rail}">{inside}</div>' if share is not None else ""
    line = f"display:flex;align-items:center;gap:.8em;line-height:1.5;{_NUMBERS}"
    return f'<div style="{line}">{drawn}<span>{escape(words)}</span></div>'


def bar(**options: Any) -> tqdm:
    """A bar where there are eyes: on a terminal, and with ``disable=None`` nowhere else; or under the cell of a notebook."""
    return InlineBar(**options) if in_notebook() else tqdm(**options)


def steps(shown: tqdm) -> Callable[[str, int, int], None]:
    """What moves a bar by (what is done, done, in all)."""

    def show(what: str, done: int, total: int) -> None:
        if shown.disable:
            return
        shown.total = total
        if shown.desc != f"{what}: ":
            shown.set_description(what, refresh=False)
        shown.update(done - shown.n)

    return show
