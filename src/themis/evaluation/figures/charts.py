"""Kinds of figures that several experiments draw, in the style of all figures.

plot_cdfs([Panel("Jobs per app", "jobs", {"w1": curve(counts)}, dots=W1_JOBS)])
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from themis.evaluation.comparisons import FEWEST, Factor
from themis.sim.compare import Estimate
from themis.sim.figures.plot_style import (
    COLOURS,
    MARKERS,
    Corner,
    Drawing,
    aside,
    legend,
    looks,
    panels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

TICKS = (1, 10, 100, 1000, 10000, 0.1, 2, 5, 20, 50, 200, 500, 2000, 5000, 0.2, 0.5, 1.5, 3, 0.7)
"""The roundest first: where there is no room for all of them, these stay."""
FAR, GAP = 20.0, 3.0
"""Times the median, and times the next smaller mean: a mark beyond both is shown as a number, so
that the axis resolves the others."""
_FAINT = "#B4B4B4"
_BESIDE = 7.5
"""Inches, of a figure with its legend beside it."""
_ROOM = 0.3
"""For numbers at the edge of an axis, of its length."""
HATCHES = ("", "///", "...", "xxx", "\\\\\\")

Curve = tuple[Sequence[float], Sequence[float]]
"""Values, and the share at or below each."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Distributions on one pair of axes, with the published points beside."""

    title: str
    label: str
    curves: Mapping[str, Curve]
    dots: Sequence[tuple[float, float]] = ()
    log: bool = False
    corner: Corner = "upper left"


def plot_cdfs(shown: Sequence[Panel]) -> Drawing:
    """Cumulative distributions side by side; large dots are the published figures."""
    drawing = Drawing()
    with panels(drawing, 3.7 * len(shown) + 0.3, 3.3, columns=len(shown)) as axes:
        for place, (part, panel) in enumerate(zip(axes, shown, strict=True)):
            for name, look in looks(panel.curves).items():
                values, shares = panel.curves[name]
                # Where the axis is logarithmic, a curve cannot start at zero.
                start = values[0] if panel.log else 0.0
                part.step([start, *values], [0.0, *shares], where="post", label=name, **look.line)
            if panel.dots:
                _dots(part, panel.dots)
            if panel.log:
                part.set_xscale("log")
            else:
                part.set_xlim(left=0.0)
            part.set_ylim(0.0, 1.03)
            part.set_title(panel.title)
            part.set_xlabel(panel.label)
            if place == 0:
                part.set_ylabel("share at or below")
            legend(part, len(panel.curves), panel.corner)
    return drawing


def _dots(axes: "Axes", dots: Sequence[tuple[float, float]]) -> None:
    style: dict[str, Any] = {"s": 34, "facecolors": "none", "edgecolors": "black", "zorder": 5}
    axes.scatter([x for x, _ in dots], [y for _, y in dots], label="published", **style)


def plot_behind(drawing: Drawing, curves: Sequence[Curve]) -> None:
    """More distributions behind those of a figure: thin, grey, with one label for all."""
    if not curves:
        return
    (axes,) = drawing.figure.axes
    drawing.figure.set_size_inches(_BESIDE, drawing.figure.get_figheight())
    right = axes.get_xlim()[1]
    for place, (values, shares) in enumerate(curves):
        axes.step(
            [0.0, *values], [0.0, *shares], where="post", color=_FAINT, lw=0.8, zorder=1,
            label="_" if place else "others",
        )  # fmt: skip
        right = max(right, values[-1])
    axes.set_xlim(right=right)
    legend(axes, 7, "lower right")


@dataclass(frozen=True, slots=True)
class Steps:
    """A step function: times in seconds, and the value from each time on."""

    times: Sequence[float]
    values: Sequence[float]
    mean: float
    end: float


def plot_demand(demands: Mapping[str, Steps]) -> Drawing:
    """GPUs wanted over time, one panel below the other, each with its mean."""
    drawing = Drawing()
    with panels(drawing, 7.5, 2.3 * len(demands) + 0.3, rows=len(demands)) as axes:
        for index, (part, (name, steps)) in enumerate(zip(axes, demands.items(), strict=True)):
            times, values = _peaks(steps)
            days = [at / 86400.0 for at in (*times, steps.end)]
            part.stairs(values, days, baseline=0, fill=True, color=COLOURS[index])
            part.axhline(steps.mean, color="black", lw=1.2, ls="--")
            part.annotate(
                f"mean {steps.mean:.0f}", (days[-1], steps.mean), ha="right", va="bottom",
                bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1},
            )  # fmt: skip
            part.set_xlim(0.0, days[-1])
            part.set_ylim(bottom=0.0)
            part.set_ylabel("GPUs")
            part.set_title(name)
        axes[-1].set_xlabel("days")
    return drawing


def _peaks(steps: Steps, bins: int = 800) -> tuple[list[float], list[float]]:
    """The largest value within each short stretch of time; finer detail would be invisible."""
    width = steps.end / bins
    heights: list[float] = []
    place = 0
    for number in range(bins):
        while place + 1 < len(steps.times) and steps.times[place + 1] <= number * width:
            place += 1
        last = place
        while last + 1 < len(steps.times) and steps.times[last + 1] < (number + 1) * width:
            last += 1
        heights.append(max(steps.values[place : last + 1]))
        place = last
    return [number * width for number in range(bins)], heights


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars in groups: for each name a height in each group."""

    groups: Sequence[str]
    heights: Mapping[str, Sequence[float]]


def plot_bars(key: str, label: str, shown: Mapping[str, Bars]) -> Drawing:
    """Bars side by side, with a colour and a hatching each."""
    drawing = Drawing()
    with panels(drawing, 4.0 * len(shown) + 0.3, 3.2, columns=len(shown)) as axes:
        for part, (title, bars) in zip(axes, shown.items(), strict=True):
            part.grid(visible=False, axis="x")
            width = 0.8 / len(bars.heights)
            for index, (name, heights) in enumerate(bars.heights.items()):
                offset = (index + 0.5) * width - 0.4
                part.bar(
                    [place + offset for place in range(len(bars.groups))],
                    list(heights),
                    width * 0.92,
                    label=name,
                    color=COLOURS[index],
                    hatch=HATCHES[index % len(HATCHES)],
                    edgecolor="white",
                    lw=0.6,
                )
            part.set_xticks(range(len(bars.groups)), list(bars.groups))
            part.set_xlabel(key)
            part.set_title(title)
            # No bar may reach the legend.
            part.set_ylim(0.0, (1.05 + 0.11 * len(bars.heights)) * part.get_ylim()[1])
            part.legend(frameon=False, loc="upper right")
        axes[0].set_ylabel(label)
    return drawing


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of a sweep: a mean with its interval at each value; NaN where there is none."""

    name: str
    points: Sequence[Estimate | Factor]


@dataclass(frozen=True, slots=True)
class Sweep:
    """One measure against the swept key."""

    title: str
    lines: Sequence[ChartLine]
    marks: Mapping[str, float] = field(default_factory=dict)
    """Values of the key to mark, such as the one that the paper chose."""
    from_zero: bool = True
    log: bool = False


def plot_sweeps(key: str, values: Sequence[float | int | str], shown: Sequence[Sweep]) -> Drawing:
    """Measures against a key, side by side, with 95 % intervals."""
    numeric = all(not isinstance(value, str) for value in values)
    places = [float(v) for v in values] if numeric else [float(n) for n in range(len(values))]
    drawing = Drawing()
    with panels(drawing, 3.2 * len(shown) + 2.4, 3.2, columns=len(shown)) as axes:
        for part, sweep in zip(axes, shown, strict=True):
            seen = looks(line.name for line in sweep.lines)
            for index, line in enumerate(sweep.lines):
                look = seen[line.name]
                if not any(math.isfinite(point.mean) for point in line.points):
                    continue
                shown_points = [
                    (place + aside(index, len(sweep.lines), places), point)
                    for place, point in zip(places, line.points, strict=True)
                    if math.isfinite(point.mean)
                ]
                part.errorbar(
                    [place for place, _ in shown_points],
                    [point.mean for _, point in shown_points],
                    yerr=list(zip(*(_reach(point) for _, point in shown_points), strict=True)),
                    label=line.name, marker=look.marker, markersize=4,
                    capsize=2.5, elinewidth=0.9, **look.line,
                )  # fmt: skip
            for name, at in sweep.marks.items():
                part.axvline(at, color="#8F8F8F", lw=1.0, ls=":")
                part.annotate(f" {name}", (at, 1.0), xycoords=("data", "axes fraction"), va="top",
                              fontsize=8, color="#555555")  # fmt: skip
            part.set_xticks(places, _ticks(values, sweep.lines))
            part.set_xlabel(key)
            part.set_title(sweep.title)
            # No mark may touch the frame, also when all of them are near the same height.
            part.margins(y=0.1)
            if sweep.log:
                part.set_yscale("log")
                plain_ticks(part.yaxis, part.get_ylim())
            elif sweep.from_zero:
                part.set_ylim(0.0, 1.08 * part.get_ylim()[1])
        legend(axes[-1], 7, "upper left")
    return drawing


def _reach(point: Estimate | Factor) -> tuple[float, float]:
    """The extent of an interval down and up; none for a few seeds, whose interval says nothing."""
    if isinstance(point, Estimate):
        half = point.half or 0.0
        return (half, half) if point.runs >= FEWEST else (0.0, 0.0)
    if point.low is None or point.high is None or point.seeds < FEWEST:
        return 0.0, 0.0
    return point.mean - point.low, point.high - point.mean


def _ticks(values: Sequence[float | int | str], lines: Sequence[ChartLine]) -> list[str]:
    """The values of a key; a value without runs is marked."""
    there = [
        any(math.isfinite(line.points[place].mean) for line in lines)
        for place in range(len(values))
    ]
    return [
        str(value) if found else f"{value}\nnot run"
        for value, found in zip(values, there, strict=True)
    ]


def plain_ticks(axis: "Axis", limits: tuple[float, float], apart: float = 0.06) -> None:
    """Round numbers on a logarithmic axis, `apart` by at least this share of its length."""
    low, high = limits
    least = apart * math.log(high / low)
    ticks: list[float] = []
    for tick in TICKS:
        if low <= tick <= high and all(abs(math.log(tick / one)) >= least for one in ticks):
            ticks.append(tick)
    ticks.sort()
    axis.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    axis.set_minor_formatter(lambda *_: "")


def plot_ranges(
    title: str, label: str, marks: Mapping[str, Mapping[str, Factor]], *, log: bool = False
) -> Drawing:
    """Means with intervals: a row for each name, with a mark for each kind, and a line at one.

    On a logarithmic axis a mark far beyond the others is a number at the edge.
    """
    found = {
        kind: {name: point for name, point in points.items() if math.isfinite(point.mean)}
        for kind, points in marks.items()
    }
    names = list(dict.fromkeys(name for points in found.values() for name in points))
    means = [point.mean for points in found.values() for point in points.values()]
    far = _far(means) if log else math.inf
    known = {
        kind: {name: point for name, point in points.items() if point.mean <= far}
        for kind, points in found.items()
    }
    drawing = Drawing()
    with panels(drawing, 7.0, 0.32 * len(names) + 1.4) as (axes,):
        for index, (kind, points) in enumerate(known.items()):
            shift = 0.16 * (index - (len(marks) - 1) / 2)
            axes.errorbar(
                [point.mean for point in points.values()],
                [names.index(name) + shift for name in points],
                xerr=[
                    [point.mean - (point.low or point.mean) for point in points.values()],
                    [(point.high or point.mean) - point.mean for point in points.values()],
                ],
                fmt=MARKERS[index % len(MARKERS)],
                color=COLOURS[index],
                markersize=5,
                capsize=2.5,
                elinewidth=0.9,
                label=kind,
            )
        axes.axvline(1.0, color="black", lw=1.0, ls="--")
        if log:
            axes.set_xscale("log")
            low, high = axes.get_xlim()
            plain_ticks(axes.xaxis, (low, high))
            if math.isfinite(far):
                axes.set_xlim(low, high * (high / low) ** _ROOM)
                _far_beyond(axes, names, found, far)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlabel(label)
        axes.set_title(title)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawing


def _far(means: Sequence[float]) -> float:
    """The largest of these that is not far beyond the others."""
    ordered = sorted(means)
    for before, after in pairwise(ordered):
        if after > FAR * median(ordered) and after > GAP * before:
            return before
    return math.inf


def _far_beyond(
    axes: "Axes", names: Sequence[str], marks: Mapping[str, Mapping[str, Factor]], far: float
) -> None:
    """In each row the numbers that lie beyond the right edge, in the order of the legend."""
    for row, name in enumerate(names):
        texts = [
            f"{points[name].mean:.0f}"
            for points in marks.values()
            if name in points and points[name].mean > far
        ]
        if texts:
            axes.annotate(
                f"{', '.join(texts)} \N{RIGHTWARDS ARROW}", (1.0, row),
                xycoords=("axes fraction", "data"), ha="right", va="center", fontsize=8,
            )  # fmt: skip
