"""Settings files: a flat YAML mapping of names to values, and the same written back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visiontrain.config.values import too_long
from visiontrain.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a settings file; the value is its text, or its texts, for the setting's kind decides what it means."""

    name: str
    text: str | list[str]
    line: int


def read_entries(path: str | Path) -> tuple[list[Entry], list[str]]:
    """Read a settings file.

    Scalars stay text: YAML itself would make False of ``name: no``, 8 of ``010`` and a string of ``1e-3``.

    Returns:
        the entries, and a sentence for each line that is none.

    Raises:
        ConfigError: there is no such file, or it is not YAML, or it holds something else than settings.
    """
    import yaml  # only now: most commands read no file

    if wrong := too_long(str(path)):
        raise ConfigError(f"cfg={path}: {wrong}")
    file = Path(path).expanduser()
    if not file.is_file():
        raise ConfigError(f"cfg={path}: there is no such file; give a YAML file of settings such as 'lr0: 0.001'")
    try:
        root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        if error.problem_mark is not None and "'\\t'" in str(error.problem):
            line = error.problem_mark.line + 1
            raise ConfigError(
                f"{path}, line {line}: a tab stands where YAML takes blanks alone; write blanks"
            ) from error
        raise ConfigError(f"cfg={path}: is not readable as YAML: {' '.join(str(error).split())}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"cfg={path}: is not readable as YAML: {' '.join(str(error).split())}") from error
    if root is None:
        return [], []
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"cfg={path}: must hold lines such as 'lr0: 0.001'")
    entries: list[Entry] = []
    problems: list[str] = []
    for key, value in root.value:
        line = key.start_mark.line + 1
        if isinstance(value, yaml.ScalarNode):
            entries.append(Entry(str(key.value), value.value, line))
        elif isinstance(value, yaml.SequenceNode) and all(isinstance(item, yaml.ScalarNode) for item in value.value):
            entries.append(Entry(str(key.value), [item.value for item in value.value], line))
        else:
            problems.append(f"{path}, line {line}: {key.value} takes one value or a list of them, nothing nested")
    return entries, problems


def to_yaml(values: Mapping[str, Any]) -> str:
    """Flat values as YAML that ``cfg=`` reads back to the same."""
    import yaml

    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)


def write_settings(path: Path, values: Mapping[str, Any]) -> None:
    """Write flat settings, as ``leaves()`` gives them, to a YAML file that ``cfg=`` reads."""
    path.write_text(to_yaml(values), encoding="utf-8")
