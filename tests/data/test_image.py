"""One way to read a picture, and its size without reading it."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from data import kinds

from visiontrain.config.image_size import image_size
from visiontrain.data import image
from visiontrain.errors import DataError, VisionTrainError


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


@pytest.mark.parametrize("ending", [".jpg", ".png", ".bmp", ".webp"])
def test_probe_does_not_decode_what_the_header_tells(tmp_path, ending, monkeypatch):
    path = save(tmp_path / f"a{ending}", picture())
    monkeypatch.setattr(cv2, "imdecode", None)
    assert image.probe(path)[:2] == (24, 37)


@pytest.mark.parametrize("content", [b"", b"text", b"\xff\xd8\xff\xd9", b"\xff\xd8\xff\xe1\x00\x00\xff\xd9"])
def test_what_is_no_picture_is_named(tmp_path, content):
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    for look in (image.read, image.probe):
        with pytest.raises(image.BadPicture, match=r"a\.jpg: not a picture"):
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


def test_the_size_of_a_letterbox_is_known_before_it_is_made():
    rng = np.random.default_rng(0)
    height, width = rng.integers(1, 300, (2, 200))
    for size in (image_size(64), image_size((96, 160))):
        made = [
            image.letterbox(np.zeros((h, w, 3), np.uint8), size)[0].shape for h, w in zip(height, width, strict=True)
        ]
        assert np.array_equal(np.stack(image.letterbox_outer(height, width, size), 1), np.array(made)[:, :2])


@pytest.mark.parametrize(("height", "width"), [(50, 100), (100, 50), (64, 128)])
def test_a_canvas_of_fixed_size_is_filled_one_way(height, width):
    boxed, scale, pad = image.letterbox(np.full((height, width, 3), 255, np.uint8), 999, canvas=(64, 128))
    rows, columns = (np.flatnonzero((boxed == 255).all(axis=2).any(axis=axis)) for axis in (1, 0))
    assert boxed.shape == (64, 128, 3) and (rows.size == 64 or columns.size == 128)
    assert (columns.size, rows.size) == pytest.approx((width * scale[0], height * scale[1]))
    assert (
        (columns[0], rows[0]) == pad
        and abs(2 * pad[0] + columns.size - 128) <= 1
        and abs(2 * pad[1] + rows.size - 64) <= 1
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


def refused(path, content):
    """Why neither ``read`` nor ``probe`` takes these bytes; both must say the same."""
    path.write_bytes(content)
    said = []
    for look in (image.read, image.probe):
        with pytest.raises(image.BadPicture) as caught:
            look(path)
        said.append((caught.value.kind, str(caught.value).removeprefix(f"{path}: ")))
    assert said[0] == said[1]
    return said[0]


HUGE = 20_000  # pixels on a side: 1.2 GB of RGB in a file of a few bytes
BOMBS = {
    ".png": lambda: kinds.png(np.zeros((1, 1, 3), np.uint8), 2),
    ".jpg": lambda: kinds.jpeg(np.zeros((8, 8, 3), np.uint8)),
    ".bmp": lambda: kinds.bmp(np.zeros((1, 1, 3), np.uint8), 24),
    ".tif": lambda: kinds.tiff(np.zeros((1, 1, 3), np.uint8), 2),
}
SIDES = {  # where a side stands: struct format, offsets of width and height
    ".png": (">I", 16, 20), ".jpg": (">H", None, None), ".bmp": ("<i", 18, 22), ".tif": ("<H", 18, 30),
}  # fmt: skip


@pytest.mark.parametrize("ending", BOMBS)
def test_a_picture_that_would_fill_the_memory_is_refused_before_it_is_decoded(tmp_path, ending, monkeypatch):
    """IMG-09."""
    content = bytearray(BOMBS[ending]())
    form, width, height = SIDES[ending]
    if width is None:
        height = content.index(b"\xff\xc0") + 5
        width = height + 2
    for place in (width, height):
        struct.pack_into(form, content, place, HUGE)
    monkeypatch.setattr(cv2, "imdecode", None)
    kind, said = refused(tmp_path / f"a{ending}", bytes(content))
    assert kind == "picture_too_large"
    assert said == "20000 x 20000 pixels, more than the 256 million that are decoded at once; cut it into tiles"


def test_a_large_picture_within_the_bound_is_read(tmp_path, monkeypatch):
    """The bound is on pixels, not on sides; here it is made small."""
    monkeypatch.setattr(image, "MOST_PIXELS", 3000)
    assert image.read(save(tmp_path / "a.png", picture(1, 3000))).shape == (1, 3000, 3)
    kind, _ = refused(tmp_path / "b.png", save(tmp_path / "c.png", picture(50, 61)).read_bytes())
    assert kind == "picture_too_large"


def test_an_exception_of_opencv_is_a_verdict_on_the_picture(tmp_path, monkeypatch):
    """OpenCV has a limit of its own, which its environment can make smaller than ours."""

    def raising(data, flags):
        error = cv2.error("too many pixels")
        error.code, error.err = code, "pixels <= CV_IO_MAX_IMAGE_PIXELS"
        raise error

    path = save(tmp_path / "a.jpg", picture())
    monkeypatch.setattr(cv2, "imdecode", raising)
    code = cv2.Error.StsAssert
    with pytest.raises(image.BadPicture, match=r"a\.jpg: OpenCV cannot decode this picture: pixels <= CV_IO"):
        image.read(path)
    code = cv2.Error.StsNoMem
    with pytest.raises(VisionTrainError, match=r"a\.jpg: no memory is left to decode it; lower workers") as caught:
        image.read(path)
    assert not isinstance(caught.value, DataError)  # nothing is wrong with the picture


@pytest.mark.parametrize(
    ("bits", "kind", "what"),
    [
        (32, 3, "32-bit floating-point"),
        (64, 3, "64-bit floating-point"),
        (32, 1, "32-bit unsigned"),
        (16, 2, "16-bit signed"),
    ],
)
def test_samples_without_black_and_white_are_named(tmp_path, bits, kind, what):
    """IMG-04."""
    samples = np.ones((64, 64), f"{'?uif'[kind]}{bits // 8}")
    _, said = refused(tmp_path / "a.tif", kinds.tiff(samples, 1, bits, kind=kind))
    assert said.startswith(f"a TIFF of {what} samples") and "scale it to 8 or 16 bits a channel" in said


@pytest.mark.parametrize("share", [0.5, 0.9, 0.9999])
def test_a_jpeg_that_ends_early_is_refused_by_every_opencv(tmp_path, share):
    """Before 4.11 OpenCV gave its missing rows grey; IMG-05 cuts off the last two bytes."""
    whole = kinds.jpeg(picture(200, 300))
    content = whole[: min(int(len(whole) * share), len(whole) - 2)]
    assert refused(tmp_path / "a.jpg", content) == (
        "picture_truncated", f"{len(content)} bytes and no end of the picture: copy it again from its source",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["png", "bmp", "webp", "tiff"])
def test_other_files_that_end_early_are_refused(tmp_path, name):
    ending, content, _, _ = kinds.all_kinds()[name]
    kind, said = refused(tmp_path / f"a{ending}", content[: len(content) * 2 // 3])
    assert kind == "picture_unreadable" and "cannot decode as" in said


def test_other_kinds_are_named_by_their_first_bytes(tmp_path):
    _, said = refused(tmp_path / "a.jpg", b"GIF89a" + bytes(40))
    assert "its first bytes, b'GIF89a" in said and "no JPEG, PNG, BMP, WebP or TIFF" in said


def test_of_an_animation_the_first_picture_is_read(tmp_path):
    path = tmp_path / "a.webp"
    path.write_bytes(kinds.webp(kinds.picture(), animated=True))
    if tuple(map(int, cv2.__version__.split(".")[:2])) < (4, 11):
        assert "cannot decode as WebP" in refused(path, path.read_bytes())[1]
    else:
        assert np.array_equal(image.read(path), kinds.picture()) and image.probe(path)[:2] == (kinds.H, kinds.W)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("value", [0, 9, 65535])
def test_an_orientation_that_there_is_not_turns_nothing(tmp_path, value, order):
    path = tmp_path / "a.jpg"
    path.write_bytes(kinds.jpeg(picture(), kinds.exif(value, order)))
    assert image.read(path).shape == (24, 37, 3) and image.probe(path)[:2] == (24, 37)


@pytest.mark.parametrize(
    "block", [b"II", b"II*\0\xff\xff\xff\xff", b"XX*\0\x08\0\0\0", b"II+\0\x08\0\0\0" + b"\xff" * 8]
)
def test_exif_that_leads_nowhere_turns_nothing(tmp_path, block):
    path = tmp_path / "a.jpg"
    path.write_bytes(kinds.jpeg(picture(), block))
    assert image.read(path).shape == (24, 37, 3) and image.probe(path)[:2] == (24, 37)


def test_exif_is_found_behind_much_else(tmp_path):
    """Behind 64 KB of other headers in a JPEG, and of pixels in a PNG: more than is read to know a size."""
    data = kinds.jpeg(picture(), kinds.exif(6))
    filler = b"\xff\xe2" + struct.pack(">H", 60_002) + bytes(60_000)
    (tmp_path / "a.jpg").write_bytes(data[:2] + 2 * filler + data[2:])
    noise = np.random.default_rng(0).integers(0, 255, (200, 300, 3), np.uint8)
    (tmp_path / "b.png").write_bytes(kinds.png(noise, 2, after=kinds.chunk(b"eXIf", kinds.exif(6))))
    (tmp_path / "c.webp").write_bytes(kinds.webp(noise, kinds.exif(6)))
    assert all(path.stat().st_size > 100_000 for path in tmp_path.iterdir())
    for path in tmp_path.iterdir():
        height, width = image.read(path).shape[:2]
        assert height > width and image.probe(path)[:2] == (height, width)


@pytest.mark.parametrize("reduce", [2, 4, 8])
@pytest.mark.parametrize("name", ["png called jpg", "tiff", "webp, orientation 6"])
def test_what_no_decoder_makes_smaller_is_made_of_means_too(tmp_path, name, reduce):
    _, content, _, _ = kinds.all_kinds()[name]
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    whole = image.read(path)
    means = whole.reshape(whole.shape[0] // reduce, reduce, whole.shape[1] // reduce, reduce, 3).mean((1, 3))
    assert np.abs(image.read(path, reduce) - means).max() <= 0.51


def test_a_picture_of_another_size_than_its_labels_were_read_for_is_refused(tmp_path):
    path = save(tmp_path / "a.jpg", picture())
    assert image.read(path, 2, (24, 37)).shape == (12, 19, 3)
    for reduce in (1, 2):
        with pytest.raises(image.BadPicture, match=r"pixels now, and 37 x 26 when its labels were read"):
            image.read(path, reduce, (26, 37))


def test_reading_changes_nothing_on_the_disk(tmp_path):
    """IMG-05: a file is never repaired."""
    whole = kinds.jpeg(picture())
    for name, content in (("cut", whole[:-2]), ("more", whole + bytes(10)), ("good", whole)):
        path = tmp_path / f"{name}.jpg"
        path.write_bytes(content)
        before = path.stat().st_mtime_ns, content
        for look in (image.read, image.probe):
            try:
                look(path)
            except image.BadPicture:
                assert name == "cut"
        assert (path.stat().st_mtime_ns, path.read_bytes()) == before
    assert len(list(tmp_path.iterdir())) == 3


PEAK = """
import sys
from pathlib import Path
from visiontrain.data import image

def memory(line):
    return int(Path("/proc/self/status").read_text().split(line)[1].split()[0]) * 1024

for path in sys.argv[1:]:
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS:")
    pixels = image.read(path).nbytes / 3
    print(Path(path).name, round((memory("VmHWM:") - before - Path(path).stat().st_size) / pixels, 2))
"""


def test_the_memory_that_a_picture_needs_while_it_is_decoded(tmp_path, checkout):
    """At most 7 bytes for each pixel: the decoded one, and another with its colours in our order."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("needs /proc/self/clear_refs")
    side = 3000
    plain = np.zeros((side, side, 3), np.uint8)
    deep = np.zeros((side, side, 3), np.uint16)
    files = {
        "turned.jpg": kinds.jpeg(plain, kinds.exif(6)),
        "a.png": kinds.encoded(".png", plain),
        "16.png": kinds.encoded(".png", deep),
        "16.tif": kinds.encoded(".tif", deep),
        "a.webp": kinds.encoded(".webp", plain),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    command = [sys.executable, "-c", PEAK, *(str(tmp_path / name) for name in files)]
    said = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(checkout)}
    )
    print(said.stdout)
    assert (
        all(3 < float(line.split()[1]) < 7 for line in said.stdout.splitlines()) and len(said.stdout.splitlines()) == 5
    )
