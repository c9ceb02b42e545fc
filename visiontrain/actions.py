"""What each verb does with settings that are checked already; the command line and api.py both end here."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from visiontrain.config.recipes import with_recipe
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
from visiontrain.config.sizes import CLASSES, counts_of, family_named, is_checkpoint
from visiontrain.data.index_size import images_kept
from visiontrain.errors import ConfigError, DataError, VisionTrainError, empty_frames
from visiontrain.paths import cache_dir
from visiontrain.place import devices_of, place
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
    from visiontrain.record.compare import Comparison
    from visiontrain.record.events import Event
    from visiontrain.training.run import RunResult

WithModel = TypeVar("WithModel", TrainConfig, ValConfig, PredictConfig, CheckConfig, ExportConfig)


def run_training(config: TrainConfig, callbacks: Sequence[Callable[[Event], None]] = ()) -> RunResult:
    """Train with settings that are checked already: here, or as a rank on each of several devices of this machine."""
    _not_in_a_worker()
    before_torch()
    config = with_published(config)
    with _holding_nothing(), told_home() as tell:
        devices, max_restarts = ranks_to_start(config)
        if devices:
            from visiontrain.launch import launch

            result = launch(config, devices, max_restarts, callbacks)
        else:
            from visiontrain.training.run import train as train_detector

            result = train_detector(config, callbacks)
            tell(result)
    return result


def with_published(config: WithModel) -> WithModel:
    """The settings with the place of published weights in place of their name, which are fetched where that is asked for."""
    if not config.sha256 and (not is_checkpoint(config.model) or Path(config.model).exists()):
        return config
    from visiontrain.models.published import located

    return replace(config, model=located(config.model, config.download, config.sha256))


def ranks_to_start(config: TrainConfig) -> tuple[list[str], int]:
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
    _not_in_a_worker()
    before_torch()
    from visiontrain.evaluation.validation import validate

    with _holding_nothing():
        return validate(with_published(config))


def run_prediction(config: PredictConfig, lines: bool = False) -> Iterator[Results]:
    """Predict with settings that are checked already; ``lines`` tells of each picture on standard output."""
    before_torch()
    from visiontrain.prediction.run import predict as look

    return look(with_published(config), lines=lines)


def run_check(config: CheckConfig) -> CheckResult:
    """Check with settings that are checked already."""
    before_torch()
    from visiontrain.checks.check import run_check as look

    with _holding_nothing():
        return look(with_published(config))


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

    return export_model(with_published(config))


def _not_in_a_worker() -> None:
    """Stop a process that runs the user's script as it is born, because the script defines what its parent sends it."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        sys.exit(
            "visiontrain: a loader process imports this script, for the augmentation that it defines, and would train "
            'again. Put the call under   if __name__ == "__main__":   or set workers=0.'
        )


@contextmanager
def _holding_nothing() -> Iterator[None]:
    """Let an error for people go without the model and all that was made of it: a notebook keeps its last error."""
    try:
        yield
    except VisionTrainError as error:
        empty_frames(error)
        raise


def _convert_data(config: ConvertConfig, out: Path) -> Conversion:
    """A bar appears on a terminal where it takes more than a second."""
    from visiontrain.data.convert import convert as convert_data
    from visiontrain.data.description import load_description
    from visiontrain.inline import bar, steps

    with bar(unit="img", leave=False, delay=1, disable=None) as shown:
        description = load_description(config.data)
        return convert_data(description, config.format, out, copy=config.pictures == "copy", on_progress=steps(shown))


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
    config = with_recipe(config, about.get("family") or family_named(config.model))
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

    comparison = compare_runs(*config.runs)
    if config.out:
        from visiontrain.record.compare_out import write_comparison

        write_comparison(comparison, Path(config.out))
    return comparison


def _checkpoint(model: str) -> dict[str, Any]:
    """What a checkpoint says of its model; of a name there is nothing to read."""
    if not is_checkpoint(model):
        return {}
    from visiontrain.models.published import located
    from visiontrain.models.weights import read_checkpoint

    about: dict[str, Any] = read_checkpoint(located(model, download=False, sha256=""))["model"]
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
    counts = counts_of(about.get("name", config.model), classes or CLASSES, config.auxiliary)
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
