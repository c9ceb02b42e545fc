"""Callbacks with a method for each event that is wanted."""

from __future__ import annotations

import difflib
import re
from typing import Any, get_args

from visiontrain.record.events import Event

METHODS = {kind: "on_" + re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in get_args(Event)}


class Callback:
    """Called with every event of a run, and hands each to the method named after it, where a subclass has one.

    ``on_epoch_ended(self, event)`` gets each ``EpochEnded``; visiontrain/record/events.py has all events and what they hold.
    A callback observes: it changes nothing in the training, and one that raises is told once and left out from then on.

    Raises:
        TypeError: a subclass has a method ``on_...`` that no event is named after.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for name in vars(cls):
            if name.startswith("on_") and name not in METHODS.values():
                near = difflib.get_close_matches(name, METHODS.values(), n=1, cutoff=0.5)
                hint = f"did you mean {near[0]}? " if near else ""
                raise TypeError(
                    f"{cls.__name__}.{name}: no event is named so; {hint}There are {', '.join(METHODS.values())}"
                )

    def __call__(self, event: Event) -> None:
        """Hand the event to its method."""
        method = getattr(self, METHODS[type(event)], None)
        if method is not None:
            method(event)
