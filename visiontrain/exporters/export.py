"""``export``: a checkpoint as a file of another format, which is there only when it finds what the checkpoint finds."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from visiontrain.config.image_size import ImageSize, image_size
from visiontrain.config.schema import AS_TRAINED, ExportConfig
from visiontrain.config.sizes import EXPORTED
from visiontrain.data.description import load_description
from visiontrain.data.formats import open_split
from visiontrain.data.image import read
from visiontrain.data.shapes import draw
from visiontrain.errors import ConfigError, DataError, ExportError
from visiontrain.exporters import EXPORTERS
from visiontrain.exporters.check import BOX_TOLERANCE, SCORE_TOLERANCE, Parity, compare
from visiontrain.exporters.layout import Layout
from visiontrain.inline import Told
from visiontrain.models.detector import Detector
from visiontrain.models.exported import load_exported
from visiontrain.models.exported.metadata import Metadata
from visiontrain.models.exported.openvino import METADATA
from visiontrain.models.weights import licence_sentence, model_of, read_checkpoint

SETTINGS = ("data", "imgsz", "classes", "single_cls")  # of the training, that validation takes from a file
_OF_A_FOLDER = {".xml", ".bin", ".yaml"}


@dataclass(frozen=True, slots=True, repr=False)
class ExportedFile(Told):
    """A finished export: the file or folder, how it compares with the checkpoint, and what is told of it. It stands for its path."""

    file: Path
    parity: Parity
    told: tuple[str, ...]

    def __fspath__(self) -> str:
        return str(self.file)

    def sentences(self) -> list[str]:
        """For a person, a line each."""
        return [*self.told, self.parity.sentence(), f"written to {self.file}: use it as model={self.file}"]


def export(config: ExportConfig) -> ExportedFile:
    """Write the file under another name, compare it with the checkpoint, then give it its name.

    Raises:
        ConfigError: the file is there already or cannot be written, a package is missing, or a setting changes nothing.
        WeightsError: the checkpoint cannot be used.
        ExportError: the file cannot be made, or differs from the checkpoint by more than rounding.
    """
    source = Path(config.model).expanduser()
    content = read_checkpoint(source)
    model = model_of(content, source)
    model.leave_out_auxiliary()
    out = _free(config, source)
    settings = {name: content["settings"][name] for name in SETTINGS if name in content["settings"]}
    imgsz = image_size(content["model"].get("imgsz") or settings["imgsz"])
    metadata = metadata_of(config, model, settings, imgsz)
    pictures, whose = pictures_of(str(settings.get("data", "")), config.pictures)
    try:
        with tempfile.TemporaryDirectory(prefix=".exporting-", dir=out.parent) as temporary:
            made = Path(temporary) / out.name
            parity = write_compared(config.format, model, metadata, made, pictures)
            if out.exists():
                out.rename(Path(temporary) / "before")
            made.rename(out)
    except OSError as error:
        raise ConfigError(f"out={out}: cannot be written: {error.strerror or error}") from error
    about = (
        f"{model.name}, {len(model.class_names)} classes, as {config.format}: {_shape(metadata)}; compared on {whose}"
    )
    return ExportedFile(out, parity, (*filter(None, [licence_sentence(model)]), about))


def write_compared(
    format: str, model: Detector, metadata: Metadata, out: Path, pictures: Sequence[np.ndarray]
) -> Parity:
    """Write ``out`` and compare it with the model.

    Args:
        format: of EXPORTERS.
        model: in evaluation mode, on the CPU, its head chosen.
        metadata: of the file.
        out: not there yet.
        pictures: (H, W, 3) uint8 RGB each.

    Raises:
        ExportError: it differs by more than rounding.
    """
    EXPORTERS[format](Layout(model, metadata), metadata, out)
    parity = compare(model, load_exported(out)[0], pictures, ImageSize(*metadata.height_width))
    if not parity.good:
        raise ExportError(
            f"{out.name} does not find what the checkpoint finds, and was removed: {parity.sentence()}. Allowed are "
            f"{BOX_TOLERANCE} px and {SCORE_TOLERANCE}. Report this with the model's name and torch {torch.__version__}."
        )
    return parity


def metadata_of(config: ExportConfig, model: Detector, settings: Mapping[str, Any], trained: ImageSize) -> Metadata:
    """What the file will say of itself; the head of the model is chosen as it will be exported.

    Raises:
        ConfigError: a setting that changes nothing with this model.
    """
    model.use_nms(True if config.nms else None)
    with torch.no_grad():
        end_to_end = model(torch.zeros(1, 3, 2 * model.stride, 2 * model.stride)).end_to_end
    if "max_det" in config.given and not (config.nms or end_to_end):
        raise ConfigError(
            f"max_det={config.max_det}: {model.name} is exported with all its predictions; leave it out, or give nms=true"
        )
    imgsz = trained if config.imgsz == AS_TRAINED else config.imgsz
    about = model.description()
    return Metadata(
        **{key: about[key] for key in ("name", "family", "names", "stride", "norm", "licence")},
        imgsz=imgsz.written,
        dynamic=config.dynamic,
        batch=None if config.dynamic else config.batch,
        nms=config.nms,
        end_to_end=end_to_end,
        conf=config.conf if config.nms else None,
        iou=config.iou if config.nms else None,
        max_det=config.max_det if config.nms or end_to_end else None,
        settings=dict(settings),
        version=version("visiontrain"),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def pictures_of(data: str, count: int) -> tuple[list[np.ndarray], str]:
    """``count`` pictures, (H, W, 3) uint8 RGB, from all over the val split, drawn ones where that is not here; whose in words."""
    try:
        found = open_split(load_description(data), "val").pictures() if data else []
        chosen = [found[place] for place in np.linspace(0, len(found) - 1, count).round().astype(int)] if found else []
        if chosen:
            return [read(path) for path in chosen], f"pictures of {data}, val"
    except DataError:  # the check does not depend on whose pictures they are
        pass
    return [
        draw("val", number)[0] for number in range(count)
    ], "drawn pictures (the data of the checkpoint are not here)"


def _free(config: ExportConfig, source: Path) -> Path:
    """Where the file goes: ``out``, else beside the checkpoint under its name.

    Raises:
        ConfigError: it is there already, and is not to be replaced.
    """
    ending = EXPORTED[config.format]
    out = Path(config.out).expanduser() if config.out else source.with_name(source.stem + ending)
    if not (out.exists() or out.is_symlink()):
        if not out.parent.is_dir():
            raise ConfigError(f"out={out}: there is no folder {out.parent}; make it first")
        return out
    if not config.exist_ok:
        raise ConfigError(f"{out}: is there already; give another out=NAME{ending}, or exist_ok=true to replace it")
    ours = (out / METADATA).is_file() and all(each.suffix in _OF_A_FOLDER for each in out.iterdir())
    if out.is_dir() != (config.format == "openvino") or (out.is_dir() and not ours):
        raise ConfigError(f"{out}: is there already, and is no {config.format} export; give another out=NAME{ending}")
    return out


def _shape(metadata: Metadata) -> str:
    """In words what it takes and gives."""
    height, width = metadata.height_width
    takes = (
        "any number of pictures, sides multiples of 32"
        if metadata.dynamic
        else f"{metadata.batch} x {height} x {width}"
    )
    classes = len(metadata.names)
    gives = (
        f"{metadata.max_det} detections a picture"
        if metadata.rows
        else f"4 + {classes} numbers of each anchor, before NMS"
    )
    return f"takes {takes}; gives {gives}"
