"""What may be looked at, and that each kind gives the same pixels."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from visiontrain.errors import ConfigError
from visiontrain.prediction.sources import Frame, expand, frame_of, frames


@pytest.fixture
def folder(tmp_path) -> Path:
    """Two pictures, a video of seven frames and a file that is neither."""
    for number in range(2):
        cv2.imwrite(str(tmp_path / f"{number}.png"), picture(number))
    video = cv2.VideoWriter(str(tmp_path / "v.mp4"), cv2.VideoWriter.fourcc(*"mp4v"), 10, (64, 48))
    for number in range(7):
        video.write(np.full((48, 64, 3), 30 * number, np.uint8))
    video.release()
    (tmp_path / "notes.md").write_text("no picture")
    return tmp_path


def picture(number: int) -> np.ndarray:
    """(20, 30, 3) BGR."""
    return np.random.default_rng(number).integers(0, 255, (20, 30, 3), np.uint8)


def read(source: object, vid_stride: int = 1) -> tuple[list[Frame], list[str]]:
    bad: list[str] = []
    return list(frames(expand(source, bad.append), vid_stride, bad.append)), bad


def test_a_folder_a_pattern_a_list_and_a_text_file_give_their_files_in_order(folder):
    (folder / "list.txt").write_text(f"# two\n1.png\n\n{folder / '0.png'}\n")
    names = {
        str(folder): ["0.png", "1.png", *["v.mp4"] * 7],
        str(folder / "*.png"): ["0.png", "1.png"],
        str(folder / "list.txt"): ["1.png", "0.png"],
        folder / "0.png": ["0.png"],
    }
    for source, expected in names.items():
        found, bad = read(source)
        assert [Path(frame.path).name for frame in found] == expected and not bad
    found, bad = read([str(folder / "1.png"), picture(0), (folder / "gone.png", folder / "*.bmp")])
    assert [frame.path for frame in found] == [str(folder / "1.png"), "image0"]
    assert len(bad) == 2 and "gone.png: no such file" in bad[0] and "no picture or video has such a path" in bad[1]


def test_every_kind_of_picture_in_memory_gives_the_same_pixels(folder):
    bgr = picture(0)
    rgb = np.ascontiguousarray(bgr[..., ::-1])
    tensor = torch.from_numpy(rgb).permute(2, 0, 1)
    alpha = np.dstack((bgr, np.full(bgr.shape[:2], 7, np.uint8)))
    kinds = (folder / "0.png", bgr, alpha, Image.fromarray(rgb), tensor, tensor / 255, tensor[None].double() / 255)
    for source in kinds:
        found, _ = read(source)
        assert len(found) == 1 and np.array_equal(found[0].image, rgb)
        assert found[0].again and np.array_equal(found[0].again(), rgb)
    grey, _ = read(bgr[..., 0])
    assert np.array_equal(grey[0].image, np.repeat(bgr[..., :1], 3, 2))
    assert len(read(torch.stack((tensor, tensor)))[0]) == 2


def test_the_orientation_that_a_camera_wrote_is_applied_as_in_files(tmp_path):
    turned = Image.fromarray(picture(0))
    exif = turned.getexif()
    exif[0x0112] = 6  # stands on its side
    turned.save(tmp_path / "a.png", exif=exif)
    (in_memory,), _ = read(Image.open(tmp_path / "a.png"))
    (on_disk,), _ = read(tmp_path / "a.png")
    assert in_memory.image.shape == (30, 20, 3) and np.array_equal(in_memory.image, on_disk.image)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (picture(0).astype(float), "a NumPy array .* of float64"),
        (np.zeros((2, 3, 4, 3), np.uint8), "a NumPy array"),
        (torch.ones(3, 4, 4) * 2, "values from 2 to 2"),
        (torch.full((3, 4, 4), torch.nan), "values from nan"),
        (torch.zeros(4, 4, 3), r"a tensor \(4, 4, 3\)"),
        (torch.zeros(3, 4, 4, dtype=torch.int64), "torch.int64"),
        (Image.new("F", (4, 4)), "mode F"),
        ({"a": 1}, "dict is no picture"),
        ("rtsp://camera/1", "http, https and file addresses"),
    ],
)
def test_what_is_no_picture_is_refused(source, said):
    with pytest.raises(ConfigError, match=said):
        read(source)


def test_a_video_is_read_frame_by_frame(folder):
    found, bad = read(folder / "v.mp4", vid_stride=3)
    assert [frame.number for frame in found] == [0, 3, 6] and not bad
    assert [round(frame.image.mean() / 30) for frame in found] == [0, 3, 6]
    assert np.array_equal(found[1].again(), found[1].image) and frame_of(str(folder / "v.mp4"), 6).mean() > 170
    assert found[0].video.fps == pytest.approx(10 / 3) and found[0].video.frames == 7
    (folder / "v.mp4").write_bytes(b"no video")
    found, bad = read([folder / "v.mp4", folder / "0.png"])
    assert len(found) == 1 and "no video that OpenCV can decode" in bad[0]


def test_addresses_are_fetched_into_the_cache_and_a_dead_one_is_told(folder, user_cache):
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *_: None
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        found, bad = read([f"{base}/1.png?size=1", f"{base}/v.mp4", f"{base}/gone.png", (folder / "0.png").as_uri()])
        server.shutdown()
    assert [frame.path.rpartition("/")[2] for frame in found] == ["1.png?size=1", *["v.mp4"] * 7, "0.png"]
    assert np.array_equal(found[0].image, picture(1)[..., ::-1])
    assert len(bad) == 1 and "gone.png" in bad[0] and "404" in bad[0]
    assert {path.parent.parent for path in user_cache.rglob("*.png")} == {user_cache}
