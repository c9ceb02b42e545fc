"""Pictures that cannot be used to the end, and pictures that are the same or nearly so."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations, islice

import cv2
import numpy as np

from visiontrain.data import image
from visiontrain.data.labels import Finding
from visiontrain.data.scan import Scan, Scanned

# Two thumbnails of 16 x 16 show nearly the same picture if brightness correlates and most gradients have one sign. Of all
# 75,126 pairs of pictures inside bccd and coco128 one is found, a field of cells taken twice; the next come to 0.90 and 65 of
# 256. Every third picture saved anew: with JPEG quality 30 all 183 are found, at half the size 182, brighter by a fifth 181.
ALIKE = 0.95
BITS_APART = 40
WITHIN_AT_MOST = 20_000  # pictures of a split that are compared with each other: the work grows with the square
DARK = 16  # a camera's 12 bits stored in 16, and not scaled to fill them, come to 15
_SIDE = 16
_CHUNK = 256


@dataclass(frozen=True, slots=True)
class _Look:
    """``digest`` of the file, ``bits`` (32,) uint8 of the signs of gradients, ``small`` (256,) centred and of length 1."""

    digest: bytes
    bits: np.ndarray
    small: np.ndarray


@dataclass(frozen=True, slots=True)
class _Looks:
    """Of a whole split; ``paths`` and rows of ``bits`` and ``small`` go together, ``first`` maps a digest to a path."""

    paths: list[str]
    digests: list[bytes]
    first: dict[bytes, str]
    bits: np.ndarray
    small: np.ndarray


def picture_findings(
    scans: Mapping[str, Scan], progress: Callable[[int, int], None] = lambda *_: None
) -> list[Finding]:
    """Decode every picture, at an eighth of its size where the format can, and compare all with all.

    Args:
        scans: by split.
        progress: called with (pictures done, pictures in all) now and then.
    """
    total, done = sum(len(scan.pictures) for scan in scans.values()), 0
    findings: list[Finding] = []
    splits: dict[str, _Looks] = {}
    for split, scan in scans.items():
        kept = []
        for picture, (look, finding) in zip(scan.pictures, _looked_at(scan.pictures), strict=True):
            findings += [finding] if finding else []
            kept += [(picture.path, look)] if look else []
            done += 1
            if done % _CHUNK == 0 or done == total:
                progress(done, total)
        splits[split] = _gather(kept)
    for (earlier, theirs), (later, ours) in combinations(splits.items(), 2):
        findings += _in_both(earlier, theirs, later, ours)
    for split, looks in splits.items():
        findings += _within(split, looks)
    return findings


def _looked_at(pictures: Sequence[Scanned]) -> Iterator[tuple[_Look | None, Finding | None]]:
    waiting = iter(pictures)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        while chunk := list(islice(waiting, _CHUNK)):
            yield from pool.map(_look_at, chunk)


def _look_at(picture: Scanned) -> tuple[_Look | None, Finding | None]:
    path = picture.path
    reduce = next((r for r in (8, 4, 2) if min(picture.height, picture.width) >= 2 * _SIDE * r), 1)
    try:
        data = image.bytes_of(path)
        pixels = image.decode(data, path, reduce if image.reducible(path) else 1)
    except image.BadPicture as error:
        message = f"{str(error).removeprefix(path + ': ')}; its header looks sound, so training would leave it grey"
        return None, Finding(error.kind, path, 0, message)
    finding, brightest = None, int(pixels.max())
    if brightest <= DARK:
        message = f"nothing in it is brighter than {brightest} of 255; of 16 bits a channel the upper 8 are used"
        finding = Finding("picture_dark", path, 0, message)
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    steps = cv2.resize(grey, (_SIDE + 1, _SIDE), interpolation=cv2.INTER_AREA)
    small = cv2.resize(grey, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA).astype(np.float32).ravel()
    small -= small.mean()
    length = float(np.linalg.norm(small))
    digest = hashlib.blake2b(data.data, digest_size=16).digest()
    return _Look(digest, np.packbits(steps[:, 1:] > steps[:, :-1]), small / max(length, 1e-6)), finding


def _gather(kept: Sequence[tuple[str, _Look]]) -> _Looks:
    digests = [look.digest for _, look in kept]
    first: dict[bytes, str] = {}
    for path, look in kept:
        first.setdefault(look.digest, path)
    bits = np.stack([look.bits for _, look in kept] or [np.empty(32, np.uint8)])[: len(kept)]
    small = np.stack([look.small for _, look in kept] or [np.empty(_SIDE * _SIDE, np.float32)])[: len(kept)]
    return _Looks([path for path, _ in kept], digests, first, bits, small)


def _in_both(earlier: str, theirs: _Looks, later: str, ours: _Looks) -> Iterator[Finding]:
    for path, digest in zip(ours.paths, ours.digests, strict=True):
        if digest in theirs.first:
            yield Finding(
                "picture_in_both", path, 0, f"in {later}, and the same file as {theirs.first[digest]} in {earlier}"
            )
    for i, j, apart in _near(ours, theirs):
        if ours.digests[i] not in theirs.first:
            message = f"in {later}, and nearly the same as {theirs.paths[j]} in {earlier} ({apart} of 256 bits differ)"
            yield Finding("picture_nearly_in_both", ours.paths[i], 0, message)


def _within(split: str, looks: _Looks) -> Iterator[Finding]:
    for path, digest in zip(looks.paths, looks.digests, strict=True):
        if looks.first[digest] != path:
            yield Finding("picture_twice", path, 0, f"the same file as {looks.first[digest]}, both in {split}")
    if len(looks.paths) > WITHIN_AT_MOST:
        folder = os.path.dirname(looks.paths[0])  # noqa: PTH120 - a string, as all paths here
        message = (
            f"{len(looks.paths)} pictures of {split} were not compared with each other, only whether files are equal"
        )
        yield Finding("not_compared", folder, 0, message)
        return
    for i, j, apart in _near(looks, looks):
        if looks.digests[i] != looks.digests[j]:
            message = f"nearly the same as {looks.paths[j]}, both in {split} ({apart} of 256 bits differ)"
            yield Finding("picture_nearly_twice", looks.paths[i], 0, message)


def _near(ours: _Looks, theirs: _Looks) -> Iterator[tuple[int, int, int]]:
    """(i, j, bits apart) for each of ours that looks like one of theirs, the nearest; within a split like an earlier one."""
    for start in range(0, len(ours.paths), _CHUNK):
        part = slice(start, start + _CHUNK)
        alike = ours.small[part] @ theirs.small.T >= ALIKE
        if ours is theirs:
            alike = np.tril(alike, start - 1)
        rows, others = np.nonzero(alike)
        apart = np.bitwise_count(ours.bits[start + rows] ^ theirs.bits[others]).sum(1, dtype=int)
        for row in np.unique(rows[apart <= BITS_APART]):
            mine = np.flatnonzero(rows == row)
            best = mine[apart[mine].argmin()]
            yield start + int(row), int(others[best]), int(apart[best])
