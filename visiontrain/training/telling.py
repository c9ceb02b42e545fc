"""What a run says before its first window: the plan in sentences, the facts of run.json, what a person should know."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from visiontrain.config.recipes import recipe_sentence
from visiontrain.data.augment import album
from visiontrain.data.balance import balance_sentence, class_weights, repeat_factors, weights_sentence
from visiontrain.data.description import load_description
from visiontrain.data.kept import why_not_kept
from visiontrain.data.loader import SHARED_MEMORY, worker_count
from visiontrain.distributed import Ranks
from visiontrain.losses import LOSSES
from visiontrain.memory import peak_is_of
from visiontrain.models.detector import Detector
from visiontrain.models.weights import licence_sentence
from visiontrain.nn.norm import norm_layers
from visiontrain.record.events import Notice
from visiontrain.record.files import write_text
from visiontrain.record.sinks.loggers import how_to_look
from visiontrain.training.caching import told
from visiontrain.training.checkpoint import TrainState, versions
from visiontrain.training.plan import counted
from visiontrain.training.schedule import horizon, lr_factor, schedule_of
from visiontrain.training.setup import Setup
from visiontrain.training.start import from_scratch
from visiontrain.training.two_pass import shared_parameters


def sentences(setup: Setup, model: Detector) -> tuple[str, ...]:
    """The plan in sentences that a person can check, before anything is trained."""
    config, choice = setup.config, setup.optimizer
    origin = "from scratch" if from_scratch(config) else f"from {config.model}"
    device = setup.ranks.device
    again = ", activations computed again block by block (checkpoint_blocks)" if config.checkpoint_blocks else ""
    what = device_name(device) if device.type == "cuda" else f"cpu, {counted(torch.get_num_threads(), 'thread')}"
    if setup.ranks.size > 1:
        hosts = len({host.split(",")[0] for host in setup.ranks.hosts})
        what = f"{setup.ranks.size} ranks on {counted(hosts, 'host')} ({what} each)"
    auto = device.type == "cuda" and "device" not in config.given
    idle = idle_devices(torch.cuda.device_count(), setup.ranks.place.local_size) if auto else ""
    data = (
        f"{len(setup.train)} training images with {setup.train.targets} objects, {len(setup.val)} validation images with "
        f"{setup.val.targets}, {len(setup.train.names)} classes"
    )
    return (
        f"{model.name}, {model.parameter_count() / 1e6:.2f} M parameters, {origin}, on {what}, {setup.precision.name}{again}",
        *filter(None, [licence_sentence(model)]),
        f"{config.data}: {data}",
        *setup.train.told,
        *setup.val.told,
        *model.origin,
        *filter(None, [model.about_nms, model.about_auxiliary]),
        *recipe(setup, model),
        *drawing(setup),
        *judging(setup),
        *([setup.auto.sentence()] if setup.auto else []),
        *setup.plan.sentences(),
        *twice(model),
        f"{choice.config.optimizer}, lr0 {choice.config.lr0:g}, momentum {choice.config.momentum:g} ({choice.reason})",
        f"The averaged weights (EMA) look back over {horizon(setup.plan.images_planned).images:.0f} images at the most.",
        *([told(setup.cache)] if setup.cache else []),
        *([idle] if idle else []),
    )


def recipe(setup: Setup, model: Detector) -> Iterator[str]:
    """What the model's family trains with where nothing was given, and a part of the loss that counts at the end alone."""
    if used := recipe_sentence(setup.config, model.family):
        yield used
    if hasattr(LOSSES[model.loss], "closing"):
        last = min(setup.config.augment.close_mosaic, setup.plan.epochs)
        yield f"l1_loss counts in the last {counted(last, 'epoch')}, which have no mosaic (close_mosaic), and is 0 before."


def twice(model: Detector) -> Iterator[str]:
    """Why a window runs twice, where it does."""
    if shared := shared_parameters(model.term_parameters()):
        yield (
            f"The loss terms {' and '.join(model.loss_terms)} share {counted(shared, 'parameter tensor')}, so each window runs "
            "twice: once for its weights, once for its gradient."
        )


def extension(setup: Setup, state: TrainState) -> Iterator[str]:
    """What another number of epochs means for a run that goes on: the schedule is that of the new total from here."""
    resumed, plan, optim = setup.resumed, setup.plan, setup.optimizer.config
    if not resumed or plan.epochs == resumed.planned:
        return
    more = plan.epochs - resumed.planned
    was, now = (
        schedule_of(p, optim).learning_rate(state.progress_images)
        for p in (replace(plan, epochs=resumed.planned), plan)
    )
    yield (
        f"goes on to {counted(plan.epochs, 'epoch')}, {abs(more)} {'more' if more > 0 else 'fewer'} than planned; the learning "
        f"rate follows the schedule of {plan.epochs} from here: {now:.3g}, where that of {resumed.planned} had {was:.3g}"
    )


def judging(setup: Setup) -> Iterator[str]:
    """What best.pt is, where that is not what it usually is."""
    asked = setup.config.judging
    if asked.fitness != "ap" or asked.best_after:
        after = f" after epoch {asked.best_after}" if asked.best_after else ""
        yield f"best.pt has the highest {asked.fitness} of all that is validated{after}; patience waits for a higher one."


def drawing(setup: Setup) -> Iterator[str]:
    """How often pictures are drawn and what their boxes weigh, where that is not all the same."""
    sampling, index = setup.config.sampling, setup.train
    if setup.config.augment.augment_device == "gpu":
        yield "The device paints the samples (augment_device=gpu); the usual blur, grey and CLAHE are left out."
    if own := album.told(setup.config.augment.albumentations):
        yield own
    if sampling.balance != "none":
        yield balance_sentence(repeat_factors(index, sampling.balance, sampling.balance_threshold), sampling.balance)
    if weights := class_weights(index, sampling.class_weights):
        yield weights_sentence(weights, index.names)
    if sampling.rect or sampling.multi_scale:
        yield sizes_sentence(setup)


def sizes_sentence(setup: Setup) -> str:
    """Which sizes the windows of the last epoch have, and how many pixels against windows that are all of imgsz."""
    config, epoch, samples = setup.config, setup.plan.epochs - 1, setup.samples()
    sampling, windows = config.sampling, setup.plan.windows(epoch)
    sizes = [samples.size(epoch, window) for window in windows]
    pixels = sum((stop - start) * math.prod(size) for (start, stop), size in zip(windows, sizes, strict=True))
    share = pixels / (windows[-1][1] * math.prod(config.imgsz))
    why = " and ".join(
        [
            *(["rect: the shape that its pictures need"] if sampling.rect else []),
            *([f"multi_scale: {sampling.multi_scale:g} larger or smaller at the most"] if sampling.multi_scale else []),
        ]
    )
    low, high = min(sizes, key=math.prod), max(sizes, key=math.prod)
    return (
        f"Each window has a size of its own ({why}): in the last epoch {counted(len(set(sizes)), 'size')} from {low}"
        f" to {high}, {share:.0%} of the pixels of imgsz={config.imgsz}."
    )


def idle_devices(cards: int, ranks: int) -> str:
    """The sentence about cards of this host that nobody computes on, or ""."""
    if cards <= ranks:
        return ""
    each = ",".join(map(str, range(cards)))
    return (
        f"{cards} GPUs are here and {counted(ranks, 'rank')} {'computes' if ranks == 1 else 'compute'}: a second card doubles D "
        f"only as a rank of its own, device={each}."
    )


def facts(setup: Setup, state: TrainState) -> dict[str, Any]:
    """What run.json holds before the first window (accumulation.md, section 10); on resume, what was so far."""
    config, plan, optim, model = setup.config, setup.plan, setup.optimizer.config, state.model
    return {
        "batch": plan.batch,
        "nbs": plan.nbs,
        "weight_decay": plan.weight_decay,
        "seed": config.seed,
        "settings": config.leaves(),
        "names": sorted(config.given),
        "micro_batch": plan.batch // plan.ranks,
        "accumulate": plan.accumulate,
        "ranks": plan.ranks,
        "parallel": {"data": plan.ranks, "tensor": 1, "pipeline": 1},
        "images_per_update": plan.images_per_update,
        "updates_planned": plan.updates,
        "images_planned": plan.images_planned,
        "ramp": {"from": 1, "to": plan.accumulate, "images": plan.warmup_images},
        "weight_decay_used": plan.weight_decay_used,
        "precision": setup.precision.name,
        "normalisation": plan.normalisation.record(norm_layers(model)),
        "reduction": plan.reduction,
        "window_passes": 2 if shared_parameters(model.term_parameters()) else 1,
        "last_window": {"policy": plan.last_window, "images_left_out": left_out(setup)},
        "optimizer": {
            "kind": optim.optimizer,
            "lr0": optim.lr0,
            "lr_factor": lr_factor(optim.lr_scale, plan.images_per_update),
            "momentum": optim.momentum,
            "warmup_bias_lr": optim.warmup_bias_lr,
            "reason": setup.optimizer.reason,
        },
        "ema": {"horizon_images": horizon(plan.images_planned).images, "share": horizon(plan.images_planned).share},
        "deterministic": setup.deterministic,
        "shrinks": list(state.shrinks),
        "positions": dict(state.ledger.closed),
        **({"transferred": model.transferred} if model.transferred else {}),
        **({"batch_auto": setup.auto.facts()} if setup.auto else {}),
        "model": model.description() | {"parameters": model.parameter_count()},
        "versions": versions(),
        "device": {
            "kind": setup.ranks.device.type,
            "name": device_name(setup.ranks.device),
            "threads": torch.get_num_threads(),
            "workers": setup.workers,
        },
        "places": setup.ranks.gather(place(setup.ranks)),
        **({"changes": [*setup.resumed.told(plan), *extension(setup, state)]} if setup.resumed else {}),
        **({"metrics": {"best": {"epoch": state.best_epoch, **state.best_metrics}}} if state.best_epoch else {}),
        "memory": {"of": peak_is_of(setup.ranks.device)},
        "data": {
            "file": str(load_description(config.data).file) if setup.ranks.main else "",  # another host may lack it
            "fingerprint": setup.train.fingerprint,
            "val_fingerprint": setup.val.fingerprint,
            "images": len(setup.train),
            "targets": setup.train.targets,
            "val_images": len(setup.val),
            "val_targets": setup.val.targets,
            "findings": len(setup.train.findings) + len(setup.val.findings),
        },
    }


def place(ranks: Ranks) -> dict[str, Any]:
    """Where this rank computes."""
    return {
        "rank": ranks.rank,
        "host": platform.node(),
        "process": os.getpid(),
        "device": str(ranks.device),
        "name": device_name(ranks.device),
    }


def device_name(device: torch.device) -> str:
    """The GPU's name; of a CPU what the platform tells."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def left_out(setup: Setup) -> dict[str, list[str]]:
    """Paths of the images that last_window=drop leaves out, by epoch (1-based)."""
    plan, index = setup.plan, setup.train
    if plan.last_window == "use":
        return {}
    named, samples = {}, setup.samples()
    for epoch in range(plan.epochs):
        dealt = plan.windows(epoch)[-1][1]
        order = samples.order(epoch)
        named[str(epoch + 1)] = [index.path(int(i)) for i in order[np.arange(dealt, len(index))]]
    return named


def notices(setup: Setup, state: TrainState) -> Iterator[Notice]:
    """What a person should know before the first window: faults in plan and data, what resuming changes."""
    findings = [*setup.train.findings, *setup.val.findings]
    if findings:
        path = setup.folder / "data_findings.txt"
        write_text(path, "\n".join(map(str, findings)) + "\n")
        first = "; ".join(map(str, findings[:3]))
        count = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
        yield Notice(f"{count} in the data, all in {path}; the first: {first}", "warning")
    yield from map(Notice, how_to_look(setup.config.output.loggers, setup.folder))
    for reason in dict.fromkeys(index.not_kept for index in (setup.train, setup.val) if index.not_kept):
        yield Notice(why_not_kept(reason), "warning")
    wanted = worker_count(setup.config.workers, setup.ranks.place.local_size)
    if setup.workers < wanted:
        yield Notice(
            f"{SHARED_MEMORY} has room for the batches of {setup.workers} of {wanted} loader processes, so {setup.workers} are used. "
            "Give the container more (docker run --shm-size=1g), or use a smaller batch.",
            "warning",
        )
    if setup.resumed:
        yield Notice(f"Going on from {setup.resumed.path}: {setup.resumed.content['state']['epoch']} epochs are done.")
        if state.shrinks:
            yield Notice(
                f"It ran out of memory before: micro-batches of {state.micro_batch}, {state.validation_batch} images at a "
                "time in validation, as when it stopped."
            )
        for change in (*setup.resumed.told(setup.plan), *extension(setup, state)):
            yield Notice(f"Changed on resume: {change}")
        if setup.resumed.content["data_fingerprint"] != setup.train.fingerprint:
            yield Notice(
                "The training data have changed since the checkpoint: the run goes on with them as they are.", "warning"
            )
