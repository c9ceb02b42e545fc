"""What many objects in one picture cost: memory and time of forward, loss and backward, a process for each number of objects.

    python tools/crowded_picture.py model=yolox_nano objects=10,500,2000 imgsz=640

Noise, 80 classes, boxes anywhere, one thread. Memory is the highest of the process, above that with the fewest objects.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

import torch

from visiontrain.batch import Batch, Targets
from visiontrain.config.groups import LossConfig
from visiontrain.distributed import Ranks
from visiontrain.errors import VisionTrainError
from visiontrain.losses import LOSSES
from visiontrain.models import build_model
from visiontrain.training.precision import Precision
from visiontrain.training.window import accumulate_window

CPU = torch.device("cpu")
MB = 2**20 if sys.platform == "darwin" else 2**10  # in the unit of ru_maxrss
CLASSES = 80


def main(words: Sequence[str]) -> None:
    given = {"model": "yolox_nano", "objects": "10,500,2000", "imgsz": "640"} | dict(w.split("=", 1) for w in words)
    if "," not in given["objects"]:
        print(json.dumps(once(given["model"], int(given["objects"]), int(given["imgsz"]))))
        return
    least = None
    for count in given["objects"].split(","):
        command = [sys.executable, __file__, f"model={given['model']}", f"objects={count}", f"imgsz={given['imgsz']}"]
        peak, seconds = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        least = least or peak
        print(f"{count:>6} objects  {peak - least:+6.0f} MB  {seconds:5.2f} s")


def once(name: str, objects: int, side: int) -> tuple[float, float]:
    """Peak of this process in MB, and processor seconds of the window."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = build_model(name, [f"class{number}" for number in range(CLASSES)]).train()
    corner = side * 0.9 * torch.rand(objects, 2)
    boxes = torch.cat((corner, corner + side * (0.01 + 0.09 * torch.rand(objects, 2))), 1)
    image = torch.zeros(objects, dtype=torch.int64)
    targets = Targets(image, torch.randint(0, CLASSES, (objects,)), boxes)
    batch = Batch(torch.randint(0, 256, (1, 3, side, side), dtype=torch.uint8), targets, (0,))
    began, criterion = time.process_time(), LOSSES[model.loss](LossConfig())
    precision = Precision(CPU, torch.float32)
    accumulate_window(model, criterion, [batch], ranks=Ranks(CPU), precision=precision, provisional=8.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MB, time.process_time() - began


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (VisionTrainError, ValueError) as error:
        sys.exit(f"{error}")
