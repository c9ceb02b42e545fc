"""Optimizers and their parameter groups. OPTIMIZERS maps the name in the settings to a builder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from visiontrain.config.groups import OptimConfig
from visiontrain.training import muon
from visiontrain.training.schedule import RECIPE_IMAGES, Schedule, lr_factor

ROLES = ("weights", muon.ROLE, "norms", "biases")
DECAYING = ("weights", muon.ROLE)
LONG_RUN = 10_000  # updates from which auto takes Muon
MUON_RATE = 0.02  # from scratch; half of it from a checkpoint


def _sgd(groups: list[dict], config: OptimConfig) -> Optimizer:
    nesterov = config.momentum > 0
    return torch.optim.SGD(groups, lr=config.lr0, momentum=config.momentum, nesterov=nesterov, **_kernel(groups))


def _adamw(groups: list[dict], config: OptimConfig) -> Optimizer:
    return torch.optim.AdamW(groups, lr=config.lr0, betas=(config.momentum, 0.999), **_kernel(groups))


def _muon(groups: list[dict], config: OptimConfig) -> Optimizer:
    nesterov = config.momentum > 0
    return muon.Muon(groups, lr=config.lr0, momentum=config.momentum, nesterov=nesterov, **_kernel(groups))


def _kernel(groups: list[dict]) -> dict[str, bool]:
    """Fused on CUDA: it needs no memory of its own, so a step cannot fail halfway for want of it."""
    on_cuda = all(p.device.type == "cuda" for group in groups for p in group["params"])
    return {"fused": True} if on_cuda else {"foreach": True}


OPTIMIZERS: dict[str, Callable[[list[dict], OptimConfig], Optimizer]] = {"SGD": _sgd, "AdamW": _adamw, "Muon": _muon}


def _sgd_state(parameter: nn.Parameter, group: dict) -> dict[str, Tensor]:
    return {"momentum_buffer": torch.zeros_like(parameter)} if group["momentum"] else {}


def _adamw_state(parameter: nn.Parameter, group: dict) -> dict[str, Tensor]:
    dtype = torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32
    count = torch.zeros((), dtype=dtype, device=parameter.device if group["fused"] else "cpu")
    return {"step": count, "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}


STATES: dict[str, Callable[[nn.Parameter, dict], dict[str, Tensor]]] = {
    "SGD": _sgd_state,
    "AdamW": _adamw_state,
    "Muon": _sgd_state,
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Settings of the optimizer as they are used, and why."""

    config: OptimConfig
    reason: str


def choose_optimizer(
    config: OptimConfig,
    given: frozenset[str],
    *,
    updates: int,
    classes: int,
    images_per_update: int,
    scratch: bool = True,
) -> Choice:
    """Resolve ``optimizer=auto``: the kind by the planned updates, and lr0 and its companions where none were given.

    Then lr0, given or chosen, is scaled by ``lr_scale``. From scratch the chosen one is twice that of fine-tuning: on bccd
    at 160 pixels it was worth 0.016 AP (one seed).

    Args:
        config: the settings.
        given: names of the settings that the user gave.
        updates: planned updates of the run.
        classes: of the data set.
        images_per_update: E of the plan.
        scratch: no weights are given.
    """
    return _scaled(_chosen(config, given, updates, classes, scratch), images_per_update)


def _scaled(choice: Choice, images_per_update: int) -> Choice:
    config = choice.config
    if config.lr_scale == "none":
        return choice
    lr0 = config.lr0 * lr_factor(config.lr_scale, images_per_update)
    share = f"{images_per_update}/{RECIPE_IMAGES}"
    factor = {"linear": share, "sqrt": f"sqrt({share})"}[config.lr_scale]
    why = f"{choice.reason}; lr_scale={config.lr_scale}: lr0 {config.lr0:g} x {factor} = {lr0:g}"
    return Choice(replace(config, lr0=lr0), why)


def _chosen(config: OptimConfig, given: frozenset[str], updates: int, classes: int, scratch: bool) -> Choice:
    rate = 0.02 if scratch else 0.01
    fitting: dict[str, Any] = {"lr0": round(rate / (4 + classes), 6), "momentum": 0.9, "warmup_bias_lr": 0.0}
    if config.optimizer == "AdamW" and "lr0" not in given:
        why = f"as given, lr0 the default, which is one for SGD and high for AdamW: lr0={fitting['lr0']:g} is what auto takes"
        return Choice(config, why)
    if config.optimizer != "auto":
        return Choice(config, "as given")
    begin = "from scratch" if scratch else "from a checkpoint"
    if updates >= LONG_RUN:
        why = f"{updates} planned updates, at least {LONG_RUN}"
        if "lr0" in given:
            return Choice(replace(config, optimizer="Muon"), why)
        lr0 = MUON_RATE if scratch else MUON_RATE / 2
        return Choice(replace(config, optimizer="Muon", lr0=lr0), f"{why}; lr0 {lr0:g} {begin}")
    fitting = {name: value for name, value in fitting.items() if name not in given}
    why = f"{updates} planned updates, fewer than {LONG_RUN}"
    if "lr0" in fitting:
        why += f"; lr0 {rate:g} / (4 + {classes} classes) {begin}"
    return Choice(replace(config, optimizer="AdamW", **fitting), why)


def parameter_groups(
    model: nn.Module, weight_decay: float, *, matrices: bool = False, layer_decay: float = 1.0
) -> list[dict]:
    """Weights (with decay), norms and biases (without), a group for each role, or for each role of each layer.

    Each group has ``role``: weights, norms or biases, with ``matrices`` also those; and ``factor``, what the schedule's learning
    rate is multiplied by. A parameter with one dimension is a bias or belongs to a norm.

    Args:
        matrices: the weights that Muon moves are a role of their own.
        layer_decay: a layer's factor is this of the next one's; that of the last layer, the head, is 1. Layers are those that
            checkpoints number: model.0, model.1 and so on. Auxiliary layers, which are numbered on, have 1 too.

    Source:
        Layer-wise decay: Clark et al., ELECTRA, ICLR 2020, arXiv:2003.10555.
    """
    moved = muon.matrices_of(model) if matrices else set()
    layers = {name: _layer(name) for name, _ in model.named_parameters()}
    last = max((layer for name, layer in layers.items() if not name.startswith("auxiliary.")), default=0)
    groups: dict[tuple[str, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            factor = 1.0 if layer_decay == 1 else layer_decay ** max(last - layers[name], 0)
            groups.setdefault((_role(name, parameter, moved), factor), []).append(parameter)
    return [
        {
            "params": parameters,
            "role": role,
            "factor": factor,
            "weight_decay": weight_decay if role in DECAYING else 0.0,
        }
        for (role, factor), parameters in sorted(groups.items(), key=lambda g: (ROLES.index(g[0][0]), g[0][1]))
    ]


def _role(name: str, parameter: nn.Parameter, matrices: set[int]) -> str:
    if name.endswith("bias"):
        return "biases"
    if parameter.ndim == 1 or name.endswith("layer_scale"):
        return "norms"
    return muon.ROLE if id(parameter) in matrices else "weights"


def _layer(name: str) -> int:
    """Of model.22.cv3.0.weight 22; of what is not numbered 0."""
    return next((int(part) for part in name.split(".") if part.isdecimal()), 0)


def build_optimizer(model: nn.Module, config: OptimConfig, weight_decay: float) -> Optimizer:
    """The optimizer that ``config.optimizer`` names, with ``weight_decay`` as the plan derived it."""
    groups = parameter_groups(model, weight_decay, matrices=config.optimizer == "Muon", layer_decay=config.layer_decay)
    return OPTIMIZERS[config.optimizer](groups, config)


def allocate_state(optimizer: Optimizer) -> None:
    """Make now what the first step would make, so that it cannot run out of memory halfway; changes no bit of any step.

    A momentum that starts at zero becomes the first gradient, as it does when it starts as a copy of it. State that is
    there (from a checkpoint) stays.
    """
    make = STATES[type(optimizer).__name__]
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if not optimizer.state[parameter]:
                optimizer.state[parameter].update(make(parameter, group))


def set_decay(optimizer: Optimizer, weight_decay: float) -> None:
    """Give the weights this decay; norms and biases have none."""
    for group in optimizer.param_groups:
        group["weight_decay"] = weight_decay if group["role"] in DECAYING else 0.0


def fit_to_device(optimizer: Optimizer) -> None:
    """After a checkpoint of another kind of device was loaded: the kernels of this one, and the counts where they want them."""
    kernel = _kernel(optimizer.param_groups)
    for group in optimizer.param_groups:
        group.update({"fused": kernel.get("fused"), "foreach": kernel.get("foreach")})
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            if "step" in state:
                state["step"] = torch.as_tensor(state["step"]).to(parameter.device if group["fused"] else "cpu")


def state_bytes(optimizer: Optimizer) -> int:
    """Bytes of the tensors that the optimizer keeps."""
    tensors = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, Tensor)]
    return sum(t.nbytes for t in tensors)


def set_schedule(optimizer: Optimizer, schedule: Schedule, images: float) -> tuple[float, float]:
    """Give every group its learning rate and momentum at ``images``; returns those of the weights."""
    momentum = schedule.momentum_at(images)
    for group in optimizer.param_groups:
        rate = schedule.learning_rate(images, bias=group["role"] == "biases")
        group["lr"] = rate * group.get("factor", 1.0)  # checkpoints of before it have none
        if "betas" in group:
            group["betas"] = (momentum, group["betas"][1])
        else:
            group["momentum"] = momentum
    return schedule.learning_rate(images), momentum
