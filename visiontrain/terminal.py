"""What can be shown on a stream: whether in colours, and how many columns wide; one answer for every verb."""

from __future__ import annotations

import os
import sys
import textwrap
from dataclasses import dataclass
from typing import Literal, TextIO

from visiontrain.place import in_notebook

USUAL = 100  # columns of a page where nothing says how many there are
READABLE = 110  # columns of a sentence, however wide the terminal
Style = Literal["bold", "dim", "red", "green", "yellow", "cyan"]
_CODES: dict[Style, str] = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


@dataclass(frozen=True, slots=True)
class Look:
    """How text is shown: in ``colours`` or without, folded at so many ``columns``, or (0) left as it is, for files and grep."""

    colours: bool = False
    columns: int = 0

    def paint(self, text: str, style: Style) -> str:
        """The text in a colour, where there are colours."""
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.colours and text else text

    def fold(self, text: str, first: str = "", rest: str = "") -> list[str]:
        """The lines of a sentence, broken between words alone: a path stays whole, to be copied.

        Args:
            text: without colours, which would count as columns.
            first, rest: what the first line and the others begin with.
        """
        if not self.columns:
            return [first + text]
        lines = textwrap.wrap(
            text,
            max(min(self.columns, READABLE), len(rest) + 20),
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )
        return lines or [first]

    def led(self, lead: str, style: Style, text: str, rest: str = "") -> str:
        """A sentence behind a word that is painted, for example ``warning: ``."""
        folded = "\n".join(self.fold(text, lead, rest))
        return self.paint(lead, style) + folded.removeprefix(lead)


PLAIN = Look()


def say(*sentences: str) -> None:
    """Print sentences on standard output, folded on a terminal."""
    look = look_of(sys.stdout)
    for sentence in sentences:
        print("\n".join(look.fold(sentence)))


def look_of(stream: TextIO) -> Look:
    """How to show things on the stream: folded on a terminal alone, so that a line of a file is a whole sentence."""
    return Look(colours(stream), columns(stream) if stream.isatty() else 0)


def colours(stream: TextIO) -> bool:
    """Whether it shows colours: a terminal that can, unless the user says otherwise.

    ``NO_COLOR`` (https://no-color.org) goes before ``FORCE_COLOR`` and ``CLICOLOR_FORCE``, these before ``CLICOLOR=0`` and
    ``TERM=dumb``: the order of Python's own tracebacks. 0 forces nothing.
    """
    asked = os.environ.get
    if asked("NO_COLOR") or in_notebook():  # whose kernel may ask for colours, and whose file would keep the codes
        return False
    if asked("FORCE_COLOR", "0") not in ("", "0") or asked("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    return stream.isatty() and asked("TERM") != "dumb" and asked("CLICOLOR") != "0" and asked("FORCE_COLOR") != "0"


def columns(stream: TextIO) -> int:
    """As many as ``COLUMNS`` says, or the terminal; 100 where neither does."""
    named = os.environ.get("COLUMNS", "")
    if named.isdecimal() and int(named):
        return int(named)
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL
    except (OSError, ValueError):  # no terminal, or no file at all as in a notebook
        return USUAL
