"""What the first bytes of a picture say before it is decoded: its kind, its size, and the turn that EXIF asks for."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

REACH = 1 << 16  # bytes at either end of a file in which headers are looked for
_MAGIC = {b"\x89PNG\r\n\x1a\n": "PNG", b"BM": "BMP", b"II*\0": "TIFF", b"MM\0*": "TIFF"}
_MAGIC |= {b"II+\0": "TIFF", b"MM\0+": "TIFF"}  # BigTIFF
_STARTS_OF_FRAME = frozenset({0xC0, 0xC1, 0xC2})  # Huffman-coded, sequential or progressive
_OTHER_FRAMES = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the three in the range are tables
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})
_ORIENTATION = 0x0112
_ON_ITS_SIDE = frozenset({5, 6, 7, 8})  # orientations that swap height and width
_SAMPLES = {1: "unsigned", 2: "signed", 3: "floating-point", 4: "unsigned"}
_MOST_ENTRIES = 4096  # of a directory
_FIELDS = {3: "H", 4: "I", 16: "Q"}  # its whole numbers


@dataclass(frozen=True, slots=True)
class Header:
    """``height`` and ``width`` as stored, 0 where only decoding tells; ``orientation`` that is still to be applied, 1 to 8.

    ``length``: bytes that the file must have, 0 where its end tells. ``samples``: what they are, where they cannot be used.
    """

    kind: str
    height: int = 0
    width: int = 0
    orientation: int = 1
    length: int = 0
    samples: str = ""

    @property
    def displayed(self) -> tuple[int, int]:
        """(height, width) after the turn."""
        return (self.width, self.height) if self.orientation in _ON_ITS_SIDE else (self.height, self.width)


def kind_of(data: bytes | memoryview) -> str:
    """JPEG, PNG, BMP, WebP or TIFF, by the first bytes; "" for anything else."""
    if data[:2] == b"\xff\xd8":
        return "JPEG"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP"
    return next((kind for magic, kind in _MAGIC.items() if data[: len(magic)] == magic), "")


def header_of(data: bytes | memoryview, tail: bytes | memoryview) -> Header | None:
    """The header of a picture.

    Args:
        data: the file, or its first bytes.
        tail: its last REACH bytes; a PNG may have its EXIF there.

    Returns:
        None where these bytes do not tell; with a whole file that means a picture without EXIF, of a size to be decoded.
    """
    read = _READERS.get(kind_of(data))
    try:
        return read(data, tail) if read else None
    except (struct.error, IndexError, OverflowError):  # it goes on behind these bytes
        return None


def is_whole(header: Header, tail: bytes | memoryview, length: int) -> bool:
    """Whether a file of ``length`` bytes ends as one of its kind should; where not, decoding decides."""
    if header.kind == "JPEG":
        return tail[-2:] == b"\xff\xd9"
    if header.kind == "PNG":
        return tail[-8:-4] == b"IEND"
    return 0 < header.length <= length


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


def _jpeg(data: bytes | memoryview, tail: bytes | memoryview) -> Header | None:
    """Source: ITU-T T.81, annex B (markers and the frame header); EXIF 2.3, 4.6 (orientation)."""
    place, orientation = 2, 0
    while data[place] == 0xFF:
        marker = data[place + 1]
        if marker == 0xFF or marker in _WITHOUT_LENGTH:  # fill bytes and markers that stand alone
            place += 1 if marker == 0xFF else 2
            continue
        (length,) = struct.unpack_from(">H", data, place + 2)
        if marker in _STARTS_OF_FRAME:
            bits, height, width = struct.unpack_from(">BHH", data, place + 4)
            # The height may follow the scan, and 12 bits are not decoded everywhere.
            return Header("JPEG", height, width, orientation or 1) if bits == 8 and height and width else None
        if marker in _OTHER_FRAMES:
            return None
        if marker == 0xE1 and data[place + 4 : place + 10] == b"Exif\0\0":
            orientation = orientation or _orientation(_part(data, place + 10, length - 8))
        place += 2 + length
    return None


def _png(data: bytes | memoryview, tail: bytes | memoryview) -> Header | None:
    """Source: PNG, third edition, 11.2.2 (IHDR) and 11.3.4.5 (eXIf: before the pixels or behind them)."""
    if data[12:16] != b"IHDR":
        return None
    width, height = struct.unpack_from(">II", data, 16)
    place, name = 8, b""
    while name != b"IDAT":
        (length,) = struct.unpack_from(">I", data, place)
        name = bytes(_part(data, place + 4, 4))
        if name == b"eXIf":
            return Header("PNG", height, width, _orientation(_part(data, place + 8, length)))
        place += 12 + length
    return Header("PNG", height, width, _at_the_end(bytes(tail)))


def _at_the_end(tail: bytes) -> int:
    """The orientation in an eXIf chunk behind the pixels; its checksum tells it from the same letters in a text."""
    for found in re.finditer(b"eXIf", tail):
        place = found.start()
        end = place + 4 + int.from_bytes(tail[max(place - 4, 0) : place])
        if end + 4 <= len(tail) and int.from_bytes(tail[end : end + 4]) == zlib.crc32(tail[place:end]):
            return _orientation(tail[place + 4 : end])
    return 1


def _bmp(data: bytes | memoryview, tail: bytes | memoryview) -> Header | None:
    """Source: BITMAPINFOHEADER; a negative height means rows from top to bottom."""
    pixels, size = struct.unpack_from("<II", data, 10)
    if size < 40:  # OS/2
        width, height = struct.unpack_from("<HH", data, 18)
        return Header("BMP", height, width)
    width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
    plain = compression == 0 and bits in (8, 24, 32) and width > 0
    length = pixels + (width * bits + 31) // 32 * 4 * abs(height) if plain else 0
    return Header("BMP", abs(height), abs(width), length=length)


def _webp(data: bytes | memoryview, tail: bytes | memoryview) -> Header | None:
    """Source: RFC 9649, 2 (chunks and the extended header); RFC 6386, 9.1 (lossy frame header); RFC 9649, 3.4 (lossless)."""
    (riff,) = struct.unpack_from("<I", data, 4)
    name, orientation, length = bytes(data[12:16]), 1, riff + 8
    if name == b"VP8X":
        width, height = (1 + int.from_bytes(_part(data, place, 3), "little") for place in (24, 27))
        orientation = _in_chunks(data, length) if data[20] & 8 else 1
        length = 0 if data[20] & 2 else length  # animated: OpenCV reads it from 4.11 on
    elif name == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    else:
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    return Header("WebP", height, width, orientation, length)


def _in_chunks(data: bytes | memoryview, end: int) -> int:
    place = 12
    while place + 8 <= end:
        (length,) = struct.unpack_from("<I", data, place + 4)
        if data[place : place + 4] == b"EXIF":
            return _orientation(_part(data, place + 8, length))
        place += 8 + length + length % 2
    return 1


def _tiff(data: bytes | memoryview, tail: bytes | memoryview) -> Header | None:
    """The turn is left to the decoder: libtiff's every version applies it.

    Source:
        TIFF 6.0, 2 (the directory) and 19 (sample format).
    """
    tags = _Directory(data).read({256: 0, 257: 0, 258: 1, 339: 1})
    bits, what = tags[258], _SAMPLES.get(tags[339], "unknown")
    usable = what == "unsigned" and bits <= 16
    return Header("TIFF", tags[257], tags[256], samples="" if usable else f"{bits}-bit {what}")


def _orientation(block: bytes | memoryview) -> int:
    """The orientation in an EXIF block; 1 where it names none, or cannot be followed."""
    block = block[6:] if block[:6] == b"Exif\0\0" else block
    try:
        value = _Directory(block).read({_ORIENTATION: 1})[_ORIENTATION]
    except (struct.error, OverflowError):
        return 1
    return value if 1 <= value <= 8 else 1


class _Directory:
    """The first directory of a TIFF, or of the EXIF block of another picture, which is a small TIFF."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = data
        self.order = ">" if data[:1] == b"M" else "<"
        (version,) = struct.unpack_from(self.order + "H", data, 2)
        self.big = version == 43

    def read(self, wanted: dict[int, int]) -> dict[int, int]:
        """The first value of each wanted tag; where it is not there, the one given.

        Raises:
            struct.error: the directory goes on behind the data.
        """
        found = dict(wanted)
        start = self._number("Q" if self.big else "I", 8 if self.big else 4)
        count = self._number("Q" if self.big else "H", start)
        first, length = (start + 8, 20) if self.big else (start + 2, 12)
        for entry in range(first, first + length * min(count, _MOST_ENTRIES), length):
            tag, kind = struct.unpack_from(self.order + "HH", self.data, entry)
            if tag in wanted and kind in _FIELDS:
                found[tag] = self._value(entry, _FIELDS[kind])
        return found

    def _value(self, entry: int, size: str) -> int:
        count = self._number("Q" if self.big else "I", entry + 4)
        place, room = (entry + 12, 8) if self.big else (entry + 8, 4)
        if count * struct.calcsize(size) > room:
            place = self._number("Q" if self.big else "I", place)
        return self._number(size, place)

    def _number(self, size: str, place: int) -> int:
        value: int = struct.unpack_from(self.order + size, self.data, place)[0]
        return value


def _part(data: bytes | memoryview, start: int, length: int) -> bytes | memoryview:
    """Bytes of a known length; where they are not all here, an IndexError."""
    if length < 0 or start + length > len(data):
        raise IndexError
    return data[start : start + length]


_READERS: dict[str, Callable[[bytes | memoryview, bytes | memoryview], Header | None]] = {
    "JPEG": _jpeg,
    "PNG": _png,
    "BMP": _bmp,
    "WebP": _webp,
    "TIFF": _tiff,
}
