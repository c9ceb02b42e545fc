"""What Python shows of a function that takes settings as keywords: its signature and its help, made of the settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from visiontrain.config.help import sections
from visiontrain.config.values import Leaf, interval, leaves_of, one_of, written
from visiontrain.terminal import Look

Function = TypeVar("Function", bound=Callable[..., Any])
COLUMNS = 100


def takes_settings(settings: type, without: tuple[str, ...] = (), **defaults: Any) -> Callable[[Function], Function]:
    """Show the settings where a function has ``**settings``; it is called as before, with what is given alone.

    Args:
        settings: the class of a verb.
        without: settings that the function takes by itself.
        defaults: those that differ in Python.
    """

    def show(function: Function) -> Function:
        leaves = {name: leaf for name, leaf in leaves_of(settings).items() if name not in without}
        values = {"cfg": "", **{name: default_of(leaf) for name, leaf in leaves.items()}, **defaults}
        own = [p for p in inspect.signature(function).parameters.values() if p.kind != p.VAR_KEYWORD]
        keywords = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=v) for n, v in values.items()]
        signature = inspect.Signature([*own, *(p for p in keywords if p.name not in {o.name for o in own})])
        function.__signature__ = signature  # type: ignore[attr-defined]
        listed = "\n".join(_listed(settings, values))
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{listed}\n"
        return function

    return show


def default_of(leaf: Leaf) -> Any:
    """The default as one would give it: ``auto`` rather than the number that stands for it."""
    special = [word for word, meaning in leaf.meta["words"].items() if word == "auto" and meaning == leaf.default]
    return special[0] if special else written(leaf.default)


def _listed(settings: type, values: dict[str, Any]) -> Iterator[str]:
    look = Look(columns=COLUMNS)
    for title, leaves in sections(settings).items():
        yield f"{title}:"
        for leaf in (leaf for leaf in leaves if leaf.name in values):
            allowed = one_of(leaf.meta["choices"]) if leaf.meta["choices"] else interval(leaf)
            text = leaf.help + (f" [{allowed}]" if allowed else "")
            yield from look.fold(text, f"    {f'{leaf.name}={values[leaf.name]!r}':<26} ", " " * 31)
        yield ""
    yield "cfg='file.yaml' reads settings from a file; keywords go over it."
