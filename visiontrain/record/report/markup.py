"""Markup by construction: what is not ``Html`` is escaped, so no class name, path or message can become a tag."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_VOID = {"img", "input", "meta", "link", "br"}


class Html(str):
    """Text that is markup already. Only this package makes it, of literals and of what it escaped."""

    __slots__ = ()

    def __add__(self, other: str) -> Html:
        """Both after each other; what is no markup yet is escaped."""
        return Html(str.__add__(self, safe(other)))


def safe(value: object) -> Html:
    """``value`` as markup: Html as it is, None as nothing, everything else escaped."""
    if isinstance(value, Html):
        return value
    return Html("" if value is None else escape(str(value)))


def join(parts: Iterable[object], between: str = "") -> Html:
    """The parts after each other, each made safe."""
    return Html(safe(between).join(safe(part) for part in parts))


def tag(name: str, /, *inside: object, **attributes: object) -> Html:
    """An element. ``class_`` gives class, ``data_x`` data-x; True is an attribute without a value, None and False none at all."""
    start = f"<{name}{''.join(_attribute(*pair) for pair in attributes.items())}>"
    return Html(start if name in _VOID else f"{start}{join(inside)}</{name}>")


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
