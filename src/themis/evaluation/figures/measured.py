"""What figures show of measured runs: policies side by side, and a measure against a swept key.

    plot_cells(same, "contention", (1, 2, 4), POLICIES, ("max_rho", "over_work"), MAIN)

All cells of such a figure are on the same seeds, see `MatrixNumbers.on_common_seeds`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from themis.evaluation.comparisons import FEWEST, Factor
from themis.evaluation.experiment import Results
from themis.evaluation.figures.charts import ChartLine, Sweep, plot_sweeps
from themis.evaluation.metrics import LITERAL, Metric
from themis.evaluation.provenance import seed_text
from themis.evaluation.run_matrix import Cell, Matrix, MatrixNumbers, Value
from themis.sim.compare import Estimate
from themis.sim.figures.plot_style import Drawing
from themis.sim.runs.result_cache import CachedRun

_NOT_RUN = Estimate(math.nan, None, 0)


def by_group(
    measured: MatrixNumbers, groups: Sequence[str], names: Sequence[str]
) -> dict[str, MatrixNumbers]:
    """The policies of each workload or scenario on common seeds."""
    return {first: measured.on_common_seeds((first, name) for name in names) for first in groups}


def labels(same: Mapping[str, MatrixNumbers]) -> dict[str, str]:
    """The names of policies with runs in a figure; one with fewer seeds than others states it."""
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
    """The seeds of the means, by group where they differ: seeds 101-107 of ..."""
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


def records_of(
    results: Results, matrix: Matrix, same: MatrixNumbers, cell: Cell
) -> Iterator[CachedRun]:
    """The runs of a cell on these seeds, one at a time."""
    there = set(same.present[cell])
    found = (results.find(one) for one in matrix.runs(cell) if one.seed in there)
    return (record for record in found if record is not None)


def sweep_seeds_text(same: MatrixNumbers) -> str:
    """The end of a caption: the seeds of the means."""
    literal = {seeds for cell, seeds in same.present.items() if cell[-1] == LITERAL and seeds}
    own = "".join(f" ({LITERAL}: {seed_text(one)})" for one in literal if one != same.seeds)
    interval = " with 95 % interval" if len(same.seeds) >= FEWEST else ""
    return f"mean over seeds {seed_text(same.seeds) or 'none'}{own}{interval}"


def plot_cells(
    same: MatrixNumbers,
    key: str,
    values: Sequence[Value],
    policies: Sequence[str],
    shown: Sequence[str],
    metrics: Mapping[str, Metric],
    marks: Mapping[str, float] | None = None,
    log: Sequence[str] = (),
) -> Drawing:
    """One panel for each measure, one line for each policy; cells are (value, policy).

    A value at which a policy was not run is left out of its line; a value at which none was run is
    marked so. `log` names measures that differ by orders of magnitude.
    """

    def at(name: str, cell: Cell) -> Estimate | Factor:
        if not same.present.get(cell):
            return _NOT_RUN
        if name in log:  # An arithmetic interval might reach below zero.
            return same.typical(name, cell)
        return same.estimate(name, cell)

    sweeps = [
        Sweep(
            f"{metrics[name].title}{', geometric mean' * (name in log)}",
            [
                ChartLine(policy, [at(name, (value, policy)) for value in values])
                for policy in policies
            ],
            marks or {},
            from_zero=name not in {"over_work", "share_fair"},
            log=name in log,
        )
        for name in shown
    ]
    return plot_sweeps(key, values, sweeps)
