"""The contract of every loss: sums and the weights to divide them by, never a quotient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

EXAMPLE = (
    "def my_loss(outputs, targets):\n"
    "    error = (outputs - targets.boxes).abs()\n"
    '    return LossSum({"main": Term(total=error.sum(), weight=error.new_tensor(error.numel()))})'
)


@dataclass(frozen=True, slots=True)
class Term:
    """One sum and what its mean divides by, of one micro-batch.

    ``total`` is a scalar with its graph, gains applied; ``weight`` a scalar without graph (task-aligned assignment:
    the sum of the target scores). The window divides once: sum of totals / max(sum of weights, 1).
    """

    total: Tensor
    weight: Tensor


@dataclass(frozen=True, slots=True)
class LossSum:
    """Loss of one micro-batch before any division: one term for each weight.

    ``parts`` names pieces of a term for the log, as {term: {part: detached scalar}}; the window divides them as it
    divides their term.
    """

    terms: Mapping[str, Term]
    parts: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)


def at_progress(loss: Callable[..., LossSum], progress: float) -> Callable[..., LossSum]:
    """The loss as it is at a moment of the run, 0 to 1, the same for all of a window; one without ``at`` never changes."""
    moved = getattr(loss, "at", None)
    return moved(progress) if moved else loss


def require_loss_sum(loss: object, of: str) -> LossSum:
    """The loss itself, or an error that shows what a loss returns.

    Raises:
        TypeError: anything but a LossSum with at least one term; or a weight with a graph.
    """
    if isinstance(loss, LossSum) and loss.terms:
        if graphs := [name for name, term in loss.terms.items() if term.weight.requires_grad]:
            raise TypeError(
                f"{of}: the weight of term {graphs[0]!r} carries a graph. The window divides by the sum of the weights at its"
                " end and takes no derivative of it, so such a loss has no exact gradient; give weight.detach() if the weight is"
                " to count as a constant"
            )
        return loss
    raise TypeError(
        f"{of} returned {type(loss).__name__}; a loss returns LossSum, sums and not means, because only the whole "
        f"window knows what to divide by. For example:\n{EXAMPLE}"
    )
