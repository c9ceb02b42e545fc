"""Which normalisation a run trains with: decided once, at its start, from the settings and the checkpoint. No torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from visiontrain.errors import ConfigError

FEW_BELOW = 6  # images per rank: fewer, and the plan names the remedies for BatchNorm too
WANTS_SENTENCE_BELOW = 16  # images per rank: fewer, and the plan names what BatchNorm sees
REMEDIES = " Where scores fall behind, norm=group does without statistics, and norm=frozen keeps a checkpoint's."
LAYERS = {"batch": "BatchNorm", "group": "GroupNorm", "frozen": "frozen BatchNorm"}


@dataclass(frozen=True, slots=True)
class Normalisation:
    """``norm`` is batch, group or frozen and ``reason`` why; ``start`` is that of the checkpoint begun from, "" from scratch."""

    norm: str = "batch"
    reason: str = ""
    start: str = ""

    @property
    def swapped(self) -> bool:
        """Models are built with BatchNorm."""
        return self.norm != (self.start or "batch")

    def sentence(self, images: int, accumulate: int) -> str:
        """What the plan says of it, "" where there is nothing to know.

        Args:
            images: per rank and forward pass.
            accumulate: micro-batches in a window.
        """
        told = f"{LAYERS[self.norm]} ({self.reason})"
        if self.norm == "frozen":
            return f"F{told[1:]}: the checkpoint's statistics are used and stay as they are; scale and shift learn."
        if self.swapped and self.start:
            kept = (
                "scale, shift and statistics" if self.start == "frozen" and self.norm == "batch" else "scale and shift"
            )
            return f"{told} in place of the checkpoint's {LAYERS[self.start]}: {kept} are kept."
        if self.norm == "group":
            return f"{told}, as in the checkpoint." if self.start else f"{told} in place of BatchNorm."
        if images >= (WANTS_SENTENCE_BELOW if accumulate > 1 else FEW_BELOW):
            return ""
        seen = f"BatchNorm sees {images} image{'s' * (images > 1)} at a time; no accumulation changes that."
        return seen + REMEDIES * (images < FEW_BELOW)

    def facts(self) -> dict[str, Any]:
        """As a map, for JSON and the checkpoint; ``Normalisation(**facts)`` is the inverse."""
        return asdict(self)

    def record(self, layers: int) -> dict[str, Any]:
        """What run.json says; ``layers`` is how many the model has, and a swap is always of all."""
        swap = {"from": LAYERS[self.start or "batch"], "to": LAYERS[self.norm], "layers": layers, "reason": self.reason}
        return {"norm": self.norm, "reason": self.reason, "swaps": [swap] if self.swapped else []}


BATCH_NORM = Normalisation()


def choose_norm(norm: str, start: str = "") -> Normalisation:
    """Decide ``norm=auto``, and whether what was asked for can be had.

    ``auto`` keeps what the weights were trained with, and takes BatchNorm from scratch, at any batch: with micro-batches of
    one and two images it trained better than GroupNorm, and better than frozen statistics (docs/accumulation.md).

    Args:
        norm: the setting: auto, batch, group or frozen.
        start: normalisation of the checkpoint that the run starts from; "" from scratch.

    Raises:
        ConfigError: norm=frozen where no statistics are there to be kept.
    """
    if norm == "frozen" and start in ("", "group"):
        lacking = "the checkpoint has GroupNorm, which has none" if start else "a model from scratch has none yet"
        raise ConfigError(
            f"norm=frozen: keeps the statistics of trained weights, and {lacking}. "
            "Use norm=group, or start from a checkpoint with BatchNorm (model=path/best.pt)."
        )
    if norm != "auto":
        return Normalisation(norm, f"norm={norm}", start)
    if start:
        return Normalisation(start, "norm=auto: the weights were trained with it", start)
    return Normalisation("batch", "norm=auto: from scratch")
