"""Which normalisation a run trains with: decided once, at its start, from the settings and the checkpoint. No torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from visiontrain.errors import ConfigError

FEW_BELOW = 6  # images per rank: fewer, and the plan names the remedies for BatchNorm too
WANTS_SENTENCE_BELOW = 16  # images per rank: fewer, and the plan names what BatchNorm sees
REMEDIES = " Where scores fall behind, norm=group does without statistics, and norm=frozen keeps a checkpoint's."
LAYERS = {"batch": "BatchNorm", "sync": "SyncBatchNorm", "group": "GroupNorm", "frozen": "frozen BatchNorm"}


@dataclass(frozen=True, slots=True)
class Normalisation:
    """``norm`` is batch, sync, group or frozen and ``reason`` why; ``start`` is that of the checkpoint begun from, "" from scratch."""

    norm: str = "batch"
    reason: str = ""
    start: str = ""

    @property
    def swapped(self) -> bool:
        """Models are built with BatchNorm."""
        return self.norm != (self.start or "batch")

    def seen(self, images: int, ranks: int) -> int:
        """Images that statistics are taken of, where each of ``ranks`` has ``images`` of them."""
        return images * ranks if self.norm == "sync" else images

    def sentence(self, images: int, accumulate: int, ranks: int = 1) -> str:
        """What the plan says of it, "" where there is nothing to know.

        Args:
            images: per rank and forward pass.
            accumulate: micro-batches in a window.
            ranks: data-parallel processes.
        """
        seen = self.seen(images, ranks)
        told = f"{LAYERS[self.norm]} ({self.reason})"
        if self.norm == "frozen":
            return f"F{told[1:]}: the checkpoint's statistics are used and stay as they are; scale and shift learn."
        if self.norm == "sync":
            whose = (
                f"those of all {ranks} ranks, and every layer waits for them"
                if ranks > 1
                else "as BatchNorm on one rank"
            )
            return f"{told} sees {_images(seen)} at a time, {whose}.{REMEDIES * (seen < FEW_BELOW)}"
        if self.swapped and self.start:
            kept = "scale and shift" if "group" in (self.norm, self.start) else "scale, shift and statistics"
            return f"{told} in place of the checkpoint's {LAYERS[self.start]}: {kept} are kept."
        if self.norm == "group":
            return f"{told}, as in the checkpoint." if self.start else f"{told} in place of BatchNorm."
        if ranks > 1:
            few = (
                f"{told} sees {_images(seen)} at a time on each rank; no accumulation changes that. "
                "Running statistics become their mean over the ranks."
            )
        elif images >= (WANTS_SENTENCE_BELOW if accumulate > 1 else FEW_BELOW):
            return ""
        else:
            few = f"BatchNorm sees {_images(seen)} at a time; no accumulation changes that."
        return few + (REMEDIES + _sync_remedy(images, ranks)) * (images < FEW_BELOW)

    def facts(self) -> dict[str, Any]:
        """As a map, for JSON and the checkpoint; ``Normalisation(**facts)`` is the inverse."""
        return asdict(self)

    def record(self, layers: int) -> dict[str, Any]:
        """What run.json says; ``layers`` is how many the model has, and a swap is always of all."""
        swap = {"from": LAYERS[self.start or "batch"], "to": LAYERS[self.norm], "layers": layers, "reason": self.reason}
        return {"norm": self.norm, "reason": self.reason, "swaps": [swap] if self.swapped else []}


def _images(count: int) -> str:
    return f"{count} image{'s' * (count > 1)}"


def _sync_remedy(images: int, ranks: int) -> str:
    return f" norm=sync takes them over the {images * ranks} images of all ranks." if ranks > 1 else ""


BATCH_NORM = Normalisation()


def choose_norm(norm: str, start: str = "", ranks: int = 1) -> Normalisation:
    """Decide ``norm=auto``, and whether what was asked for can be had.

    ``auto`` keeps what the weights were trained with, and takes BatchNorm from scratch, at any batch: with micro-batches of
    one and two images it trained better than GroupNorm, and better than frozen statistics (docs/accumulation.md). Statistics
    over all ranks are for those who ask: BatchNorm over four images was not better than over two.

    Args:
        norm: the setting: auto, batch, sync, group or frozen.
        start: normalisation of the checkpoint that the run starts from; "" from scratch.
        ranks: data-parallel processes.

    Raises:
        ConfigError: norm=frozen where no statistics are there to be kept, norm=sync on one rank.
    """
    if norm == "sync" and ranks == 1:
        raise ConfigError(
            "norm=sync: takes BatchNorm's statistics over several ranks, and there is one. Use norm=batch, which is the "
            "same on one rank, or several: device=0,1 or torchrun in training, ranks=2 in a plan."
        )
    if norm == "frozen" and start in ("", "group"):
        lacking = "the checkpoint has GroupNorm, which has none" if start else "a model from scratch has none yet"
        raise ConfigError(
            f"norm=frozen: keeps the statistics of trained weights, and {lacking}. "
            "Use norm=group, or start from a checkpoint with BatchNorm (model=path/best.pt)."
        )
    if norm != "auto":
        return Normalisation(norm, f"norm={norm}", start)
    if start == "sync" and ranks == 1:
        return Normalisation("batch", "norm=auto: the same on one rank", start)
    if start:
        return Normalisation(start, "norm=auto: the weights were trained with it", start)
    return Normalisation("batch", "norm=auto: from scratch")
