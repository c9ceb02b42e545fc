"""``key=value`` words, a settings file under them, or keywords from Python -> one checked settings object."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visiontrain.config.build import Settings, assemble, check, unknown
from visiontrain.config.files import read_entries
from visiontrain.config.image_size import ImageSize
from visiontrain.config.schema import (
    CheckConfig,
    CompareConfig,
    ConvertConfig,
    ExportConfig,
    PredictConfig,
    TrainConfig,
    ValConfig,
)
from visiontrain.config.sizes import is_checkpoint, model_names
from visiontrain.config.values import Leaf, leaves_of, written
from visiontrain.errors import ConfigError

_DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_CURLY = tuple("\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00ab\u00bb")
_LONE: dict[type, str] = {CompareConfig: "runs"}  # the setting that words without = stand for, all of them together
_OF_DATA = ("data", "format", "pictures")  # settings of convert that weights have no use for
_OF_PREDICT = (
    ("model", "which checkpoint", "model=runs/train/run/weights/best.pt"),
    ("source", "which pictures", "source=street.jpg, or a folder"),
)
_OF_A_MODEL = (
    "model",
    "batch",
    "imgsz",
    "device",
    "workers",
    "iou",
    "nms",
)  # settings of val that detections have no use for
_PLACEHOLDER = re.compile(r"\{[\w. \[\]]+\}|\$\{?\w+\}?")


@dataclass(slots=True)
class _Given:
    """What the user gave so far, as typed, where it stands, and all that is wrong with it."""

    values: dict[str, Any] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)  # name -> how it was written, for messages
    problems: list[str] = field(default_factory=list)
    meant: set[str] = field(default_factory=set)  # names in words that could not be read

    def add(self, name: str, value: Any, where: str) -> None:
        if name in self.values:
            self.problems.append(f"{where}: {name} is given twice (before: {self.where[name]}); keep one")
        else:
            self.values[name], self.where[name] = value, where


def parse_words(settings: type[Settings], words: Sequence[str]) -> Settings:
    """Build settings from command line words such as ``batch=8``.

    Raises:
        ConfigError: every bad word at once, each with what to type instead.
    """
    given = _Given()
    lone = _lone(settings, words)
    if lone:
        given.add(_LONE[settings], [words[at] for at in lone], " ".join(words[at] for at in lone))
    _read_words(settings, [word for at, word in enumerate(words) if at not in lone], given)
    return _finish(settings, given, f"visiontrain {_verb(settings)} ")


def parse_keywords(settings: type[Settings], keywords: Mapping[str, Any]) -> Settings:
    """Build settings from Python keywords; the same names and checks as on the command line.

    Raises:
        ConfigError: all that is wrong, at once.
    """
    given = _Given()
    for name, value in keywords.items():
        # A pipeline of albumentations is long, and not every transform can print itself.
        given.add(name, value, f"{name}={type(value).__name__}" if hasattr(value, "to_dict") else f"{name}={value!r}")
    return _finish(settings, given, "")


def words_of(config: TrainConfig) -> list[str]:
    """The words that ``parse_words`` reads to the same settings: those given, and any that differ from the default."""
    leaves = leaves_of(type(config))
    values = {n: v for n, v in config.leaves().items() if n in config.given or v != written(leaves[n].default)}
    return [f"{name}={_word(leaves[name], value)}" for name, value in values.items()]


def _word(leaf: Leaf, value: Any) -> str:
    """Exact where ``show`` rounds, and quoted, for blanks at an end and for quotes."""
    if isinstance(value, str):
        return f"'{value}'"
    special = [word for word, meaning in leaf.meta["words"].items() if meaning == value]
    return special[0] if special else repr(value)


def _finish(settings: type[Settings], given: _Given, prefix: str) -> Settings:
    merged = _under(given)
    good, wrong = check(settings, merged.values)
    for name, sentence in wrong.items():
        merged.problems.append(f"{merged.where[name]}: {sentence}")
    merged.problems += _missing(settings, good, wrong.keys() | merged.meant, prefix)
    merged.problems += _unfilled(good, merged.where)
    if merged.problems:
        raise ConfigError("\n".join(merged.problems))
    return assemble(settings, good, frozenset(merged.values))


def _under(given: _Given) -> _Given:
    """Lay the words over the file that ``cfg`` names."""
    if "cfg" not in given.values:
        return given
    path = given.values.pop("cfg")
    try:
        entries, problems = read_entries(path)
    except ConfigError as error:
        given.problems.append(str(error))
        given.meant.add("cfg")
        return given
    file = _Given(problems=[*given.problems, *problems], meant=given.meant)
    for entry in entries:
        shown = entry.text if isinstance(entry.text, str) else f"[{', '.join(entry.text)}]"
        file.add(entry.name, entry.text, f"{path}, line {entry.line}: {entry.name}: {shown}")
    file.values |= given.values
    file.where |= given.where
    return file


def _missing(settings: type, good: Mapping[str, Any], tried: Set[str], prefix: str) -> list[str]:
    """What the verb cannot do without; ``tried`` are names with a problem of their own."""
    if settings is TrainConfig and not (good.get("data") or good.get("resume") or {"data", "resume", "cfg"} & tried):
        return [f"data is missing: which pictures? For example {prefix}data=shapes (made on the spot) or data=my.yaml"]
    if settings is CheckConfig and not (good.get("data") or {"data", "cfg"} & tried):
        return [f"data is missing: which pictures? For example {prefix}data=my.yaml"]
    if settings is ValConfig and (good.get("predictions") or "predictions" in tried):
        useless = [name for name in _OF_A_MODEL if name in good]
        told = [f"{name} changes nothing where predictions are scored; leave it out" for name in useless]
        if not (good.get("data") or {"data", "cfg"} & tried):
            told.append(
                f"data is missing: predictions of what? For example {prefix}predictions=found.json data=my.yaml"
            )
        return told
    if settings in (ValConfig, ExportConfig) and not good.get("model") and not {"model", "cfg"} & tried:
        return [f"model is missing: which checkpoint? For example {prefix}model=runs/train/run/weights/best.pt"]
    if settings is PredictConfig:
        return [
            f"{name} is missing: {which}? For example {prefix}{example}"
            for name, which, example in _OF_PREDICT
            if not good.get(name) and not {name, "cfg"} & tried
        ]
    if settings is ConvertConfig and (good.get("weights") or "weights" in tried):
        idle = [
            f"{name} changes nothing where weights are converted; leave it out" for name in _OF_DATA if name in good
        ]
        if good.get("out") or "out" in tried:
            return idle
        return [*idle, f"out must be given, for example {prefix}weights=theirs.pt out=ours.pt"]
    if settings is ConvertConfig:
        lacking = [name for name in ("data", "format", "out") if not good.get(name) and not {name, "cfg"} & tried]
        example = f"for example {prefix}data=my.yaml format=coco out=my_coco"
        return [f"{' and '.join(lacking)} must be given, {example}"] if lacking else []
    if settings is CompareConfig and not good.get("runs") and not {"runs", "cfg"} & tried:
        return [f"two or more run folders are needed, for example {prefix or 'compare '}runs/train/run runs/train/run2"]
    return []


def _unfilled(good: Mapping[str, Any], where: Mapping[str, str]) -> list[str]:
    """Paths such as {dataset.location}/data.yaml, copied with the placeholder that should have been filled in."""
    found = []
    for name in ("data", "model", "resume", "project", "weights", "predictions"):
        value = good.get(name)
        if value and (mark := _PLACEHOLDER.search(value)) and not Path(value).exists():
            found.append(f"{where[name]}: {mark[0]} stands for something that was not filled in; write the path itself")
    return found


def _lone(settings: type, words: Sequence[str]) -> list[int]:
    """Positions of words that are no setting, nor the value of one written with blanks, and of folders whatever their name."""
    if settings not in _LONE:
        return []

    def waits(word: str) -> bool:
        return word.endswith("=") or ("=" not in word and (word[:1] in _DASHES or word in leaves_of(settings)))

    def lone(before: str, word: str) -> bool:
        if word[:1] in _DASHES:
            return False
        # Path.is_dir fails for a name that is too long to be one.
        return os.path.isdir(word) or not ("=" in word or waits(word) or waits(before))  # noqa: PTH112

    pairs = zip(["=x", *words], words, strict=False)
    return [at for at, (before, word) in enumerate(pairs) if lone(before, word)]


def _read_words(settings: type, words: list[str], given: _Given) -> None:
    at = 0
    while at < len(words):
        used = _read_word(settings, words[at], words[at + 1 : at + 3], given)
        at += used


def _read_word(settings: type, word: str, following: list[str], given: _Given) -> int:
    """Take one word, or as many as belong to one mistake; returns how many."""
    bare = word.lstrip(_DASHES)
    name, equals, text = (part.strip() for part in bare.partition("="))
    following = [w for w in following if w]
    if bare != word:
        return _dashed(settings, word, name, text, following, given)
    if bare.startswith(_CURLY) or text.startswith(_CURLY):
        return _curly(word, following, given)
    before, colon, after = (part.strip() for part in bare.partition(":"))
    if colon and before in leaves_of(settings):
        return _colon(settings, word, before, after, following, given)
    if equals and text.endswith(",") and not _may_end_in_a_comma(settings, name):
        text = _unquote(text.rstrip(","))
        given.meant.add(name)
        given.problems.append(f"{word!r}: settings are divided by blanks, without commas; write {name}={text}")
        return 1
    if equals and name and (text or not _continues(following)):
        if text or _may_be_empty(settings, name):
            given.add(name, _unquote(text), word)
        else:
            given.problems.append(f"{word!r}: no value after =; write {_example(settings, name)}")
        return 1
    return _spaced(settings, word, name, equals, following, given)


def _dashed(settings: type, word: str, name: str, text: str, following: list[str], given: _Given) -> int:
    used = 1
    if "=" not in word and following and "=" not in following[0] and following[0][0] not in _DASHES:
        text, used = following[0], 2
    known = name.replace("-", "_") if name.replace("-", "_") in leaves_of(settings) else name
    typed = " ".join([word, *following[: used - 1]])
    given.meant.add(known)
    odd = next((c for c in word if c in _DASHES[1:]), "")
    which = f" (it begins with {unicodedata.name(odd).lower()}, U+{ord(odd):04X})" if odd else ""
    if known not in leaves_of(settings) and known != "cfg":
        given.problems.append(f"{typed!r}: settings have no dashes{which}; {unknown(settings, known)}")
    else:
        instead = f"{known}={text}" if text else _example(settings, known)
        given.problems.append(f"{typed!r}: settings have no dashes{which}; write {instead}")
    return used


def _curly(word: str, following: list[str], given: _Given) -> int:
    """Quotes as web pages have them: the shell takes them for letters, and divides at the blank."""
    parts = [word]
    while parts[-1][-1] not in _CURLY and len(parts) <= len(following):
        parts.append(following[len(parts) - 1])
    typed = " ".join(parts)
    mark = next(c for c in typed if c in _CURLY)
    plain = typed.translate(dict.fromkeys(map(ord, _CURLY)))
    name, equals, text = plain.partition("=")
    given.meant.add(name)
    instead = f"{name}{equals}'{text}'" if " " in text else plain
    given.problems.append(
        f"{typed!r}: {unicodedata.name(mark).lower()}, U+{ord(mark):04X}, is a letter to the shell; write {instead}"
    )
    return len(parts)


def _colon(settings: type, word: str, name: str, text: str, following: list[str], given: _Given) -> int:
    """``epochs:3`` and ``epochs: 3``, as a file has it."""
    used = 1 if text or not _continues(following) else 2
    text = text or "".join(following[: used - 1])
    typed = " ".join([word, *following[: used - 1]])
    given.meant.add(name)
    given.problems.append(f"{typed!r}: write {f'{name}={text}' if text else _example(settings, name)}")
    return used


def _may_end_in_a_comma(settings: type, name: str) -> bool:
    leaf = leaves_of(settings).get(name)
    return leaf is not None and (leaf.meta["listed"] or leaf.kind is ImageSize)


def _spaced(settings: type, word: str, name: str, equals: str, following: list[str], given: _Given) -> int:
    """``batch 8``, ``batch= 8``, ``batch =8``, ``batch = 8``, and words that are no setting at all."""
    if not name:
        given.problems.append(f"{word!r}: no name before =; write name=value, for example batch=8")
        return 1
    value, used = "", 1
    if following and following[0].startswith("=") and not equals:
        value, used = following[0][1:], 2
        if not value and len(following) > 1:
            value, used = following[1], 3
    elif following and "=" not in following[0] and (equals or name in leaves_of(settings)):
        value, used = following[0], 2
    typed = " ".join([word, *following[: used - 1]])
    given.meant |= {name, _guess(word)}
    if used > 1:
        given.problems.append(f"{typed!r}: write it without blanks: {name}={value.strip()}")
    elif name in leaves_of(settings):
        given.problems.append(f"{word!r}: write {_example(settings, name)}")
    else:
        guess = _guess(word) if _guess(word) in leaves_of(settings) else ""
        hint = f"if you mean it as {guess}, write {guess}={word}" if guess else f"for example {_example_of(settings)}"
        given.problems.append(f"{word!r}: expected name=value; {hint}")
    return used


def _guess(word: str) -> str:
    """The setting that a lone path is probably meant for, or ""."""
    if word.endswith((".yaml", ".yml")):
        return "data"
    return "model" if is_checkpoint(word) or word in model_names() else ""


def _continues(following: list[str]) -> bool:
    """Whether ``name=`` and the next word look like one setting with a blank in it."""
    return bool(following) and "=" not in following[0] and following[0][0] not in _DASHES


def _may_be_empty(settings: type, name: str) -> bool:
    leaf = leaves_of(settings).get(name)
    return leaf is None or (leaf.kind is str and not leaf.meta["choices"] and name != "device")


def _example_of(settings: type) -> str:
    return "batch=8" if "batch" in leaves_of(settings) else "format=json"


def _example(settings: type, name: str) -> str:
    if name == "cfg":
        return "cfg=file.yaml"
    leaf = leaves_of(settings).get(name)
    if leaf is None:
        return "name=value"
    if leaf.kind is bool:
        return f"{name}={'false' if leaf.default else 'true'}"
    return f"{name}={leaf.default}" if leaf.default not in ("", None) else f"{name}=VALUE"


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _verb(settings: type) -> str:
    return settings.__name__.removesuffix("Config").lower()
