"""What README.md and docs/*.md tell people to type: each block of code, each command in a sentence, and how it is marked.

A mark stands directly before the block or the words in backquotes, as ``<!-- parsed: trains for an hour -->`` or
``<!-- not run: needs two machines -->``; what has none is run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SHELL = ("", "sh", "bash", "console")
SHOWN = ("text", "yaml", "json", "ini")  # what a command prints, and what a file holds
PROGRAMS = (
    "visiontrain",
    "python",
    "python3",
    "pytest",
    "pip",
    "torchrun",
    "srun",
    "sudo",
    "mkdocs",
    "git",
    "tensorboard",
    "wandb",
    "mlflow",
    "ruff",
    "mypy",
)
_MARK = r"(?:<!-- *(?P<mark>[a-z ]+): *(?P<reason>.*?) *-->[ ]?\n*)?"
_BLOCK = re.compile(
    _MARK + r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL
)
_SPAN = re.compile(_MARK + r"(?<!`)`(?P<text>[^`]+)`(?!`)", re.DOTALL)
_COMMAND = re.compile(rf"([A-Z_]+=\S+ )*(\.venv/bin/)?({'|'.join(PROGRAMS)}) \S")


@dataclass(frozen=True)
class Piece:
    """A block of code or a command in a sentence; ``mark`` is "", "parsed" or "not run"."""

    page: str
    line: int
    language: str
    text: str
    mark: str
    reason: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> tuple[str, ...]:
        """Of a block for the shell: each command on one line, comments and prompts left out."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        plain = [re.sub(r"(^| +)#.*", "", line).strip() for line in lines]
        return tuple(part.strip() for line in plain if line for part in line.split("&&"))


def pages(checkout: Path) -> list[Path]:
    """All pages that people read."""
    return [checkout / "README.md", *sorted((checkout / "docs").glob("*.md"))]


def pieces(page: Path) -> Iterator[Piece]:
    """Everything on a page that is code or a command, in order."""
    text = page.read_text("utf-8")
    spans = _BLOCK.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    found = [_piece(page, text, match, match["language"]) for match in _BLOCK.finditer(text)]
    for match in _SPAN.finditer(spans):
        if _COMMAND.match(words := " ".join(match["text"].split())):
            found.append(_piece(page, text, match, "sh", words))
    yield from sorted(found, key=lambda piece: piece.line)


def unfenced(page: Path) -> list[str]:
    """Commands that stand in indented blocks, where no mark can be told from the text."""
    rest = _BLOCK.sub("", page.read_text("utf-8"))
    return [line for line in rest.splitlines() if line.startswith("    ") and _COMMAND.match(line.strip())]


def words_of(command: str) -> list[str]:
    """The words of a command without variables in front of it."""
    words = shlex.split(command)
    while re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    return [words[0].removeprefix(".venv/bin/"), *words[1:]]


def inside(words: list[str]) -> list[str]:
    """The visiontrain command that a launcher or Python starts, else the words."""
    if words[0] == "srun":
        return words[1:]
    for at in range(len(words) - 1):
        if words[at : at + 2] == ["-m", "visiontrain"]:
            return words[at + 1 :]
    return words


def _piece(page: Path, text: str, match: re.Match[str], language: str, words: str | None = None) -> Piece:
    where = f"docs/{page.name}" if page.parent.name == "docs" else page.name
    line = text.count("\n", 0, match.start("text")) + 1
    return Piece(where, line, language, words or match["text"], match["mark"] or "", match["reason"] or "")
