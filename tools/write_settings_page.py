"""Write docs/settings.md from the settings' dataclasses: ``python tools/write_settings_page.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from visiontrain.config.help import VERBS
from visiontrain.config.values import Leaf, leaves_of, show, takes

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
HEAD = """\
# Settings

All settings of all verbs, with default, range and meaning. This page is generated from the program's own description by
`tools/write_settings_page.py`, as `visiontrain help train` is. `name=value` on the command line is `name=value` in Python. `cfg=file.yaml` reads
settings from a file; words go over it. An unknown name is an error that names the nearest.
"""


def render() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *(line for verb, (settings, _, _) in VERBS.items() if settings for line in _verb(verb))])


def _verb(verb: str) -> Iterator[str]:
    settings, what, _ = VERBS[verb]
    assert settings is not None
    yield f"## {verb}\n\n{what[0].upper()}{what[1:]}.\n"
    leaves = leaves_of(settings).values()
    for title in dict.fromkeys(leaf.title for leaf in leaves):
        yield f"### {title or 'Settings'} of {verb}\n\n| name | default | what it does, and what it takes |\n|---|---|---|"
        yield from (_row(leaf) for leaf in leaves if leaf.title == title)
        yield ""


def _row(leaf: Leaf) -> str:
    default = str(leaf.default).lower() if isinstance(leaf.default, bool) else show(leaf, leaf.default)
    meaning = f"{leaf.help}<br>*{takes(leaf).removeprefix(', ')}*"
    cells = [f"`{leaf.name}`", f"`{default}`" if default else "", meaning]
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def main() -> None:
    """Write the file."""
    PAGE.write_text(render(), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
