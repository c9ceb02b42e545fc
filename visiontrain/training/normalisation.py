"""Which normalisation a run trains with: decided once, at its start, from numbers alone. No torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from visiontrain.errors import ConfigError

FEW_IMAGES = 2  # per rank: as few, and norm=auto leaves BatchNorm
NOISY_BELOW = 6  # images per rank: fewer, and BatchNorm gets a warning
WANTS_SENTENCE_BELOW = 16  # images per rank: fewer, and the plan names what BatchNorm sees
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
        if accumulate > 1 and NOISY_BELOW <= images < WANTS_SENTENCE_BELOW:
            return f"BatchNorm sees micro-batches of {images} images; no accumulation changes that."
        return ""

    def warning(self, images: int) -> str:
        """What to do where BatchNorm sees too few ``images`` (per rank), else ""."""
        if self.norm != "batch" or images >= NOISY_BELOW:
            return ""
        return (
            f"BatchNorm sees {images} image{'s' * (images > 1)} at a time, fewer than {NOISY_BELOW}: its statistics are noisy, "
            "and accumulation does not help, because it never shows it more. norm=group does without statistics; "
            "norm=frozen keeps those of a checkpoint (model=path/best.pt); a larger batch makes them better."
        )

    def facts(self) -> dict[str, Any]:
        """As a map, for JSON and the checkpoint; ``Normalisation(**facts)`` is the inverse."""
        return asdict(self)

    def record(self, layers: int) -> dict[str, Any]:
        """What run.json says; ``layers`` is how many the model has, and a swap is always of all."""
        swap = {"from": LAYERS[self.start or "batch"], "to": LAYERS[self.norm], "layers": layers, "reason": self.reason}
        return {"norm": self.norm, "reason": self.reason, "swaps": [swap] if self.swapped else []}


BATCH_NORM = Normalisation()


def choose_norm(norm: str, *, images: int, ranks: int = 1, start: str = "") -> Normalisation:
    """Decide ``norm=auto``, and whether what was asked for can be had.

    Args:
        norm: the setting: auto, batch, group or frozen.
        images: of a micro-batch on each rank, as configured.
        ranks: data-parallel processes; with several, statistics are averaged over them and BatchNorm stays.
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
    if start == "group":
        return Normalisation("group", "norm=auto: the weights were trained with it", start)
    seen = f"micro-batches of {images} image{'s' * (images > 1)}"
    if ranks > 1 or images > FEW_IMAGES:
        return Normalisation("batch", f"norm=auto: {seen}", start)
    if start:
        return Normalisation("frozen", f"norm=auto: from trained weights, {seen}", start)
    return Normalisation("group", f"norm=auto: from scratch, {seen}", start)
