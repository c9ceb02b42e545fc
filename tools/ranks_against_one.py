"""Some updates of a real training by several ranks and by one process: the same images, how far gradients and weights differ.

    python tools/ranks_against_one.py data=bccd.yaml batch=8 norm=group imgsz=96 double=true [ranks=2] [updates=20] [against=8]

Rank 0 also computes each window's gradient alone, from the same weights and all of its images, before the ranks compute it
together. Afterwards one process trains the same updates by itself, with batch=``against`` (the same batch if not given), and the
weights of both are compared.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from visiontrain.batch import collate
from visiontrain.config.parse import parse_words
from visiontrain.config.schema import TrainConfig
from visiontrain.distributed import ALONE, Ranks, joined
from visiontrain.training import run as recipe
from visiontrain.training.interrupt import Interrupt
from visiontrain.training.job import Job
from visiontrain.training.precision import Precision
from visiontrain.training.setup import Setup
from visiontrain.training.start import model_to_train
from visiontrain.training.transaction import train_window
from visiontrain.training.update import normalise
from visiontrain.training.window import accumulate_window

OWN = {"ranks": "2", "updates": "20", "double": "false", "against": ""}


def flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.detach().double().reshape(-1) for t in tensors])


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


def begun(words: list[str], ranks: Ranks, folder: str, double: bool) -> tuple[Setup, Job]:
    """The run, before its first window."""
    config = parse_words(TrainConfig, [*words, f"project={folder}", "plots=false", "device=cpu"])
    setup = recipe.prepare(config, None, ranks)
    if not double:
        return setup, recipe.begin(setup, lambda event: None, Interrupt(alone=False))
    setup = replace(setup, precision=Precision(ranks.device, torch.float64))
    with patch.object(recipe, "model_to_train", lambda *arguments: model_to_train(*arguments).double()):
        return setup, recipe.begin(setup, lambda event: None, Interrupt(alone=False))


def alone(setup: Setup, job: Job, window: tuple[int, int]) -> tuple[Tensor, tuple[int, ...]]:
    """The gradient of a window by one process from the weights as they are, and its positions."""
    state, plan, samples = job.state, setup.plan, setup.samples()
    micro_batches = [
        collate([samples[key] for key in samples.keys(state.epoch, window, *cut)])
        for cut in plan.micro_batches(*window)
    ]
    model = deepcopy(state.model).train()
    sums = accumulate_window(
        model, job.criterion, micro_batches, ranks=ALONE, precision=state.precision, provisional=64.0
    )
    return flat(normalise(sums, model.term_parameters())), sums.positions


def run(words: list[str], ranks: Ranks, folder: str, own: dict[str, str]) -> dict:
    """Train the updates; on rank 0 of several each window's gradient is also computed alone."""
    setup, job = begun(words, ranks, folder, own["double"] == "true")
    state, plan = job.state, setup.plan
    seen: list[Tensor] = []

    def note(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        reach = state.model.term_parameters()
        seen.append(flat([p.grad for term in reach for p in reach[term] if p.grad is not None]))

    state.optimizer.register_step_pre_hook(note)
    rows: list[dict] = []
    state.model.train()
    while len(rows) < int(own["updates"]):
        for window in plan.windows(state.epoch)[: int(own["updates"]) - len(rows)]:
            mine = [next(job.micro_batches) for _ in plan.shares(*window, ranks.rank)]
            compared = ranks.size > 1 and ranks.main
            gradient, positions = alone(setup, job, window) if compared else (None, ())
            train_window(job, mine, window)
            row = {"window": [state.epoch, *window], "images": window[1] - window[0]}
            if gradient is not None:
                # Both at the length of the update's: clipping is one factor.
                row["gradient"] = relative(seen[-1], gradient * (seen[-1].norm() / gradient.norm()))
                row["same_images"] = positions == tuple(range(*window))
            rows.append(row)
        state.epoch, state.ledger.stretches = state.epoch + 1, []
    job.micro_batches.close()
    setup.val_loader.close()
    torch.save(flat(list(state.model.parameters())), Path(folder) / f"weights{ranks.size}_{ranks.rank}.pt")
    return {"rows": rows, "plan": plan.sentences()[0]}


def as_rank(words: list[str], own: dict[str, str], folder: str) -> None:
    """What each of the processes does."""
    torch.set_num_threads(1)
    with joined() as ranks:
        found = run(words, ranks, folder, own)
        if ranks.main:
            (Path(folder) / "together.json").write_text(json.dumps(found))


def start(arguments: Sequence[str], ranks: int, folder: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    command = [sys.executable, __file__, *arguments, f"as_rank={folder}"]
    each = [
        subprocess.Popen(command, env={**os.environ, **common, "RANK": str(r), "LOCAL_RANK": str(r)})
        for r in range(ranks)
    ]
    if any(process.wait() for process in each):
        raise SystemExit("a rank failed")


def main(arguments: Sequence[str]) -> int:
    pairs = dict(word.split("=", 1) for word in arguments)
    folder = pairs.pop("as_rank", "")
    own = {name: pairs.pop(name, default) for name, default in OWN.items()}
    words = [f"{name}={value}" for name, value in pairs.items()]
    if folder:
        as_rank(words, own, folder)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        start(arguments, int(own["ranks"]), folder)
        together = json.loads((Path(folder) / "together.json").read_text())
        against = {**pairs, "batch": own["against"] or pairs["batch"]}
        single = run([f"{name}={value}" for name, value in against.items()], ALONE, folder, own)
        weights = [torch.load(Path(folder) / f"weights{own['ranks']}_{r}.pt") for r in range(int(own["ranks"]))]
        one = torch.load(Path(folder) / "weights1_0.pt")
    print(together["plan"])
    print(single["plan"])
    rows = together["rows"]
    same = all(row["same_images"] for row in rows) and [r["window"] for r in rows] == [
        r["window"] for r in single["rows"]
    ]
    equal = all(torch.equal(weights[0], other) for other in weights[1:])
    print(
        f"{len(rows)} updates, {sum(r['images'] for r in rows)} images; same images in each: {'yes' if same else 'NO'}"
    )
    print(f"gradient of a window, from equal weights: at most {max(r['gradient'] for r in rows):.1e} from one process")
    print(
        f"weights after them: {relative(weights[0], one):.1e} from one process; ranks {'bit-equal' if equal else 'DIFFER'}"
    )
    return 0 if same and equal else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
