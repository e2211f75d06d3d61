"""A key swept over values under several policies: what E5, E7 and E8 draw alike.

plot_cells(measured, "contention", (1, 2, 4), POLICIES, ("max_rho", "over_work"), MAIN_COLUMNS)
"""

from collections.abc import Mapping, Sequence

from themis.experiments.base import Column
from themis.experiments.charts import Line, Sweep, plot_sweeps
from themis.experiments.matrix import Measured
from themis.sim.canvas import Drawing

Value = str | float | int


def plot_cells(
    measured: Measured,
    key: str,
    values: Sequence[Value],
    policies: Sequence[str],
    shown: Sequence[str],
    columns: Mapping[str, Column],
    marks: Mapping[str, float] | None = None,
) -> Drawing:
    """One panel for each measure, one line for each policy; cells are (value, policy)."""
    sweeps = [
        Sweep(
            columns[name].name,
            [
                Line(policy, [measured.estimate(name, (value, policy)) for value in values])
                for policy in policies
            ],
            marks or {},
            from_zero=name not in {"over_work", "share_fair"},
        )
        for name in shown
    ]
    return plot_sweeps(key, values, sweeps)
