"""What stands in the XML file of a picture, with line numbers. Tags are read by name, wherever they stand."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

EDGES = ("xmin", "ymin", "xmax", "ymax")


class NotXml(ValueError):
    """It cannot be read; ``line`` says where."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(slots=True)
class VocObject:
    """An object as written: ``box`` maps xmin, ymin, xmax, ymax to their text, those that are there."""

    line: int
    name: str = ""
    difficult: bool = False
    box: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Annotation:
    """``size`` is (height, width) as written, 0 where it is missing."""

    size: tuple[int, int] = (0, 0)
    objects: list[VocObject] = field(default_factory=list)


def parse(data: bytes) -> Annotation:
    """Read the bytes of a file. Parts of an object (a head, hands) have boxes of their own, which are not the object's.

    Raises:
        NotXml: it is not XML, not a VOC annotation, or declares entities, which no annotation needs.
    """
    found = Annotation()
    path: list[str] = []
    words: list[str] = []
    parser = expat.ParserCreate()

    def start(tag: str, _attributes: dict[str, str]) -> None:
        path.append(tag)
        words.clear()
        if path[0] != "annotation":
            raise NotXml(f"not a VOC annotation: its outer tag is {tag!r}", parser.CurrentLineNumber)
        if path[1:] == ["object"]:
            found.objects.append(VocObject(parser.CurrentLineNumber))

    def end(tag: str) -> None:
        _take(found, path[1:], "".join(words).strip())
        path.pop()
        words.clear()

    def entity(*_: object) -> None:
        raise NotXml("declares an entity; a label file needs none", parser.CurrentLineNumber)

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = words.append
    parser.EntityDeclHandler = entity
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise NotXml(f"not valid XML: {expat.ErrorString(error.code)}", error.lineno) from error
    return found


def _take(found: Annotation, path: list[str], text: str) -> None:
    match path:
        case ["size", "height"]:
            found.size = (_whole(text), found.size[1])
        case ["size", "width"]:
            found.size = (found.size[0], _whole(text))
        case ["object", "name"]:
            found.objects[-1].name = text
        case ["object", "difficult"]:
            found.objects[-1].difficult = text == "1"
        case ["object", "bndbox", edge] if edge in EDGES:
            found.objects[-1].box[edge] = text


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() else 0
