"""A key swept over values under several policies: what E5, E7, E8, E10 and E11 have in common.

cells = over(swept(base, "f", values), ("themis",)) | as_printed(base, "f", (0.0, 0.8, 1.0))
plot_cells(alike(measured, (1, 2, 4), POLICIES), "contention", (1, 2, 4), POLICIES,
           ("max_rho", "over_work"), MAIN_COLUMNS)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from themis.evaluation.comparisons import FEWEST, Factor
from themis.evaluation.experiment import LITERAL, Column
from themis.evaluation.report.charts import ChartLine, Sweep, plot_sweeps
from themis.evaluation.report.provenance import seed_text
from themis.evaluation.run_matrix import Cell, MatrixNumbers, over, swept
from themis.sim.compare import Estimate
from themis.sim.config import RunConfig
from themis.sim.figures.plot_style import Drawing

Value = str | float | int
_NOT_RUN = Estimate(math.nan, None, 0)


def as_printed(base: RunConfig, key: str, values: Sequence[Value]) -> dict[Cell, RunConfig]:
    """The mechanism as printed, at the values that claims are about and nowhere else.

    Its leases end one by one, so that it holds twenty times as many rounds: it would take most of
    the time of a sweep, for points of a line that nobody asks for.
    """
    return over(swept(base, key, values), (LITERAL,))


@dataclass(frozen=True, slots=True)
class Alike:
    """Cells on the same seeds, so that points of a figure can be compared."""

    measured: MatrixNumbers
    seeds: tuple[int, ...]
    literal: tuple[int, ...] = ()
    """Those of the mechanism as printed, if they are others."""

    @property
    def text(self) -> str:
        """The end of a caption."""
        own = f" ({LITERAL}: {seed_text(self.literal)})" if self.literal else ""
        interval = " with 95 % interval" if len(self.seeds) >= FEWEST else ""
        return f"mean over seeds {seed_text(self.seeds) or 'none'}{own}{interval}"


def alike(measured: MatrixNumbers, values: Sequence[Value], policies: Sequence[str]) -> Alike:
    """Values and policies of a sweep on the seeds that all of them have.

    But for those with hardly any, which would cost all others theirs: they are left out. And for
    the mechanism as printed, which takes so long that it may have fewer: its own cells are on those
    of these seeds that all of them have, and with hardly any of them it is left out as well.
    """
    cells: list[Cell] = [
        cell
        for value in values
        for policy in policies
        if (cell := (value, policy)) in measured.by_cell
    ]
    counts = {cell: measured.count(cell) for cell in cells if cell[1] != LITERAL}
    least = max(1, min(FEWEST, max(counts.values(), default=0)))
    kept = [cell for cell, count in counts.items() if count >= least]
    seeds = measured.paired(*kept).seeds if kept else ()
    printed = [cell for cell in cells if cell[1] == LITERAL and measured.present[cell]]
    if len(printed) < sum(cell[1] == LITERAL for cell in cells):
        printed = []  # a point that others have runs of: it shows nothing of the sweep
    own = tuple(seed for seed in seeds
                if printed and all(seed in measured.present[cell] for cell in printed))  # fmt: skip
    if len(own) < least:
        printed, own = [], ()  # chance
    shown: dict[Cell, tuple[int, ...]] = dict.fromkeys(kept, seeds) | dict.fromkeys(printed, own)
    present = {cell: shown.get(cell, ()) for cell in measured.by_cell}
    return Alike(replace(measured, present=present), seeds, own if own != seeds else ())


def plot_cells(
    same: Alike,
    key: str,
    values: Sequence[Value],
    policies: Sequence[str],
    shown: Sequence[str],
    columns: Mapping[str, Column],
    marks: Mapping[str, float] | None = None,
    log: Sequence[str] = (),
) -> Drawing:
    """One panel for each measure, one line for each policy; cells are (value, policy).

    Values at which a policy was not run are left out of its line, and those at which none was are
    marked so. `log` names measures that differ by orders of magnitude.
    """
    known = same.measured

    def at(name: str, cell: Cell) -> Estimate | Factor:
        if cell not in known.by_cell or not known.present[cell]:
            return _NOT_RUN
        if name in log:  # The others' intervals might reach below zero.
            return known.paired(cell).typical(name, cell)
        return known.estimate(name, cell)

    sweeps = [
        Sweep(
            f"{columns[name].name}{', geometric mean' * (name in log)}",
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
