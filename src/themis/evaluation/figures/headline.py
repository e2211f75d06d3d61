"""The headline figure: the app that fares worst, under every policy and in every scenario.

front(measured, GENERATED, policies)        # of E15's numbers
plot_headline({"W1": {"themis": factor, ...}, ...}, {"W1": 1.08}, ours="themis", label="...")

One row for each policy, one panel for each scenario. Ours differs by place, weight and shape, not
by colour alone; the numbers stand beside the marks.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from themis.evaluation.comparisons import FEWEST, Factor
from themis.evaluation.figures.charts import plain_ticks
from themis.evaluation.figures.measured import by_group, labels, seeds_text
from themis.evaluation.metrics import OURS
from themis.evaluation.provenance import seed_text
from themis.evaluation.run_matrix import MatrixNumbers
from themis.evaluation.scenarios import Scenario
from themis.sim.figures.plot_style import COLOURS, Drawing, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEGEND = "dashed: 1, as on a share of one's own; dotted: the floor, below which no policy can get"
WIDTH = 8.33
"""Inches: 800 pixels where an SVG is shown as it is."""
WORST = "max_rho_ref"
BLUE, GREY, ORANGE = COLOURS[0], "#555555", COLOURS[1]
FAR = 6.0
"""A mark beyond is shown as a number, so that the axis resolves the others, which are near 1."""
_SMALL = 7.5

Points = Mapping[str, Factor]


def front(measured: MatrixNumbers, shown: Sequence[Scenario], names: Sequence[str]) -> Drawing:
    """Each scenario on the seeds that all of its policies have."""
    same = by_group(measured, [one.name for one in shown], names)
    called = labels(same)
    differ = len({each.seeds for each in same.values()}) > 1
    marks, floors = {}, {}
    for one in shown:
        each = same[one.name]
        title = f"{_title(one)}\nseeds {seed_text(each.seeds)}" if differ else _title(one)
        marks[title] = {
            label: each.typical(WORST, (one.name, name)) for name, label in called.items()
        }
        floors[title] = each.typical("placed_floor", (one.name, OURS)).mean
    given = seed_text(measured.seeds)
    seeds = f"the seeds named of {given}" if differ else seeds_text(measured, same)
    few = all(each.count((name, OURS)) < FEWEST for name, each in same.items())
    interval = "too few for intervals" if few else "95 % interval"
    label = f"max rho_ref (fair share): geometric mean over {seeds}, {interval}; left is better"
    return plot_headline(marks, floors, OURS, label)


def _title(one: Scenario) -> str:
    name = one.workload.upper()
    return name if one.contention == 1 else f"{name}, half the machines"


def plot_headline(
    marks: Mapping[str, Points], floors: Mapping[str, float], ours: str, label: str
) -> Drawing:
    """Means with intervals, lower is better; `floors` are what no policy could go below."""
    names = ranked(marks)
    drawing = Drawing()
    with panels(drawing, WIDTH, 0.235 * len(names) + 1.2, columns=len(marks)) as axes:
        for place, (part, (scenario, points)) in enumerate(zip(axes, marks.items(), strict=True)):
            _rows(part, names, points, ours)
            _lines(part, floors.get(scenario, math.nan))
            part.set_title(scenario)
            part.set_ylim(len(names) - 0.4, -0.6)
            part.set_yticks(range(len(names)), names if place == 0 else [""] * len(names))
            part.tick_params(axis="y", length=0)
            part.grid(visible=False, axis="y")
        for tick in axes[0].get_yticklabels():
            if tick.get_text() == ours:
                tick.set_fontweight("bold")
                tick.set_color(BLUE)
        drawing.figure.supxlabel(f"{label}\n{LEGEND}", fontsize=8.5)
    return drawing


def ranked(marks: Mapping[str, Points]) -> list[str]:
    """Policies that have any point, the best on average over the scenarios first."""
    logs: dict[str, list[float]] = {}
    for points in marks.values():
        for name, point in points.items():
            if math.isfinite(point.mean) and point.mean > 0:
                logs.setdefault(name, []).append(math.log(point.mean))
    return sorted(logs, key=lambda name: fmean(logs[name]))


def _rows(axes: "Axes", names: Sequence[str], points: Points, ours: str) -> None:
    axes.set_xscale("log")
    shown = {name: point for name, point in points.items() if math.isfinite(point.mean)}
    inside = [value for point in shown.values() for value in _ends(point) if value <= FAR]
    left, right = min(0.93, *inside, 1.0), max(1.5, *inside, 1.0)
    if any(max(_ends(point)) > FAR for point in shown.values()):
        right = FAR
    # Room for the numbers beside the marks, and for the arrows.
    axes.set_xlim(0.97 * left, right * (right / left) ** 0.3)
    plain_ticks(axes.xaxis, (left, right), apart=0.1)
    axes.tick_params(axis="x", which="minor", length=0)
    for row, name in enumerate(names):
        if name == ours:
            axes.axhspan(row - 0.5, row + 0.5, color=BLUE, alpha=0.1, lw=0)
        if name in shown:
            _mark(axes, row, shown[name], mine=name == ours)


def _ends(point: Factor) -> tuple[float, float]:
    """The interval. Of a few seeds it says nothing, and would hide everything else."""
    if point.seeds < FEWEST or point.low is None or point.high is None:
        return point.mean, point.mean
    return point.low, point.high


def _mark(axes: "Axes", row: int, point: Factor, *, mine: bool) -> None:
    colour, weight = (BLUE, "bold") if mine else (GREY, "normal")
    text: dict[str, Any] = {
        "va": "center",
        "fontsize": _SMALL,
        "color": colour,
        "fontweight": weight,
    }
    if point.mean > FAR:
        edge = axes.get_xlim()[1]
        axes.annotate(
            f"{point.mean:.0f} \N{RIGHTWARDS ARROW}", (edge, row), ha="right", **text
        )  # fmt: skip
        return
    low, high = _ends(point)
    axes.errorbar(
        [point.mean], [row], xerr=[[point.mean - low], [high - point.mean]],
        fmt="D" if mine else "o", markersize=6 if mine else 4, color=colour,
        markerfacecolor=colour if mine else "white", capsize=2.5, elinewidth=1.1,
    )  # fmt: skip
    # Where the interval leaves the panel there is room only before it.
    place, shift, side = (low, -6, "right") if high > FAR else (high, 6, "left")
    axes.annotate(
        f"{point.mean:.2f}", (place, row), xytext=(shift, 0), ha=side,
        textcoords="offset points", **text,
    )  # fmt: skip


def _lines(axes: "Axes", floor: float) -> None:
    axes.axvline(1.0, color="black", lw=1.0, ls="--", zorder=0.5)
    if math.isfinite(floor):
        axes.axvline(floor, color=ORANGE, lw=1.4, ls=":", zorder=0.5)
