"""The index of a large split: to read and keep it, to find and open it again, and its memory over epochs.

    python tools/bench_index.py images=1000000 files=1000000 workers=4 epochs=3 in=/tmp

``files`` pictures (links to one) with label files of their own (COCO's 7.27 objects a picture) are written to a temporary
folder of ``in``, read, kept in a cache there, and looked for again. A million take 4.5 GB. Where ``images`` are more, the index
that is opened and sampled has columns that were made up in memory, written to the cache as those that were read.

Sampling asks the index for each picture of each epoch in the order of training, by ``workers`` processes, and decodes
nothing. Memory is the proportional set size of the process and its workers, less that of the same with a thousand pictures.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np

from visiontrain.batch import Sample
from visiontrain.config.groups import AugmentConfig
from visiontrain.data import kept
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import Index, mapped, open_index
from visiontrain.data.loader import Loader
from visiontrain.errors import ConfigError
from visiontrain.training.footprint import OBJECTS_PER_IMAGE

T = TypeVar("T")

USAGE = "python tools/bench_index.py [images=1000000] [files=IMAGES] [workers=4] [epochs=3] [in=/tmp]"
IN_A_FOLDER = 10_000  # pictures
LINKS = 60_000  # of one file; ext4 allows 65,000
BATCH = 256
FEW = 1000
COLUMNS = ("path_bytes", "path_ends", "sizes", "box_ends", "all_boxes", "all_classes")
PIXEL = np.zeros((1, 1, 3), np.uint8)


def main(words: Sequence[str]) -> None:
    numbers, place = read_words(words)
    images, files = numbers["images"], numbers["files"]
    root = Path(tempfile.mkdtemp(prefix="bench-index-", dir=place))
    os.environ["VISIONTRAIN_CACHE"] = str(root / "cache")
    try:
        seconds, _ = clocked(lambda: write(root / "data", files))
        print(f"{files} pictures and label files written in {seconds:.0f} s", flush=True)
        time.sleep(3)  # what is younger than two seconds is read again
        in_a_process(read, root / "data")
        where = looked_for(root / "data")
        if images > files:
            in_a_process(make_up, root / "made up", images)
            (where,) = [found for found in (kept.find("made_up", {}),) if found]
        warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores are meant
        (base,) = sampled(some(FEW), numbers["workers"], 1)
        print(f"the process and {numbers['workers']} workers with {FEW} pictures: {base / 2**20:.0f} MiB", flush=True)
        memory(opened(where), base, numbers["workers"], numbers["epochs"])
    finally:
        shutil.rmtree(root)


def read_words(words: Sequence[str]) -> tuple[dict[str, int], str]:
    numbers, place = {"images": 1_000_000, "files": 0, "workers": 4, "epochs": 3}, tempfile.gettempdir()
    for word in words:
        name, _, value = word.partition("=")
        if name == "in" and Path(value).is_dir():
            place = value
        elif name in numbers and value.isdecimal() and int(value):
            numbers[name] = int(value)
        else:
            raise ConfigError(f"{word}: not understood\nusage: {USAGE}")
    return {**numbers, "files": numbers["files"] or numbers["images"]}, place


def write(root: Path, count: int) -> None:
    """The data set; the labels differ."""
    rng = np.random.default_rng(0)
    picture = cv2.imencode(".jpg", rng.integers(0, 255, (48, 64, 3), dtype=np.uint8))[1].tobytes()
    root.mkdir(parents=True)
    for number, objects in enumerate(rng.poisson(OBJECTS_PER_IMAGE, count).tolist()):
        name = f"train/{number // IN_A_FOLDER:04}/{number:012}"
        if number % IN_A_FOLDER == 0:
            for kind in ("images", "labels"):
                (root / kind / f"train/{number // IN_A_FOLDER:04}").mkdir(parents=True)
        if number % LINKS == 0:
            one = root / f"{number}.jpg"
            one.write_bytes(picture)
        os.link(one, f"{root}/images/{name}.jpg")
        rows = rng.uniform(0.2, 0.4, (objects, 4)).tolist()
        with Path(f"{root}/labels/{name}.txt").open("w") as file:
            file.writelines(f"0 {x:.6f} {y:.6f} {w:.6f} {h:.6f}\n" for x, y, w, h in rows)
    (root / "data.yaml").write_text("train: images/train\nnames: [thing]\n")


def in_a_process(work: Callable[..., None], *arguments: Any) -> None:
    """What the work leaves in memory is not to be counted as that of the index."""
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{work.__name__} ended with exit code {process.exitcode}")


def read(root: Path) -> None:
    before, used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, processor()
    seconds, index = clocked(lambda: open_index(load_description(root / "data.yaml"), "train"))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / len(index)
    print(
        f"read and kept: {seconds:.1f} s, {processor() - used:.1f} s of processor time on {os.cpu_count()} cores; at its peak "
        f"the reading process grew by {grown:.0f} bytes a picture",
        flush=True,
    )


def looked_for(root: Path) -> tuple[Path, str]:
    description, used = load_description(root / "data.yaml"), processor()
    facts = {"description": repr(description), "split": "train"}
    seconds, found = clocked(lambda: kept.find(kept.name_of(description.file, "train"), facts))
    if found is None:
        sys.exit("what was kept is not found again")
    print(
        f"asked whether a file has changed: {seconds:.2f} s, {processor() - used:.2f} s of processor time", flush=True
    )
    return found


def make_up(root: Path, count: int) -> None:
    index = some(count, root)
    columns = {name: getattr(index, name) for name in COLUMNS}
    about = {"index": {"names": index.names, "fingerprint": "", "split": "train"}}
    seconds, _ = clocked(lambda: kept.keep("made_up", {}, {}, columns, [], about))
    print(f"{count} pictures made up, written to the cache in {seconds:.1f} s", flush=True)


def some(count: int, root: Path = Path("/data")) -> Index:
    """An index of pictures that are not there."""
    rng = np.random.default_rng(0)
    paths = [f"{root}/images/train/{n // IN_A_FOLDER:04}/{n:012}.jpg".encode() for n in range(count)]
    objects = rng.poisson(OBJECTS_PER_IMAGE, count)
    columns = (
        np.frombuffer(b"".join(paths), np.uint8),
        np.cumsum([len(path) for path in paths]),
        np.full((count, 2), 480, np.int32),
        np.cumsum(objects),
        rng.uniform(0.2, 0.4, (objects.sum(), 4)).astype(np.float32),
        np.zeros(objects.sum(), np.int32),
    )
    return Index(**dict(zip(COLUMNS, columns, strict=True)), names=("thing",), findings=[], fingerprint="")


def opened(place: tuple[Path, str]) -> Index:
    seconds, index = clocked(lambda: mapped(place, verify=True))
    again, _ = clocked(lambda: mapped(place))
    if index is None:
        sys.exit("what was kept cannot be opened")
    print(
        f"{len(index)} pictures, {index.targets / len(index):.2f} objects each, {place[0].stat().st_size / len(index):.1f} bytes a "
        f"picture in the file: opened in {seconds:.3f} s, every byte verified; in a worker in {again:.4f} s",
        flush=True,
    )
    return index


def memory(index: Index, base: int, workers: int, epochs: int) -> None:
    for epoch, size in enumerate(sampled(index, workers, epochs), 1):
        print(
            f"epoch {epoch}: {(size - base) / len(index):.1f} bytes a picture over all processes ({size / 2**20:.0f} MiB)",
            flush=True,
        )


def sampled(index: Index, workers: int, epochs: int) -> Iterator[int]:
    """Bytes of all processes at the end of each epoch."""
    dataset = Lookups(index, 64, AugmentConfig(), seed=0, epochs=epochs)
    with Loader(dataset, workers) as loader:
        for epoch in range(epochs):
            positions = range(len(index))
            starts = positions[::BATCH]
            keys = ([(epoch, position) for position in positions[start : start + BATCH]] for start in starts)
            assert sum(map(len, loader.run(keys))) == len(index)
            yield sum(proportional(process) for process in (os.getpid(), *children()))


class Lookups(TrainSet):
    """All that the index knows of a picture, at a position of an epoch of training, with a picture of one pixel."""

    def __getitem__(self, key: tuple[int, ...]) -> Sample:
        epoch, position = key[:2]
        i = int(self.order(epoch)[position])
        classes = self.index.classes(i).astype(np.int64)
        return Sample(PIXEL, classes, self.index.boxes(i), position, self.index.size(i), path=self.index.path(i))


def children() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid]


def proportional(process: int) -> int:
    """Bytes of a process; pages that several share are divided among them."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("Pss:"))) * 1024


def processor() -> float:
    """Seconds of processor time of this process and the children that have ended."""
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def clocked(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ConfigError as error:
        sys.exit(f"{error}")
