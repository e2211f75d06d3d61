"""Growth curves of solvers, from lines that `auction.py` printed: how long and how exact.

    python benchmarks/auction.py --gpus 1024 --bidders 100 >> lines.jsonl
    python benchmarks/growth.py lines.jsonl docs/concepts/solver-growth.svg

Needs matplotlib (the `figures` extra). Lines with a deadline, of another solver, or of rows for
every GPU count tell of something else and are left out. Of several lines of the same size and kind
the first of those with the most seeds counts; others with as many, which are about the same
auctions, only add what opponents took.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from themis.sim.figures.plot_style import Drawing, legend, look, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ((False, "whole"), (True, "fragmented"))
SMALLEST_GAP = 1e-6
"""Nats: below this answers count as exact; the axis ends here."""


@dataclass(frozen=True, slots=True)
class Point:
    """What one size of auctions took."""

    gpus: int
    bidders: int
    ours: float
    slow: float
    gap: float
    others: dict[str, float]


def main() -> int:
    """Read, draw, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("lines", type=Path, help="what auction.py printed, a JSON object per line")
    parser.add_argument("figure", type=Path, help="the .svg to write")
    args = parser.parse_args()
    if args.figure.suffix != ".svg":
        parser.error(f"{args.figure} is no .svg")
    lines = [json.loads(line) for line in args.lines.read_text().splitlines() if line.strip()]
    try:
        kinds = {fragmented: points(lines, fragmented=fragmented) for fragmented, _ in KINDS}
    except ValueError as error:
        parser.error(f"{args.lines}: {error}")
    drawing = draw(kinds)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(drawing.save(Path(folder) / "growth")[0], args.figure)
    return 0


def points(lines: Sequence[dict[str, Any]], *, fragmented: bool) -> list[Point]:
    """The points of one kind of offer, by size.

    Raises:
        ValueError: Auctions of the same GPUs among different numbers of bidders: no one curve.
    """
    by_size: dict[int, list[dict[str, Any]]] = {}
    for line in lines:
        if line["fragmented"] == fragmented and _of_the_curve(line):
            by_size.setdefault(line["gpus"], []).append(line)
    return [_point(gpus, by_size[gpus]) for gpus in sorted(by_size)]


def _of_the_curve(line: dict[str, Any]) -> bool:
    # Lines from before the last two keys were there are of plain runs.
    return (
        "budget_ms" not in line
        and not line.get("every_count", False)
        and line.get("solver", "default") == "default"
    )


def _point(gpus: int, lines: Sequence[dict[str, Any]]) -> Point:
    if len(bidders := {line["bidders"] for line in lines}) > 1:
        raise ValueError(f"{gpus} GPUs: lines of {sorted(bidders)} bidders; keep those of one")
    most = max(line.get("seeds", 0) for line in lines)
    same = [line for line in lines if line.get("seeds", 0) == most]
    first = same[0]
    others: dict[str, float] = {}
    for line in same:
        others |= {name: line[f"{name}_ms"] for name in OTHERS if line.get(f"{name}_ms")}
    return Point(
        gpus,
        first["bidders"],
        first["median_ms"],
        first["p95_ms"],
        first["gap_nats"],
        others,
    )


OTHERS = {"highs": "plain HiGHS", "gurobi": "Gurobi"}


def draw(kinds: dict[bool, list[Point]]) -> Drawing:
    """CPU ms and gap against GPUs."""
    drawing = Drawing()
    with panels(drawing, 11.0, 3.6, columns=2) as (times, gaps):
        for index, (fragmented, name) in enumerate(KINDS):
            some = kinds[fragmented]
            gpus = [point.gpus for point in some]
            style = look(index)
            times.plot(gpus, [p.ours for p in some], marker="o", label=f"ladder, {name}", **style)
            times.fill_between(
                gpus,
                [p.ours for p in some],
                [p.slow for p in some],
                color=style["color"],
                alpha=0.1,
            )
            for number, (key, label) in enumerate(OTHERS.items()):
                theirs = [(p.gpus, p.others[key]) for p in some if key in p.others]
                if theirs:
                    marker = {"marker": "sD"[number], "markerfacecolor": "none"}
                    values = look(2 + 2 * number + index) | marker
                    times.plot(*zip(*theirs, strict=True), label=f"{label}, {name}", **values)
            gaps.plot(
                gpus,
                [max(SMALLEST_GAP, p.gap) for p in some],
                marker="o",
                label=f"ladder, {name}",
                **style,
            )
        _label(times, kinds, "CPU ms, all payments included", "Median time (shaded: up to p95)")
        _label(gaps, kinds, "nats", f"Largest gap to the bound ({SMALLEST_GAP:g} and less: exact)")
        legend(times, 7, "upper left")  # beside the axes, which are full
        legend(gaps, 2, "upper left")
    return drawing


def _label(axes: "Axes", kinds: dict[bool, list[Point]], unit: str, title: str) -> None:
    sizes = {point.gpus: point.bidders for some in kinds.values() for point in some}
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sorted(sizes), [f"{gpus:,}\n{sizes[gpus]}" for gpus in sorted(sizes)])
    axes.set_xlabel("GPUs of the cluster, bidders below")
    axes.set_ylabel(unit)
    axes.set_title(title)


if __name__ == "__main__":
    sys.exit(main())
