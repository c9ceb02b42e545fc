"""Weights for other classes: the same network with a class branch for them, rows matched by the names of classes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from visiontrain.models import build_model
from visiontrain.models.detector import Detector
from visiontrain.nn.norm import norm_of, swap_norms
from visiontrain.nn.pooling import set_sppf_activation, sppf_activation

SHOWN = 4  # names in a sentence


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a model for other classes has of the one it was made from.

    ``taken`` of ``tensors`` are the other's to the last row; ``left`` names those that have rows for classes which it does not know.
    ``matched`` and ``fresh`` are classes of the new model. ``auxiliary`` says what became of the layers that help in training.
    """

    taken: int
    tensors: int
    matched: tuple[str, ...]
    fresh: tuple[str, ...]
    left: tuple[str, ...]
    auxiliary: str = ""

    def sentence(self) -> str:
        """For people."""
        text = f"Transferred {self.taken} of {self.tensors} tensors{self.auxiliary and f' ({self.auxiliary})'}"
        if not self.fresh and not self.left:
            return f"{text}, all {len(self.matched)} classes by name."
        classes = len(self.matched) + len(self.fresh)
        names = f" ({_some(self.matched)})" if self.matched else ""
        rows = f"{len(self.matched)} of {classes} rows in the {len(self.left)} tensors of classes, {self.left[0]} first"
        return f"{text}, {len(self.matched)} of {classes} classes by name{names}; fresh: {_some(self.fresh)}; {rows}."

    def facts(self) -> dict[str, Any]:
        """For the record."""
        return dataclasses.asdict(self)


def for_classes(
    model: Detector, class_names: Sequence[str], auxiliary: bool | None = None
) -> tuple[Detector, Transfer]:
    """The model for other classes, or for the same in another order; it keeps the width of its class branch.

    Rows of the last convolutions go to the class of the same name, whatever its case, spaces, underscores and hyphens;
    others start fresh.

    Args:
        model: whose weights are used.
        class_names: of the new one.
        auxiliary: with the layers that help in training, fresh ones where the other has none; None: as the other.
    """
    helped = bool(model.auxiliary) if auxiliary is None else auxiliary
    made = build_model(model.name, class_names, class_width=model.class_width, auxiliary=helped)
    swap_norms(made, norm_of(model))
    set_sppf_activation(made, sppf_activation(model))
    made.licence = model.licence
    rows = _rows(model.class_names, class_names)
    by_class = made.class_tensors()
    given, left = model.state_dict(), []
    for name, tensor in made.state_dict().items():
        if name not in given:
            continue
        if name in by_class:
            for new, old in rows.items():
                tensor[new] = given[name][old]
            if len(rows) < len(class_names):
                left.append(name)
        else:
            tensor.copy_(given[name])
    matched = tuple(class_names[new] for new in rows)
    fresh = tuple(name for number, name in enumerate(class_names) if number not in rows)
    ours = made.state_dict().keys()
    taken = len(ours & given.keys()) - len(left)
    return made.train(model.training), Transfer(taken, len(ours), matched, fresh, tuple(left), _became(model, made))


def _became(model: Detector, made: Detector) -> str:
    """What the new one has of the layers that help in training, where that is not what the other has."""
    if bool(model.auxiliary) == bool(made.auxiliary):
        return ""
    return "the auxiliary layers are fresh" if made.auxiliary else "the auxiliary layers are left out"


def _rows(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Number of each new class that has an old one of its name, and the old one's number."""
    numbers = {_plain(name): number for number, name in reversed(list(enumerate(old)))}
    return {number: numbers[_plain(name)] for number, name in enumerate(new) if _plain(name) in numbers}


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name.strip()).casefold()


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
