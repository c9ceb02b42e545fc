"""The description of a data set: a short YAML file that says where the pictures are and what the classes are called."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from visiontrain.data.recognise import recognise
from visiontrain.data.sources import Sources, sources_of
from visiontrain.errors import DataError
from visiontrain.paths import cache_dir, datasets_dir

SPLITS = ("train", "val", "test")
GENERATED = "shapes"  # the embedded data set: its pictures are drawn on first use


@dataclass(frozen=True, slots=True)
class Description:
    """A data set: ``file`` says so, ``root`` is where relative paths start, ``splits`` are folders or list files.

    ``images`` are counts that the plan may use when the pictures are not there; ``written_path`` is ``path:`` as written.
    ``recognised`` says what told the format where the description does not. ``pictures`` (COCO) and ``annotations`` (VOC)
    are folders by split, for where they are not found by themselves.
    """

    file: Path
    root: Path
    names: tuple[str, ...]
    splits: dict[str, tuple[Path, ...]]
    images: dict[str, int]
    download: Sources = Sources()
    format: str = "yolo"
    written_path: str = ""
    recognised: str = ""
    pictures: dict[str, Path] = field(default_factory=dict)
    annotations: dict[str, Path] = field(default_factory=dict)


def load_description(data: str | Path, download: bool = False) -> Description:
    """Find and read a description; the pictures of ``shapes`` are drawn where they are not there yet.

    Args:
        data: a path, a name in ./datasets/, or a shipped name; the ending .yaml may be left out.
        download: where train or val is not there, fetch what the description names, into the user's cache.

    Raises:
        DataError: not found (the places looked at and near names are given), not YAML, or wrong in what it says; or it
            could not be fetched.
    """
    description = read_description(data, download)
    if _is_shipped(description.file) and description.file.stem == GENERATED:
        from visiontrain.data.shapes import generate  # only here: drawing is not needed to read a description

        generate(description.root)
    return description


def read_description(data: str | Path, download: bool = False) -> Description:
    """As ``load_description``, and nothing is drawn."""
    file = find_description(str(data))
    content = _parse(file)
    root, written = _root(file, content)
    splits = _splits(file, root, content)
    sources = sources_of(file, content.get("download"))
    home = fetched_home(file, root, sources)
    if (wanted := _missing(splits)) and (sources or sources.refused or (download and not _is_shipped(file))):
        if download:
            from visiontrain.data.download import fetch  # only here: it brings the network's modules

            fetch(sources, home, wanted, root)
        if home.is_dir():
            root, splits = home, _splits(file, home, content)
    named = content.get("format")
    form, recognised = (str(named), "") if named else recognise(file, splits)
    description = Description(
        file=file,
        root=root,
        names=_names_in_json(splits) if form == "coco" and not content.get("names") else _names(file, content),
        splits=splits,
        images=_counts(file, content),
        download=sources,
        format=form,
        written_path=written,
        recognised=recognised,
        pictures=_folders(file, root, content, "pictures"),
        annotations=_folders(file, root, content, "annotations"),
    )
    _check_count(file, content, description.names)
    return description


def draw_here(data: str, download: bool = False) -> None:
    """On a host that rank 0 is not on, draw or fetch a shipped data set: descriptions are read on rank 0's, pictures on all.

    Raises:
        DataError: the folder cannot be written, or is there but not complete; it could not be fetched.
    """
    name = data.removesuffix(".yaml")
    if name == GENERATED or (download and (datasets_dir() / f"{name}.yaml").is_file()):
        load_description(data, download)


def fetched_home(file: Path, root: Path, sources: Sources) -> Path:
    """The folder in the user's cache that the archives of a description are unpacked into."""
    if _is_shipped(file):
        return root
    urls = "\n".join(source.url for source in sources.archives)
    return cache_dir() / "datasets" / f"{file.stem}-{hashlib.sha256(urls.encode()).hexdigest()[:12]}"


def _missing(splits: Mapping[str, Sequence[Path]]) -> list[Path]:
    """What training needs and is not there; many have no test pictures."""
    return [entry for split in ("train", "val") for entry in splits.get(split, ()) if not entry.exists()]


def find_description(data: str) -> Path:
    """The file that ``data=`` names: as given, in ./datasets/, or shipped, in this order.

    Raises:
        DataError: in none of them; the message lists the places and near names.
    """
    if not data:
        raise DataError(f"data= is empty: give a description such as data=shapes; {_known()}")
    given = Path(data).expanduser()
    if given.suffix.lower() == ".json":
        raise DataError(
            f"data={data}: a JSON holds one split; give a description, a short .yaml file with the lines\n"
            f"  train: {given.name}\n  val: the JSON of other pictures"
        )
    if given.is_dir():
        inside = sorted(path.name for path in given.iterdir() if path.suffix in (".yaml", ".yml"))
        raise DataError(
            f"data={data}: a folder; give the description in it: {', '.join(inside) or 'it holds no .yaml file'}"
        )
    name = given if given.suffix in (".yaml", ".yml") else given.with_name(given.name + ".yaml")
    places = [given, name, Path("datasets") / name, datasets_dir() / name]
    for place in places:
        if place.is_file():
            return place.absolute()
    looked = "\n  ".join(str(place.absolute()) for place in dict.fromkeys(places[1:]))
    raise DataError(f"data={data}: no such description. Looked for\n  {looked}\n{_near(given, name.stem)}")


def class_lines(description: Description) -> list[int]:
    """The line of each class in the file of a description, by class number; 0 where the names come from a JSON."""
    root = yaml.compose(description.file.read_text("utf-8-sig"), Loader=yaml.BaseLoader)
    assert isinstance(root, yaml.MappingNode), f"{description.file} has been read as a description"
    names = next((value for key, value in root.value if key.value == "names"), None)
    if names is None or not names.value:
        return [0] * len(description.names)
    if isinstance(names, yaml.MappingNode):
        numbered = {int(key.value): key.start_mark.line + 1 for key, _ in names.value}
        return [numbered[number] for number in range(len(numbered))]
    return [name.start_mark.line + 1 for name in names.value]


def _near(given: Path, stem: str) -> str:
    folders = [given.parent, Path("datasets"), datasets_dir()]
    there = {path.stem: path for folder in folders if folder.is_dir() for path in sorted(folder.glob("*.y*ml"))}
    near = difflib.get_close_matches(stem, there, n=3, cutoff=0.5)
    return f"Did you mean {', '.join(near)}?" if near else _known()


def _known() -> str:
    return f"shipped are {', '.join(sorted(path.stem for path in datasets_dir().glob('*.yaml')))}"


def _parse(file: Path) -> dict[str, Any]:
    try:
        # BaseLoader leaves every scalar a string: a class called no, on or 08 stays what was written.
        content = yaml.load(file.read_text("utf-8-sig"), Loader=yaml.BaseLoader)
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise DataError(f"{file}{line}: not valid YAML: {getattr(error, 'problem', None) or error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{file}: a description is a mapping with path, train, val and names, not {content!r:.60}")
    return content


def _root(file: Path, content: dict[str, Any]) -> tuple[Path, str]:
    written = content.get("path", "") or "."
    if not isinstance(written, str):
        raise DataError(f"{file}: path must be one folder, not {written!r}")
    # What is shipped must not be written into the installation: its pictures live in the user's cache.
    start = cache_dir() / "datasets" if _is_shipped(file) else file.parent
    root = start / Path(written).expanduser()
    return Path(*root.parts) if _is_shipped(file) else root.resolve(), written


def _is_shipped(file: Path) -> bool:
    return file.resolve().parent == datasets_dir().resolve()


def _names(file: Path, content: dict[str, Any]) -> tuple[str, ...]:
    names = content.get("names")
    if not names:
        near = difflib.get_close_matches("names", content, n=1)
        hint = f" (did you mean {near[0]!r} to be it?)" if near and near[0] != "names" else ""
        raise DataError(f"{file}: names is missing{hint}: list the classes, for example names: [cat, dog]")
    if isinstance(names, dict):
        names = _from_mapping(file, names)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{file}: names must be a list of words or a mapping 0: word, 1: word, not {names!r:.80}")
    return tuple(names)


def _names_in_json(splits: Mapping[str, Sequence[Path]]) -> tuple[str, ...]:
    from visiontrain.data.formats.coco import category_names  # only here: a description with names needs no JSON

    first = next(iter(splits.values()))
    return category_names(first[0])


def _from_mapping(file: Path, names: dict[str, Any]) -> list[Any]:
    try:
        numbered = {int(number): name for number, name in names.items()}
    except ValueError:
        wrong = next(number for number in names if not number.strip().isdigit())
        raise DataError(f"{file}: names maps class numbers to names; {wrong!r} is not a number") from None
    missing = sorted(set(range(len(numbered))) - set(numbered))
    if missing or len(numbered) != len(names):
        raise DataError(
            f"{file}: names must number the classes 0 to {len(names) - 1}, each once; missing: {missing[:10]}"
        )
    return [numbered[number] for number in range(len(numbered))]


def _check_count(file: Path, content: dict[str, Any], names: tuple[str, ...]) -> None:
    count = content.get("nc", "")
    if count and str(count) != str(len(names)):
        raise DataError(f"{file}: nc is {count}, but names has {len(names)}; leave nc out, it follows from names")


def _splits(file: Path, root: Path, content: dict[str, Any]) -> dict[str, tuple[Path, ...]]:
    splits = {}
    for split in SPLITS:
        entries = content.get(split) or []
        entries = [entries] if isinstance(entries, str) else entries
        if not isinstance(entries, list) or not all(isinstance(entry, str) and entry for entry in entries):
            raise DataError(
                f"{file}: {split} must be a folder, a .txt file that lists pictures, a COCO JSON, or a list of these, not {entries!r:.80}"
            )
        if entries:
            splits[split] = tuple(_path(root, entry) for entry in entries)
    if not splits:
        near = [key for key in content if difflib.get_close_matches(key, SPLITS, n=1)]
        hint = f"; did you mean {near[0]!r} to be one?" if near else ""
        raise DataError(f"{file}: neither train nor val nor test says where pictures are{hint}")
    return splits


def _folders(file: Path, root: Path, content: dict[str, Any], key: str) -> dict[str, Path]:
    """``key: folder``, or a folder for each split."""
    written = content.get(key) or {}
    by_split = dict.fromkeys(SPLITS, written) if isinstance(written, str) else written
    wrong = not isinstance(by_split, dict) or not set(by_split) <= set(SPLITS)
    if wrong or not all(isinstance(folder, str) and folder for folder in by_split.values()):
        raise DataError(
            f"{file}: {key} must be a folder, or one for each split, for example {key}: {{train: a, val: b}}, not {written!r:.80}"
        )
    return {split: _path(root, folder) for split, folder in by_split.items()}


def _path(root: Path, text: str) -> Path:
    """A path as written; one with Windows separators too, where there is none of that very name."""
    path = root / Path(text).expanduser()
    return path if "\\" not in text or path.exists() else root / text.replace("\\", "/")


def _counts(file: Path, content: dict[str, Any]) -> dict[str, int]:
    counts = content.get("images") or {}
    try:
        return {split: int(count) for split, count in counts.items()}
    except (AttributeError, TypeError, ValueError):
        raise DataError(
            f"{file}: images gives counts, for example images: {{train: 118287, val: 5000}}, not {counts!r:.60}"
        ) from None
