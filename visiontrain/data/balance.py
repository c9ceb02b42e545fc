"""Against rare classes being overlooked: how often a picture is drawn, and what a box of a class weighs in the loss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visiontrain.data.index import Index
from visiontrain.data.select import class_numbers


def class_shares(index: Index, of: str) -> np.ndarray:
    """(nc,) float64: the share of the pictures that have each class (``of="images"``), or of the boxes that are of it."""
    classes = len(index.names)
    if of == "boxes":
        return np.bincount(index.all_classes, minlength=classes) / max(index.targets, 1)
    pairs = np.unique(index.owners * classes + index.all_classes)
    return np.bincount(pairs % classes, minlength=classes) / len(index)


def repeat_factors(index: Index, of: str, threshold: float | None = None) -> np.ndarray:
    """(n,) float64: how often each picture is drawn, against one without rare classes.

    sqrt(threshold / share) of the rarest class in it, at least 1.

    Args:
        of: what shares are of, images or boxes.
        threshold: classes with a smaller share are rare; None: the mean share of the classes that there are.

    Source:
        Gupta, Dollar and Girshick, LVIS, CVPR 2019, arXiv:1908.03195, appendix: repeat factor sampling.
    """
    found = class_shares(index, of)
    there = found > 0
    threshold = float(found[there].mean()) if threshold is None and there.any() else threshold or 0.0
    of_class = np.sqrt(np.divide(threshold, found, where=there, out=np.ones_like(found))).clip(1)
    factors = np.ones(len(index))
    np.maximum.at(factors, index.owners, of_class[index.all_classes])
    return factors


def class_weights(index: Index, wanted: str) -> tuple[float, ...]:
    """What each class weighs in the loss, () for all the same.

    Args:
        index: what is trained on.
        wanted: ``none``; ``images`` or ``boxes``: 1 / sqrt(share), scaled so that the mean over all boxes is 1; or weights by
            class, ``cat:2,dog:0.5``, and 1 for the others.

    Raises:
        ConfigError: a class that the data do not have.
    """
    if wanted == "none":
        return ()
    if wanted in ("images", "boxes"):
        found = class_shares(index, wanted)
        raw = 1 / np.sqrt(np.where(found > 0, found, 1))
        boxes = class_shares(index, "boxes")
        return tuple((raw / ((raw * boxes).sum() or 1.0)).tolist())
    weights = [1.0] * len(index.names)
    for part in wanted.split(","):
        name, _, weight = part.rpartition(":")
        (number,) = class_numbers(name, index.names)
        weights[number] = float(weight)
    return tuple(weights)


def balance_sentence(factors: np.ndarray, of: str) -> str:
    """What the plan says of it."""
    if factors.min() == factors.max():
        return f"balance={of}: no class has a smaller share than the threshold, so this changes nothing."
    drawn = factors / factors.sum() * len(factors)
    return (
        f"balance={of}: an epoch draws as many pictures as there are, those with rare classes up to {drawn.max():.2f} times on"
        f" average and those without {drawn.min():.2f} times, so some do not come in every epoch."
    )


def weights_sentence(weights: Sequence[float], names: Sequence[str]) -> str:
    """What the plan says of them: the lightest and the heaviest class."""
    light, heavy = int(np.argmin(weights)), int(np.argmax(weights))
    return (
        f"class_weights: from {weights[light]:.3g} ({names[light]!r}) to {weights[heavy]:.3g} ({names[heavy]!r}), in the sums of"
        " the loss and in what they are divided by."
    )
