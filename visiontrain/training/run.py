"""A training run from settings to result: the recipe, top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from visiontrain.batch import Batch
from visiontrain.config.files import to_yaml
from visiontrain.config.schema import AUTO, TrainConfig
from visiontrain.data.augment import album
from visiontrain.data.augment.lay import most_pixels
from visiontrain.data.dataset import EvalSet, Key
from visiontrain.data.description import Description, draw_here, load_description
from visiontrain.data.index import Index, open_index
from visiontrain.data.loader import evaluation_loader, fitting_workers, training_loader, worker_count
from visiontrain.data.sampler import BLOCK, WindowSampler
from visiontrain.data.shared import read_for_all
from visiontrain.distributed import ALONE, Ranks, joined
from visiontrain.errors import ConfigError, Interrupted
from visiontrain.evaluation.evaluator import Evaluation, evaluate
from visiontrain.evaluation.pictures import labels_and_predictions
from visiontrain.inline import bar
from visiontrain.losses import LOSSES
from visiontrain.memory import Phases
from visiontrain.models.detector import Detector
from visiontrain.models.weights import load_model
from visiontrain.record.events import (
    EvaluationProgress,
    EvaluationStarted,
    Event,
    FactsChanged,
    Notice,
    RunEnded,
    RunStarted,
)
from visiontrain.record.files import run_folder, write_text
from visiontrain.record.run import Recorder, default_sinks, trim
from visiontrain.record.sinks.loggers import require_loggers
from visiontrain.training.autobatch import find_batch
from visiontrain.training.average import try_average
from visiontrain.training.caching import kept_pictures
from visiontrain.training.checkpoint import About, TrainState, restore
from visiontrain.training.determinism import reproducible
from visiontrain.training.ema import EMA
from visiontrain.training.fit import checkpoint, fit
from visiontrain.training.interrupt import Interrupt, Stop
from visiontrain.training.job import Job
from visiontrain.training.judging import out_of_patience
from visiontrain.training.optimizer import (
    allocate_state,
    build_optimizer,
    choose_optimizer,
    fit_to_device,
    set_decay,
)
from visiontrain.training.pictures import first_batches
from visiontrain.training.plan import Plan, make_plan
from visiontrain.training.precision import choose_precision
from visiontrain.training.recovery import shrink_validation
from visiontrain.training.reduction import Reduction
from visiontrain.training.resume import Resumed, resume
from visiontrain.training.schedule import horizon, schedule_of
from visiontrain.training.setup import Setup, chosen, criterion_of, device_of, is_deterministic, prove_terms
from visiontrain.training.start import (
    from_scratch,
    model_to_train,
    model_with,
    normalisation_of,
    of_its_family,
    require_what_is_asked,
)
from visiontrain.training.statistics import AS_IT_IS, BatchNormPolicy, reestimate
from visiontrain.training.telling import facts, notices, sentences


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to: its folder, the metrics of the best epoch, how it ended, per-class results of best.pt."""

    folder: Path
    metrics: dict[str, float]
    outcome: str
    per_class: dict[str, dict[str, float | int | None]]


def train(
    config: TrainConfig,
    callbacks: Sequence[Callable[[Event], None]] = (),
    statistics: BatchNormPolicy = AS_IT_IS,
) -> RunResult:
    """Train a detector.

    Args:
        config: settings; with ``resume`` those of the interrupted run, under what was given now.
        callbacks: called with every event of the run (visiontrain.record.events).
        statistics: what is done to BatchNorm's; for experiments (tools/norm_policies.py).

    Raises:
        ConfigError: settings that contradict each other or this machine.
        DataError: pictures or labels cannot be used.
        WeightsError: a checkpoint cannot be used.
        TrainingStopped: ten windows in a row were not finite.
        RankLost: another rank of the run is gone.
        Interrupted: Ctrl-C or SIGTERM; last.pt has been written.
    """
    with joined(config.timeout) as ranks:
        resumed = ranks.first(lambda: taken_up(config, ranks))
        setup = replace(prepare(resumed.config if resumed else config, resumed, ranks), statistics=statistics)
        return carry_out(setup, callbacks)


def taken_up(config: TrainConfig, ranks: Ranks) -> Resumed | None:
    """The run that ``resume`` names; or the same run, where a launcher starts its ranks again after one was lost."""
    last = Path(ranks.recall("folder"), "weights", "last.pt")
    if ranks.recall("folder") and last.is_file():
        config = replace(config, resume=str(last), epochs=int(ranks.recall("epochs")))
    return resume(config) if config.resume else None


def carry_out(setup: Setup, callbacks: Sequence[Callable[[Event], None]]) -> RunResult:
    """Train as prepared; rank 0 records it, and closes the record whatever happens."""
    output = setup.config.output
    sinks = [*default_sinks(setup.folder, output.plots, output.loggers), *callbacks] if setup.ranks.main else []
    with ExitStack() as stack:
        record = stack.enter_context(Recorder(sinks))
        stack.callback(setup.val_loader.close)
        interrupt = stack.enter_context(Interrupt(alone=setup.ranks.size == 1).listening())
        stack.enter_context(reproducible(setup.deterministic))
        setup = replace(setup, cache=stack.enter_context(kept_pictures(setup)))
        job = begin(setup, record, interrupt)
        stack.callback(job.micro_batches.close)
        try:
            outcome = "stopped early" if out_of_patience(job) else fit(job)
            return finish(setup, job, record, outcome)
        except Stop:
            reason = f"{interrupt.heard or 'another rank was asked to stop'}; go on with: visiontrain train resume={job.last}"
            record(RunEnded("interrupted", reason))
            raise Interrupted(reason) from None
        except BaseException as error:
            record(RunEnded("failed", f"{type(error).__name__}: {error}"))
            raise


def prepare(config: TrainConfig, resumed: Resumed | None, ranks: Ranks = ALONE) -> Setup:
    """Look at data, device and folder; nothing is trained and no model built. Rank 0 reads and makes the folder for all."""
    if not config.data:
        raise ConfigError("data= is missing: give a dataset description, for example data=coco128.yaml or data=shapes")
    require_loggers(config.output.loggers)
    ranks = ranks.on(device_of(config, ranks.place))

    def read() -> list[Index]:
        description = load_description(config.data, config.download)
        indices = (read_with_bar(description, split) for split in ("train", "val"))
        return [chosen(config, index, description) for index in indices]

    train_index, val_index = read_for_all(ranks, read)
    if ranks.place.local == 0 and not ranks.main:
        draw_here(config.data, config.download)
    setup = arrange(config, ranks, train_index, val_index, resumed)
    return replace(setup, folder=ranks.first(lambda: folder_of(config, resumed, ranks)))


def folder_of(config: TrainConfig, resumed: Resumed | None, ranks: Ranks) -> Path:
    """The folder of the run: that of the run that goes on, that of ranks which were lost before a checkpoint, or a new one."""
    output, before = config.output, ranks.recall("folder")
    if resumed:
        folder = resumed.folder
    else:
        folder = Path(before) if before else run_folder(output.project, output.name, output.exist_ok)
    ranks.remember("folder", str(folder.absolute()))
    ranks.remember("epochs", str(config.epochs))  # +20 is added once, however often the ranks start again
    return folder


def arrange(config: TrainConfig, ranks: Ranks, train_index: Index, val_index: Index, resumed: Resumed | None) -> Setup:
    """Decide all that follows from settings and data; the folder is still to come, nothing is written."""
    auto = None
    album.try_out(config.augment.albumentations, config.imgsz)
    config = config if resumed else of_its_family(config)
    require_what_is_asked(config, train_index.names)
    if config.batch == AUTO:
        model = partial(model_with, config, train_index.names, normalisation_of(config, ranks=ranks.size).norm)
        auto = find_batch(config, train_index, ranks, model, deterministic=is_deterministic(config, ranks))
        config = replace(config, batch=auto.batch)
    plan = make_plan(
        batch=config.batch,
        nbs=config.nbs,
        images=len(train_index),
        epochs=config.epochs,
        weight_decay=config.optim.weight_decay,
        warmup_epochs=config.optim.warmup_epochs,
        last_window=config.last_window,
        ranks=ranks.size,
        normalisation=normalisation_of(config, resumed, ranks.size),
        reduce=config.reduce,
    )
    choice = choose_optimizer(
        config.optim,
        config.given,
        updates=resumed.updates_at_start if resumed else plan.updates,  # the kind stays that of the start
        classes=len(train_index.names),
        scratch=from_scratch(config),
        images_per_update=plan.images_per_update,
    )
    if resumed:
        _same_data(resumed, train_index)
        _same_blocks(resumed, plan)
    precision = choose_precision(ranks.device, config.amp)
    batch = 2 * config.batch // ranks.size
    wanted = worker_count(config.workers, ranks.place.local_size)
    largest = config.imgsz.scaled(1 + config.sampling.multi_scale)
    most = most_pixels(config.augment) if config.augment.augment_device == "gpu" else 1
    workers = fitting_workers(wanted, most * max(batch, BLOCK), largest, ranks.place.local_size)
    loader = evaluation_loader(EvalSet(val_index, config.imgsz), batch, workers, rank=ranks.rank, ranks=ranks.size)
    return Setup(
        config, Path(), ranks, train_index, val_index, loader, plan, choice, precision, resumed, workers, auto=auto
    )


def read_with_bar(description: Description, split: str) -> Index:
    """The index of a split; a bar appears on a terminal where reading it takes a second, or asking whether it still holds."""
    with ExitStack() as open_bars:
        reading = _bar(open_bars, f"reading {split} labels", "img")
        return open_index(description, split, reading, _bar(open_bars, f"looking for edits in {split}", "file"))


def _bar(open_bars: ExitStack, what: str, unit: str) -> Callable[[int, int], None]:
    """What shows (done, in all), in a bar of its own from the first call to the last."""
    bars: list[tqdm] = []

    def show(done: int, total: int) -> None:
        if not bars:
            shown = bar(desc=what, unit=unit, total=total, leave=False, delay=1, disable=None)
            bars.append(open_bars.enter_context(shown))
        bars[0].update(done - bars[0].n)
        if done == total:
            bars.pop().close()

    return show


def begin(setup: Setup, record: Recorder, interrupt: Interrupt) -> Job:
    """Build the model and all that training changes, say the plan, and set everything up for the loop."""
    config = setup.config
    state = new_state(setup)
    model = state.model
    if setup.resumed:
        restore(state, setup.resumed.content, setup.resumed.path)
        go_on_with(state, setup)
    if setup.ranks.main:
        trim(setup.folder, replace(state.counters(), epoch=state.epoch))
        (setup.folder / "weights").mkdir(exist_ok=True)
        write_text(setup.folder / "args.yaml", to_yaml(config.leaves()))
    job = job_of(setup, state, record, interrupt)
    if config.output.plots and setup.ranks.main and not setup.resumed:
        job.show = first_batches(record, setup.train.names)
    record(
        RunStarted(
            folder=setup.folder,
            plan=sentences(setup, model),
            facts=facts(setup, state),
            epochs=setup.plan.epochs,
            images_per_epoch=len(setup.train),
            part_names=LOSSES[model.loss].part_names,
            resumed_epoch=state.epoch,
            counters=state.counters(),
        )
    )
    for notice in notices(setup, state) if setup.ranks.main else ():
        record(notice)
    if setup.resumed and setup.resumed.config.epochs != setup.resumed.planned:
        checkpoint(job, "extended")  # from now on this is the plan, also for resume= without epochs
    return job


def go_on_with(state: TrainState, setup: Setup) -> None:
    """What follows from batch, nbs, ranks and device as they are now, and not as they were when the checkpoint was written."""
    assert setup.resumed is not None
    set_decay(state.optimizer, setup.plan.weight_decay_used)
    fit_to_device(state.optimizer)
    if setup.resumed.extended:
        state.patience_from, state.epochs_without_improvement = state.epoch, 0
    if not setup.resumed.same_cut(setup.plan):
        state.micro_batch = state.validation_batch = 0


def new_state(setup: Setup) -> TrainState:
    """The model as training begins with it, its average and its optimizer, on the device."""
    config, plan = setup.config, setup.plan
    torch.manual_seed(config.seed)
    model = model_to_train(config, setup.train.names, plan, setup.resumed, setup.statistics)
    model = model.to(setup.ranks.device, memory_format=torch.channels_last)
    optimizer = build_optimizer(model, setup.optimizer.config, plan.weight_decay_used)
    return TrainState(model, EMA(model), optimizer, setup.precision)


def job_of(setup: Setup, state: TrainState, record: Callable[[Event], None], interrupt: Interrupt) -> Job:
    """All that the loop works with, from where ``state`` stands, allocated; nothing is written.

    Raises:
        ConfigError: a loss term reaches parameters that the detector does not give to it.
    """
    config, plan = setup.config, setup.plan
    state.micro_batch = state.micro_batch or plan.batch // plan.ranks
    state.validation_batch = state.validation_batch or setup.val_loader.batch
    allocate_state(state.optimizer)
    criterion = criterion_of(config, setup.train, state.model.loss)
    prove_terms(state.model, criterion, setup.ranks)
    phases = Phases(setup.ranks.device)
    phases.close("baseline")
    return Job(
        config=config,
        plan=plan,
        schedule=schedule_of(plan, setup.optimizer.config),
        horizon=horizon(plan.images_planned),
        ranks=setup.ranks,
        reduction=Reduction(state.model, setup.ranks, plan.reduction),
        criterion=criterion,
        state=state,
        micro_batches=micro_batches(setup, state),
        evaluate=lambda: score(setup, averaged(setup, state), record, state).metrics,
        show=_nothing,
        record=record,
        interrupt=interrupt,
        about=About(config.leaves(), sorted(config.given), setup.plan_kept, setup.train.fingerprint),
        folder=setup.folder,
        phases=phases,
        saved_updates=state.updates_applied,
    )


def finish(setup: Setup, job: Job, record: Recorder, outcome: str) -> RunResult:
    """Try the average of the best, score best.pt once more, draw it, and close the record."""
    try_average(job, lambda model: score(setup, model, record, job.state).metrics, checkpoint)
    best = job.folder / "weights" / "best.pt"
    with job.interrupt.may_stop():
        model = setup.ranks.first(lambda: load_model(best))
        model = model.to(setup.ranks.device, memory_format=torch.channels_last)
        model.use_nms(setup.config.scoring.nms)
        result = score(setup, model, record, job.state)
    record(result.curves)
    if setup.config.output.plots:
        for pictures in labels_and_predictions(setup.val, result.found, result.worst):
            record(pictures)
    reason = {
        "finished": f"all {job.plan.epochs} epochs",
        "stopped early": f"no better {setup.config.judging.fitness} for {job.state.epochs_without_improvement} epochs (patience)",
    }[outcome]
    record(RunEnded(outcome, reason, {"per_class": result.per_class}, result.metrics))
    return RunResult(job.folder, result.metrics, outcome, result.per_class)


def micro_batches(setup: Setup, state: TrainState) -> Generator[Batch, None, None]:
    """The micro-batches of every window that is left, epoch after epoch, as one stream."""
    plan = setup.plan
    dataset = setup.samples()

    def keys() -> Iterator[list[Key]]:
        for epoch in range(state_epoch, plan.epochs):
            for window in plan.windows_from(epoch, state_position if epoch == state_epoch else 0):
                for start, stop in plan.shares(*window, setup.ranks.rank):
                    yield dataset.keys(epoch, window, start, stop)

    state_epoch, state_position = state.epoch, state.position  # as they are now, not when the loader gets there
    return training_loader(dataset, keys(), setup.workers, setup.ranks.device.type == "cuda")


def averaged(setup: Setup, state: TrainState) -> Detector:
    """The averaged weights, their statistics measured anew where the policy says so; the samples are those of training."""
    policy, model = setup.statistics, state.ema.model
    if policy.reestimate_images:
        dataset = setup.samples()
        images = min(policy.reestimate_images, len(dataset))
        positions = WindowSampler([(0, images)], policy.reestimate_batch, state.epoch)
        with closing(training_loader(dataset, positions, setup.workers)) as batches:
            reestimate(model, batches, setup.ranks.device, setup.precision.autocast)
    return model


def score(setup: Setup, model: Detector, record: Callable[[Event], None], state: TrainState) -> Evaluation:
    """Evaluate on the val split, with a bar; a batch that is too large is halved in ``state`` and in the record."""
    config = setup.config

    def shrunk(before: int, after: int, said: str) -> None:
        told = shrink_validation(state, before, after, said)
        record(FactsChanged({"shrinks": list(state.shrinks)}))
        record(Notice(told, "warning"))

    record(EvaluationStarted(len(setup.val)))
    result = evaluate(
        model,
        setup.val_loader,
        device=setup.ranks.device,
        scoring=config.scoring,
        class_names=setup.val.names,
        index=setup.val,
        on_progress=lambda images: record(EvaluationProgress(images)),
        autocast=setup.precision.autocast,
        at_once=state.validation_batch,
        on_shrink=shrunk,
        ranks=setup.ranks,
    )
    for text in result.notices:
        record(Notice(text, "warning"))
    return result


def _same_data(resumed: Resumed, train_index: Index) -> None:
    names = tuple(resumed.content["model"]["names"])
    if names != train_index.names:
        raise ConfigError(
            f"data={resumed.config.data}: has classes {', '.join(train_index.names[:8])}; {resumed.path} was trained on "
            f"{', '.join(names[:8])}. A run goes on with the same classes; start a new run for others."
        )
    planned = resumed.content["plan"]["images"]
    if planned != len(train_index):
        raise ConfigError(
            f"data={resumed.config.data}: has {len(train_index)} training images, the run was planned with {planned}; "
            "bring the missing ones back, or start a new run."
        )


def _same_blocks(resumed: Resumed, plan: Plan) -> None:
    """With rect an epoch's order is made of windows: inside an epoch they stay as long as they were."""
    state, before = resumed.content["state"], resumed.content["plan"]["images_per_update"]
    if resumed.config.sampling.rect and state["position"] and before != plan.images_per_update:
        raise ConfigError(
            f"batch={plan.batch} nbs={plan.nbs}: an update would see {plan.images_per_update} images and not {before}, and with"
            f" rect=true the order of the open epoch {state['epoch'] + 1} is made of windows of {before}. Go on with a batch that"
            f" keeps it, and change it between epochs."
        )


def _nothing(batch: Batch) -> None:
    """No pictures are wanted."""
