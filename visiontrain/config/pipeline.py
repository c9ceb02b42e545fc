"""The user's own albumentations pipeline as a setting: from a YAML file or from Python objects to one text that is kept.

Nothing of albumentations is imported here: the text names transforms, and data/augment/album.py builds them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visiontrain.errors import ConfigError

OFF = frozenset({"none", "false", "no", "off", "0", ""})
EXAMPLE = "- Blur: {p: 0.01, blur_limit: [3, 7]}"
_AT = "at"  # beside a transform: where it was written
_CLASS = "__class_fullname__"  # albumentations' own files name a transform so
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """``text`` is ``default``, ``none``, or JSON: ``transforms``, a list of {name: parameters, at: where}, and ``p`` and
    ``bbox_params`` where they were given. ``live`` is an object that no text can stand for; then ``text`` describes it.
    """

    text: str = "default"
    live: Any = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.text

    @property
    def written(self) -> str:
        """For files."""
        return self.text

    @property
    def own(self) -> bool:
        """Whether these are transforms of the user's."""
        return self.text not in ("default", "none")


def read_pipeline(value: Any) -> Pipeline:
    """The pipeline that a word, a file's path, a stored text or Python objects stand for.

    Raises:
        ConfigError: the sentence about what is wrong.
        ValueError: it is none of these.
    """
    if isinstance(value, Pipeline):
        return value
    if value is None or value is False or (isinstance(value, str) and value.strip().lower() in OFF):
        return Pipeline("none")
    if isinstance(value, str) and value.strip().lower() == "default":
        return Pipeline()
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return _stored(value)
    if isinstance(value, str | Path):
        return _kept(_content_of(_of_file(Path(value).expanduser()), str(value)))
    if isinstance(value, Mapping) or (isinstance(value, Sequence) and all(isinstance(item, Mapping) for item in value)):
        return _kept(_content_of(value, "albumentations="))
    return _of_objects(value)


def _stored(text: str) -> Pipeline:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"must be a .yaml file, default or none; this text is cut off or no JSON: {error}") from error
    if "live" in content:
        raise ConfigError(
            f"this pipeline could not be stored ({content['live']}), so it must be given again as it was:"
            " train(resume=..., albumentations=compose) in Python"
        )
    return Pipeline(text)


def _kept(content: dict[str, Any]) -> Pipeline:
    return Pipeline(json.dumps(content))


def _of_file(file: Path) -> Any:
    """The YAML of a file, each mapping with the line it begins on."""
    import yaml  # only now: most commands read no file

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            content = super().construct_mapping(node, deep=True)
            return content | {_AT: f"{file}, line {node.start_mark.line + 1}"}

    Loader.add_constructor("tag:yaml.org,2002:map", Loader.construct_mapping)
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))  # 1e-3 is a word in YAML 1.1
    if not file.is_file():
        raise ConfigError(f"there is no such file; give a YAML file with lines such as '{EXAMPLE}', default or none")
    try:
        return yaml.load(file.read_text(encoding="utf-8"), Loader=Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"is not readable as YAML: {' '.join(str(error).split())}") from error


def _content_of(value: Any, where: str) -> dict[str, Any]:
    """What is kept: a list of transforms, or a mapping that has one, in our words or in those of albumentations' files."""
    if isinstance(value, Mapping) and "transform" in value:
        value = value["transform"]
    if isinstance(value, Mapping) and value.get(_CLASS, "Compose").endswith("Compose") and "transforms" in value:
        kept = {name: _plain(value[name]) for name in ("p", "bbox_params") if value.get(name) is not None}
        return {"transforms": _transforms(value["transforms"], where), **kept}
    return {"transforms": _transforms([value] if isinstance(value, Mapping) else value, where)}


def _transforms(items: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(items, list) or not items:
        raise ConfigError(f"{where}: a pipeline is a list of transforms, for example '{EXAMPLE}'")
    return [_transform(item, f"{where}, transform {number}") for number, item in enumerate(items, 1)]


def _transform(item: Any, where: str) -> dict[str, Any]:
    """{name: parameters, at: where} of one entry: a name, {name: parameters}, or {__class_fullname__: name, ...}."""
    if isinstance(item, str):
        return {item: {}, _AT: where}
    if not isinstance(item, Mapping):
        raise ConfigError(f"{where}: {item!r} is no transform; write a line such as '{EXAMPLE}'")
    where = item.get(_AT, where)
    content = {name: value for name, value in item.items() if name != _AT}
    if _CLASS in content:
        name = str(content.pop(_CLASS))
        parameters: Any = content
        short = name.removeprefix("albumentations.").rpartition(".")[2] if name.startswith("albumentations.") else name
    elif len(content) == 1:
        ((short, parameters),) = content.items()
    else:
        raise ConfigError(
            f"{where}: one name and its parameters are expected, for example '{EXAMPLE}', not {content!r:.80}"
        )
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, Mapping):
        raise ConfigError(f"{where}: parameters of {short} are named, for example '{EXAMPLE}', not {parameters!r:.60}")
    plain = {str(key): _plain(value) for key, value in parameters.items() if key not in (_AT, "transforms")}
    if "transforms" in parameters:
        plain["transforms"] = _transforms(parameters["transforms"], where)
    return {str(short): plain, _AT: where}


def _plain(value: Any) -> Any:
    """Without the notes of lines."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if key != _AT}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _of_objects(value: Any) -> Pipeline:
    """A Compose, a transform or a list of them: as text where albumentations can write them, else as they are."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    if not items or not all(hasattr(item, "to_dict") for item in items):
        raise ValueError(
            f"a .yaml file of albumentations transforms, a Compose from Python, default or none, not {value!r:.60}"
        )
    try:
        written = [item.to_dict()["transform"] for item in items]
        foreign = [name for entry in written for name in _foreign(entry)]
        content = _content_of(written[0] if len(items) == 1 else written, type(items[0]).__name__)
        if not foreign:
            return _kept(content)
        why = f"{foreign[0]} is no transform of albumentations"
    except (NotImplementedError, TypeError, ValueError) as error:  # a function or an array among the parameters
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
    return Pipeline(json.dumps({"live": f"{why}; {', '.join(map(_described, items))}"}), live=value)


def _described(item: Any) -> str:
    """Its class, and those of what it holds: not every transform can print itself."""
    inside = ", ".join(map(_described, getattr(item, "transforms", ())))
    return type(item).__name__ + (f"({inside})" if inside else "")


def _foreign(entry: Mapping[str, Any]) -> list[str]:
    """Names that albumentations cannot be asked for: classes of other modules, and functions in its clothes."""
    name = str(entry.get(_CLASS, ""))
    inside = [found for item in entry.get("transforms", ()) for found in _foreign(item)]
    return ([name] if "." in name or "__name__" in entry else []) + inside
