"""Learning rate, momentum and EMA horizon as pure functions of the images applied: same progress, same values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from visiontrain.config.groups import OptimConfig
from visiontrain.training.plan import Plan

RECIPE_IMAGES = 64  # images per update that the recipe's learning rates belong to


def lr_factor(rule: str, images_per_update: int) -> float:
    """What ``lr_scale`` multiplies lr0 by when an update sees another number of images than the recipe's 64.

    Args:
        rule: ``none`` 1; ``linear`` E/64 (Goyal et al. 2017, arXiv:1706.02677); ``sqrt`` its square root, which keeps the
            variance of an update (Krizhevsky 2014, arXiv:1404.5997).
        images_per_update: E, over all micro-batches and ranks.
    """
    share = images_per_update / RECIPE_IMAGES
    return {"none": 1.0, "linear": share, "sqrt": math.sqrt(share)}[rule]


@dataclass(frozen=True, slots=True)
class Schedule:
    """What each update uses, for any micro-batch size, accumulation or number of ranks.

    ``images`` are the images that applied windows held, the one about to be applied included, so the first update
    has a learning rate above zero and the last one has lr0 * lrf.

    Args:
        images_planned: images of the whole run.
        warmup_images: images of the warm-up; 0 for none.
        lr0: learning rate after the warm-up, at progress 0.
        lrf: final learning rate as a share of lr0.
        momentum: after the warm-up.
        warmup_momentum: at the start of the warm-up.
        warmup_bias_lr: learning rate of the biases at the start of the warm-up.
        cosine: half a cosine instead of a straight line.
    """

    images_planned: float
    warmup_images: float
    lr0: float
    lrf: float
    momentum: float
    warmup_momentum: float
    warmup_bias_lr: float
    cosine: bool

    def learning_rate(self, images: float, *, bias: bool = False) -> float:
        """Learning rate of weights, or of biases, which start the warm-up at their own."""
        start = self.warmup_bias_lr if bias else 0.0
        return start + (self._decayed(images) - start) * self._warm(images)

    def momentum_at(self, images: float) -> float:
        return self.warmup_momentum + (self.momentum - self.warmup_momentum) * self._warm(images)

    def _warm(self, images: float) -> float:
        return min(images / self.warmup_images, 1.0) if self.warmup_images > 0 else 1.0

    def _decayed(self, images: float) -> float:
        progress = min(images / self.images_planned, 1.0)
        left = (1 + math.cos(math.pi * progress)) / 2 if self.cosine else 1 - progress
        return self.lr0 * (self.lrf + (1 - self.lrf) * left)


def schedule_of(plan: Plan, optim: OptimConfig) -> Schedule:
    """The schedule of a planned run; ``optim`` with the learning rate as chosen. The warm-up never lowers momentum."""
    return Schedule(
        images_planned=plan.images_planned,
        warmup_images=plan.warmup_images,
        lr0=optim.lr0,
        lrf=optim.lrf,
        momentum=optim.momentum,
        warmup_momentum=min(optim.warmup_momentum, optim.momentum),
        warmup_bias_lr=optim.warmup_bias_lr,
        cosine=optim.cos_lr,
    )


@dataclass(frozen=True, slots=True)
class Horizon:
    """How many images the moving average of the weights looks back over.

    It grows with the images applied, so that the random start is forgotten, up to ``images``.
    """

    images: float
    share: float = 1 / 8  # of the images applied so far

    def decay(self, window: int, applied: float) -> float:
        """Weight of the old average when a window of ``window`` images brings the total to ``applied``."""
        return math.exp(-window / max(min(self.images, self.share * applied), 1e-9))


LONGEST_HORIZON = 640_000.0  # images: 10,000 updates of 64


def horizon(images_planned: float) -> Horizon:
    """A twentieth of the run, at most 640,000 images: a short run must average over more than its last update."""
    return Horizon(min(LONGEST_HORIZON, images_planned / 20))
