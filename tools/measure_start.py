"""What a large data set costs before the first window: reading labels, the index, the order of an epoch.

    python tools/measure_start.py read=20000 images=1000000

``read`` pictures are written to a temporary folder (links to one, each with labels of its own) and read as training reads
them. The index of ``images`` more is built from labels that are made up in memory. Both have COCO's 7.27 objects an image.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from visiontrain.data.description import Description, load_description
from visiontrain.data.formats import FORMATS
from visiontrain.data.index import Index, index_of, read_split
from visiontrain.data.index_size import PER_IMAGE, PER_OBJECT
from visiontrain.data.labels import Labels
from visiontrain.data.sampler import LISTED, permutation
from visiontrain.data.scan import Scan, Scanned
from visiontrain.errors import ConfigError
from visiontrain.training.footprint import OBJECTS_PER_IMAGE

USAGE = "python tools/measure_start.py [read=20000] [images=1000000]"
HUNDRED_MILLION = 10**8


def main(words: Sequence[str]) -> None:
    counts = read_words(words)
    with tempfile.TemporaryDirectory() as folder:
        description = write(Path(folder), counts["read"])
        before, (index, seconds) = resident(), clocked(lambda: read_split(description, "train"))
        say("reading labels and sizes", index, before, seconds)
        before, (scan, _) = resident(), clocked(lambda: made_up(description, counts["images"]))
        index, seconds = clocked(lambda: index_of(scan))
        say("an index from labels in memory", index, before, seconds)
    order()


def read_words(words: Sequence[str]) -> dict[str, int]:
    counts = {"read": 20_000, "images": 1_000_000}
    for word in words:
        name, _, value = word.partition("=")
        if name not in counts or not value.isdecimal() or int(value) == 0:
            raise ConfigError(f"{word}: not understood\nusage: {USAGE}")
        counts[name] = int(value)
    return counts


def write(root: Path, count: int) -> Description:
    """A data set of one picture under many names; the labels differ."""
    for kind in ("images", "labels"):
        (root / kind / "train").mkdir(parents=True)
    picture = np.random.default_rng(0).integers(0, 255, (480, 640, 3), dtype=np.uint8)
    first = root / "images" / "first.jpg"
    cv2.imwrite(str(first), picture)
    for number, boxes in enumerate(objects(count)):
        os.link(first, root / "images" / "train" / f"{number:012}.jpg")
        rows = "".join(f"0 {x:.6f} {y:.6f} {w:.6f} {h:.6f}\n" for x, y, w, h in boxes)
        (root / "labels" / "train" / f"{number:012}.txt").write_text(rows)
    (root / "data.yaml").write_text("train: images/train\nval: images/train\nnames: [thing]\n")
    return load_description(root / "data.yaml")


def made_up(description: Description, count: int) -> Scan:
    """What a scan would have found in ``count`` pictures, without a file."""
    pictures = [
        Scanned(
            path := f"/data/coco/images/train2017/{number:012}.jpg",
            480,
            640,
            150_000,
            Labels(boxes, np.zeros(len(boxes), np.int64), path, found=True, rows=len(boxes)),
        )
        for number, boxes in enumerate(objects(count))
    ]
    return Scan(description, "train", FORMATS["yolo"](description, "train"), pictures, [])


def objects(count: int) -> list[np.ndarray]:
    """(N, 4) boxes inside the picture for each of ``count`` pictures."""
    rng = np.random.default_rng(1)
    return [rng.uniform(0.2, 0.4, (number, 4)) for number in rng.poisson(OBJECTS_PER_IMAGE, count)]


def say(what: str, index: Index, before: int, seconds: float) -> None:
    images = len(index)
    paths = len(index.path_bytes)
    computed = PER_IMAGE * images + PER_OBJECT * index.targets + paths
    print(
        f"{what}: {images} images, {index.targets / images:.2f} objects and {paths / images:.0f} bytes of path each; "
        f"{images / seconds:.0f} images a second of processor time; index {columns(index) / images:.1f} bytes an image "
        f"(computed {computed / images:.1f}), at its peak the process grew by {(peak() - before) / images:.0f} bytes an image",
        flush=True,
    )


def columns(index: Index) -> int:
    """Bytes of the arrays that an index keeps."""
    names = ("path_bytes", "path_ends", "sizes", "box_ends", "all_boxes", "all_classes")
    return sum(getattr(index, name).nbytes for name in names)


def order() -> None:
    """The order of an epoch as a list and computed: how long it takes to make, and to ask."""
    for n in (LISTED, HUNDRED_MILLION):
        made, seconds = clocked(lambda n=n: permutation(0, 0, n))
        at = np.random.default_rng(0).integers(0, n, 2**16)
        some = at[:10_000].tolist()
        many = clocked(lambda made=made, at=at: [made[at] for _ in range(16)])[1] / 16
        single = clocked(lambda made=made, some=some: [int(made[i]) for i in some])[1]
        print(
            f"order of {n} pictures, {type(made).__name__}: made in {seconds:.3f} s, {len(at) / many / 1e6:.1f} million lookups a "
            f"second in arrays of {len(at)}, {single / len(some) * 1e6:.1f} microseconds for one",
            flush=True,
        )


def clocked(work: Callable[[], Any]) -> tuple[Any, float]:
    """A result and the processor time that it took, of all threads and of the processes that it started and ended, seconds."""
    began = processor()
    result = work()
    return result, max(processor() - began, 1e-9)


def processor() -> float:
    """Processor time so far, seconds."""
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def resident() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak() -> int:
    """The most it ever had, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ConfigError as error:
        sys.exit(f"{error}")
