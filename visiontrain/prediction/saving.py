"""What a prediction leaves behind: pictures, videos, rows of text, crops and one JSON, all in a folder of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

import cv2

from visiontrain.config.files import write_settings
from visiontrain.config.schema import PredictConfig
from visiontrain.errors import ConfigError, VisionTrainError
from visiontrain.prediction.results import Results
from visiontrain.prediction.sources import Item
from visiontrain.record.files import run_folder, write_text
from visiontrain.record.plots.ink import write_picture

SCHEMA_VERSION = 1  # of predictions.json and of the line of format=json


class Writer:
    """Writes results as they come; the folder is made with the first of them.

    Args:
        config: says what is written, and where.
        items: of the source: nothing is written beside them.
        about: the model and its classes, for predictions.json.

    Raises:
        ConfigError: the folder holds pictures of the source.
    """

    def __init__(self, config: PredictConfig, items: Sequence[Item], about: dict[str, Any]) -> None:
        self.config, self.saving, self.about = config, config.saving, about
        self.folder: Path | None = None
        self._names = _Names()
        self._video: _VideoFile | None = None
        self._json: _JsonFile | None = None
        _refuse_beside(config, items)

    def __call__(self, result: Results) -> None:
        if not self.saving.writes:
            return
        folder = self.folder or self._begin()
        stem = self._names.of(result.path, result.frame)
        if self.saving.save:
            self._draw(result, folder, stem)
        if self.saving.save_txt:
            (folder / "labels").mkdir(exist_ok=True)
            write_text(folder / "labels" / f"{stem}.txt", result.text_rows(self.saving.save_conf))
        if self.saving.save_crop:
            result.save_crop(folder / "crops", stem)
        if self._json:
            self._json.add(result.row())

    def close(self) -> None:
        """Finish what is open; everything so far can be read then."""
        for file in (self._video, self._json):
            if file:
                file.close()
        self._video = self._json = None

    def _begin(self) -> Path:
        saving = self.saving
        self.folder = run_folder(saving.project, saving.name or "predict", saving.exist_ok)
        write_settings(self.folder / "args.yaml", self.config.leaves())
        if saving.save_json:
            self._json = _JsonFile(self.folder / "predictions.json", self.about)
        return self.folder

    def _draw(self, result: Results, folder: Path, stem: str) -> None:
        saving = self.saving
        if result.frame is None:
            suffix = ".png" if result.path.lower().endswith(".png") else ".jpg"
            path = folder / f"{stem}{suffix}"
            write_picture(path, result.drawn(saving.line_width, saving.show_labels, saving.show_conf))
            return
        if not self._video or self._video.source != (result.path, result.orig_shape, id(result.video)):
            if self._video:
                self._video.close()
            self._video = _VideoFile(folder / f"{self._names.of(result.path, None)}.mp4", result)
        self._video.add(result.plot(saving.line_width, saving.show_labels, saving.show_conf))


class _Names:
    """A name for the files of each picture: that of the picture, with a number where another had it before."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def of(self, path: str, frame: int | None) -> str:
        """``frame`` is the number of a video's frame."""
        name = unquote(PurePath(urlsplit(path).path if "://" in path else path).stem)
        base = re.sub(r"[^\w .()+,=@~-]", "_", name)[:150] or "picture"
        base += "" if frame is None else f"_{frame}"
        name, number = base, 1
        while name.casefold() in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name.casefold())
        return name


class _VideoFile:
    """A video of drawn frames, as MPEG-4, which every OpenCV can write."""

    def __init__(self, path: Path, first: Results) -> None:
        assert first.video
        self.source = (first.path, first.orig_shape, id(first.video))
        height, width = first.orig_shape
        fps = first.video.fps or 25.0
        self._file = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), fps, (width, height))
        if not self._file.isOpened():
            raise VisionTrainError(f"{path}: this OpenCV cannot write videos; save=false does without")

    def add(self, drawn: Any) -> None:
        self._file.write(drawn)

    def close(self) -> None:
        self._file.release()


class _JsonFile:
    """A JSON object that grows by a picture at a time, under a name of its own until it is closed."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path = path
        self._part = path.with_name(f".{path.name}.tmp")
        self._file: IO[str] = self._part.open("w", encoding="utf-8")
        head = json.dumps({"schema_version": SCHEMA_VERSION, **about}, ensure_ascii=False)
        self._file.write(f'{head[:-1]}, "pictures": [')
        self._between = "\n"

    def add(self, row: dict[str, Any]) -> None:
        self._file.write(self._between + json.dumps(row, ensure_ascii=False, allow_nan=False))
        self._between = ",\n"

    def close(self) -> None:
        self._file.write("\n]}\n")
        self._file.close()
        self._part.replace(self.path)


def _refuse_beside(config: PredictConfig, items: Sequence[Item]) -> None:
    """Only a folder that exists can hold pictures of the user's, and only exist_ok writes into one."""
    saving = config.saving
    if not (saving.writes and saving.exist_ok):
        return
    folder = (Path(saving.project) / (saving.name or "predict")).resolve()
    for item in items:
        if item.kind in ("picture", "video") and folder in Path(item.what).resolve().parents:
            raise ConfigError(
                f"project={saving.project} name={saving.name}: {folder} holds {item.name}, which is to be looked at; nothing is "
                "written beside your pictures. Choose another name."
            )
