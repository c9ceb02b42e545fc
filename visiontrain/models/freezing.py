"""Parts of a model that do not learn: their parameters get no gradient, and their normalisation uses what it knows."""

from __future__ import annotations

import difflib

from visiontrain.errors import ConfigError
from visiontrain.models.detector import Detector


def freeze(model: Detector, what: str) -> str:
    """Freeze what ``what`` says, in place; the sentence that tells it, "" for nothing.

    Args:
        what: a number: so many layers from the first; several, with commas: the layers of these numbers; ``backbone``; or
            the beginnings of parameter names, such as model.22.cv3.

    Raises:
        ConfigError: nothing has that name or number, or nothing would be left to train.
    """
    words = [word.strip() for word in what.split(",") if word.strip()]
    if not words:
        return ""
    if len(words) == 1 and words[0].isdecimal():
        words = [str(number) for number in range(int(words[0]))]
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    chosen = {name for word in words for name in _named(model, word, names, what)}
    if len(chosen) == len(names):
        raise ConfigError(f"freeze={what}: nothing of {model.name} would be left to train")
    for name, parameter in model.named_parameters():
        if name in chosen:
            parameter.requires_grad_(False)
    model.keep_frozen_norms()
    return f"Frozen: {len(chosen)} of {len(names)} parameter tensors (freeze={what}); their normalisation keeps its statistics."


def _named(model: Detector, word: str, names: list[str], what: str) -> list[str]:
    if word == "backbone":
        return [name for number in range(model.backbone) for name in _named(model, str(number), names, what)]
    start = f"model.{word}" if word[0].isdecimal() else word
    found = [name for name in names if name == start or name.startswith(f"{start}.")]
    if not found and not (word.isdecimal() and int(word) <= model.last_layer):  # upsampling and concatenation have none
        parts = sorted({".".join(name.split(".")[:depth]) for name in names for depth in (2, 3)})
        near = difflib.get_close_matches(start, parts, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; layers are numbered 0 to {model.last_layer}"
        raise ConfigError(f"freeze={what}: {model.name} has nothing to train called {start}{hint}")
    return found
