"""Train, validate, predict, plan, check, convert, export and compare from Python, with the command line's names as keywords, checked the same way."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

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
from visiontrain.config.sizes import CLASSES, counts_of, is_checkpoint
from visiontrain.data.index_size import images_kept
from visiontrain.errors import ConfigError, DataError
from visiontrain.paths import cache_dir
from visiontrain.place import devices_of, in_notebook, place
from visiontrain.record.wire import home, told_home
from visiontrain.training.footprint import Footprint
from visiontrain.training.normalisation import choose_norm
from visiontrain.training.plan import Plan, make_plan

if TYPE_CHECKING:  # torch takes seconds to import: each function fetches what it needs when it is called
    from visiontrain.checks.check import CheckResult
    from visiontrain.data.convert import Conversion
    from visiontrain.data.description import Description
    from visiontrain.evaluation.evaluator import Evaluation
    from visiontrain.exporters.export import ExportedFile
    from visiontrain.models.convert import ConvertedWeights
    from visiontrain.prediction.results import Results
    from visiontrain.prediction.run import Loaded
    from visiontrain.record.compare import Comparison
    from visiontrain.record.events import Event

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
    return run_training(parse_keywords(TrainConfig, settings), callbacks)


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


def run_training(config: TrainConfig, callbacks: Sequence[Callback] = ()) -> Run:
    """Train with settings that are checked already: here, or as a rank on each of several devices of this machine."""
    before_torch()
    with told_home() as tell:
        devices, max_restarts = _ranks_to_start(config)
        if devices:
            from visiontrain.launch import launch

            result = launch(config, devices, max_restarts, callbacks)
        else:
            from visiontrain.training.run import train as train_detector

            result = train_detector(config, callbacks)
            tell(result)
    return Run(result.folder, Metrics(result.metrics), result.outcome, result.per_class)


def _ranks_to_start(config: TrainConfig) -> tuple[list[str], int]:
    """The devices to start ranks on, and how often to start them again; none for one device, or where a launcher did it."""
    if place().size > 1:
        if "max_restarts" in config.given and home() is None:
            raise ConfigError(
                f"max_restarts={config.max_restarts}: another launcher started these ranks; tell it, for example with "
                f"torchrun --max-restarts={config.max_restarts}, and leave it out here"
            )
        return [], 0
    settings = config
    if config.resume and not {"device", "max_restarts"} <= config.given:
        from visiontrain.training.resume import resume

        settings = resume(config).config
    devices = devices_of(settings.device)
    if len(devices) > 1 and config.augment.albumentations.live is not None:
        raise ConfigError(
            "albumentations: this pipeline cannot be written down, so the ranks of several devices cannot be given it: "
            f"{config.augment.albumentations}"
        )
    if len(devices) > 1:
        return devices, settings.max_restarts
    if "max_restarts" in config.given and config.max_restarts:
        raise ConfigError(
            f"max_restarts={config.max_restarts}: starts the ranks of several devices again when one is lost, and device="
            f"{settings.device} is one. Leave it out; a run that was killed goes on with resume=true."
        )
    return [], 0


def run_validation(config: ValConfig) -> Evaluation:
    """Score with settings that are checked already."""
    before_torch()
    from visiontrain.evaluation.validation import validate

    return validate(config)


def run_prediction(config: PredictConfig, lines: bool = False) -> Iterator[Results]:
    """Predict with settings that are checked already; ``lines`` tells of each picture on standard output."""
    before_torch()
    from visiontrain.prediction.run import predict as look

    return look(config, lines=lines)


def _of_prediction(source: Any, settings: dict[str, Any]) -> tuple[PredictConfig, Any]:
    """The settings, and the source where words cannot say it."""
    plain = isinstance(source, str | Path | int) and not isinstance(source, bool)
    if not plain:
        before_torch()
        from visiontrain.prediction.sources import describe

        words = describe(source)
    else:
        words = str(source)
    return parse_keywords(PredictConfig, {"save": False, "source": words, **settings}), None if plain else source


def _results(
    config: PredictConfig, source: Any, stream: bool, loaded: Loaded | None = None
) -> list[Results] | Iterator[Results]:
    before_torch()
    from visiontrain.prediction.run import predict as look

    if stream:
        return look(config, source, loaded)
    return [result.forget_image() for result in look(config, source, loaded, listed=True)]


def run_check(config: CheckConfig) -> CheckResult:
    """Check with settings that are checked already."""
    before_torch()
    from visiontrain.checks.check import run_check as look

    return look(config)


def run_convert(config: ConvertConfig) -> Conversion | ConvertedWeights:
    """Convert with settings that are checked already: the weights that are given, else the data."""
    out = Path(config.out).expanduser().absolute()
    if not config.weights:
        return _convert_data(config, out)
    before_torch()
    from visiontrain.models.convert import convert_weights

    return convert_weights(Path(config.weights).expanduser(), out)


def run_export(config: ExportConfig) -> ExportedFile:
    """Export with settings that are checked already."""
    before_torch()
    from visiontrain.exporters.export import export as export_model

    return export_model(config)


def _convert_data(config: ConvertConfig, out: Path) -> Conversion:
    """A bar appears on a terminal where it takes more than a second."""
    from tqdm.auto import tqdm

    from visiontrain.data.convert import convert as convert_data
    from visiontrain.data.description import load_description

    with tqdm(unit="img", leave=False, delay=1, disable=None) as bar:

        def show(what: str, done: int, total: int) -> None:
            bar.n, bar.total = done, total
            bar.set_description(what)

        description = load_description(config.data)
        return convert_data(description, config.format, out, copy=config.pictures == "copy", on_progress=show)


def before_torch() -> None:
    """Set what torch reads from the environment when it is loaded."""
    calm_threads()
    # Its optimizers load its compiler, which makes a folder as it is loaded, among the temporary files if not told where.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_dir() / "torch"))


def calm_threads() -> None:
    """Let GNU OpenMP's waiting threads spin briefly, then sleep; it reads this when torch loads it, not later.

    By default they spin for milliseconds. With loader processes on the same cores the thread that everybody waits for
    is then the one that gets no turn, and training can become many times slower. What the user set stands.
    """
    if "torch" not in sys.modules and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "1000"


def run_plan(config: PlanConfig) -> Plan:
    """Plan with settings that are checked already; nothing is built, and a model's name stands for a start from scratch.

    With norm=frozen it stands for a start from a checkpoint.
    """
    about = _checkpoint(config.model)
    start = about.get("norm", "batch" if config.norm == "frozen" else "")
    images, footprint = _foresee(config, about)
    return make_plan(
        batch=config.batch,
        nbs=config.nbs,
        images=images,
        epochs=config.epochs,
        weight_decay=config.weight_decay,
        warmup_epochs=config.warmup_epochs,
        last_window=config.last_window,
        ranks=config.ranks,
        normalisation=choose_norm(config.norm, start, config.ranks),
        reduce=config.reduce,
        footprint=footprint,
    )


def run_compare(config: CompareConfig) -> Comparison:
    """Compare with settings that are checked already."""
    from visiontrain.record.compare import compare as compare_runs

    comparison = compare_runs(config.a, config.b)
    if config.out:
        from visiontrain.record.plots.comparison import write_comparison

        write_comparison(comparison, Path(config.out))
    return comparison


def _checkpoint(model: str) -> dict[str, Any]:
    """What a checkpoint says of its model; of a name there is nothing to read."""
    if not is_checkpoint(model):
        return {}
    from visiontrain.models.weights import read_checkpoint

    about: dict[str, Any] = read_checkpoint(model)["model"]
    return about


def _foresee(config: PlanConfig, about: Mapping[str, Any]) -> tuple[int, Footprint]:
    """Training images, 0 if nothing tells them, and what is known of model and data before they are built and read."""
    images, path_bytes, classes = config.images, None, about.get("nc", 0)
    if config.data:
        from visiontrain.data.description import read_description

        description = read_description(config.data)
        classes = classes or len(description.names)
        if not images:
            images, path_bytes = _count_images(description)
    counts = counts_of(about.get("name", config.model), classes or CLASSES)
    images = images_kept(images, config.fraction) if images else 0
    return images, Footprint(counts, classes > 0, path_bytes)


def _count_images(description: Description) -> tuple[int, float | None]:
    """Training images and the mean bytes of their paths: those that are there, else what the description says."""
    from visiontrain.data.formats import open_split

    try:
        paths = open_split(description, "train").pictures()
    except DataError:
        if "train" in description.images:
            return description.images["train"], None
        raise
    return len(paths), sum(len(os.fsencode(path)) for path in paths) / len(paths)
