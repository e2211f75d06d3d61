"""The macro-benchmark: W1 and W2 on the testbed, all policies. The runs of E1, E2 and E4."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from themis.core.policies import POLICIES
from themis.evaluation.comparisons import FEWEST, Factor
from themis.evaluation.experiment import LITERAL, OURS, QUICK_SEEDS, REPORT_SEEDS, Results
from themis.evaluation.report.provenance import seed_text
from themis.evaluation.run_matrix import Cell, Matrix, MatrixNumbers, over
from themis.sim.runs.result_cache import CachedRun

WORKLOADS = ("w1", "w2")
PAPERS = ("gandiva", "tiresias", "optimus", "slaq")
"""The paper's own opponents."""
QUICK = (OURS, LITERAL, "equal-share", *PAPERS)


def policies(results: Results) -> tuple[str, ...]:
    """Which policies are run: all, or for a quick look the paper's and the natural opponent."""
    return QUICK if results.scope.quick else tuple(POLICIES)


def auction_sentence(measured: MatrixNumbers, cells: Sequence[Cell]) -> str:
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


def _means(measured: MatrixNumbers, cells: Sequence[Cell]) -> str:
    """Over which seeds the means of these cells are."""
    given = seed_text(measured.seeds)
    each = {seed_text(measured.present[cell]) or "none" for cell in cells}
    if each == {given}:
        return f"means over seeds {given}"
    seeds = each.pop() if len(each) == 1 else "as far as they were run,"
    return f"means over seeds {seeds} of {given}"


def same_seeds(measured: MatrixNumbers, first: str | float, names: Sequence[str]) -> MatrixNumbers:
    """Policies of a workload on the seeds that all have, so that they may stand side by side.

    But for those with hardly any, which would cost all others theirs: they are left out. And for
    the mechanism as printed: it takes so long that its seeds may be fewer, see `labels`, but if
    they are hardly any it is left out as well.
    """
    least = min(FEWEST, measured.count((first, OURS)))
    cells = [(first, name) for name in names if name != LITERAL]
    kept = measured.paired(*(cell for cell in cells if measured.count(cell) >= least))
    own = (first, LITERAL)
    if LITERAL not in names or len(set(measured.present[own]) & set(kept.seeds)) < least:
        return kept
    places = [place for place, seed in enumerate(measured.seeds) if seed in set(kept.seeds)]
    numbers = {
        name: [each[place] for place in places] for name, each in measured.by_cell[own].items()
    }
    there = tuple(seed for seed in measured.present[own] if seed in set(kept.seeds))
    return MatrixNumbers({**kept.by_cell, own: numbers}, kept.seeds, {**kept.present, own: there})


def labels(same: Mapping[str, MatrixNumbers]) -> dict[str, str]:
    """What a figure calls the policies that have runs; one with fewer seeds says so."""
    counts: dict[str, list[tuple[int, int]]] = {}
    for first, each in same.items():
        for cell in each.by_cell:
            if each.present[cell]:
                pair = (len(each.present[first, cell[1]]), len(each.seeds))
                counts.setdefault(str(cell[1]), []).append(pair)
    return {name: _label(name, pairs) for name, pairs in counts.items()}


def typicals(same: Mapping[str, MatrixNumbers], measure: str) -> dict[str, dict[str, Factor]]:
    """Geometric means that a figure shows: by workload, and by label of a policy."""
    called = labels(same)
    return {
        workload.upper(): {
            called[name]: each.typical(measure, (workload, name))
            for name in called
            if (workload, name) in each.by_cell
        }
        for workload, each in same.items()
    }


def _label(name: str, pairs: Sequence[tuple[int, int]]) -> str:
    if all(count == whole for count, whole in pairs):
        return name
    most = max(count for count, _ in pairs)
    return f"{name}, {most} seed{'s' * (most != 1)}"


def seeds_text(measured: MatrixNumbers, same: Mapping[str, MatrixNumbers]) -> str:
    """Over which seeds the means are, by name where they are not the same: seeds 101-107 of ..."""
    given = seed_text(measured.seeds)
    groups: dict[str, list[str]] = {}
    for first, each in same.items():
        groups.setdefault(seed_text(each.seeds) or "none", []).append(first)
    if set(groups) == {given}:
        return f"seeds {given}"
    if len(groups) == 1:
        return f"seeds {next(iter(groups))} of {given}"
    parts = [f"{seeds} ({', '.join(firsts)})" for seeds, firsts in groups.items()]
    return f"seeds {', '.join(parts)} of {given}"


def records_of(results: Results, same: MatrixNumbers, cell: Cell) -> Iterator[CachedRun]:
    """The runs of a policy on these seeds, one at a time."""
    there = set(same.present[cell])
    found = (results.find(one) for one in matrix(results).runs(cell) if one.seed in there)
    return (record for record in found if record is not None)


def matrix(results: Results) -> Matrix:
    """Cells are (workload, policy)."""
    scope = results.scope
    return Matrix(
        over({name: scope.base(name) for name in WORKLOADS}, policies(results)),
        scope.seeds_of(REPORT_SEEDS, QUICK_SEEDS),
    )
