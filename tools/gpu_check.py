"""What can only be seen on a CUDA device, as one script that needs no network; prints one line per check.

    python tools/gpu_check.py

Where faster-coco-eval is not installed, the checks that validate are left out and said to be. Exit code 1 if a check failed.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from visiontrain.batch import Batch, Targets
from visiontrain.config.schema import LossConfig, TrainConfig, build
from visiontrain.distributed import Ranks
from visiontrain.losses import LOSSES
from visiontrain.models import build_model
from visiontrain.nn.norm import freeze_batch_norm
from visiontrain.training.optimizer import build_optimizer
from visiontrain.training.precision import Precision, choose_precision
from visiontrain.training.update import apply_update, normalise
from visiontrain.training.window import accumulate_window

CUDA = torch.device("cuda", 0)
CLASSES = ("a", "b", "c")


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


def gradient(precision: Precision, micro_batch: int, size: int = 320) -> torch.Tensor:
    torch.manual_seed(0)
    model = freeze_batch_norm(build_model("yolov8n", CLASSES).to(CUDA, memory_format=torch.channels_last).train())
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


def memory_phases() -> str:
    """Peak of the first window's forward and backward, of the first update and of later windows, in MB."""
    torch.cuda.empty_cache()
    model = build_model("yolov8n", CLASSES).to(CUDA, memory_format=torch.channels_last).train()
    optimizer = build_optimizer(model, build(TrainConfig, {"optimizer": "AdamW"}).optim, 5e-4)
    criterion, precision = LOSSES[model.loss](LossConfig()), choose_precision(CUDA, True)
    window = pictures(64, 640).split(8)
    peaks = {"baseline": torch.cuda.memory_allocated(CUDA)}
    for name in ("first window", "later window"):
        torch.cuda.reset_peak_memory_stats(CUDA)
        sums = accumulate_window(model, criterion, window, ranks=Ranks(CUDA), precision=precision, provisional=64.0)
        peaks[name] = torch.cuda.max_memory_allocated(CUDA)
        torch.cuda.reset_peak_memory_stats(CUDA)
        apply_update(optimizer, sums, model.term_parameters(), precision)
        peaks[f"update after the {name}"] = torch.cuda.max_memory_allocated(CUDA)
    return ", ".join(f"{name} {peak >> 20} MB" for name, peak in peaks.items())


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

        def crash(job: fit.Job) -> None:
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


CHECKS: dict[str, tuple[Callable[[], str], bool]] = {
    "split invariance": (split_invariance, False),
    "GradScaler": (grad_scaler, False),
    "memory by phase": (memory_phases, False),
    "throughput": (throughput, False),
    "deterministic resume": (resume_bit_equal, True),
}


def main() -> int:
    if not torch.cuda.is_available():
        print("no CUDA device: nothing was checked")
        return 1
    print(f"{torch.cuda.get_device_name(CUDA)}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    scorer = importlib.util.find_spec("faster_coco_eval") is not None
    failed = 0
    for name, (check, validates) in CHECKS.items():
        if validates and not scorer:
            print(f"{name}: not run (faster-coco-eval is not installed)")
            continue
        started = time.perf_counter()
        try:
            result = check()
        except Exception:  # one failed check must not hide the others
            traceback.print_exc()
            result, failed = "FAILED", failed + 1
        print(f"{name}: {result} ({time.perf_counter() - started:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
