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
from visiontrain.config.signature import takes_settings
from visiontrain.errors import ConfigError
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


@dataclass(frozen=True, repr=False)
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

    def report(self, height: int = 640) -> Path:
        """Show report.html in a notebook, which keeps a copy of it, print its path elsewhere; returns the path.

        Args:
            height: pixels in the notebook.

        Raises:
            ConfigError: the run has no report.
        """
        path = self.folder / "report.html"
        if not path.is_file():
            raise ConfigError(f"{path}: there is no report of this run; plot() shows its curves")
        if in_notebook():
            from visiontrain.inline import show_page

            show_page(path.read_text(encoding="utf-8"), height)
        else:
            print(path)
        return path

    def __repr__(self) -> str:
        scores = (f"{key.upper()} {self.metrics[key]:.3f}" for key in ("ap", "ap50") if key in self.metrics)
        return f"Run({', '.join([self.outcome, *scores])}: {self.folder})"

    def _repr_html_(self) -> str:
        from visiontrain.record.card import run_card

        return run_card(self.folder, self.outcome, self.metrics, self.per_class)


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

    @takes_settings(TrainConfig, without=("model",))
    def train(self, *, callbacks: Sequence[Callback] = (), **settings: Any) -> Run:
        """Train; afterwards this object stands for the best checkpoint of the run. With resume its model does not matter. See ``train``."""
        model = {} if settings.get("resume") else {"model": self.model}
        run = train(callbacks=callbacks, **{**model, **settings})
        if run.best.is_file():
            self.model = str(run.best)
        return run

    @takes_settings(ValConfig, without=("model",))
    def val(self, **settings: Any) -> Evaluation:
        """Score the checkpoint. See ``val``."""
        return val(**{"model": self.model, **settings})

    @takes_settings(ExportConfig, without=("model",))
    def export(self, **settings: Any) -> ExportedFile:
        """Write the checkpoint in another format; ``YOLO(model.export())`` is the file. See ``export``."""
        return export(**{"model": self.model, **settings})

    @overload
    def predict(self, source: Any = "", *, stream: Literal[False] = False, **settings: Any) -> list[Results]: ...
    @overload
    def predict(self, source: Any = "", *, stream: Literal[True], **settings: Any) -> Iterator[Results]: ...
    @takes_settings(PredictConfig, without=("model",), save=False)
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


@takes_settings(TrainConfig)
def train(*, callbacks: Sequence[Callback] = (), **settings: Any) -> Run:
    """Train a detector.

    Args:
        callbacks: called with each event of the run (visiontrain.record.events), in this process, also where several ranks
            train; a ``visiontrain.Callback`` has a method for each event that it wants. They observe and change nothing.
        settings: as on the command line (``visiontrain help train``), ``cfg`` included.

    Raises:
        ConfigError: names all settings that are wrong.
        DataError, WeightsError, OutOfMemory: as the message says.
        Interrupted: Ctrl-C or SIGTERM; last.pt has been written.
    """
    result = run_training(parse_keywords(TrainConfig, settings), callbacks)
    return Run(result.folder, Metrics(result.metrics), result.outcome, result.per_class)


@takes_settings(ValConfig)
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
@takes_settings(PredictConfig, save=False)
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


@takes_settings(PlanConfig)
def plan(**settings: Any) -> Plan:
    """The arithmetic of windows and updates, without training.

    Args:
        settings: as on the command line (``visiontrain help plan``).

    Raises:
        ConfigError, DataError: as the message says.
    """
    return run_plan(parse_keywords(PlanConfig, settings))


@takes_settings(CheckConfig)
def check(**settings: Any) -> CheckResult:
    """Look for faults in data and settings before a training, and print what was found; nothing is changed or written.

    Args:
        settings: as on the command line (``visiontrain help check``).

    Raises:
        ConfigError, DataError, WeightsError: as the message says. Faults in labels and pictures are no error here: they
            are the result.
    """
    return run_check(parse_keywords(CheckConfig, settings))


@takes_settings(ConvertConfig)
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


@takes_settings(ExportConfig)
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


@takes_settings(CompareConfig, without=("runs",))
def compare(a: str | Path, b: str | Path, *more: str | Path, **settings: Any) -> Comparison:
    """Two or more runs side by side. Printed it is tables, in a notebook a page.

    Args:
        a, b, more: run folders.
        settings: as on the command line (``visiontrain help compare``).

    Raises:
        ConfigError: a folder is no run, or the runs have different axes or metrics.
    """
    return run_compare(parse_keywords(CompareConfig, {"runs": [a, b, *more], **settings}))


def report(run: str | Path) -> Path:
    """Write report.html of a run again from the files in its folder, for example of a run of an older version.

    Args:
        run: its folder.

    Returns:
        the file, under 5 MB; an older one is replaced.

    Raises:
        ConfigError: the folder is no run, or it was written by another version of the contracts.
    """
    from visiontrain.record.report.run import write_report

    return write_report(run)


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
    from visiontrain.prediction.results import Found
    from visiontrain.prediction.run import predict as look

    if stream:
        return look(config, source, loaded)
    return Found(result.forget_image() for result in look(config, source, loaded, listed=True))
