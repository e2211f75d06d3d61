"""The macro-benchmark: W1 and W2 on the testbed, all policies. The runs of E1, E2 and E4."""

import math
from collections.abc import Sequence
from statistics import fmean

from themis.experiments.base import LITERAL, OURS, QUICK_SEEDS, REPORT_SEEDS, Results
from themis.experiments.matrix import Cell, Matrix, Measured, over
from themis.experiments.provenance import seed_text
from themis.policies import POLICIES

WORKLOADS = ("w1", "w2")
PAPERS = ("gandiva", "tiresias", "optimus", "slaq")
"""The paper's own opponents."""
QUICK = (OURS, LITERAL, "equal-share", *PAPERS)


def policies(results: Results) -> tuple[str, ...]:
    """Which policies are run: all, or for a quick look the paper's and the natural opponent."""
    return QUICK if results.scope.quick else tuple(POLICIES)


def auction_sentence(measured: Measured, cells: Sequence[Cell]) -> str:
    """What share of GPU time under contention the auction assigned; needs `auction_share`."""
    parts = []
    for cell in cells:
        values = [value for value in measured.values("auction_share", cell) if math.isfinite(value)]
        none = "- (no contention)" if measured.present[cell] else "- (not run)"
        told = f"{fmean(values):.0%}" if values else none
        parts.append(f"{cell[0]} {told}")
    return (
        "Share of the GPU time under contention (apps want more than there is) that the auction "
        "assigned, the rest being leftovers, arrivals between beats and guards: "
        + ", ".join(parts)
        + f"; {_means(measured, cells)}."
    )


def _means(measured: Measured, cells: Sequence[Cell]) -> str:
    """Over which seeds the means of these cells are."""
    given = seed_text(measured.seeds)
    each = {seed_text(measured.present[cell]) or "none" for cell in cells}
    if each == {given}:
        return f"means over seeds {given}"
    seeds = each.pop() if len(each) == 1 else "as far as they were run,"
    return f"means over seeds {seeds} of {given}"


def drawn(measured: Measured, workload: str, names: Sequence[str]) -> dict[str, str]:
    """Policies that have runs, by what a figure of all of their runs calls them.

    Where one has fewer seeds than others its name says so: the lines are of different runs.
    """
    counts = {name: len(measured.present[workload, name]) for name in names}
    most = max(counts.values())
    return {
        name: name if count == most else f"{name}, {count} of {most} seeds"
        for name, count in counts.items()
        if count
    }


def matrix(results: Results) -> Matrix:
    """Cells are (workload, policy)."""
    scope = results.scope
    return Matrix(
        over({name: scope.base(name) for name in WORKLOADS}, policies(results)),
        scope.seeds_of(REPORT_SEEDS, QUICK_SEEDS),
    )
