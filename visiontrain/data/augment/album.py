"""The user's own albumentations pipeline, reseeded for each sample; or the usual few, or nothing.

albumentations is imported where a pipeline of the user's is used, and nowhere else: it takes about a second.
"""

from __future__ import annotations

import inspect
import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from types import ModuleType
from typing import Any

import cv2
import numpy as np

from visiontrain.config.image_size import ImageSize
from visiontrain.config.pipeline import Pipeline
from visiontrain.data.augment import usual
from visiontrain.data.augment.affine import LEAST_SEEN, SMALLEST
from visiontrain.data.augment.draft import Context, Draft
from visiontrain.data.image import GREY, resize
from visiontrain.errors import ConfigError

UINT8 = "the model is given uint8 pictures, and divides by 255 itself"
REFUSED = {
    "Lambda": "a function cannot be written down; give the Compose from Python",
    "ReplayCompose": "samples follow from their seed, so nothing has to be replayed",
    **dict.fromkeys(("Normalize", "ToFloat", "FromFloat", "ToTensorV2", "ToTensor3D"), UINT8),
}
FILTERS = ("min_area", "min_visibility", "min_width", "min_height", "max_accept_ratio")
_TRIALS = 8


@dataclass(frozen=True, slots=True)
class Album:
    """A built pipeline; ``boxes``: it has transforms that move things."""

    compose: Any
    boxes: bool
    names: tuple[str, ...]


def vary(draft: Draft, context: Context) -> Draft:
    """Apply the pipeline of the settings; its random numbers are a stream of their own, so others stay as they are."""
    pipeline = context.settings.albumentations
    which = usual.drawn(context.rng)
    if pipeline.text == "none" or context.settings.augment_device == "gpu":  # which has no pixels yet
        return draft
    if pipeline.own:
        return apply(built(pipeline), draft, context.rng.spawn(1)[0], context.size)
    return replace(draft, image=usual.vary(draft.image, which, context.rng.spawn(1)[0])) if any(which) else draft


def apply(album: Album, draft: Draft, rng: np.random.Generator, size: ImageSize) -> Draft:
    """The pipeline on one sample. Boxes follow; those of which too little is left go, and their classes with them.

    Raises:
        ConfigError: a transform failed, or gave something else than a picture.
    """
    album.compose.set_random_state(rng, random.Random(int(rng.integers(2**63))))
    rows = np.arange(len(draft.boxes))[:, None]
    boxes = {"bboxes": np.hstack((draft.boxes, rows)).astype(np.float32)} if album.boxes else {}
    try:
        result = album.compose(image=draft.image, **boxes)
    except (ValueError, TypeError, IndexError, cv2.error) as error:
        raise ConfigError(
            f"albumentations: {', '.join(album.names)} failed: {type(error).__name__}: {error}"
        ) from error
    image = result["image"]
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        got = f"{image.dtype} {tuple(image.shape)}" if hasattr(image, "dtype") else type(image).__name__
        raise ConfigError(
            f"albumentations: {', '.join(album.names)} gave {got}, not a (height, width, 3) uint8 picture; {UINT8}"
        )
    if album.boxes:
        kept = np.asarray(result["bboxes"], np.float64).reshape(-1, 5)
        draft = replace(draft, boxes=kept[:, :4], classes=draft.classes[kept[:, 4].astype(int)])
    return fitted(replace(draft, image=image), size)


def fitted(draft: Draft, size: ImageSize) -> Draft:
    """A picture that came out at another size, in the middle of one of ``size``, filling it one way."""
    height, width = draft.image.shape[:2]
    if (height, width) == size:
        return draft
    gain = size.gain(height, width)
    inner = max(round(height * gain), 1), max(round(width * gain), 1)
    top, left = (size.height - inner[0]) // 2, (size.width - inner[1]) // 2
    image = np.full((*size, 3), GREY, np.uint8)
    image[top : top + inner[0], left : left + inner[1]] = resize(draft.image, inner[1], inner[0])
    boxes = draft.boxes * np.tile((inner[1] / width, inner[0] / height), 2) + np.tile((left, top), 2)
    return replace(draft, image=image, boxes=boxes)


def told(pipeline: Pipeline) -> str:
    """The sentence that tells what the user's pipeline is, or ""."""
    if not pipeline.own:
        return ""
    album = built(pipeline)
    moves = "boxes follow" if album.boxes else "none of them moves a box"
    return f"albumentations: {', '.join(album.names)} ({moves})."


def try_out(pipeline: Pipeline, size: ImageSize) -> None:
    """Build the user's pipeline and run it on noise, before anything is trained.

    Raises:
        ConfigError: it cannot be built or used; where and why.
    """
    if not pipeline.own:
        return
    album = built(pipeline)
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (*size, 3), np.uint8)
    box = np.array([(0.25, 0.25, 0.75, 0.75)]) * np.tile(size[::-1], 2)
    for _ in range(_TRIALS):
        apply(album, Draft(0, image=noise, boxes=box, classes=np.zeros(1, np.int64)), rng, size)


def built(pipeline: Pipeline) -> Album:
    """The transforms themselves, made once in each process."""
    return _live(pipeline.live) if pipeline.live is not None else _built(pipeline.text)


@lru_cache(maxsize=4)
def _built(text: str) -> Album:
    content = json.loads(text)
    library = albumentations()
    transforms = [_transform(library, entry) for entry in content["transforms"]]
    names = tuple(name for entry in content["transforms"] for name in entry if name != "at")
    return _composed(library, transforms, names, content.get("bbox_params") or {}, content.get("p", 1.0))


_LIVE: dict[int, tuple[Any, Album]] = {}  # by id; the object is held, so the id stays its own


def _live(given: Any) -> Album:
    if id(given) not in _LIVE:
        library = albumentations()
        items = list(given) if isinstance(given, list | tuple) else [given]
        theirs = getattr(items[0], "processors", {}).get("bboxes")
        filters = {name: getattr(theirs.params, name, None) for name in FILTERS} if theirs else {}
        _LIVE[id(given)] = given, _composed(library, items, tuple(type(item).__name__ for item in items), filters, 1.0)
    return _LIVE[id(given)][1]


def albumentations() -> ModuleType:
    """The library; it asks the network for a newer version of itself unless told not to."""
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    try:
        import albumentations as library
    except ImportError as error:
        raise ConfigError("albumentations= needs albumentations: pip install 'albumentations>=2.0.8,<2.1'") from error
    return library


def _composed(
    library: ModuleType, transforms: list[Any], names: tuple[str, ...], filters: Mapping[str, Any], p: float
) -> Album:
    boxes = any(_moves(library, transform) for transform in transforms)
    if not boxes:
        return Album(library.Compose(transforms, p=p), False, names)
    # How boxes are passed is our affair, so format and label fields of the user's do not matter; what is dropped is theirs.
    least = {"min_visibility": LEAST_SEEN, "min_width": SMALLEST, "min_height": SMALLEST}
    asked = {name: filters[name] for name in FILTERS if filters.get(name) is not None}
    stricter = least | {name: max(value, least.get(name, value)) for name, value in asked.items()}
    params = library.BboxParams(format="pascal_voc", clip=True, filter_invalid_bboxes=True, **stricter)
    return Album(library.Compose(transforms, bbox_params=params, p=p), True, names)


def _moves(library: ModuleType, transform: Any) -> bool:
    if isinstance(transform, library.BaseCompose):
        return any(_moves(library, inner) for inner in transform.transforms)
    return not isinstance(transform, library.ImageOnlyTransform | library.NoOp)


def _transform(library: ModuleType, entry: Mapping[str, Any]) -> Any:
    """One transform from its name and parameters, with what it holds."""
    where = entry["at"]
    ((name, parameters),) = ((name, value) for name, value in entry.items() if name != "at")
    kind = _kind(library, name, where)
    known = inspect.signature(kind).parameters.keys()
    for unknown in parameters.keys() - known:
        near = get_close_matches(unknown, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(sorted(known))}"
        raise ConfigError(f"{where}: {name} has no parameter {unknown!r}{hint}")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in parameters.items()}
    if "transforms" in parameters:
        values["transforms"] = [_transform(library, inner) for inner in parameters["transforms"]]
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}: {name}: {' '.join(str(error).split())}") from error


def _kind(library: ModuleType, name: str, where: str) -> type:
    """A public transform of albumentations by its name: nothing else is ever looked up or imported."""
    if name in REFUSED:
        raise ConfigError(f"{where}: {name} cannot be used here: {REFUSED[name]}")
    public = {
        key: value
        for key, value in vars(library).items()
        if inspect.isclass(value)
        and issubclass(value, library.BasicTransform | library.BaseCompose)
        and value.__module__.startswith("albumentations.")
        and not inspect.isabstract(value)
        and key not in ("BasicTransform", "BaseCompose", "DualTransform", "ImageOnlyTransform", "Transform3D")
    }
    if name not in public:
        near = get_close_matches(name, public, n=1) or get_close_matches(
            name.lower(), {key.lower(): key for key in public}, n=1
        )
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"{where}: albumentations {library.__version__} has no transform {name!r}{hint}")
    found: type = public[name]
    return found
