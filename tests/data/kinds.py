"""Pictures of every kind that people have, made byte by byte: no encoder is asked what its decoder should answer."""

from __future__ import annotations

import struct
import zlib

import cv2
import numpy as np

H, W = 48, 64
# What a viewer shows of a picture stored as ``a`` with each orientation (EXIF 2.3, 4.6), in NumPy alone.
TURNS = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(a.swapaxes(0, 1), 2),
    8: lambda a: np.rot90(a, 1),
}


def picture(height: int = H, width: int = W) -> np.ndarray:
    """(H, W, 3) uint8 RGB, smooth, and different in every turn and with every order of colours."""
    rows, columns = np.mgrid[0:height, 0:width]
    red = 40 + 200 * columns / width
    green = 30 + 180 * rows / height
    blue = np.where((rows < height / 3) & (columns < width / 4), 230.0, 20.0)
    return cv2.GaussianBlur(np.dstack((red, green, blue)).astype(np.uint8), (0, 0), 1.5)


def encoded(ending: str, rgb: np.ndarray, *options: int) -> bytes:
    """By OpenCV; grey where it has no third axis."""
    pixels = rgb[..., (2, 1, 0, *range(3, rgb.shape[2]))] if rgb.ndim == 3 else rgb
    return cv2.imencode(ending, pixels, list(options))[1].tobytes()


def exif(orientation: int, order: str = "<", kind: int = 3) -> bytes:
    """An EXIF block with nothing but an orientation, as a SHORT or a LONG."""
    value = struct.pack(order + "HH", orientation, 0) if kind == 3 else struct.pack(order + "I", orientation)
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    return head + struct.pack(order + "HHHI", 1, 0x0112, kind, 1) + value + struct.pack(order + "I", 0)


def jpeg(rgb: np.ndarray, block: bytes = b"", *options: int) -> bytes:
    data = encoded(".jpg", rgb, cv2.IMWRITE_JPEG_QUALITY, 95, *options)
    if not block:
        return data
    block = b"Exif\0\0" + block
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + data[2:]


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(samples: np.ndarray, colour: int, bits: int = 8, before: bytes = b"", after: bytes = b"") -> bytes:
    """``samples`` (H, W) or (H, W, C) as they are stored; ``colour`` 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA."""
    rows = np.packbits(samples, axis=1) if bits == 1 else samples.astype(">u2" if bits == 16 else "u1")
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", samples.shape[1], samples.shape[0], bits, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + before + chunk(b"IDAT", zlib.compress(lines)) + after + chunk(b"IEND", b"")


def tiff(
    samples: np.ndarray, photometric: int = 1, bits: int = 8, orientation: int = 1, kind: int = 1,
    colours: np.ndarray | None = None, extra: int = 0, pages: int = 1, big: bool = False,
) -> bytes:  # fmt: skip
    """Uncompressed, little-endian; ``photometric`` 1 grey, 2 RGB, 3 palette, 5 CMYK; ``kind`` of sample 1 unsigned, 2, 3 float."""
    size, count = ("Q", "Q") if big else ("I", "H")
    data = b"II" + (struct.pack("<HHHQ", 43, 8, 0, 16) if big else struct.pack("<HI", 42, 8))
    channels = samples.shape[2] if samples.ndim == 3 else 1
    pixels = np.packbits(samples, axis=1).tobytes() if bits == 1 else samples.tobytes()
    for page in range(pages):
        tags = {256: samples.shape[1], 257: samples.shape[0], 258: [bits] * channels, 259: 1, 262: photometric}
        tags |= {273: 0, 274: orientation, 277: channels, 278: samples.shape[0], 279: len(pixels)}
        tags |= {339: [kind] * channels} | ({320: colours.T.ravel().tolist()} if colours is not None else {})
        tags |= {338: extra} if extra else {}
        start, entry = len(data), 20 if big else 12
        place = start + struct.calcsize(count) + entry * len(tags) + struct.calcsize(size)
        entries, behind = b"", b""
        for tag, value in sorted(tags.items()):
            values = value if isinstance(value, list) else [value]
            type_ = 4 if tag in (273, 279) else 3
            packed = struct.pack(f"<{len(values)}{'I' if type_ == 4 else 'H'}", *values)
            if len(packed) > struct.calcsize(size):
                behind += packed
                packed = struct.pack("<" + size, place + len(behind) - len(packed))
            if tag == 273:
                at = len(entries) + struct.calcsize("<HH" + size)
            entries += struct.pack("<HH" + size, tag, type_, len(values)) + packed.ljust(struct.calcsize(size), b"\0")
        first = place + len(behind)
        entries = entries[:at] + struct.pack("<I", first) + entries[at + 4 :]
        following = first + len(pixels) if page + 1 < pages else 0
        data += struct.pack("<" + count, len(tags)) + entries + struct.pack("<" + size, following) + behind + pixels
        pixels = bytes(255 - byte for byte in pixels)  # the next page is the negative
    return data


def webp(rgb: np.ndarray, block: bytes = b"", animated: bool = False) -> bytes:
    """Lossless; with an EXIF block, or as an animation of it and its negative, in the extended format."""
    lossless = (cv2.IMWRITE_WEBP_QUALITY, 101)
    frames = [encoded(".webp", each, *lossless)[12:] for each in ([rgb, 255 - rgb] if animated else [rgb])]
    if not block and not animated:
        return _riff(frames[0])
    sides = struct.pack("<I", rgb.shape[1] - 1)[:3] + struct.pack("<I", rgb.shape[0] - 1)[:3]
    body = _chunk(b"VP8X", bytes([8 * bool(block) + 2 * animated, 0, 0, 0]) + sides)
    if animated:
        body += _chunk(b"ANIM", bytes(6))
        body += b"".join(_chunk(b"ANMF", bytes(6) + sides + b"\x64\0\0" + b"\2" + frame) for frame in frames)
    else:
        body += frames[0]
    return _riff(body + (_chunk(b"EXIF", block) if block else b""))


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def _riff(body: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def bmp(samples: np.ndarray, bits: int, colours: np.ndarray | None = None, upside: bool = False) -> bytes:
    """``samples`` (H, W) indices or (H, W, C) BGR(A), as stored; ``upside``: rows from top to bottom."""
    rows = np.packbits(samples, axis=1) if bits == 1 else samples.reshape(len(samples), -1).astype("u1")
    rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4)))
    table = b"" if colours is None else b"".join(bytes((*colour[::-1], 0)) for colour in colours.tolist())
    height, width = samples.shape[:2]
    offset = 54 + len(table)
    head = b"BM" + struct.pack("<IHHI", offset + rows.size, 0, 0, offset)
    used = 0 if colours is None else len(colours)
    head += struct.pack("<IiiHHIIiiII", 40, width, -height if upside else height, 1, bits, 0, rows.size, 0, 0, used, 0)
    return head + table + (rows if upside else rows[::-1]).tobytes()


def cmyk_jpeg(inks: np.ndarray, transform: int = 0) -> bytes:
    """(H/8, W/8, 4) inks of flat blocks, as Adobe writes them: inverted. With ``transform`` 2 they are given as YCCK.

    Baseline, one constant (DC) per block; its Huffman tables give each size four bits and "all others are 0" one bit.
    """
    rows, columns = inks.shape[:2]
    bits, last = "", [0, 0, 0, 0]
    for block in inks.reshape(-1, 4).tolist():
        for channel, ink in enumerate(block):
            value = 8 * (255 - ink - 128)
            step, last[channel] = value - last[channel], value
            size = abs(step).bit_length()
            bits += f"{size:04b}" + (f"{step if step > 0 else step + (1 << size) - 1:0{size}b}" if size else "") + "0"
    bits += "1" * (-len(bits) % 8)
    scan = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)).replace(b"\xff", b"\xff\0")
    parts = [
        (0xEE, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, transform)),
        (0xDB, b"\0" + b"\1" * 64),
        (0xC0, struct.pack(">BHHB", 8, rows * 8, columns * 8, 4) + b"".join(bytes((c, 0x11, 0)) for c in range(1, 5))),
        (0xC4, bytes([0x00, 0, 0, 0, 12, *[0] * 12, *range(12)])),
        (0xC4, bytes([0x10, 1, *[0] * 15, 0])),
        (0xDA, b"\4" + b"".join(bytes((c, 0)) for c in range(1, 5)) + b"\0\x3f\0"),
    ]
    head = b"".join(b"\xff" + bytes([mark]) + struct.pack(">H", len(body) + 2) + body for mark, body in parts)
    return b"\xff\xd8" + head + scan + b"\xff\xd9"


def all_kinds() -> dict[str, tuple[str, bytes, np.ndarray, int]]:
    """Name -> ending, bytes, the RGB that a person sees, and by how much a channel may be off."""
    rgb = picture()
    grey = rgb[..., 1]
    on = (grey > 110).astype(np.uint8)
    colours = np.array([(250, 10, 20), (20, 240, 30), (5, 15, 230), (90, 90, 10)], np.uint8)
    indices = (rgb[..., 0] // 64).clip(0, 3)
    deep = np.linspace(0, 65535, H * W).reshape(H, W).astype(np.uint16)
    deep_rgb = np.dstack((deep, deep[::-1], deep[:, ::-1]))
    alpha = np.tile(np.linspace(0, 255, W).astype(np.uint8), (H, 1))
    rgba = np.dstack((rgb, alpha))
    threefold = lambda a: np.repeat(a[..., None], 3, axis=2)
    inks = np.array([[(255, 0, 0, 0), (0, 255, 0, 0), (0, 0, 255, 0), (0, 0, 0, 255)]] * 6, np.uint8)[
        :, [0, 1, 2, 3] * 2
    ]
    seen = np.array([(0, 255, 255), (255, 0, 255), (255, 255, 0), (0, 0, 0)], np.uint8)[[0, 1, 2, 3] * 2]
    blocks = np.repeat(np.tile(np.repeat(seen, 8, axis=0), (6, 1, 1)), 8, axis=0)
    table = chunk(b"PLTE", colours.tobytes())
    palette16 = np.zeros((256, 3), np.uint16)
    palette16[:4] = colours.astype(np.uint16) * 257
    cmyk = np.dstack((255 - rgb, np.zeros_like(grey)))
    found = {
        "jpeg": (".jpg", jpeg(rgb), rgb, 16),
        "jpeg, progressive": (".jpg", jpeg(rgb, b"", cv2.IMWRITE_JPEG_PROGRESSIVE, 1), rgb, 16),
        "jpeg, grey": (".jpg", jpeg(grey), threefold(grey), 8),
        "jpeg, CMYK": (".jpg", cmyk_jpeg(inks), blocks, 2),
        "jpeg, bytes after the end": (".jpg", jpeg(rgb) + bytes(10), rgb, 16),
        "jpeg called png": (".png", jpeg(rgb), rgb, 16),
        "png": (".png", png(rgb, 2), rgb, 0),
        "png called jpg": (".jpg", png(rgb, 2), rgb, 0),
        "png, grey": (".png", png(grey, 0), threefold(grey), 0),
        "png, grey and alpha": (".png", png(np.dstack((grey, alpha)), 4), threefold(grey), 0),
        "png, 16 bits": (".png", png(deep_rgb, 2, 16), deep_rgb >> 8, 0),
        "png, grey of 16 bits": (".png", png(deep, 0, 16), threefold(deep >> 8), 0),
        "png, RGBA": (".png", png(rgba, 6), rgb, 0),
        "png, palette": (".png", png(indices, 3, before=table), colours[indices], 0),
        "png, palette and transparency": (
            ".png", png(indices, 3, before=table + chunk(b"tRNS", b"\0\x80\xff")), colours[indices], 0,
        ),
        "png, a transparent colour": (".png", png(rgb, 2, before=chunk(b"tRNS", struct.pack(">HHH", *rgb[9, 9]))), rgb, 0),
        "png, 1 bit": (".png", png(on, 0, 1), threefold(on * 255), 0),
        "bmp": (".bmp", bmp(rgb[..., ::-1], 24), rgb, 0),
        "bmp, rows from the top": (".bmp", bmp(rgb[..., ::-1], 24, upside=True), rgb, 0),
        "bmp, 32 bits": (".bmp", bmp(rgba[..., (2, 1, 0, 3)], 32), rgb, 0),
        "bmp, palette": (".bmp", bmp(indices, 8, colours), colours[indices], 0),
        "bmp, 1 bit": (".bmp", bmp(on, 1, np.array([(0, 0, 0), (255, 255, 255)])), threefold(on * 255), 0),
        "webp": (".webp", webp(rgb), rgb, 0),
        "webp, lossy": (".webp", encoded(".webp", rgb, cv2.IMWRITE_WEBP_QUALITY, 95), rgb, 20),
        "tiff": (".tif", tiff(rgb, 2), rgb, 0),
        "tiff, grey": (".tif", tiff(grey), threefold(grey), 0),
        "tiff, 16 bits": (".tif", tiff(deep_rgb, 2, 16), deep_rgb >> 8, 1),
        "tiff, grey of 16 bits": (".tif", tiff(deep, 1, 16), threefold(deep >> 8), 1),
        "tiff, 1 bit": (".tif", tiff(on, 1, 1), threefold(on * 255), 0),
        "tiff, palette": (".tif", tiff(indices.astype(np.uint8), 3, colours=palette16), colours[indices], 0),
        "tiff, CMYK": (".tif", tiff(cmyk, 5), rgb, 1),
        "tiff, opaque RGBA": (".tif", tiff(np.dstack((rgb, np.full_like(grey, 255))), 2, extra=2), rgb, 0),
        "tiff, two pages": (".tif", tiff(rgb, 2, pages=2), rgb, 0),
        "tiff, 64-bit offsets": (".tif", tiff(rgb, 2, big=True), rgb, 0),
    }  # fmt: skip
    for orientation, turn in TURNS.items():
        decoded = cv2.imdecode(np.frombuffer(jpeg(rgb), np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
        block = exif(orientation, "<>"[orientation % 2], 3 + orientation % 2)
        found |= {
            f"jpeg, orientation {orientation}": (".jpg", jpeg(rgb, block), turn(decoded), 0),
            f"png, orientation {orientation}": (".png", png(rgb, 2, before=chunk(b"eXIf", block)), turn(rgb), 0),
            f"png, orientation {orientation} at the end": (
                ".png", png(rgb, 2, after=chunk(b"eXIf", block) + chunk(b"tEXt", b"Comment\0eXIf")), turn(rgb), 0,
            ),
            f"webp, orientation {orientation}": (".webp", webp(rgb, block), turn(rgb), 0),
            f"tiff, orientation {orientation}": (".tif", tiff(rgb, 2, orientation=orientation), turn(rgb), 0),
            f"tiff, 16 bits, orientation {orientation}": (
                ".tif", tiff(deep_rgb, 2, 16, orientation=orientation), turn(deep_rgb >> 8), 1,
            ),
        }  # fmt: skip
    return found
