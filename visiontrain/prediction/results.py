"""What was found in one picture, for people who go on with it in Python."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, SupportsIndex, overload

import cv2
import numpy as np
import torch
from torch import Tensor

from visiontrain import inline
from visiontrain.errors import ConfigError, DataError, VisionTrainError
from visiontrain.prediction.showing import show_picture
from visiontrain.prediction.sources import Frame
from visiontrain.record.plots.ink import write_picture
from visiontrain.record.plots.pictures import draw_boxes


class Boxes:
    """The boxes of one picture, the surest first.

    Args:
        data: (N, 6) float32: x1 y1 x2 y2 in pixels of the picture, confidence, class number. A tensor, or an array after
            ``numpy()``; all that is below is of the same kind.
        orig_shape: (height, width) of the picture.
    """

    def __init__(self, data: Tensor | np.ndarray, orig_shape: tuple[int, int]) -> None:
        self.data: Any = data
        self.orig_shape = orig_shape

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Boxes]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, chosen: Any) -> Boxes:
        """One box, or those that a slice, numbers or a mask choose; always as ``Boxes``."""
        rows = self.data[chosen]
        return Boxes(rows[None] if rows.ndim == 1 else rows, self.orig_shape)

    def __repr__(self) -> str:
        return f"Boxes({len(self)} of a picture {self.orig_shape})"

    @property
    def xyxy(self) -> Any:
        """(N, 4) x1 y1 x2 y2, pixels."""
        return self.data[:, :4]

    @property
    def conf(self) -> Any:
        """(N,) in 0..1."""
        return self.data[:, 4]

    @property
    def cls(self) -> Any:
        """(N,) class numbers, as floats."""
        return self.data[:, 5]

    @property
    def xywh(self) -> Any:
        """(N, 4) centre x, centre y, width, height, pixels."""
        low, high = self.data[:, :2], self.data[:, 2:4]
        join: Any = np.concatenate if isinstance(self.data, np.ndarray) else torch.cat
        return join(((low + high) / 2, high - low), 1)

    @property
    def xyxyn(self) -> Any:
        """``xyxy`` in shares of the picture's width and height, 0..1."""
        return self.xyxy / self._size

    @property
    def xywhn(self) -> Any:
        """``xywh`` likewise."""
        return self.xywh / self._size

    @property
    def _size(self) -> Any:
        size = (self.orig_shape[1], self.orig_shape[0]) * 2
        return np.array(size, np.float32) if isinstance(self.data, np.ndarray) else self.data.new_tensor(size)

    def scaled(self, share: float, shape: tuple[int, int]) -> Boxes:
        """Those of the picture made smaller to (height, width)."""
        boxes = self.numpy()
        return Boxes(np.concatenate((boxes.xyxy * share, boxes.data[:, 4:]), 1), shape)

    def to(self, device: torch.device | str) -> Boxes:
        """On a device, as a tensor."""
        return Boxes(torch.as_tensor(self.data).to(device), self.orig_shape)

    def cpu(self) -> Boxes:
        return self.to("cpu")

    def numpy(self) -> Boxes:
        """As an array."""
        return Boxes(self.to("cpu").data.numpy(), self.orig_shape)


class Results:
    """One picture and its boxes. ``len()`` counts the boxes, ``[...]`` chooses some.

    ``path`` names the picture, ``frame`` is its number in a video (else None), ``names`` maps class numbers to names,
    ``orig_shape`` is (height, width), ``speed`` the milliseconds of each stage, ``boxes`` the ``Boxes``.
    """

    def __init__(self, frame: Frame, names: Mapping[int, str], boxes: Boxes, speed: Mapping[str, float]) -> None:
        self.path, self.frame, self.video = frame.path, frame.number, frame.video
        self.names, self.boxes, self.speed = dict(names), boxes, dict(speed)
        self.orig_shape = boxes.orig_shape
        self._image: np.ndarray | None = frame.image
        self._again = frame.again

    def __len__(self) -> int:
        return len(self.boxes)

    def __repr__(self) -> str:
        return f"Results({self.path}: {self.verbose()})"

    def __getitem__(self, chosen: Any) -> Results:
        return self._with(self.boxes[chosen])

    def _with(self, boxes: Boxes) -> Results:
        frame = Frame(self._image, self.path, self._again, self.frame, self.video)  # type: ignore[arg-type]
        return Results(frame, self.names, boxes, self.speed)

    def forget_image(self) -> Results:
        """Let go of the pixels where they can be had again: a list of thousands must not hold as many pictures."""
        self._image = None if self._again else self._image
        return self

    @property
    def image(self) -> np.ndarray:
        """The picture, (H, W, 3) uint8 RGB; read again where it was let go.

        Raises:
            DataError: it is gone, or another one now.
        """
        if self._image is not None:
            return self._image
        assert self._again
        image = self._again()
        if image.shape[:2] != self.orig_shape:
            raise DataError(f"{self.path}: has another size now than when it was looked at")
        return image

    @property
    def orig_img(self) -> np.ndarray:
        """The picture, (H, W, 3) uint8 BGR as OpenCV has it."""
        return cv2.cvtColor(self.image, cv2.COLOR_RGB2BGR)

    def to(self, device: torch.device | str) -> Results:
        """The same with the boxes on a device."""
        return self._with(self.boxes.to(device))

    def cpu(self) -> Results:
        return self._with(self.boxes.cpu())

    def numpy(self) -> Results:
        """The same with the boxes as arrays."""
        return self._with(self.boxes.numpy())

    def verbose(self) -> str:
        """What was found, in a line: ``3 RBC, 1 WBC``."""
        counts = Counter(self.boxes.cpu().cls.int().tolist())
        return ", ".join(f"{counts[k]} {self.names[k]}" for k in sorted(counts)) or "nothing found"

    def summary(self) -> list[dict[str, Any]]:
        """Each box as plain values: ``name``, ``class``, ``confidence`` and ``box`` with x1 y1 x2 y2 in pixels."""
        found = []
        for *corners, confidence, number in self.boxes.cpu().data.tolist():
            box = {key: round(value, 3) for key, value in zip(("x1", "y1", "x2", "y2"), corners, strict=True)}
            known = {"name": self.names[int(number)], "class": int(number), "confidence": round(confidence, 5)}
            found.append({**known, "box": box})
        return found

    def row(self) -> dict[str, Any]:
        """Picture and boxes as plain values: the line of ``format=json`` and an entry of predictions.json."""
        height, width = self.orig_shape
        about = {"path": self.path, "frame": self.frame, "height": height, "width": width}
        return {**about, "speed": {k: round(v, 3) for k, v in self.speed.items()}, "boxes": self.summary()}

    def to_json(self) -> str:
        """``summary()`` as JSON."""
        return json.dumps(self.summary())

    def to_supervision(self) -> Any:
        """The boxes as ``supervision.Detections``.

        Raises:
            ConfigError: supervision is not installed.
        """
        try:
            import supervision
        except ImportError as error:
            raise ConfigError(
                "to_supervision needs the package supervision: pip install 'visiontrain[supervision]'"
            ) from error
        boxes = self.boxes.numpy()
        numbers = boxes.cls.astype(int)
        return supervision.Detections(
            xyxy=boxes.xyxy,
            confidence=boxes.conf,
            class_id=numbers,
            data={"class_name": np.array([self.names[k] for k in numbers], str)},
        )

    def plot(self, line_width: int | None = None, labels: bool = True, conf: bool = True) -> np.ndarray:
        """The picture with its boxes, (H, W, 3) uint8 BGR as OpenCV has it.

        Args:
            line_width: pixels; None: by the picture's size.
            labels, conf: write class and confidence beside each box.
        """
        return cv2.cvtColor(self.drawn(line_width, labels, conf), cv2.COLOR_RGB2BGR)

    def drawn(self, line_width: int | None = None, labels: bool = True, conf: bool = True) -> np.ndarray:
        """The same as RGB."""
        boxes = self.boxes.numpy()
        names = [self.names[k] for k in range(len(self.names))]
        how: dict[str, Any] = {"line": line_width, "labels": labels, "confidences": conf}
        return draw_boxes(self.image, boxes.xyxy, boxes.cls.astype(int), boxes.conf, names, **how)

    def preview(self, side: int) -> bytes:
        """The picture with its boxes as a JPEG of at most so many pixels; lines and letters as they are in a large one."""
        share = min(side / max(self.orig_shape), 1)
        image = cv2.resize(self.image, None, fx=share, fy=share, interpolation=cv2.INTER_AREA)
        small = Results(Frame(image, self.path, None), self.names, self.boxes.scaled(share, image.shape[:2]), {})
        return cv2.imencode(".jpg", small.plot(), [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes()

    def _repr_jpeg_(self) -> bytes | None:
        try:
            return self.preview(LARGE)
        except VisionTrainError:  # the picture is gone; the text beside it says what was found
            return None

    def show(self) -> None:
        """Show the picture with its boxes: in the notebook, else in the system's viewer.

        Raises:
            VisionTrainError: there is no display.
        """
        show_picture(self.drawn(), Path(self.path).stem)

    def save(self, path: str | Path) -> Path:
        """Write the picture with its boxes into a new .jpg or .png file.

        Raises:
            ConfigError: the file is there already, or its ending is another.
        """
        if Path(path).suffix.lower() not in (".jpg", ".png"):
            raise ConfigError(f"{path}: pictures are written as .jpg or .png")
        write_picture(_new(path), self.drawn())
        return Path(path)

    def save_txt(self, path: str | Path, save_conf: bool = False) -> Path:
        """Write a new file with a row for each box: class, centre x, centre y, width, height in 0..1, and the confidence.

        Raises:
            ConfigError: the file is there already.
        """
        _new(path).write_text(self.text_rows(save_conf), "utf-8")
        return Path(path)

    def text_rows(self, save_conf: bool) -> str:
        """The rows of ``save_txt``."""
        boxes = self.boxes.numpy()
        rows = [[*box, score][: 5 if save_conf else 4] for box, score in zip(boxes.xywhn, boxes.conf, strict=True)]
        return "".join(
            f"{int(k)} {' '.join(f'{v:.6f}' for v in row)}\n" for k, row in zip(boxes.cls, rows, strict=True)
        )

    def save_crop(self, folder: str | Path, stem: str = "") -> list[Path]:
        """Write what is in each box as a JPEG in a folder of its class; names that are taken are passed over.

        Args:
            folder: that holds the folders of the classes.
            stem: of the files; empty: that of the picture.
        """
        image, boxes = self.image, self.boxes.numpy()
        height, width = self.orig_shape
        written = []
        for number, (corners, k) in enumerate(zip(boxes.xyxy, boxes.cls, strict=True)):
            x1, y1 = (int(v) for v in np.floor(corners[:2]))
            x2, y2 = (int(v) for v in np.ceil(corners[2:]))
            piece = image[max(y1, 0) : min(y2, height), max(x1, 0) : min(x2, width)]
            if not piece.size:
                continue
            place = Path(folder) / safe_name(self.names[int(k)], int(k))
            place.mkdir(parents=True, exist_ok=True)
            path = place / f"{stem or Path(self.path).stem}_{number}.jpg"
            while path.exists():
                number += 1
                path = path.with_name(f"{stem or Path(self.path).stem}_{number}.jpg")
            write_picture(path, np.ascontiguousarray(piece))
            written.append(path)
        return written


class Found(list[Results]):
    """The results of a prediction, in the order of the source; a notebook shows a sheet of the first pictures."""

    @overload
    def __getitem__(self, chosen: SupportsIndex) -> Results: ...
    @overload
    def __getitem__(self, chosen: slice) -> Found: ...
    def __getitem__(self, chosen: Any) -> Any:
        """One of them, or a slice, whose pictures a notebook shows likewise."""
        return Found(super().__getitem__(chosen)) if isinstance(chosen, slice) else super().__getitem__(chosen)

    def __repr__(self) -> str:
        more = [f"... and {len(self) - SHOWN} more"] if len(self) > SHOWN else []
        return "[" + ",\n ".join([*map(repr, self[:SHOWN]), *more]) + "]"

    def _repr_html_(self) -> str:
        note = f"{SHOWN} of {len(self)} pictures; a slice such as [{SHOWN}:{2 * SHOWN}] shows others"
        return inline.gallery([_tile(each) for each in self[:SHOWN]], note if len(self) > SHOWN else "")


SHOWN = 12  # pictures in a notebook
SMALL, LARGE = 240, 720  # pixels, the longer side of one among others and of one alone


def _tile(result: Results) -> tuple[bytes, str]:
    name = Path(result.path).name
    try:
        return result.preview(SMALL), f"{name}: {result.verbose()}"
    except VisionTrainError as error:
        return b"", str(error)


def safe_name(name: str, number: int) -> str:
    """The name of a class as that of a folder; the number is added where characters had to be replaced."""
    safe = re.sub(r"[^\w .-]", "_", name)[:100].strip(" .")
    return safe if safe == name else f"{safe}_{number}".lstrip("_") or str(number)


def _new(path: str | Path) -> Path:
    if os.path.lexists(path):
        raise ConfigError(f"{path}: is there already and is not overwritten; choose another name")
    if not Path(path).parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {Path(path).parent}; make it first")
    return Path(path)
