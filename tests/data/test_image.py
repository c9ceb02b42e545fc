"""One way to read a picture, and its size without reading it."""

from __future__ import annotations

import struct

import cv2
import numpy as np
import pytest

from visiontrain.data import image
from visiontrain.errors import DataError


def picture(height=24, width=37):
    result = np.zeros((height, width, 3), np.uint8)
    result[:, :, 0], result[: height // 2, :, 1] = 200, 150
    return result


def save(path, pixels, *options):
    cv2.imencode(path.suffix, pixels[..., ::-1] if pixels.ndim == 3 else pixels, list(options))[1].tofile(path)
    return path


def with_exif(path, orientation, order):
    """Put an EXIF block with an orientation into a JPEG, in either byte order."""
    entry = struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    block = b"Exif\0\0" + head + struct.pack(order + "H", 1) + entry + struct.pack(order + "I", 0)
    data = path.read_bytes()
    path.write_bytes(data[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + data[2:])


@pytest.mark.parametrize("ending", [".jpg", ".png", ".bmp", ".tif", ".webp"])
def test_colours_are_rgb_whatever_the_file(tmp_path, ending):
    read = image.read(save(tmp_path / f"a{ending}", picture()))
    assert read.shape == (24, 37, 3) and read.dtype == np.uint8
    assert np.abs(read[4, 10].astype(int) - (200, 150, 0)).max() < 12


@pytest.mark.parametrize("ending", [".jpg", ".png", ".tif"])
def test_grey_becomes_three_channels(tmp_path, ending):
    read = image.read(save(tmp_path / f"a{ending}", picture()[..., 0]))
    assert read.shape == (24, 37, 3) and (read == read[..., :1]).all()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("order", ["<", ">"])
def test_the_probed_size_is_that_of_the_turned_picture(tmp_path, orientation, order):
    path = save(tmp_path / "a.jpg", picture())
    with_exif(path, orientation, order)
    shape = image.read(path).shape[:2]
    assert shape == ((37, 24) if orientation >= 5 else (24, 37))
    assert image.probe(path)[:2] == shape


@pytest.mark.parametrize(
    ("ending", "options"),
    [
        (".jpg", ()),
        (".jpg", (cv2.IMWRITE_JPEG_PROGRESSIVE, 1)),
        (".png", ()),
        (".bmp", ()),
        (".webp", ()),
        (".tif", ()),
    ],
)
def test_probe_agrees_with_read(tmp_path, ending, options):
    path = save(tmp_path / f"a{ending}", picture(33, 18), *options)
    assert image.probe(path) == (33, 18, path.stat().st_size)


@pytest.mark.parametrize("ending", [".jpg", ".png"])
def test_probe_does_not_decode_what_the_header_tells(tmp_path, ending, monkeypatch):
    path = save(tmp_path / f"a{ending}", picture())
    monkeypatch.setattr(cv2, "imdecode", None)
    assert image.probe(path)[:2] == (24, 37)


@pytest.mark.parametrize("content", [b"", b"text", b"\xff\xd8\xff\xd9", b"\xff\xd8\xff\xe1\x00\x00\xff\xd9"])
def test_what_is_no_picture_is_named(tmp_path, content):
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    for look in (image.read, image.probe):
        with pytest.raises(DataError, match=r"a\.jpg: not a picture"):
            look(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"gone\.jpg: cannot be opened: No such file"):
        image.read(tmp_path / "gone.jpg")


def test_a_reduced_picture_is_made_of_means(tmp_path):
    smooth = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 255, (65, 97, 3), np.uint8), (0, 0), 5)
    path = save(tmp_path / "a.jpg", smooth, cv2.IMWRITE_JPEG_QUALITY, 98)
    half = image.read(path, reduce=2)
    assert half.shape == (33, 49, 3)
    means = image.read(path)[:64, :96].reshape(32, 2, 48, 2, 3).mean((1, 3))
    assert np.abs(half[:32, :48] - means).mean() < 1.5


@pytest.mark.parametrize(("height", "width", "size"), [(480, 640, 320), (97, 61, 128), (32, 32, 32), (5, 400, 64)])
def test_letterbox_says_where_the_picture_went(height, width, size):
    white = np.full((height, width, 3), 255, np.uint8)
    boxed, scale, pad = image.letterbox(white, size)
    rows, columns = (np.flatnonzero((boxed == 255).all(axis=2).any(axis=axis)) for axis in (1, 0))
    assert (columns[0], rows[0]) == pad
    assert (columns[-1] + 1, rows[-1] + 1) == pytest.approx((width * scale[0] + pad[0], height * scale[1] + pad[1]))
    assert max(columns.size, rows.size) == size and boxed[boxed.min(axis=2) < 255].tolist().count([114] * 3) == (
        boxed.shape[0] * boxed.shape[1] - rows.size * columns.size
    )


def test_endings_count_in_any_case():
    assert all(map(image.is_picture, ("A.JPG", "b.JpEg", "c d.png", "x.TIF")))
    assert not any(map(image.is_picture, ("a.txt", "jpg", "._a.jpg", "a.jpg.bak")))


@pytest.mark.parametrize(("height", "width"), [(480, 640), (640, 480), (320, 320), (37, 500)])
def test_grey_of_half_a_stride_or_more_lies_on_every_side(height, width):
    picture = np.full((height, width, 3), 255, np.uint8)
    boxed, _, pad = image.letterbox(picture, 320, stride=32)
    assert boxed.shape[0] % 32 == boxed.shape[1] % 32 == 0
    inside = (
        np.flatnonzero(boxed[:, boxed.shape[1] // 2, 0] == 255),
        np.flatnonzero(boxed[boxed.shape[0] // 2, :, 0] == 255),
    )
    for seen, outer in zip(inside, boxed.shape[:2], strict=True):
        assert seen[0] >= 16 and outer - 1 - seen[-1] >= 16
        assert outer - len(seen) < 64
    assert (inside[1][0], inside[0][0]) == pad
