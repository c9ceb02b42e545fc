"""The size of a picture from its first bytes, as it will be after its EXIF orientation; None where only decoding can tell."""

from __future__ import annotations

import struct

_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the others in the range are tables
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})
_ORIENTATION = 0x0112
_ON_ITS_SIDE = frozenset({5, 6, 7, 8})  # orientations that swap height and width


def size_of_jpeg(head: bytes) -> tuple[int, int] | None:
    """(height, width) as displayed, from the first bytes of a JPEG.

    Source:
        ITU-T T.81, annex B (markers and the frame header); EXIF 2.3, 4.6 (orientation).
    """
    if head[:2] != b"\xff\xd8":
        return None
    place, turned = 2, False
    while place + 9 <= len(head) and head[place] == 0xFF:
        marker = head[place + 1]
        if marker == 0xFF or marker in _WITHOUT_LENGTH:  # fill bytes and markers that stand alone
            place += 1 if marker == 0xFF else 2
            continue
        length = struct.unpack(">H", head[place + 2 : place + 4])[0]
        if marker in _START_OF_FRAME:
            height, width = struct.unpack(">HH", head[place + 5 : place + 9])
            if not height or not width:  # the height may follow the scan
                return None
            return (width, height) if turned else (height, width)
        if marker == 0xE1 and head[place + 4 : place + 10] == b"Exif\0\0":
            orientation = _orientation(head[place + 10 : place + 2 + length])
            if orientation is None:
                return None
            turned = orientation in _ON_ITS_SIDE
        place += 2 + length
    return None


def ends_early(data: bytes) -> bool:
    """Whether these are the bytes of a JPEG whose pixels stop before its end marker; bytes after the marker do no harm.

    The marker cannot occur among the pixels, but does in a thumbnail, so the search starts behind the headers.
    """
    place = 2
    while data[:2] == b"\xff\xd8" and place + 4 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == 0xDA:  # the pixels begin
            return data.find(b"\xff\xd9", place) < 0
        if marker == 0xFF or marker in _WITHOUT_LENGTH:
            place += 1 if marker == 0xFF else 2
        else:
            place += 2 + struct.unpack(">H", data[place + 2 : place + 4])[0]
    return False


def size_of_png(head: bytes) -> tuple[int, int] | None:
    """(height, width) from the first bytes of a PNG without an EXIF chunk (it may turn the picture)."""
    if head[:8] != b"\x89PNG\r\n\x1a\n" or head[12:16] != b"IHDR" or b"eXIf" in head:
        return None
    width, height = struct.unpack(">II", head[16:24])
    return height, width


def _orientation(block: bytes) -> int | None:
    """The orientation in an EXIF block, 1 where it names none, None where the block cannot be followed."""
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None or len(block) < 8:
        return None
    (start,) = struct.unpack(order + "I", block[4:8])
    if start + 2 > len(block):
        return None
    (count,) = struct.unpack(order + "H", block[start : start + 2])
    for entry in range(start + 2, start + 2 + 12 * count, 12):
        if entry + 12 > len(block):
            return None
        tag, kind = struct.unpack(order + "HH", block[entry : entry + 4])
        if tag == _ORIENTATION:
            return struct.unpack(order + "H", block[entry + 8 : entry + 10])[0] if kind == 3 else None
    return 1
