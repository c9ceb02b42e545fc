"""Which pictures and boxes of a split are used: a fixed share of the pictures, some of the classes, all classes as one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from visiontrain.data.index import Index
from visiontrain.data.index_size import images_kept
from visiontrain.errors import ConfigError, DataError

ONE_CLASS = "item"  # what all classes together are called


def select(index: Index, root: Path, fraction: float = 1.0, classes: str = "", single_cls: bool = False) -> Index:
    """The part of a split that is used; ``told`` says in sentences what was left out. Nothing is drawn at random.

    Args:
        index: the split.
        root: where the paths of the data set start: a picture is chosen by its path from there.
        fraction: share of the pictures.
        classes: numbers or names, divided by commas; boxes of others are left out, their pictures stay, and so do the
            names and numbers of all classes. Empty: all.
        single_cls: the boxes that are left are all of one class.

    Raises:
        ConfigError: a class that the data do not have.
        DataError: no box is left in a split for training.
    """
    told = []
    numbers = class_numbers(classes, index.names)
    chosen = index
    if fraction < 1:
        chosen = take(chosen, members(chosen, fraction, root))
        told.append(
            f"fraction={fraction:g}: {len(chosen)} of {len(index)} {index.split} pictures are used, the same ones in every run."
        )
    if numbers:
        before, chosen = chosen, only(chosen, numbers)
        told.append(_left_out(before, chosen, numbers))
        if not chosen.targets and index.split == "train":
            raise DataError(f"classes={classes}: no training picture has a box of it, so there is nothing to learn")
    if single_cls:
        name = index.names[numbers[0]] if len(numbers) == 1 else index.names[0] if len(index.names) == 1 else ONE_CLASS
        chosen = replace(
            chosen,
            names=(name,),
            all_classes=np.zeros_like(chosen.all_classes),
            ignored_classes=np.zeros_like(chosen.ignored_classes),
        )
        told.append(f"single_cls: all {chosen.targets} boxes of {index.split} are of one class, {name!r}.")
    if not told:
        return index
    choice = repr((index.fingerprint, fraction, numbers, single_cls))
    return replace(chosen, told=tuple(told), fingerprint=hashlib.sha256(choice.encode()).hexdigest()[:32])


def class_numbers(classes: str, names: Sequence[str], of: str = "data") -> tuple[int, ...]:
    """The numbers of classes given by number or name, () for all; a word of digits is a number, whatever the names are.

    Raises:
        ConfigError: the data, or what ``of`` says, have no such class.
    """
    found = set()
    if classes.strip() == "all":
        return ()
    for word in filter(None, (part.strip() for part in classes.split(","))):
        if word.isdecimal() and int(word) < len(names):
            found.add(int(word))
        elif word in names:
            found.add(names.index(word))
        else:
            near = get_close_matches(word, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            known = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
            raise ConfigError(
                f"{word!r} is no class of the {of}: numbers 0 to {len(names) - 1} or names ({known}){hint}"
            )
    return tuple(sorted(found))


def members(index: Index, fraction: float, root: Path) -> np.ndarray:
    """Which pictures belong to a fraction, (n,) bool: round(fraction * n) of them, of every class as large a share.

    A picture counts to the rarest of its classes, or to the background. Of each such group those with the lowest hash of
    their path are in, so neither the order of the pictures nor the seed matters, and more pictures move few of the others.
    """
    group = _rarest_class(index)
    hashes = np.array([_hash(index.path(i), root) for i in range(len(index))])
    order = np.lexsort((hashes, group))
    counts = np.bincount(group)
    place = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)  # in its group, by hash
    kept = np.zeros(len(index), bool)
    kept[order[place < shares(counts, images_kept(len(index), fraction))[group[order]]]] = True
    return kept


def shares(counts: np.ndarray, total: int) -> np.ndarray:
    """Divide ``total`` over groups of ``counts`` in proportion, by largest remainders; none is left empty where it can be."""
    exact = counts * (total / counts.sum())
    found = np.floor(exact).astype(np.int64)
    largest = np.argsort(found - exact, kind="stable")
    found[largest[: total - found.sum()]] += 1
    for empty in np.flatnonzero((found == 0) & (counts > 0)):
        richest = int(found.argmax())
        if found[richest] > 1:
            found[richest] -= 1
            found[empty] = 1
    return found


def take(index: Index, kept: np.ndarray) -> Index:
    """The pictures of ``index`` where ``kept`` (n,) bool is true, in their order."""
    paths, path_ends = _rows(index.path_bytes, index.path_ends, kept)
    if len(index.ignored_ends):
        boxes, ends = _rows(index.ignored_boxes, index.ignored_ends, kept)
        classes, _ = _rows(index.ignored_classes, index.ignored_ends, kept)
        index = replace(index, ignored_boxes=boxes, ignored_ends=ends, ignored_classes=classes)
    boxes, box_ends = _rows(index.all_boxes, index.box_ends, kept)
    classes, _ = _rows(index.all_classes, index.box_ends, kept)
    return replace(
        index,
        path_bytes=paths,
        path_ends=path_ends,
        sizes=index.sizes[kept],
        box_ends=box_ends,
        all_boxes=boxes,
        all_classes=classes,
    )


def only(index: Index, numbers: Sequence[int]) -> Index:
    """The same pictures with the boxes of some classes."""
    if len(index.ignored_ends):
        kept = np.isin(index.ignored_classes, numbers)
        index = replace(
            index,
            ignored_ends=np.concatenate(([0], np.cumsum(kept)))[index.ignored_ends],
            ignored_boxes=index.ignored_boxes[kept],
            ignored_classes=index.ignored_classes[kept],
        )
    kept = np.isin(index.all_classes, numbers)
    ends = np.concatenate(([0], np.cumsum(kept)))[index.box_ends]
    return replace(index, box_ends=ends, all_boxes=index.all_boxes[kept], all_classes=index.all_classes[kept])


def _left_out(before: Index, after: Index, numbers: Sequence[int]) -> str:
    empty = int((np.diff(after.box_ends, prepend=0) == 0).sum() - (np.diff(before.box_ends, prepend=0) == 0).sum())
    shown = ", ".join(f"{n} ({before.names[n]!r})" for n in numbers[:8]) + (", ..." if len(numbers) > 8 else "")
    return (
        f"classes {shown}: {before.targets - after.targets} of {before.targets} {before.split} boxes are of other classes and"
        f" left out; {empty} pictures more are background. Numbers and names stay those of the data."
    )


def _rows(values: np.ndarray, ends: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of rows laid end to end those of the pictures that are kept, and their ends."""
    lengths = np.diff(ends, prepend=0)
    return values[np.repeat(kept, lengths)], np.cumsum(lengths[kept])


def _rarest_class(index: Index) -> np.ndarray:
    """(n,) the class of each picture that the fewest pictures have, the lower of two; the number of classes without any."""
    classes = len(index.names)
    pairs = np.unique(index.owners * classes + index.all_classes)
    rarity = np.bincount(pairs % classes, minlength=classes).argsort(kind="stable").argsort()
    order = np.append(rarity.argsort(), classes)
    place = np.full(len(index), classes)
    np.minimum.at(place, pairs // classes, rarity[pairs % classes])
    return order[place]


def _hash(path: str, root: Path) -> int:
    relative = path.removeprefix(f"{root}{os.sep}").replace(os.sep, "/")
    return int.from_bytes(hashlib.blake2b(os.fsencode(relative), digest_size=7).digest(), "little")
