"""Line charts as inline SVG: round ticks, colours by variables so that dark pages work, values under the pointer by script.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from visiontrain.record.plots.chart import number_text, ticks
from visiontrain.record.report.markup import Html, tag

MOST_POINTS = 240  # of one line: as many as a chart has pixels
COLOURS = 8  # c1 .. c8 of style.py; c0 is grey, c9 the ink
WIDTH, HEIGHT = (
    360,
    216,
)  # a chart is shown at about this size on a phone and in three columns, so that letters keep theirs
_LEFT, _TOP, _RIGHT, _BOTTOM = 40, 8, 352, 178


@dataclass(frozen=True, slots=True)
class Series:
    """One line: ``x`` and ``y`` (N,), not finite values are gaps. ``low`` and ``high`` (N,) draw a band around it."""

    name: str
    x: np.ndarray
    y: np.ndarray
    colour: int = 1  # 1 .. 8, 0 grey, 9 ink
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    style: str = ""  # thin, dashed
    told: str = ""  # in the legend behind the name; empty: the last value
    quiet: bool = False  # neither in the legend nor under the pointer; its name is a tooltip


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to pixels; ``log`` takes the logarithm first."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, values: np.ndarray | float) -> np.ndarray:
        """Pixels of values."""
        low, high, values = (np.log10(v) if self.log else np.asarray(v, float) for v in (self.low, self.high, values))
        return self.start + (values - low) / (high - low) * (self.stop - self.start)

    def ticks(self, wanted: int) -> list[float]:
        """Round values inside the range."""
        if not self.log:
            return ticks(self.low, self.high, wanted)
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in ((1,), (1, 3), (1, 2, 5)):
            found = [s * 10.0**p for p in powers for s in steps if self.low <= s * 10.0**p <= self.high]
            if len(found) >= 3:
                break
        return found


def thinned(name: str, x: Sequence[float], y: Sequence[float], colour: int = 1, most: int = MOST_POINTS) -> Series:
    """A line of at most ``most`` points: neighbours become their mean, with a band from the lowest to the highest of them.

    Args:
        name: for the legend.
        x: (N,) ascending.
        y: (N,), not finite where there is no value.
        colour: as in ``Series``.
        most: points that are kept.
    """
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    known = np.isfinite(ys)
    xs, ys = xs[known], ys[known]
    if len(xs) <= most:
        return Series(name, xs, ys, colour)
    starts = np.unique(np.linspace(0, len(xs), most, endpoint=False).astype(int))
    counts = np.diff([*starts, len(xs)])
    x_mean, y_mean = (np.add.reduceat(values, starts) / counts for values in (xs, ys))
    low, high = np.minimum.reduceat(ys, starts), np.maximum.reduceat(ys, starts)
    return Series(name, x_mean, y_mean, colour, low, high, told=value_text(ys[-1]))


def chart(
    title: str,
    series: Sequence[Series],
    *,
    note: str = "",
    x_label: str = "images seen",
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    log: bool = False,
) -> Html:
    """A chart with title and legend on its own ground; empty where no line has a point.

    Args:
        title: what is drawn.
        series: drawn in order, the last on top.
        note: a small line below the title.
        x_label: below the axis, and behind the value under the pointer.
        x_range: fitted to the lines where None, from 0.
        y_range: likewise.
        log: the y axis is logarithmic; values that are not positive are gaps.
    """
    series = [_drawable(line, log) for line in series]
    if not any(len(line.x) for line in series):
        return Html("")
    x = Scale(*(x_range or _span([line.x for line in series], start=0.0)), _LEFT, _RIGHT)
    y = Scale(*(y_range or _span(_heights(series), log=log)), _BOTTOM, _TOP, log)
    drawing = tag(
        "svg",
        *_axes(x, y, x_label),
        *(_line(line, x, y) for line in series if len(line.x)),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title} over {x_label}",
        data_frame=f"[{_LEFT},{_TOP},{_RIGHT},{_BOTTOM}]",
        data_range=f"[{x.low:.9g},{x.high:.9g}]",
        data_axis=x_label,
    )
    caption = tag("figcaption", title, tag("small", note) if note else None)
    return tag("figure", caption, _legend(series), drawing, class_="panel chart")


def spark(x: Sequence[float], y: Sequence[float]) -> Html:
    """A line without axes, from 0; empty where there are fewer than two points."""
    line = thinned("", x, y)
    if len(line.x) < 2:
        return Html("")
    across, up = Scale(float(line.x[0]), float(line.x[-1]), 2, 158), Scale(0, max(float(line.y.max()), 1e-9), 34, 3)
    px, py = across(line.x), up(line.y)
    last = tag("circle", cx=f"{px[-1]:.1f}", cy=f"{py[-1]:.1f}", r=2.5)
    return tag(
        "svg",
        tag("g", tag("path", d=_path(px, py), class_="line"), last, class_="series c1"),
        viewBox="0 0 160 36",
        aria_hidden="true",
    )


def _drawable(line: Series, log: bool) -> Series:
    """Without what has no place on the chart."""
    good = np.isfinite(line.x) & np.isfinite(line.y) & ((line.y > 0) | (not log))
    low, high = (None if side is None else side[good] for side in (line.low, line.high))
    if log and low is not None:
        low = np.where(low > 0, low, line.y[good])
    return replace(line, x=line.x[good], y=line.y[good], low=low, high=high)


def _heights(series: Sequence[Series]) -> list[np.ndarray]:
    return [side for line in series for side in (line.y, line.low, line.high) if side is not None]


def _span(values: Sequence[np.ndarray], start: float | None = None, log: bool = False) -> tuple[float, float]:
    """From the lowest to the highest value with a little room; from ``start`` where it is given."""
    joined = np.concatenate(list(values))
    low, high = float(joined.min()), float(joined.max())
    if log:
        return low / 1.15, high * 1.15
    if start is not None:
        return start, high if high > start else start + 1.0
    room = 0.05 * (high - low) or 0.5 * abs(high) or 0.5
    return (0.0 if 0 <= low < 0.5 * high else low - room), high + room


def _axes(x: Scale, y: Scale, x_label: str) -> list[Html]:
    drawn = []
    for value in y.ticks(5):
        at = f"{float(y(value)):.1f}"
        drawn.append(tag("line", x1=_LEFT, x2=_RIGHT, y1=at, y2=at, class_="gridline"))
        drawn.append(tag("text", number_text(value), x=_LEFT - 6, y=f"{float(y(value)) + 3.5:.1f}", text_anchor="end"))
    for value in x.ticks(5):
        drawn.append(tag("text", number_text(value), x=f"{float(x(value)):.1f}", y=_BOTTOM + 16, text_anchor="middle"))
    drawn.append(tag("line", x1=_LEFT, x2=_RIGHT, y1=_BOTTOM, y2=_BOTTOM, class_="axis"))
    drawn.append(tag("text", x_label, x=(_LEFT + _RIGHT) / 2, y=HEIGHT - 5, text_anchor="middle"))
    drawn.append(tag("line", x1=0, x2=0, y1=_TOP, y2=_BOTTOM, class_="rule"))
    return drawn


def _line(line: Series, x: Scale, y: Scale) -> Html:
    px, py = x(line.x), np.clip(y(line.y), _TOP - 4, _BOTTOM + 4)
    drawn = []
    if line.low is not None and line.high is not None:
        edge = _path(np.concatenate((px, px[::-1])), np.concatenate((y(line.high), y(line.low)[::-1])))
        drawn.append(tag("path", d=edge + "Z", class_="band"))
    drawn.append(tag("path", d=_path(px, py), class_="line"))
    if len(px) <= 30 and not line.style:
        drawn += [
            tag("circle", cx=f"{a:.1f}", cy=f"{b:.1f}", r=2 if len(px) > 1 else 4) for a, b in zip(px, py, strict=True)
        ]
    if line.quiet:
        return tag("g", tag("title", line.name), *drawn, class_=f"series c{line.colour} {line.style}")
    return tag(
        "g",
        *drawn,
        tag("circle", r=3.5, class_="at"),
        class_=f"series c{line.colour} {line.style}".strip(),
        data_name=line.name,
        data_x=_numbers(line.x, 9),
        data_y=_numbers(line.y, 6),
        data_at=_numbers(py, 4),
    )


def _legend(series: Sequence[Series]) -> Html:
    """Names with their last values; a single line without a name needs none."""
    entries = [
        tag("span", line.name, " " if line.name else None, tag("b", line.told or last_value(line.y)),
            class_=f"c{line.colour} {line.style}".strip())
        for line in series
        if len(line.x) and not line.quiet
    ]  # fmt: skip
    return tag("div", *entries, class_="legend") if entries else Html("")


def last_value(values: np.ndarray) -> str:
    """For a legend; of counts a whole number."""
    whole = np.array_equal(values, np.round(values))
    return f"{values[-1]:,.0f}" if whole else value_text(values[-1])


def value_text(value: float) -> str:
    """Three or four digits for a legend: 0.698, 12.4, 1,250, 2.5e-05."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.3f}" if size >= 0.1 or value == 0 else f"{value:.3g}"


def _path(x: np.ndarray, y: np.ndarray) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))


def _numbers(values: np.ndarray, digits: int) -> str:
    return f"[{','.join(f'{value:.{digits}g}' for value in values)}]"
