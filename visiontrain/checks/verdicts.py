"""What the windows of the trial show: each function asks one question of what was counted and answers with a row.

Where several ranks share the windows, most questions are asked of each, and ``merged`` makes one row of their answers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from visiontrain.checks.rows import NOTE, PASS, Row, judged, megabytes, merged
from visiontrain.checks.trial import Growth, Seen
from visiontrain.training.plan import Plan
from visiontrain.training.schedule import Schedule


def of_windows(
    by_rank: Sequence[Sequence[Seen]], plan: Plan, schedule: Schedule, made_again: bool, places: Sequence[str] = ("",)
) -> list[Row]:
    """All that is asked of the windows themselves.

    Args:
        by_rank: what each rank saw of the same windows.
        plan, schedule: of the run.
        made_again: as in ``same_samples``.
        places: of the ranks, in words.
    """
    answers = [
        [
            boundaries(seen, plan, rank),
            same_parameters(seen),
            gradients_finite(seen),
            effect(seen),
            update_counts(seen),
            schedule_follows(seen, schedule),
        ]
        for rank, seen in enumerate(by_rank)
    ]
    return [same_samples(by_rank, plan, made_again), *merged(answers, places)]


def same_samples(by_rank: Sequence[Sequence[Seen]], plan: Plan, made_again: bool) -> Row:
    """Is each position dealt once, to one rank, where the plan has it, and is its picture the same whoever makes it?

    Args:
        by_rank: what each rank saw of the same windows.
        plan: of the run.
        made_again: whether a micro-batch of each rank's loader was the same, bit for bit, made without it.
    """
    windows = [s.window for s in by_rank[0]]
    dealt = [
        p for window in plan.windows(windows[0].epoch) for rank in range(plan.ranks) for p in _share(plan, window, rank)
    ]
    delivered = [
        s.positions == tuple(_share(plan, (s.window.start, s.window.stop), rank))
        for rank, seen in enumerate(by_rank)
        for s in seen
    ]
    union = Counter((k, p) for seen in by_rank for k, s in enumerate(seen) for p in s.positions)
    shared = [key for key in sorted(union) if union[key] > 1]
    missing = [p for k, w in enumerate(windows) for p in range(w.start, w.stop) if (k, p) not in union]
    twice = len(dealt) - len(set(dealt))
    good = all(delivered) and not (shared or missing or twice) and len(dealt) == plan.images_per_epoch and made_again
    wrong = (
        f"{twice} positions are dealt twice" if twice
        else f"position {shared[0][1]} of a window is delivered {union[shared[0]]} times" if len(by_rank) > 1 and shared
        else f"no rank delivers position {missing[0]}" if len(by_rank) > 1 and missing
        else "the loader delivers other positions than the plan has" if not all(delivered)
        else "the pictures differ from those made in this process: they depend on the worker" if not made_again
        else f"an epoch deals {len(dealt)} positions, planned are {plan.images_per_epoch}"
    )  # fmt: skip
    among = f", each by one of {len(by_rank)} ranks" if len(by_rank) > 1 else ""
    return judged(
        "same samples",
        good,
        f"{len(set(dealt))} positions",
        f"an epoch deals each once; the {sum(union.values())} delivered here are the planned ones{among}, whoever makes them",
        wrong,
        "the sampler or the data set is at fault: repeat with workers=0 and report it",
        float(twice + len(shared)),
    )


def boundaries(seen: Sequence[Seen], plan: Plan, rank: int = 0) -> Row:
    """Do windows begin and end where the plan says, cut into the micro-batches that it says, in each attempt?"""
    planned = [_passes(plan, (s.window.start, s.window.stop), rank) * max(s.attempted, 1) for s in seen]
    counted = [s.counts.forwards for s in seen]
    first = next((k for k, pair in enumerate(zip(planned, counted, strict=True)) if pair[0] != pair[1]), 0)
    return judged(
        "boundaries",
        planned == counted,
        f"{sum(map(len, counted))} passes",
        f"as planned: {_sizes(counted)}",
        f"window {first + 1} should run {_sizes(planned[first : first + 1])}, it ran {_sizes(counted[first : first + 1])}",
        "the loop does not cut windows as the plan does; if it shrank them for memory, a smaller batch says so beforehand",
        float(sum(map(len, counted))),
    )


def gradients_finite(seen: Sequence[Seen]) -> Row:
    """Is every window's gradient finite? An overflow that was run again at a lower gradient scale is told, no fault."""
    norms = [norm for s in seen for norm in s.counts.gradients]
    skipped = sum(not s.applied for s in seen)
    again = sum(max(s.attempted - 1, 0) for s in seen if s.applied)
    overflows = f"; {again} times at a lower gradient scale, after an overflow" if again else ""
    return judged(
        "finite gradients",
        all(map(math.isfinite, norms)) and not skipped,
        f"norm {max(norms, default=math.nan):.3g}",
        f"in each of {len(seen)} windows; the norm is the largest that the optimizer got, after clipping{overflows}",
        f"{skipped} of {len(seen)} windows were skipped because loss or gradient was not finite",
        "try amp=false and a lower lr0; look at the pictures of these windows",
        max(norms, default=None),
    )


def same_parameters(seen: Sequence[Seen]) -> Row:
    """Do all micro-batches of a window see the same parameters?"""
    passes = sum(len(s.counts.prints) for s in seen)
    moved = [k + 1 for k, s in enumerate(seen) if set(s.counts.prints) - {s.before}]
    return judged(
        "same parameters",
        not moved,
        f"{passes} passes",
        f"no bit of a parameter changed before any of {passes} forward passes inside windows",
        f"parameters changed inside window {moved[0] if moved else 0}: each micro-batch is stepped on its own",
        "step once, after the last micro-batch of a window",
        float(len(moved)),
    )


def effect(seen: Sequence[Seen]) -> Row:
    """Does an update change the parameters? If not: was the gradient cleared, the optimizer not stepped, the rate 0?"""
    # Weight decay moves parameters without any gradient, so a gradient of zeros is no effect either.
    idle = [s for s in seen if s.applied == s.attempted and (s.after == s.before or not any(s.counts.gradients))]
    steps, clears = (
        sum(values) for values in zip(*((len(s.counts.rates), s.counts.clears) for s in seen), strict=True)
    )
    counts = f"{steps} optimizer steps and {clears} clearings of the gradient in {len(seen)} windows"
    if idle:
        worst = idle[0].counts
        wrong = (
            "the optimizer was never stepped" if not worst.rates
            else "the gradient was cleared before the update" if not any(worst.gradients)
            else "the learning rate is 0" if not any(worst.rates)
            else "the optimizer's step changes nothing"
        )  # fmt: skip
    else:
        wrong = "the gradient is not cleared once per window, so samples of one update leak into the next"
    return judged(
        "effect",
        not idle and clears >= len(seen),
        f"{len(seen) - len(idle)} of {len(seen)}",
        f"every update changes the parameters; {counts}",
        f"no effect: {wrong}; {counts}" if idle else f"{wrong}; {counts}",
        "step after the last micro-batch, then clear; give the optimizer the parameters of this model",
        float(len(idle)),
    )


def update_counts(seen: Sequence[Seen]) -> Row:
    """Is one update applied per window, and one step taken per applied update?"""
    attempted, applied = sum(s.attempted for s in seen), sum(s.applied for s in seen)
    steps = sum(len(s.counts.rates) for s in seen)
    return judged(
        "update counts",
        applied == len(seen) == steps,
        f"{applied} of {len(seen)}",
        f"planned {len(seen)} windows, attempted {attempted}, applied {applied}, optimizer steps {steps}",
        f"planned {len(seen)} windows, attempted {attempted}, applied {applied}, optimizer steps {steps}",
        "the counters must follow the updates; if windows were skipped, see finite gradients",
        float(applied),
    )


def schedule_follows(seen: Sequence[Seen], schedule: Schedule) -> Row:
    """Is the learning rate that of the images applied so far, the update's own included?"""
    images, micro_batches, wrong = 0, 0, ""
    for number, s in enumerate(seen, 1):
        images += s.images * bool(s.applied)
        micro_batches += s.images * bool(s.applied) * max(len(s.counts.forwards), 1)
        for rate in s.counts.rates:
            if not _close(rate, schedule.learning_rate(max(images, 1))):
                shifted = _close(rate, schedule.learning_rate(micro_batches)) or s.progress == micro_batches
                cause = "micro-batches are taken for updates" if shifted else "it does not follow the applied updates"
                wrong = wrong or (
                    f"update {number} used {rate:.3g}, the schedule has {schedule.learning_rate(images):.3g} after {images}"
                    f" applied images: {cause}"
                )
    rates = [rate for s in seen for rate in s.counts.rates]
    return judged(
        "schedule",
        not wrong,
        f"lr {rates[-1]:.3g}" if rates else "no update",
        f"moved with {len(rates)} applied updates, {images} images; micro-batches do not move it",
        wrong,
        "move the schedule once per applied update, by the images of its window",
        rates[-1] if rates else None,
    )


def memory(figures: Mapping[str, Mapping[str, int]], of: str) -> Row:
    """How much the first window and the later ones took.

    Args:
        figures: of memory.Phases: bytes by phase.
        of: what the peaks are of.
    """
    peaks = {phase: values["peak"] for phase, values in figures.items()}
    later = peaks.pop("later windows", 0)
    first = max((peak for phase, peak in peaks.items() if "first" in phase), default=0)
    grown = later > 1.05 * first > 0
    told = ", ".join(f"{phase} {megabytes(peak)}" for phase, peak in {**peaks, "later windows": later}.items() if peak)
    return Row(
        "memory",
        NOTE if grown else PASS,
        megabytes(max(first, later)),
        f"peaks: {told}; {of}",
        "see kept tensors; later windows may also hold more objects" if grown else "",
        float(max(first, later)),
    )


def kept_tensors(found: Growth) -> Row:
    """Does every window leave tensors behind?"""
    counts = ", ".join(map(str, found.tensors))
    held = f", held by {' and '.join(found.holders)}" if found.holders else ""
    more = (found.bytes[-1] - found.bytes[0]) / max(len(found.bytes) - 1, 1)
    return judged(
        "kept tensors",
        not found.grows,
        f"{found.tensors[-1]} tensors",
        f"made in equal windows and alive after each: {counts}",
        f"memory grows: {counts} tensors live on after equal windows, {megabytes(more)} more each{held}",
        "keep numbers (loss.item()), not tensors; a tensor with a graph keeps all activations of its pass",
        float(found.tensors[-1] - found.tensors[0]),
    )


def _passes(plan: Plan, window: tuple[int, int], rank: int) -> list[int]:
    """Images of each pass of a rank. With norm=sync it runs as many as rank 0, which has most, at the end with nothing."""
    sizes = [stop - start for start, stop in plan.shares(*window, rank)]
    waits = plan.ranks > 1 and plan.normalisation.norm == "sync"
    return sizes + [0] * (len(plan.shares(*window, 0)) - len(sizes) if waits else 0)


def _share(plan: Plan, window: tuple[int, int], rank: int) -> list[int]:
    return [position for share in plan.shares(*window, rank) for position in range(*share)]


def _sizes(counted: Sequence[Sequence[int]]) -> str:
    """Micro-batch sizes of windows, such as 8 x 8 images, 8 x 8 images."""
    told = []
    for sizes in counted:
        equal = len(set(sizes)) == 1
        told.append(f"{len(sizes)} x {sizes[0]} images" if equal else f"{' + '.join(map(str, sizes)) or 'no'} images")
    return ", ".join(told)


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-15)
