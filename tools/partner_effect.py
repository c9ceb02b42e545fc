"""How noisy a window's gradient is with partners=near and partners=any, at given weights.

    python tools/partner_effect.py data=mine.yaml model=runs/train/run/weights/last.pt imgsz=160 nbs=64 [windows=16]

The gradients of ``windows`` windows, spread over epochs, are computed at the same weights for both; BatchNorm uses its
running statistics. Printed is the variance of a window's gradient, summed over all parameters, as a multiple of the
squared length of the mean gradient; the error is the standard error over windows. Small splits draw from all of the epoch
either way; here "near" is drawn for them too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import torch
from torch import Tensor

from visiontrain.batch import collate
from visiontrain.config.parse import parse_words
from visiontrain.config.schema import TrainConfig
from visiontrain.data import sampler
from visiontrain.data.dataset import TrainSet
from visiontrain.data.description import load_description
from visiontrain.data.index import read_split
from visiontrain.distributed import ALONE
from visiontrain.losses import LOSSES
from visiontrain.models.weights import load_model
from visiontrain.nn.norm import freeze_batch_norm
from visiontrain.training.precision import Precision
from visiontrain.training.update import normalise
from visiontrain.training.window import accumulate_window


def gradients(config: TrainConfig, windows: int, partners: str) -> Tensor:
    """(windows, parameters) float32: the gradient of each window."""
    index = read_split(load_description(config.data), "train")
    model = load_model(config.model).train()
    freeze_batch_norm(model)
    criterion = LOSSES[model.loss](config.loss)
    dataset = TrainSet(index, config.imgsz, replace(config.augment, partners=partners), config.seed, epochs=10**6)
    each = len(index) // config.nbs
    rows = []
    for number in range(windows):
        epoch, start = number // each, number % each * config.nbs
        batches = [
            collate([dataset[epoch, position] for position in range(first, first + config.batch)])
            for first in range(start, start + config.nbs, config.batch)
        ]
        model.zero_grad(set_to_none=True)
        sums = accumulate_window(
            model, criterion, batches, ranks=ALONE, precision=Precision(ALONE.device), provisional=64.0
        )
        normalise(sums, model.term_parameters())
        rows.append(torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None]))
    return torch.stack(rows)


def noise(rows: Tensor) -> tuple[float, float]:
    """Variance of a row over the squared length of the mean row, without bias, and its standard error (jackknife)."""
    n = len(rows)
    products = (rows @ rows.T).double()

    def ratio(keep: Tensor) -> float:
        of = products[keep][:, keep]
        m = len(of)
        same, others = of.trace() / m, (of.sum() - of.trace()) / (m * (m - 1))
        return float((same - others) / others)

    every = torch.arange(n)
    without = torch.tensor([ratio(every[every != left]) for left in range(n)])
    return ratio(every), float(((n - 1) / n * (without - without.mean()).square().sum()).sqrt())


def main(words: Sequence[str]) -> None:
    pairs = dict(word.split("=", 1) for word in words)
    windows = int(pairs.pop("windows", "16"))
    config = parse_words(TrainConfig, [f"{name}={value}" for name, value in pairs.items()])
    with patch.object(sampler, "FEW", 0):
        for partners in ("near", "any"):
            value, error = noise(gradients(config, windows, partners))
            print(
                f"partners={partners}: variance of a window's gradient {value:.3f} +- {error:.3f} of its mean squared"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
