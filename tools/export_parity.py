"""Exported files against the checkpoints that they were made from, on real pictures: a table for docs/export.md.

    python tools/export_parity.py data=coco128.yaml images=32 best.pt other.pt

Each checkpoint is exported to every format into a temporary folder, and both see the same letterboxed pictures.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from visiontrain.actions import before_torch
from visiontrain.config.sizes import EXPORTED


def rows(checkpoints: Sequence[str], data: str, images: int, formats: Sequence[str] = tuple(EXPORTED)) -> Iterator[str]:
    """The lines of a Markdown table."""
    before_torch()
    from visiontrain.config.image_size import image_size
    from visiontrain.config.schema import ExportConfig
    from visiontrain.exporters.export import metadata_of, pictures_of, write_compared
    from visiontrain.models.weights import model_of, read_checkpoint

    pictures, whose = pictures_of(data, images)
    yield f"{len(pictures)} {whose}\n"
    yield "| checkpoint | format | boxes, score above 0.01, px | boxes, all, px | scores | predictions | in one alone |"
    yield "|---|---|---|---|---|---|---|"
    for checkpoint in checkpoints:
        content = read_checkpoint(checkpoint)
        model = model_of(content, checkpoint)
        imgsz = image_size(content["model"].get("imgsz") or content["settings"]["imgsz"])
        for format in formats:
            with tempfile.TemporaryDirectory() as folder:
                metadata = metadata_of(ExportConfig(model=checkpoint, format=format), model, {}, imgsz)
                found = write_compared(format, model, metadata, Path(folder) / f"file{EXPORTED[format]}", pictures)
            yield (
                f"| {Path(checkpoint).name}, {imgsz} | {format} | {found.boxes:.1e} | {found.all_boxes:.1e} | {found.scores:.1e} "
                f"| {found.compared} | {found.alone} |"
            )


def main() -> None:
    words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    checkpoints = [word for word in sys.argv[1:] if "=" not in word]
    for line in rows(checkpoints, words.get("data", ""), int(words.get("images", 32))):
        print(line, flush=True)


if __name__ == "__main__":
    main()
