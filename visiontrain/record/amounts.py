"""Amounts as people read them."""

from __future__ import annotations


def gigabytes(count: int) -> str:
    """Bytes for people, in GB of 10^9."""
    return f"{count / 1e9:.2f} GB"


def clock(seconds: float) -> str:
    """``1:02:03``, ``2:03``."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
