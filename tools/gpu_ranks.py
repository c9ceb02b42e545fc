"""What several ranks do on CUDA devices: part of tools/gpu_check.py, and what each of its processes runs.

    python tools/gpu_ranks.py as_rank=gradients device=cuda:0 backend=gloo        (started by gpu_check, for each rank)

On one GPU two processes share it, over gloo. What needs a GPU for each process, and NCCL, is said to be left out where there
is one. tests/tools/test_gpu_ranks.py runs the same functions on the CPU.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist

from visiontrain.batch import Batch, Targets
from visiontrain.checks import preflight as trainers
from visiontrain.checks.check import look
from visiontrain.checks.equality import TOLERANCES, Pieces, full_float32, gradient, relative
from visiontrain.checks.rows import FAIL
from visiontrain.checks.together import shared_gradient
from visiontrain.checks.trial import fingerprint
from visiontrain.config.build import build
from visiontrain.config.groups import LossConfig
from visiontrain.config.schema import CheckConfig, TrainConfig
from visiontrain.distributed import Ranks, choose_device, joined
from visiontrain.losses import LOSSES
from visiontrain.models import build_model
from visiontrain.models.detector import Detector
from visiontrain.nn import sync
from visiontrain.nn.norm import freeze_batch_norm
from visiontrain.training.optimizer import build_optimizer
from visiontrain.training.plan import make_plan
from visiontrain.training.precision import Precision, choose_precision
from visiontrain.training.reduction import Reduction
from visiontrain.training.update import apply_update
from visiontrain.training.window import accumulate_window

CLASSES = ("a", "b", "c")
SIZE = 320  # pixels
MOST = 600  # seconds for a check


class LeftOut(Exception):
    """This machine lacks what the check needs; the message says what."""


def pictures(count: int, size: int, seed: int = 0) -> Batch:
    """Random pictures with 1 to 20 random boxes each."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 21, count)
    low = rng.uniform(0, 0.8 * size, (counts.sum(), 2))
    boxes = np.concatenate((low, low + rng.uniform(8, 0.2 * size, low.shape)), 1).astype(np.float32)
    targets = Targets(
        torch.from_numpy(np.repeat(np.arange(count), counts)),
        torch.from_numpy(rng.integers(0, len(CLASSES), counts.sum())),
        torch.from_numpy(boxes),
    )
    images = torch.from_numpy(rng.integers(0, 256, (count, 3, size, size), dtype=np.uint8))
    return Batch(images, targets, tuple(range(count)))


def detector(device: torch.device) -> Detector:
    """Fresh weights, the same on every rank, statistics frozen."""
    torch.manual_seed(0)
    model = build_model("yolov8n", CLASSES).to(device, memory_format=torch.channels_last).train()
    freeze_batch_norm(model)
    return model


def precisions(device: torch.device) -> list[Precision]:
    """Those that the device trains in, and float64, which tells rounding from a fault."""
    half = [choose_precision(device, True), Precision(device, torch.float16, _scaler(device))]
    return [Precision(device, torch.float64), Precision(device), *(half if device.type == "cuda" else [])]


def gradients(ranks: Ranks, size: int = SIZE) -> str:
    """A window that the ranks share against the same images on one: law 2, with both reductions, in every precision."""
    told = []
    for precision in precisions(ranks.device):
        model = detector(ranks.device)
        model = model.double() if precision.dtype == torch.float64 else model
        pieces, batch = Pieces(LOSSES[model.loss](LossConfig()), ranks), pictures(4 * ranks.size, size)
        with full_float32():
            whole = gradient(
                Pieces(pieces.criterion, Ranks(ranks.device)), deepcopy(model), [batch], precision
            ).vector.double()
            for nbs in (2 * len(batch), len(batch)):
                plan = make_plan(
                    batch=len(batch),
                    nbs=nbs,
                    images=0,
                    epochs=1,
                    weight_decay=0,
                    warmup_epochs=0,
                    ranks=ranks.size,
                )
                found = shared_gradient(pieces, deepcopy(model), batch, plan, precision).double()
                assert len(set(ranks.gather(fingerprint([found])))) == 1, f"{precision.name}: ranks differ"
                gap = relative(found, whole)
                cosine = float(torch.nn.functional.cosine_similarity(found, whole, dim=0))
                limit = TOLERANCES[ranks.device.type, precision.dtype]
                assert gap <= limit and cosine > 0.999, (precision.name, plan.reduction, gap, cosine)
                told.append(f"{precision.name} {plan.reduction} {gap:.1e}")
    return ", ".join(told)


def scaler(ranks: Ranks, size: int = SIZE) -> str:
    """The gradient of one rank alone overflows: on all of them nothing changes and the scale is halved; then it goes through."""
    device = ranks.device
    half = torch.float16 if device.type == "cuda" else torch.float32
    model, precision = detector(device), Precision(device, half, _scaler(device))
    optimizer = build_optimizer(model, build(TrainConfig, {"optimizer": "SGD"}).optim, 5e-4)
    reduction, criterion = Reduction(model, ranks), LOSSES[model.loss](LossConfig())
    batch, weights, scale = pictures(2 * ranks.size, size), fingerprint(model.parameters()), precision.scale
    mine = batch.slice(2 * ranks.rank, 2 * ranks.rank + 2).split(1)
    overflow = next(model.parameters()).register_hook(lambda g: g * torch.inf)
    for expected in ("gradient overflow", ""):
        if ranks.rank or not expected:
            overflow.remove()
        sums = accumulate_window(model, criterion, mine, ranks=ranks, precision=precision, provisional=64.0)
        update = apply_update(optimizer, sums, model.term_parameters(), precision, reduce=reduction.reduce)
        states = ranks.gather((fingerprint(model.parameters()), precision.scale, update.reason))
        assert len(set(states)) == 1, f"ranks differ: {states}"
        assert update.reason == expected, (update, expected)
        assert (states[0][0] == weights) is bool(expected), "weights moved" if expected else "nothing moved"
        assert precision.scale == scale / 2, (scale, precision.scale)
    return f"skipped on {ranks.size} ranks at scale {scale:g}, applied at {precision.scale:g}"


def preflight(ranks: Ranks, size: int = SIZE) -> str:
    """`visiontrain check` by the ranks: no row fails."""
    values = {"data": "shapes", "imgsz": size, "batch": 4 * ranks.size, "nbs": 16 * ranks.size, "warmup_epochs": 0}
    with patch.object(trainers, "device_of", lambda *arguments: ranks.device):  # two ranks may share one
        result = look(build(CheckConfig, values), lambda text: None, ranks)
    failed = [f"{row.name}: {row.meaning}" for row in result.rows if row.verdict == FAIL]
    assert not failed, failed
    return ", ".join(f"{row.name} {row.value}" for row in result.rows if row.name in ("ranks", "one process", "memory"))


def statistics(ranks: Ranks, size: int = SIZE) -> str:
    """norm=sync: a layer over the ranks, one of them without an image, against BatchNorm of all images at once."""
    told = []
    counts = [5, *[2] * (ranks.size - 1)]
    counts[-1] *= ranks.size == 1  # the last of several has none
    start = sum(counts[: ranks.rank])
    mine = slice(start, start + counts[ranks.rank])
    for dtype, limit in ((torch.float32, 1e-4), (torch.float64, 1e-10)):
        torch.manual_seed(0)
        like = {"device": ranks.device, "dtype": dtype}
        x, towards = (torch.randn(sum(counts), 6, size // 32, 5).to(**like) for _ in range(2))
        whole, layer = (kind(6).to(**like).train() for kind in (torch.nn.BatchNorm2d, sync.SyncBatchNorm))
        all_, part = x.clone().requires_grad_(), x[mine].clone().requires_grad_()
        y, expected = layer(part), whole(all_)
        (y * towards[mine]).sum().backward()
        (expected * towards).sum().backward()
        for p in layer.parameters():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad  # torch's kernels give none without an image
            ranks.sum_(p.grad)
        pairs = [
            (y, expected[mine]),
            (part.grad, all_.grad[mine]),
            *((p.grad, q.grad) for p, q in zip(layer.parameters(), whole.parameters(), strict=True)),
            (layer.running_mean, whole.running_mean),
            (layer.running_var, whole.running_var),
        ]
        gap = max(relative(a.detach(), b.detach()) for a, b in pairs if len(b))
        gap = max(ranks.gather(gap))
        assert gap <= limit, (dtype, gap)
        told.append(f"{str(dtype).removeprefix('torch.')} {gap:.1e}")
    return f"images {counts}, " + ", ".join(told)


def statistics_alone(device: str = "cuda:0", backend: str = "cpu:gloo,cuda:nccl") -> str:
    """The same by one process, through the collectives of a group of one."""
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        with patch.object(sync, "_several_ranks", lambda: True):
            return statistics(Ranks(torch.device(device)))
    finally:
        dist.destroy_process_group()


AS_RANKS: dict[str, Callable[[Ranks], str]] = {
    "gradients": gradients,
    "scaler": scaler,
    "statistics": statistics,
    "preflight": preflight,
}


def one_card(check: str) -> str:
    """Two processes on one device: gloo sums CUDA tensors too."""
    return start(check, ["cuda:0", "cuda:0"], "gloo")


def cards(check: str) -> str:
    """A process on each device, over NCCL."""
    return start(check, [f"cuda:{index}" for index in range(several())], "cpu:gloo,cuda:nccl")


def several() -> int:
    """How many devices there are.

    Raises:
        LeftOut: one alone.
    """
    count = torch.cuda.device_count()
    if count < 2:
        raise LeftOut(f"needs two GPUs, here {'is one' if count else 'is none'}: NCCL takes one process for each")
    return count


def a_run() -> str:
    """device=0,1 from the command line: a short run ends, every position applied once, each device with its own figures."""
    several()
    with tempfile.TemporaryDirectory() as folder:
        words = (
            f"train data=shapes device=0,1 epochs=1 imgsz=160 batch=16 plots=false project={folder} name=run".split()
        )
        subprocess.run(
            [sys.executable, "-m", "visiontrain", *words], check=True, timeout=MOST, stdout=subprocess.DEVNULL
        )
        record = json.loads((Path(folder) / "run" / "run.json").read_text())
    measured = record["measured"]
    assert record["outcome"] == "finished" and record["computed"]["ranks"] == 2, record["outcome"]
    assert measured["positions"] == {"applied": measured["images_seen"]}, measured["positions"]
    peaks = {
        place: max(p["peak"] for p in phases.values()) >> 20 for place, phases in measured["memory"]["phases"].items()
    }
    assert len(peaks) == 2, peaks
    return f"{measured['images_seen']} images, {measured['images_per_second']:.0f}/s, peaks in MB {peaks}"


def start(check: str, devices: Sequence[str], backend: str, *options: str) -> str:
    """Run one of AS_RANKS as a process for each device; what rank 0 said.

    Raises:
        AssertionError: a rank failed; its traceback is on standard error.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(len(devices)), "LOCAL_WORLD_SIZE": str(len(devices))}
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, f"as_rank={check}", f"device={device}", f"backend={backend}", *options],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, device in enumerate(devices)
    ]
    said = [process.communicate(timeout=MOST)[0] for process in processes]
    codes = [process.returncode for process in processes]
    assert not any(codes), f"exit codes {codes}"
    return said[0].strip()


def as_rank(check: str, device: str, backend: str, size: int) -> None:
    """What each of the processes does."""
    torch.set_num_threads(1)
    with over(backend), joined(timeout=MOST / 2) as ranks:
        told = AS_RANKS[check](ranks.on(choose_device(device)), size)
        if ranks.main:
            print(told)


@contextmanager
def over(backend: str) -> Iterator[None]:
    """The trainer chooses the backend by what it finds; two processes on one device need gloo for it."""
    chosen = dist.init_process_group
    with patch.object(dist, "init_process_group", lambda _, **named: chosen(backend, **named)):
        yield


def _scaler(device: torch.device) -> torch.amp.GradScaler:
    return torch.amp.GradScaler(device.type, init_scale=2.0**10)


CHECKS: dict[str, Callable[[], str]] = {
    **{f"{check} of two ranks on one GPU": partial(one_card, check) for check in AS_RANKS},
    **{f"{check} of a rank on each GPU": partial(cards, check) for check in AS_RANKS},
    "statistics of one process under NCCL": statistics_alone,
    "train device=0,1": a_run,
}


def main(arguments: Sequence[str]) -> int:
    own = dict(word.split("=", 1) for word in arguments)
    if "as_rank" not in own:
        print("python tools/gpu_check.py starts these ranks")
        return 2
    as_rank(own["as_rank"], own["device"], own["backend"], int(own.get("size", SIZE)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
