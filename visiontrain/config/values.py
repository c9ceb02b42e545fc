"""One setting: its default, help and range, and how a word, a YAML scalar or a Python value becomes its value."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from visiontrain.config.image_size import ImageSize
from visiontrain.config.pipeline import Pipeline, read_pipeline

_BOOLS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


LONGEST_NAME, LONGEST_PATH = 255, 4096  # bytes
LARGEST = 2**53  # from here on a number as a float is no longer exact


class Folders(tuple[str, ...]):
    """Paths of folders, written with commas between them."""

    __slots__ = ()

    def __str__(self) -> str:
        return ",".join(self)


class More(int):
    """So many on top of what was planned, written with a plus."""

    def __repr__(self) -> str:
        return f"+{int(self):d}"


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
    words: Mapping[str, Any] | None = None,
    check: Callable[[Any], str] | None = None,
    listed: bool = False,
    more: bool = False,
) -> Any:
    """A field of a settings class.

    Args:
        default: value where the user gives none.
        help: what it does and its unit, for the help and for messages.
        low, high: the closed range; ``above`` and ``below`` leave their bound out.
        choices: the allowed texts.
        words: special words with the value each stands for, for example ``{"auto": -1}``.
        check: returns what is wrong with a value of the right type, or "".
        listed: a text of several words, divided by commas, which may also come as a number, a list or a mapping to numbers.
        more: a text such as +20 is a ``More``.
    """
    metadata: dict[str, Any] = {"help": help, "low": low, "high": high, "above": above, "below": below}
    metadata |= {"choices": choices, "words": words or {}, "check": check, "listed": listed, "more": more}
    return field(default=default, metadata=metadata)


def group(kind: type, title: str) -> Any:
    """A field that holds a group of settings; the user sees its leaves, the help its title."""
    return field(default_factory=kind, metadata={"group": kind, "title": title})


@dataclass(frozen=True, slots=True)
class Leaf:
    """A setting as the user knows it. ``kind`` is int, float, bool, str, Folders, ImageSize or Pipeline; ``path`` names the group that holds it, or is ""."""

    name: str
    kind: type
    optional: bool
    default: Any
    meta: Mapping[str, Any]
    path: str
    title: str

    @property
    def help(self) -> str:
        """What it does and its unit."""
        return str(self.meta["help"])


_LEAVES: dict[type, Mapping[str, Leaf]] = {}


def leaves_of(settings: type) -> Mapping[str, Leaf]:
    """All settings of a class by their unique names, those of its groups included, in the order they are written."""
    if settings not in _LEAVES:
        _LEAVES[settings] = _read_leaves(settings)
    return _LEAVES[settings]


def _read_leaves(settings: type) -> Mapping[str, Leaf]:
    found: dict[str, Leaf] = {}
    hints = typing.get_type_hints(settings)
    for f in dataclasses.fields(settings):
        if "group" in f.metadata:
            for leaf in leaves_of(f.metadata["group"]).values():
                assert leaf.name not in found, f"the setting {leaf.name} stands twice in {settings.__name__}"
                found[leaf.name] = dataclasses.replace(leaf, path=f.name, title=f.metadata["title"])
        elif "help" in f.metadata:
            kinds = [k for k in typing.get_args(hints[f.name]) if k is not type(None)] or [hints[f.name]]
            optional = len(typing.get_args(hints[f.name])) > 1
            found[f.name] = Leaf(f.name, kinds[0], optional, f.default, f.metadata, "", "")
    return found


def read(leaf: Leaf, value: Any) -> Any:
    """Turn a word, a YAML scalar or a Python value into the setting's value.

    Raises:
        ValueError: it is not of the kind; the message is what the setting takes.
    """
    text = str(value).strip() if isinstance(value, str | bool) else None
    if text is not None and text.lower() in leaf.meta["words"]:
        return leaf.meta["words"][text.lower()]
    if leaf.optional and (value is None or text in ("", "null", "None")):
        return None
    return _READERS[leaf.kind](leaf, value)


def problem(leaf: Leaf, value: Any) -> str:
    """What is wrong with a value of the right kind: its range, the choices, the setting's own check; "" if nothing."""
    meta = leaf.meta
    if value is None or value in meta["words"].values():
        return ""
    if leaf.kind in (int, float) and not _inside(meta, value):
        return f"must be {interval(leaf)}"
    if leaf.kind is int and abs(value) > LARGEST:
        return f"must be at most {LARGEST}"
    if leaf.kind is str and not (meta["choices"] or meta["listed"]) and (wrong := too_long(value)):
        return wrong
    if meta["check"] and (wrong := meta["check"](value)):
        return str(wrong)
    if meta["choices"] and value not in meta["choices"]:
        return f"must be {one_of(meta['choices'])}"
    return ""


def too_long(path: str) -> str:
    """What is wrong with a path that no file system takes; addresses may be longer."""
    longest = max(len(os.fsencode(part)) for part in re.split(r"[/\\]", path))
    if "://" in path or (longest <= LONGEST_NAME and len(os.fsencode(path)) < LONGEST_PATH):
        return ""
    return f"is no path: one has at most {LONGEST_NAME} bytes between two slashes, and {LONGEST_PATH - 1} in all"


def takes(leaf: Leaf) -> str:
    """What the setting accepts, in words."""
    if leaf.meta["choices"]:
        return one_of(leaf.meta["choices"])
    words = _KINDS[leaf.kind]
    special = [w for w in leaf.meta["words"] if w not in _BOOLS]
    more = ["+N with resume"] if leaf.meta["more"] else []
    return " or ".join([" ".join([words, interval(leaf)]).strip(), *special, *more])


def interval(leaf: Leaf) -> str:
    """The allowed range in words, "" where there is none."""
    meta = leaf.meta
    if meta["low"] is not None and meta["high"] is not None:
        return f"between {meta['low']:.15g} and {meta['high']:.15g}"
    parts = {"at least": meta["low"], "above": meta["above"], "at most": meta["high"], "below": meta["below"]}
    return " and ".join(f"{words} {bound:.15g}" for words, bound in parts.items() if bound is not None)


def one_of(choices: tuple[str, ...]) -> str:
    """``a, b or c``; the empty text, which nobody types, is left out."""
    choices = tuple(filter(None, choices))
    return " or ".join([", ".join(choices[:-1]), choices[-1]]) if len(choices) > 1 else choices[0]


def written(value: Any) -> Any:
    """A setting's value as files hold it: plain, so that YAML, JSON and checkpoints can."""
    return value.written if isinstance(value, ImageSize | Pipeline) else value


def show(leaf: Leaf, value: Any) -> str:
    """A value as one would type it."""
    for word, meaning in leaf.meta["words"].items():
        if value == meaning and word not in _BOOLS and not (leaf.kind is str and value == ""):
            return word
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _inside(meta: Mapping[str, Any], value: float) -> bool:
    return (
        (meta["low"] is None or value >= meta["low"])
        and (meta["high"] is None or value <= meta["high"])
        and (meta["above"] is None or value > meta["above"])
        and (meta["below"] is None or value < meta["below"])
    )


def _read_int(leaf: Leaf, value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError(takes(leaf))
    try:
        # int() would cut 1.5; a whole float such as 64.0 is what some YAML writers make of 64.
        number = int(value) if isinstance(value, str) else value.__index__() if hasattr(value, "__index__") else value
        if leaf.meta["more"] and (isinstance(value, More) or str(value).strip().startswith("+")):
            return More(number)
        if number == int(number):
            return int(number)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(takes(leaf)) from error
    raise ValueError(takes(leaf))


def _read_float(leaf: Leaf, value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError(takes(leaf))
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(takes(leaf)) from error
    if not math.isfinite(number):
        raise ValueError(f"a finite number {interval(leaf)}".strip())
    return number


def _read_bool(leaf: Leaf, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    try:
        return _BOOLS[str(value).strip().lower()]
    except KeyError as error:
        raise ValueError(takes(leaf)) from error


def _read_str(leaf: Leaf, value: Any) -> str:
    if leaf.meta["choices"] and isinstance(value, str):
        return {choice.lower(): choice for choice in leaf.meta["choices"]}.get(value.strip().lower(), value)
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if leaf.meta["listed"]:
        items = [f"{name}:{number}" for name, number in value.items()] if isinstance(value, Mapping) else value
        return ",".join(map(str, items)) if isinstance(items, list | tuple) else str(items)
    raise ValueError(takes(leaf))


def _read_size(leaf: Leaf, value: Any) -> ImageSize:
    if isinstance(value, str):
        value = value.strip().removeprefix("[").removesuffix("]").split(",")
    sides = [_read_int(leaf, side) for side in (value if isinstance(value, list | tuple) else [value])]
    if not 1 <= len(sides) <= 2:
        raise ValueError(takes(leaf))
    return ImageSize(sides[0], sides[-1])


def _read_folders(leaf: Leaf, value: Any) -> Folders:
    folders = value.split(",") if isinstance(value, str) else value
    if not isinstance(folders, list | tuple) or not all(isinstance(folder, str | os.PathLike) for folder in folders):
        raise ValueError(takes(leaf))
    return Folders(stripped for folder in folders if (stripped := os.fspath(folder).strip()))


_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Folders: "folders with commas between them",
    ImageSize: "one number, or height and width such as 384,640, each",
    Pipeline: "a .yaml file of albumentations transforms, a Compose from Python, default or none",
}
_READERS: dict[type, Callable[[Leaf, Any], Any]] = {
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
    str: _read_str,
    Folders: _read_folders,
    ImageSize: _read_size,
    Pipeline: lambda leaf, value: read_pipeline(value),
}


def like(owner: type, name: str, **changes: Any) -> Any:
    """The same setting as in another class, so that it is described once; ``changes`` say what differs."""
    leaf = leaves_of(owner)[name]
    return setting(changes.pop("default", leaf.default), **{**leaf.meta, **changes})
