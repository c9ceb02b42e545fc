"""Train, validate, predict, plan, check, convert, export and compare from Python, with the command line's names as keywords, checked the same way."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from visiontrain.actions import (
    before_torch,
    run_check,
    run_compare,
    run_convert,
    run_export,
    run_plan,
    run_training,
    run_validation,
    with_published,
)
from visiontrain.config.parse import parse_keywords
from visiontrain.config.schema import (
    CheckConfig,
    CompareConfig,
    ConvertConfig,
    ExportConfig,
    PlanConfig,
    PredictConfig,
    TrainConfig,
    ValConfig,
)
from visiontrain.place import in_notebook

if TYPE_CHECKING:  # torch takes seconds to import: each function fetches what it needs when it is called
    from visiontrain.checks.check import CheckResult
    from visiontrain.data.convert import Conversion
    from visiontrain.evaluation.evaluator import Evaluation
    from visiontrain.exporters.export import ExportedFile
    from visiontrain.models.convert import ConvertedWeights
    from visiontrain.prediction.results import Results
    from visiontrain.prediction.run import Loaded
    from visiontrain.record.compare import Comparison
    from visiontrain.record.events import Event
    from visiontrain.training.plan import Plan

Callback = Callable[["Event"], None]


class Metrics(dict[str, float]):
    """The metrics of the best epoch, as a mapping and as attributes: ``ap`` (also ``map``), ``ap50`` (``map50``) and so on."""

    def __getattr__(self, name: str) -> float:
        key = name.replace("map", "ap", 1) if name.startswith("map") else name
        if key not in self:
            raise AttributeError(f"no metric {name!r}; there are {', '.join(self) or 'none: nothing was validated'}")
        return self[key]


@dataclass(frozen=True)
class Run:
    """A finished run: its ``folder``, the ``metrics`` of its best epoch, ``per_class`` scores of it, and how it ended."""

    folder: Path
    metrics: Metrics
    outcome: str
    per_class: dict[str, dict[str, float | int | None]]

    @property
    def record(self) -> dict[str, Any]:
        """What run.json holds."""
        content: dict[str, Any] = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
        return content

    @property
    def best(self) -> Path:
        """The checkpoint of the best epoch."""
        return self.folder / "weights" / "best.pt"

    @property
    def last(self) -> Path:
        """The checkpoint that ``resume`` goes on from."""
        return self.folder / "weights" / "last.pt"

    def plot(self) -> list[Path]:
        """Show the curves of the run in a notebook, print their paths elsewhere; returns the paths."""
        figures = [self.folder / name for name in _FIGURES if (self.folder / name).is_file()]
        if not figures:
            print(f"{self.folder} holds no figures: the run had plots=False")
        elif in_notebook():
            from IPython.display import Image, display

            display(*(Image(filename=str(figure)) for figure in figures))
        else:
            print("\n".join(map(str, figures)))
        return figures


_FIGURES = ("results.png", "pr_curve.png", "confidence_curves.png", "confusion_matrix.png")


class YOLO:
    """A detector by name or checkpoint, for notebooks: ``YOLO("yolov8n").train(data="shapes", epochs=20)``.

    Args:
        model: a family and size such as ``yolov8n``, the path of a checkpoint, or of an exported file, to score or predict with.
    """

    def __init__(self, model: str | os.PathLike[str] = "yolov8n") -> None:
        self.model = os.fspath(model)
        # Of the last prediction, with path and time of the file.
        self._loaded: tuple[tuple[str, int], Loaded] | None = None

    def __repr__(self) -> str:
        return f"YOLO({self.model!r})"

    def train(self, *, callbacks: Sequence[Callback] = (), **settings: Any) -> Run:
        """Train; afterwards this object stands for the best checkpoint of the run. With resume its model does not matter. See ``train``."""
        model = {} if settings.get("resume") else {"model": self.model}
        run = train(callbacks=callbacks, **{**model, **settings})
        if run.best.is_file():
            self.model = str(run.best)
        return run

    def val(self, **settings: Any) -> Evaluation:
        """Score the checkpoint. See ``val``."""
        return val(**{"model": self.model, **settings})

    def export(self, **settings: Any) -> ExportedFile:
        """Write the checkpoint in another format; ``YOLO(model.export())`` is the file. See ``export``."""
        return export(**{"model": self.model, **settings})

    @overload
    def predict(self, source: Any = "", *, stream: Literal[False] = False, **settings: Any) -> list[Results]: ...
    @overload
    def predict(self, source: Any = "", *, stream: Literal[True], **settings: Any) -> Iterator[Results]: ...
    def predict(self, source: Any = "", *, stream: bool = False, **settings: Any) -> list[Results] | Iterator[Results]:
        """Find objects; the checkpoint is read once for all calls. See ``predict``."""
        config, source = _of_prediction(source, {"model": self.model, **settings})
        before_torch()
        return _results(config, source, stream, self._load(config.model))

    __call__ = predict

    def _load(self, model: str) -> Loaded:
        """The network of a file that has not changed since is that of the last call."""
        from visiontrain.models.weights import load_network

        file = Path(model)
        key = model, file.stat().st_mtime_ns if file.exists() else 0
        if self._loaded is None or self._loaded[0] != key:
            self._loaded = key, load_network(model)
        return self._loaded[1]


def train(*, callbacks: Sequence[Callback] = (), **settings: Any) -> Run:
    """Train a detector.

    Args:
        callbacks: called with each event of the run (visiontrain.record.events); they observe and change nothing.
        settings: as on the command line (``visiontrain help train``), ``cfg`` included.

    Raises:
        ConfigError: names all settings that are wrong.
        DataError, WeightsError, OutOfMemory: as the message says.
        Interrupted: Ctrl-C or SIGTERM; last.pt has been written.
    """
    result = run_training(parse_keywords(TrainConfig, settings), callbacks)
    return Run(result.folder, Metrics(result.metrics), result.outcome, result.per_class)


def val(**settings: Any) -> Evaluation:
    """Score a checkpoint on a split.

    Args:
        settings: as on the command line (``visiontrain help val``).

    Raises:
        ConfigError, DataError, WeightsError: as the message says.
    """
    return run_validation(parse_keywords(ValConfig, settings))


@overload
def predict(source: Any = "", *, stream: Literal[False] = False, **settings: Any) -> list[Results]: ...
@overload
def predict(source: Any = "", *, stream: Literal[True], **settings: Any) -> Iterator[Results]: ...
def predict(source: Any = "", *, stream: bool = False, **settings: Any) -> list[Results] | Iterator[Results]:
    """Find objects in pictures and videos.

    Args:
        source: a path (picture, video, folder, pattern, .txt of paths), an address, a camera's number; a NumPy array
            (H, W, 3) uint8 BGR as OpenCV reads it, a PIL image, a torch tensor (3, H, W) or (B, 3, H, W) RGB, uint8 or
            floats in 0..1; or a list of these.
        stream: give results one after another, each with its picture, instead of a list; a list reads pictures of files
            again when they are asked for.
        settings: as on the command line (``visiontrain help predict``); nothing is written unless ``save`` or its like is
            given.

    Raises:
        ConfigError, WeightsError: as the message says.
        DataError: nothing could be read. What cannot while others can is told on standard error and left out.
    """
    config, source = _of_prediction(source, settings)
    return _results(config, source, stream)


def plan(**settings: Any) -> Plan:
    """The arithmetic of windows and updates, without training.

    Args:
        settings: as on the command line (``visiontrain help plan``).

    Raises:
        ConfigError, DataError: as the message says.
    """
    return run_plan(parse_keywords(PlanConfig, settings))


def check(**settings: Any) -> CheckResult:
    """Look for faults in data and settings before a training, and print what was found; nothing is changed or written.

    Args:
        settings: as on the command line (``visiontrain help check``).

    Raises:
        ConfigError, DataError, WeightsError: as the message says. Faults in labels and pictures are no error here: they
            are the result.
    """
    return run_check(parse_keywords(CheckConfig, settings))


def convert(**settings: Any) -> Conversion | ConvertedWeights:
    """Write a data set in another label format into a new folder, or a checkpoint as one of ours into a new file.

    Args:
        settings: as on the command line (``visiontrain help convert``).

    Raises:
        ConfigError: the folder or file is there already, or cannot be written.
        DataError: the data set cannot be used.
        WeightsError: the checkpoint cannot be read.
    """
    return run_convert(parse_keywords(ConvertConfig, settings))


def export(**settings: Any) -> ExportedFile:
    """Write a checkpoint as ONNX, TorchScript or OpenVINO, and compare the file with it on pictures.

    Args:
        settings: as on the command line (``visiontrain help export``).

    Raises:
        ConfigError: the file is there already, cannot be written, or needs a package that is not installed.
        WeightsError: the checkpoint cannot be read.
        ExportError: the file does not find what the checkpoint finds; it is removed.
    """
    return run_export(parse_keywords(ExportConfig, settings))


def compare(a: str | Path, b: str | Path, **settings: Any) -> Comparison:
    """Two runs side by side.

    Args:
        a, b: run folders.
        settings: as on the command line (``visiontrain help compare``).

    Raises:
        ConfigError: a folder is no run, or the runs have different axes or metrics.
    """
    return run_compare(parse_keywords(CompareConfig, {"a": a, "b": b, **settings}))


def _of_prediction(source: Any, settings: dict[str, Any]) -> tuple[PredictConfig, Any]:
    """The settings, and the source where words cannot say it."""
    plain = isinstance(source, str | Path | int) and not isinstance(source, bool)
    if not plain:
        before_torch()
        from visiontrain.prediction.sources import describe

        words = describe(source)
    else:
        words = str(source)
    config = with_published(parse_keywords(PredictConfig, {"save": False, "source": words, **settings}))
    return config, None if plain else source


def _results(
    config: PredictConfig, source: Any, stream: bool, loaded: Loaded | None = None
) -> list[Results] | Iterator[Results]:
    before_torch()
    from visiontrain.prediction.run import predict as look

    if stream:
        return look(config, source, loaded)
    return [result.forget_image() for result in look(config, source, loaded, listed=True)]
