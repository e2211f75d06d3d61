"""A key swept over values under several policies: the study of E5, E7, E8, E10 and E11."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from themis.evaluation.claims import Claim, check
from themis.evaluation.experiment import Figure, Findings
from themis.evaluation.figures.measured import plot_cells, sweep_seeds_text
from themis.evaluation.metrics import OURS, Metric
from themis.evaluation.run_matrix import MatrixNumbers, Value, literal_notes


def values_of(measured: MatrixNumbers) -> list[Value]:
    """The values at which the default policy was asked for."""
    return [value for value, policy in measured.by_cell if policy == OURS]


def sweep_findings(
    measured: MatrixNumbers,
    claims: Iterable[Claim[MatrixNumbers]],
    metrics: Mapping[str, Metric],
    *,
    name: str,
    key: str,
    title: str,
    caption: str,
    policies: Sequence[str],
    shown: Sequence[str],
    axis: str = "",
    log: Sequence[str] = (),
    marks: Mapping[str, float] | None = None,
) -> Findings:
    """Claims, tables and the figure of a sweep.

    Args:
        measured: Its numbers; cells are (value, policy).
        claims: What to check.
        metrics: What was measured.
        name: Of the table of means and of the figure.
        key: The column of values.
        title: Of the table.
        caption: Of the figure, without the seeds.
        policies: Those in the figure.
        shown: Metrics in the figure.
        axis: The label of its axis, if it is not the key.
        log: Metrics on a logarithmic axis.
        marks: Values of the key to mark.
    """
    values = values_of(measured)
    same = measured.on_common_seeds((value, policy) for value in values for policy in policies)
    draw = partial(
        plot_cells, same, axis or key, values, policies, shown, metrics, marks=marks, log=log
    )
    return Findings(
        check(claims, measured),
        measured.tables(name, f"{title}, means over seeds", (key, "policy"), metrics),
        (Figure(name, f"{caption}, {sweep_seeds_text(same)}.", draw),),
        literal_notes(measured),
    )
