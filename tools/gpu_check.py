"""What can only be seen on a CUDA device, as one script that needs no network; prints one line per check.

    python tools/gpu_check.py

Those of augment_device=gpu are in tools/gpu_painting.py. Some checks allow this process 4 GB of the device, as on a small card. Runs draw the shapes into the user's cache. Those of
several ranks (tools/gpu_ranks.py) start processes; what needs more GPUs than there are is left out and said to be.
Exit code 1 if a check failed.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tools import gpu_painting, gpu_prediction, gpu_ranks
from tools.gpu_ranks import CLASSES, LeftOut, pictures
from visiontrain.config.build import build
from visiontrain.config.groups import LossConfig
from visiontrain.config.schema import TrainConfig
from visiontrain.distributed import Ranks
from visiontrain.errors import OutOfMemory
from visiontrain.losses import LOSSES
from visiontrain.memory import release
from visiontrain.models import build_model
from visiontrain.nn.norm import freeze_batch_norm
from visiontrain.training import muon
from visiontrain.training.optimizer import allocate_state, build_optimizer
from visiontrain.training.precision import Precision, choose_precision
from visiontrain.training.update import apply_update, normalise
from visiontrain.training.window import accumulate_window

CUDA = torch.device("cuda", 0)
SMALL = 4 << 30  # bytes: the card that this project is for


def gradient(precision: Precision, micro_batch: int, size: int = 320, name: str = "yolov8n") -> torch.Tensor:
    torch.manual_seed(0)
    model = freeze_batch_norm(build_model(name, CLASSES).to(CUDA, memory_format=torch.channels_last).train())
    criterion = LOSSES[model.loss](LossConfig())
    window = pictures(16, size).split(micro_batch)
    sums = accumulate_window(model, criterion, window, ranks=Ranks(CUDA), precision=precision, provisional=64.0)
    normalise(sums, model.term_parameters())
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).double() / precision.scale


def split_invariance() -> str:
    """Law 1 on the device: fp32 without TF32, and the precision that amp chooses."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    told = []
    limits = {"fp32": 1e-4, "bf16": 3e-2, "fp16 with GradScaler": 3e-2}
    half = Precision(CUDA, torch.float16, torch.amp.GradScaler("cuda", init_scale=2.0**10))
    for precision in (Precision(CUDA), choose_precision(CUDA, True), half):
        whole = gradient(precision, 16)
        for m in (4, 1):
            parts = gradient(precision, m)
            gap = float((parts - whole).norm() / whole.norm())
            cosine = float(torch.nn.functional.cosine_similarity(parts, whole, dim=0))
            assert gap <= limits[precision.name] and cosine > 0.999, (precision.name, m, gap, cosine)
            told.append(f"{precision.name} m={m} {gap:.1e}")
    return ", ".join(told)


def families() -> str:
    """Law 1 in fp32 without TF32 for the other families; yolo26 has two terms, yolox counts its positives itself."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    told = []
    for name in ("yolo11n", "yolo26n", "yolov9t", "yolox_nano", "resnet18"):
        whole, parts = (gradient(Precision(CUDA), m, name=name) for m in (16, 1))
        gap = float((parts - whole).norm() / whole.norm())
        assert gap <= 1e-4, (name, gap)
        told.append(f"{name} m=1 {gap:.1e}")
    return ", ".join(told)


def grad_scaler() -> str:
    """An overflow leaves the weights alone and halves the scale; the same window then goes through."""
    model = build_model("yolov8n", CLASSES).to(CUDA).train()
    precision = Precision(CUDA, torch.float16, torch.amp.GradScaler("cuda", init_scale=2.0**40))
    config = build(TrainConfig, {"optimizer": "SGD"}).optim
    optimizer = build_optimizer(model, config, 5e-4)
    criterion = LOSSES[model.loss](LossConfig())
    before = [p.clone() for p in model.parameters()]
    for attempt in range(40):
        sums = accumulate_window(
            model, criterion, pictures(8, 160).split(4), ranks=Ranks(CUDA), precision=precision, provisional=64.0
        )
        update = apply_update(optimizer, sums, model.term_parameters(), precision)
        if update.applied:
            return f"applied at attempt {attempt + 1}, scale {precision.scale:g}"
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    raise AssertionError("never applied")


def muon_steps() -> str:
    """Muon against torch's own on matrices, both in bfloat16, and a whole model that moves by it without a value that is not finite."""
    torch.manual_seed(0)
    start = [torch.randn(shape, device=CUDA) for shape in ((64, 144), (144, 64), (128, 128))]
    ours, its = ([torch.nn.Parameter(t.clone()) for t in start] for _ in range(2))
    group = {"params": ours, "role": muon.ROLE, "factor": 1.0, "weight_decay": 0.1}
    mine = muon.Muon([group], lr=0.02, momentum=0.9, nesterov=True)
    reference = torch.optim.Muon(its, lr=0.02, weight_decay=0.1, momentum=0.9, nesterov=True)
    for _ in range(5):
        for a, b in zip(ours, its, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        mine.step()
        reference.step()
    gap = max(float((a - b).abs().max()) for a, b in zip(ours, its, strict=True))
    assert gap <= 1e-2, gap  # of steps of 0.02: bfloat16 rounds in another order
    model = build_model("yolov8n", CLASSES).to(CUDA).train()
    criterion, precision = LOSSES[model.loss](LossConfig()), choose_precision(CUDA, True)
    optimizer = build_optimizer(model, build(TrainConfig, {"optimizer": "Muon"}).optim, 5e-4)
    allocate_state(optimizer)
    sums = accumulate_window(
        model, criterion, pictures(8, 160).split(4), ranks=Ranks(CUDA), precision=precision, provisional=64.0
    )
    assert apply_update(optimizer, sums, model.term_parameters(), precision).applied
    assert all(p.isfinite().all() for p in model.parameters())
    return f"largest difference to torch.optim.Muon after 5 steps {gap:.1e}"


def throughput() -> str:
    """Images per second of forward, loss and backward against the micro-batch, 640 px, random pictures."""
    told = []
    for m in (1, 4, 16, 64):
        model = build_model("yolov8n", CLASSES).to(CUDA, memory_format=torch.channels_last).train()
        criterion, precision = LOSSES[model.loss](LossConfig()), choose_precision(CUDA, True)
        window = pictures(64, 640).split(m)

        for repeat in range(4):  # the first one warms up
            if repeat == 1:
                torch.cuda.synchronize()
                started = time.perf_counter()
            accumulate_window(model, criterion, window, ranks=Ranks(CUDA), precision=precision, provisional=64.0)
            model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        told.append(f"m={m} {3 * 64 / (time.perf_counter() - started):.0f}/s")
    return ", ".join(told)


def resume_bit_equal() -> str:
    """A deterministic run, and one resumed from its checkpoint of the middle: the same bits."""
    from visiontrain.errors import TrainingStopped
    from visiontrain.models.weights import read_checkpoint
    from visiontrain.training import fit
    from visiontrain.training.run import train

    with tempfile.TemporaryDirectory() as folder:
        values = {"data": "shapes", "project": folder, "device": "cuda", "epochs": 2, "batch": 16, "imgsz": 160}
        values |= {"deterministic": True, "plots": False, "val": False}
        whole = train(build(TrainConfig, {**values, "name": "whole"})).folder
        original, calls = fit.train_epoch, []

        def crash(job: Any) -> None:
            calls.append(job)
            if len(calls) == 2:
                raise TrainingStopped("planted")
            original(job)

        fit.train_epoch = crash
        try:
            train(build(TrainConfig, {**values, "name": "cut"}))
        except TrainingStopped:
            pass
        finally:
            fit.train_epoch = original
        last = Path(folder) / "cut" / "weights" / "last.pt"
        train(build(TrainConfig, {"resume": str(last)}))
        a, b = (read_checkpoint(p)["weights"] for p in (whole / "weights" / "last.pt", last))
        different = [k for k in a if not torch.equal(a[k], b[k])]
        assert not different, f"{len(different)} tensors differ, {different[0]} first"
    return "bit-equal"


@contextmanager
def small_card(size: int = SMALL) -> Iterator[None]:
    """This process may allocate no more than ``size`` bytes of the device."""
    total = torch.cuda.get_device_properties(CUDA).total_memory
    release(CUDA)
    torch.cuda.set_per_process_memory_fraction(min(size / total, 1.0), CUDA)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, CUDA)
        release(CUDA)


def trained(folder: str, **values: Any) -> dict[str, Any]:
    """run.json of a run on the shapes, an epoch long unless said otherwise."""
    from visiontrain.training.run import train

    settings = {"data": "shapes", "project": folder, "device": "cuda", "epochs": 1, "plots": False, "warmup_epochs": 0}
    result = train(build(TrainConfig, {**settings, **values}))
    record: dict[str, Any] = json.loads((result.folder / "run.json").read_text())
    return record


def shrink() -> str:
    """A batch far too large for 4 GB: the run shrinks, ends, and every position was applied once."""
    with tempfile.TemporaryDirectory() as folder, small_card():
        record = trained(folder, model="yolov8m", batch=128, nbs=128, imgsz=640)
    measured = record["measured"]
    shrinks = [(s["where"], s["before"], s["after"]) for s in measured["shrinks"]]
    assert shrinks, "128 pictures of 640 x 640 fitted into 4 GB: nothing was tried"
    assert measured["positions"] == {"applied": measured["images_seen"]}, measured["positions"]
    assert record["computed"]["images_per_update"] == 128
    return f"{shrinks}, {measured['positions']}, peak {measured['memory']['peak'] / 1e9:.2f} GB"


def batch_auto() -> str:
    """batch=auto under 4 GB, three times in one process, the last after 2 GB were held and freed: equal; and an epoch
    with it does not shrink in training."""
    found, records = [], []
    with tempfile.TemporaryDirectory() as folder, small_card():
        for repeat in range(3):
            if repeat == 2:
                held = torch.ones(2**29, device=CUDA)
                del held
            records.append(trained(folder, model="yolov8s", batch="auto", imgsz=640))
            found.append(records[-1]["given"]["batch"])
            assert not [s for s in records[-1]["measured"]["shrinks"] if s["where"] == "training"]
    assert len(set(found)) == 1, found
    tried = [(t["batch"], t["peak"] >> 20, t["error"][:20]) for t in records[0]["measured"]["batch_auto"]["tried"]]
    return f"batch {found}, tried (batch, MB, error) {tried}"


def grad_scaler_under_pressure() -> str:
    """Running out of memory leaves the gradient scale as it is, and the window goes through in smaller pieces."""
    model = build_model("yolov8s", CLASSES).to(CUDA, memory_format=torch.channels_last).train()
    precision = Precision(CUDA, torch.float16, torch.amp.GradScaler("cuda", init_scale=2.0**10))
    criterion, window = LOSSES[model.loss](LossConfig()), pictures(64, 640)
    scale, size = precision.scale, 64
    with small_card():
        while True:
            try:
                accumulate_window(model, criterion, window.split(size), ranks=Ranks(CUDA), precision=precision)
                break
            except OutOfMemory:
                model.zero_grad(set_to_none=True)
                release(CUDA)
                size //= 2
    assert size < 64 and precision.scale == scale, (size, precision.scale)
    return f"64 pictures in pieces of {size}, scale {precision.scale:g} throughout"


def memory_phases() -> str:
    """Peaks by phase as a run records them, under 4 GB."""
    with tempfile.TemporaryDirectory() as folder, small_card():
        phases = trained(folder, batch=4, imgsz=640)["measured"]["memory"]["phases"]["cuda:0"]
    assert {"baseline", "first forward", "first backward", "first update", "later windows", "validation"} <= set(phases)
    return ", ".join(f"{name} {figures['peak'] >> 20} MB" for name, figures in phases.items())


def accumulating_is_free() -> str:
    """Peak with 16 micro-batches against 2, at equal m: at most 1.05."""
    peaks = []
    for accumulate in (2, 16):
        release(CUDA)
        model = build_model("yolov8n", CLASSES).to(CUDA, memory_format=torch.channels_last).train()
        optimizer = build_optimizer(model, build(TrainConfig, {"optimizer": "AdamW"}).optim, 5e-4)
        allocate_state(optimizer)
        criterion, precision = LOSSES[model.loss](LossConfig()), choose_precision(CUDA, True)
        torch.cuda.reset_peak_memory_stats(CUDA)
        for window in (pictures(4 * accumulate, 640).split(4),) * 2:
            sums = accumulate_window(model, criterion, window, ranks=Ranks(CUDA), precision=precision, provisional=64.0)
            apply_update(optimizer, sums, model.term_parameters(), precision)
        peaks.append(torch.cuda.max_memory_allocated(CUDA))
        del model, optimizer, sums
    assert peaks[1] <= 1.05 * peaks[0], peaks
    return f"{peaks[0] >> 20} MB with A=2, {peaks[1] >> 20} MB with A=16, ratio {peaks[1] / peaks[0]:.4f}"


CHECKS: dict[str, Callable[[], str]] = {
    "split invariance": split_invariance,
    "families": families,
    "Muon": muon_steps,
    "GradScaler": grad_scaler,
    "GradScaler under pressure": grad_scaler_under_pressure,
    "peak against accumulate": accumulating_is_free,
    "throughput": throughput,
    "memory by phase": memory_phases,
    "shrink": shrink,
    "batch=auto": batch_auto,
    "deterministic resume": resume_bit_equal,
    **gpu_painting.CHECKS,
    **gpu_prediction.CHECKS,
    **gpu_ranks.CHECKS,
}


def main() -> int:
    if not torch.cuda.is_available():
        print(f"not run: no CUDA device ({', '.join(CHECKS)})")
        return 1
    print(f"{torch.cuda.get_device_name(CUDA)}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    failed = 0
    for name, check in CHECKS.items():
        started = time.perf_counter()
        try:
            result = check()
        except LeftOut as reason:
            result = f"not run ({reason})"
        except Exception:  # one failed check must not hide the others
            traceback.print_exc()
            result, failed = "FAILED", failed + 1
        print(f"{name}: {result} ({time.perf_counter() - started:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
