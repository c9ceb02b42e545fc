"""Mixed precision: where forward passes are narrow, and the scale that keeps fp16 gradients alive."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

FIRST_SCALE = 2.0**16
SCALE_GROWTH_WINDOWS = 2000


@dataclass(frozen=True, slots=True)
class Precision:
    """``dtype`` of the forward passes and, for fp16, a GradScaler whose scale is constant inside a window."""

    device: torch.device
    dtype: torch.dtype = torch.float32
    scaler: torch.amp.GradScaler | None = None

    def autocast(self) -> AbstractContextManager[None]:
        if self.dtype in (torch.float32, torch.float64):
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    @property
    def scale(self) -> float:
        return self.scaler.get_scale() if self.scaler else 1.0

    @property
    def name(self) -> str:
        return {torch.float16: "fp16 with GradScaler", torch.bfloat16: "bf16", torch.float64: "fp64"}.get(
            self.dtype, "fp32"
        )

    def scaled(self, loss: Tensor) -> Tensor:
        return self.scaler.scale(loss) if self.scaler else loss

    def lower_scale(self) -> None:
        """Halve the scale, not below 1, after an overflow; the count of good windows before it rises starts anew."""
        if self.scaler:
            self.scaler.update(max(self.scaler.get_scale() / 2, 1.0))
            self.scaler.load_state_dict(self.scaler.state_dict() | {"_growth_tracker": 0})


def choose_precision(device: torch.device, amp: bool) -> Precision:
    """bf16 where the GPU computes it, else fp16 with a scaler; fp32 on CPU (bf16 there is many times slower)."""
    if not amp or device.type != "cuda":
        return Precision(device)
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return Precision(device, torch.bfloat16)
    scaler = torch.amp.GradScaler("cuda", init_scale=FIRST_SCALE, growth_interval=SCALE_GROWTH_WINDOWS)
    return Precision(device, torch.float16, scaler)
