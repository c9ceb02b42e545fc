"""The pictures of a run folder, made small enough for one page."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np

from visiontrain.record.report.markup import Html, join, tag
from visiontrain.record.report.page import grid, heading, picture, switch
from visiontrain.record.report.source import Source
from visiontrain.record.report.words import counted

MOST_BYTES = 3_400_000  # of all pictures on the page
SIZES = (
    (1600, 82),
    (1440, 78),
    (1200, 74),
    (960, 70),
    (720, 64),
    (480, 55),
    (320, 45),
)  # longer side in pixels, JPEG quality

TRAIN = tuple(f"train_batch{number}.jpg" for number in range(3))
PAIRS = {
    "First pictures of validation": ("val_labels.jpg", "val_predictions.jpg"),
    "The worst misses": ("val_worst_labels.jpg", "val_worst_predictions.jpg"),
}
CAPTIONS = {
    "val_labels.jpg": "The first pictures of the validation split, with the boxes of their labels.",
    "val_predictions.jpg": "The same pictures with what best.pt finds, at confidence 0.25 and above.",
    "val_worst_labels.jpg": "The pictures with the most errors, missed and wrong ones counted together, with their labels.",
    "val_worst_predictions.jpg": "The same pictures with what best.pt finds, at confidence 0.25 and above.",
}
# Only where there is no curves.json to draw them from: runs of older versions.
DRAWN = {"pr_curve.png": "Precision over recall at IoU 0.5.", "confusion_matrix.png": "Confusion matrix."}


def picture_files(source: Source) -> dict[str, Path]:
    """The pictures of this run by name; not those that another run left in the folder before it."""
    names = [*TRAIN, *(name for pair in PAIRS.values() for name in pair), *([] if source.curves else DRAWN)]
    paths = {name: source.folder / name for name in names}
    return {name: path for name, path in paths.items() if path.is_file() and not _older(path, source)}


def _older(path: Path, source: Source) -> bool:
    """First batches are drawn when a run begins, the others when its last process ends."""
    since = datetime.fromisoformat(source.record["started"]).timestamp() if path.name in TRAIN else source.began
    return path.stat().st_mtime < since - 60  # a minute for clocks of other machines that hold the disk


def small(files: Mapping[str, Path], budget: int = MOST_BYTES) -> dict[str, str]:
    """Data addresses of the pictures, ``budget`` characters at most for all; one that cannot be read is left out."""
    share = budget // max(len(files), 1)
    found = {name: _small(path, path.stat().st_mtime_ns, share) for name, path in files.items()}
    return {name: uri for name, uri in found.items() if uri}


@lru_cache(maxsize=32)
def _small(path: Path, changed: int, most: int) -> str:
    """As JPEG, as large as ``most`` characters allow; empty where it cannot be read or would be too large at any size.

    ``changed`` makes another picture of another time: a page that is refreshed makes nothing small twice.
    """
    image = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR) if path.stat().st_size else None
    if image is None:
        return ""
    for side, quality in SIZES:
        scale = min(1.0, side / max(image.shape[:2]))
        size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
        resized = cv2.resize(image, size, interpolation=cv2.INTER_AREA) if scale < 1 else image
        written = cv2.imencode(".jpg", resized, [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_OPTIMIZE, 1])[1]
        uri = f"data:image/jpeg;base64,{base64.b64encode(written.tobytes()).decode()}"
        if len(uri) <= most:
            return uri
    return ""


def gallery(source: Source, uris: Mapping[str, str]) -> Html:
    """First batches, labels against predictions, worst misses."""
    return join(_parts(source, uris))


def _parts(source: Source, uris: Mapping[str, str]) -> Iterator[Html]:
    for title, pair in PAIRS.items():
        if all(name in uris for name in pair):
            shown = [_picture(name, uris) for name in pair]
            yield heading(title)
            yield switch(pair[0].removesuffix("_labels.jpg"), ("Labels", shown[0]), ("Predictions", shown[1]))
    if batches := [picture(uris[name], "training batch", None) for name in TRAIN if name in uris]:
        yield heading(f"First {counted(len(batches), 'training batch', 'training batches')}")
        yield tag(
            "p",
            "What the model saw first: micro-batches as they were trained on, augmented, with their boxes.",
            class_="soft",
        )
        yield grid(batches)


def _picture(name: str, uris: Mapping[str, str]) -> Html:
    caption = CAPTIONS[name]
    return picture(uris[name], caption, caption)


def drawn_curves(uris: Mapping[str, str]) -> Html:
    """Curves of older runs as they were drawn, on a light plate."""
    return grid(
        [picture(uris[name], text, text, plate=True) for name, text in DRAWN.items() if name in uris], wide=True
    )
