"""The macro-benchmark: W1 and W2 on the testbed, all policies. The runs of E1, E2 and E4."""

import math
from collections.abc import Sequence
from statistics import fmean

from themis.core.policies import POLICIES
from themis.evaluation.experiment import QUICK_SEEDS, REPORT_SEEDS, Results
from themis.evaluation.metrics import LITERAL, OURS
from themis.evaluation.provenance import seed_text
from themis.evaluation.run_matrix import Cell, Matrix, MatrixNumbers, over

WORKLOADS = ("w1", "w2")
PAPERS = ("gandiva", "tiresias", "optimus", "slaq")
"""The opponents in the paper."""
QUICK = (OURS, LITERAL, "equal-share", *PAPERS)


def policies(results: Results) -> tuple[str, ...]:
    """All policies; for a quick look the paper's and the natural opponent."""
    return QUICK if results.scope.quick else tuple(POLICIES)


def auction_sentence(measured: MatrixNumbers, cells: Sequence[Cell]) -> str:
    """Which share of GPU time under contention the auction assigned; needs `auction_share`."""
    parts = []
    for cell in cells:
        values = [value for value in measured.values("auction_share", cell) if math.isfinite(value)]
        none = "- (no contention)" if measured.present[cell] else "- (not run)"
        text = f"{fmean(values):.0%}" if values else none
        parts.append(f"{cell[0]} {text}")
    return (
        "Share of the GPU time under contention (apps want more than there is) that the auction "
        "assigned, the rest being leftovers, arrivals between beats and guards: "
        + ", ".join(parts)
        + f"; {_means(measured, cells)}."
    )


def _means(measured: MatrixNumbers, cells: Sequence[Cell]) -> str:
    """The seeds of the means of these cells."""
    given = seed_text(measured.seeds)
    each = {seed_text(measured.present[cell]) or "none" for cell in cells}
    if each == {given}:
        return f"means over seeds {given}"
    seeds = each.pop() if len(each) == 1 else "as far as they were run,"
    return f"means over seeds {seeds} of {given}"


def matrix(results: Results) -> Matrix:
    """Cells are (workload, policy)."""
    scope = results.scope
    return Matrix(
        over({name: scope.base(name) for name in WORKLOADS}, policies(results)),
        scope.seeds_of(REPORT_SEEDS, QUICK_SEEDS),
    )
