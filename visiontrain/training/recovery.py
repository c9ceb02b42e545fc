"""Going on after running out of memory: smaller micro-batches, the same images; or, at one image, an honest end."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import nn

from visiontrain.config.schema import TrainConfig
from visiontrain.errors import OutOfMemory
from visiontrain.memory import Phases, available_bytes, halved
from visiontrain.training.checkpoint import TrainState
from visiontrain.training.optimizer import state_bytes
from visiontrain.training.plan import Plan


def shrink_micro_batch(state: TrainState, plan: Plan, failed: int, images: int, peak: int, said: str) -> str:
    """Halve the micro-batch until it is below ``failed`` images, note it in the state, and say what happened.

    The window, its images, the images per update, learning rate and weight decay stay.

    Args:
        state: its ``micro_batch`` and ``shrinks`` change.
        plan: of the run.
        failed: images of the largest micro-batch of the window that ran out of memory, at least 2.
        images: of that window.
        peak: bytes, as measured when it failed.
        said: what the failing call told.
    """
    before, state.micro_batch = state.micro_batch, halved(state.micro_batch, failed)
    accumulate = math.ceil(plan.images_per_update / (state.micro_batch * plan.ranks))
    state.shrinks.append(
        {
            "where": "training",
            "updates_attempted": state.updates_attempted,
            "epoch": state.epoch + 1,
            "before": before,
            "after": state.micro_batch,
            "accumulate": accumulate,
            "images_per_update": plan.images_per_update,
            "peak": peak,
            "error": said,
        }
    )
    return (
        f"Out of memory ({said}). The {images} images of this window run again as micro-batches of {state.micro_batch} "
        f"instead of {before}, and so do all later ones: {accumulate} micro-batches in a full window, still "
        f"{plan.images_per_update} images per update. Learning rate and weight decay stay."
    )


def shrink_validation(state: TrainState, before: int, after: int, said: str) -> str:
    """Note that validation goes on with ``after`` images at a time, and say so."""
    state.validation_batch = after
    state.shrinks.append(
        {
            "where": "validation",
            "updates_attempted": state.updates_attempted,
            "epoch": state.epoch + 1,
            "before": before,
            "after": after,
            "error": said,
        }
    )
    return f"Out of memory in validation ({said}): {after} images at a time instead of {before} from here on."


def half_done(said: str, last: Path) -> OutOfMemory:
    """The error for an update that ran out of memory between its parts."""
    return OutOfMemory(
        f"the update itself ran out of memory and may be half done, so nothing of it was saved ({said}). "
        f"{_go_on(last)} Make room first: other programs may hold memory of this device."
    )


def nothing_smaller(state: TrainState, config: TrainConfig, phases: Phases, said: str, last: Path) -> OutOfMemory:
    """The error for a micro-batch of one image that does not fit: where the bytes are, and what would help."""
    rows = where_bytes_are(state, phases)
    table = "\n".join(f"  {name:<12} {size / 1e6:>9.1f} MB  {how}" for name, size, how in rows)
    helps = "\n".join(f"  {remedy}" for remedy in remedies(state, config, phases.device))
    within = available_bytes(phases.device) / 1e6
    size = config.imgsz.scaled(1 + config.sampling.multi_scale)
    return OutOfMemory(
        f"one image of {size.height} x {size.width} pixels does not fit ({said}).\n"
        f"{within:.0f} MB are within reach of this process on {phases.device} (measured). Where they went:\n{table}\n"
        f"What would help:\n{helps}\nImage size and model are never changed unasked. {_go_on(last)}"
    )


def where_bytes_are(state: TrainState, phases: Phases) -> list[tuple[str, int, str]]:
    """Rows (what, bytes, how known). Activations, with the loss's own tensors, are what the peak held besides the rest."""
    counted = "computed: sizes of the tensors"
    rows = [
        ("weights", _bytes(state.model), counted),
        ("gradients", sum(p.nbytes for p in state.model.parameters() if p.requires_grad), counted),
        ("optimizer", state_bytes(state.optimizer), counted),
        ("EMA", _bytes(state.ema.model), counted),
    ]
    if phases.device.type == "cpu":
        before = phases.figures["baseline"]["resident"] - sum(size for name, size, _ in rows if name != "gradients")
        rows.append(
            ("program", max(before, 0), "computed: resident before the first window, measured, less its tensors")
        )
    peak = phases.peak
    rest = max(peak - sum(size for _, size, _ in rows), 0)
    rows.append(("activations", rest, f"computed: peak of {peak / 1e6:.1f} MB, measured, less the rows above"))
    return rows


def remedies(state: TrainState, config: TrainConfig, device: torch.device) -> list[str]:
    """What the user could change, as it applies to this run, the gentlest first."""
    found = ["close other programs that hold memory of this device"]
    if device.type == "cuda" and not config.amp:
        found.append("amp=true: most activations in 16 bits")
    if not config.checkpoint_blocks:
        found.append("checkpoint_blocks=true: activations of a block are computed again instead of kept")
    if "exp_avg_sq" in next(iter(state.optimizer.state.values()), {}):
        saved = state_bytes(state.optimizer) / 2 / 1e6
        found.append(
            f"optimizer=SGD: half of the optimizer's state, {saved:.1f} MB (another learning rate goes with it)"
        )
    if config.sampling.multi_scale:
        found.append("a smaller multi_scale: the largest windows need the most")
    smaller = config.imgsz.shrunk(0.75)
    if smaller != config.imgsz:
        found.append(f"imgsz={smaller}: activations grow with the area of the picture")
    found.append("a smaller model")
    return found


def _bytes(model: nn.Module) -> int:
    return sum(t.nbytes for t in model.state_dict().values())


def _go_on(last: Path) -> str:
    if not last.exists():
        return "No checkpoint was written yet."
    return f"The last checkpoint is {last}; go on with: visiontrain train resume={last}"
