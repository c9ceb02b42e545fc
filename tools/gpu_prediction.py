"""Prediction on a device against the CPU: a part of tools/gpu_check.py. The same code runs with the CPU as the device."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch

from tools.bench_val import predictions
from tools.gpu_ranks import CLASSES, pictures
from visiontrain.models import build_model
from visiontrain.prediction.decode import select
from visiontrain.prediction.nms import non_max_suppression


def same_detections(device: str) -> str:
    """Candidates and NMS of fixed predictions, 16 pictures with 80 classes: no box more, none less."""
    _, _, boxes, scores = (torch.from_numpy(each) for each in predictions(80))
    found = []
    for place in ("cpu", device):
        candidates = select(boxes.to(place), scores.to(place), 0.001)
        found.append(non_max_suppression(candidates, iou=0.7, max_det=300))
    for ours, theirs in zip(*found, strict=True):
        order, other = (torch.argsort(d.scores.cpu(), descending=True, stable=True) for d in (ours, theirs))
        assert torch.equal(ours.boxes[order], theirs.boxes.cpu()[other]), "other boxes stay"
    return f"{sum(map(len, found[0]))} detections are the same"


def same_outputs(device: str) -> str:
    """What the networks say in float32, and in float16 as predict half=true computes it."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    told = []
    for name in ("yolov8n", "yolo26n"):
        torch.manual_seed(0)
        model = build_model(name, CLASSES).eval()
        images = pictures(4, 320).to("cpu").images
        there = copy.deepcopy(model).to(device, memory_format=torch.channels_last)
        with torch.no_grad():
            whole, other = model(images), there(images.to(device))
            with torch.autocast(torch.device(device).type, torch.float16 if device != "cpu" else torch.bfloat16):
                half = there(images.to(device))
        gaps = [float((output.boxes.cpu() - whole.boxes).abs().max()) for output in (other, half)]
        assert gaps[0] < 0.05 and gaps[1] < 8, gaps
        told.append(f"{name}: {gaps[0]:.1e} px, half {gaps[1]:.1e} px")
    return ", ".join(told)


CHECKS: dict[str, Callable[[], str]] = {
    "NMS on the device": lambda: same_detections("cuda"),
    "networks on the device": lambda: same_outputs("cuda"),
}
