"""Weights that others published: found by name, fetched into the user's cache where the user asks for it, checked."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from visiontrain.config.sizes import CHECKPOINTS, FOREIGN
from visiontrain.errors import DataError, WeightsError
from visiontrain.fetching import Cut, alone, digest_of, fetched
from visiontrain.paths import cache_dir, weights_dir
from visiontrain.source import Source


@dataclass(frozen=True, slots=True)
class Published:
    """An entry of weights/weights.yaml.

    ``sha256`` is empty and ``bytes`` 0 where it is not known; ``verified`` says whether this project found the sum itself.
    """

    name: str
    family: str
    url: str
    bytes: int
    sha256: str
    licence: str
    source: str
    verified: bool

    def __str__(self) -> str:
        size = f" ({self.bytes / 1e6:.1f} MB)" if self.bytes else ""
        return f"{self.name}{size} is published by {self.source}, licence {self.licence}, at {self.url}"


def catalogue() -> dict[str, Published]:
    """All entries, by name without ending."""
    content = yaml.safe_load((weights_dir() / "weights.yaml").read_text(encoding="utf-8"))
    return {Path(entry["name"]).stem: Published(**entry) for entry in content["weights"]}


def located(model: str, download: bool, sha256: str) -> str:
    """The path of a checkpoint: ``model`` itself, or where the file of that name is among published ones, its place in the cache.

    Args:
        model: a path, or the name of published weights such as yolox_s.pt.
        download: fetch what is not in the cache yet.
        sha256: the sum that the user says the file must have, also one that is in the cache; needed once for weights whose sum
            nobody here verified.

    Raises:
        WeightsError: not there and not to be fetched, no network, another file than was meant, or to be confirmed first.
    """
    entry = None
    if Path(model).name == model and Path(model).suffix in (*CHECKPOINTS, *FOREIGN) and not Path(model).exists():
        entry = catalogue().get(Path(model).stem)
    if entry is None:
        if sha256:
            raise WeightsError(f"sha256: model={model} is not fetched, so there is nothing to confirm; leave it out")
        return model
    place = cache_dir() / "weights" / entry.name
    if not place.is_file():
        _fetch(entry, place, download, sha256)
    elif sha256 and digest_of(place) != sha256:
        raise WeightsError(f"{place}: its SHA-256 is {digest_of(place)} and sha256= says {sha256}")
    return str(place)


def _fetch(entry: Published, place: Path, download: bool, sha256: str) -> None:
    if not download:
        raise WeightsError(
            f"{entry}, and it is not in {place.parent}. Nothing is fetched unasked: write download=true, or put the file there."
        )
    expected = sha256 or (entry.sha256 if entry.verified else "")
    if not expected and entry.sha256:
        raise WeightsError(
            f"{entry}. Its SHA-256 should be {entry.sha256}, but this project could not fetch it to verify that. Look it up if "
            f"you can, and confirm once with: sha256={entry.sha256}"
        )
    if expected == entry.sha256:
        source = Source(entry.url, entry.bytes, expected, said_by="weights.yaml")
    else:  # of another file the size is not known
        source = Source(entry.url, sha256=expected, said_by="sha256=")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with alone(place.with_name(f"{place.name}.lock")):
            if not place.is_file():  # else another process was first
                print(entry, file=sys.stderr)
                file = fetched(source, place.parent)
                _confirm(entry, file, expected)
                file.rename(place)
    except Cut as cut:
        raise WeightsError(
            f"{cut}. What came is kept, and the same command goes on from there. Without a network, fetch {entry.url} elsewhere "
            f"and put it there as {place}"
        ) from cut
    except DataError as error:
        raise WeightsError(str(error)) from error
    except OSError as error:
        raise WeightsError(f"{error.filename or place}: cannot be written: {error.strerror or error}") from error


def _confirm(entry: Published, file: Path, expected: str) -> None:
    if not expected:
        digest = digest_of(file)
        raise WeightsError(
            f"{entry}. The file that came has the SHA-256 {digest}, and nothing here tells whether that is what they published. It "
            f"is kept unused in {file.parent}; if you trust the address, confirm once with: sha256={digest}"
        )
