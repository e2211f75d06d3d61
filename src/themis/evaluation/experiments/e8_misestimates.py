"""E8: apps misjudge their iterations left and their slowdown, in bids only."""

import math
from collections.abc import Iterable

from themis.evaluation.comparisons import Factor, beside, best, mean_ratio
from themis.evaluation.experiment import (
    FEWER_REPORT_SEEDS,
    LITERAL,
    OURS,
    Claim,
    Experiment,
    Figure,
    Findings,
    Results,
    Told,
    told,
)
from themis.evaluation.run_matrix import (
    MAIN,
    MAIN_COLUMNS,
    Matrix,
    MatrixNumbers,
    over,
    swept,
    unprinted,
)
from themis.evaluation.sweeps import alike, as_printed, plot_cells
from themis.sim.config import RunConfig

VALUES = (0.0, 0.05, 0.10, 0.15, 0.20)
QUICK_VALUES = (0.0, 0.20)
NONE, MOST = VALUES[0], VALUES[-1]
POLICIES = (OURS, LITERAL)
PAPER = 0.1076
"""How much the paper's max rho changes when apps err by up to a fifth."""


def values(results: Results) -> tuple[float, ...]:
    """Errors: factors are drawn from 1 - X to 1 + X."""
    return QUICK_VALUES if results.scope.quick else VALUES


def matrix(results: Results) -> Matrix:
    """Cells are (error, policy)."""
    scope = results.scope
    base = scope.base("w2")
    cells = over(swept(base, "error", values(results)), (OURS,))
    cells |= as_printed(base, "error", (NONE, MOST))
    return Matrix(cells, scope.seeds_of(FEWER_REPORT_SEEDS, quick=1))


def plan(results: Results) -> Iterable[RunConfig]:
    """The default policy with each error, the mechanism as printed at the ends."""
    return matrix(results).configs()


def _change(measured: MatrixNumbers, name: str, policy: str, error: float = MOST) -> Factor:
    """The mean over seeds over that without errors, with a bootstrap interval over pairs."""
    return mean_ratio(measured.values(name, (error, policy)), measured.values(name, (NONE, policy)))


def _claim(measured: MatrixNumbers) -> Claim:
    ours, literal = (_change(measured, "max_rho", policy) for policy in (OURS, LITERAL))
    changes = {x: abs(_change(measured, "max_rho", OURS, x).mean - 1) for x in _errors(measured)}
    at = best(changes, max)
    worst = told(math.nan if at is None else 100 * changes[at], ".1f", " %")
    return Claim(
        "Change of mean max rho when apps err by up to 20 %",
        Told("10.76 %", 100 * PAPER),
        beside(literal.percent, literal.seeds, ours.seeds),
        ours.percent,
        measured.judged(abs(ours.mean - 1) <= PAPER, (NONE, OURS), (MOST, OURS)),
        "Holds when its size is at most the paper's. Largest change at any error: "
        f"{worst.text}. Of max rho_ref (fair share) at 20 %: "
        f"{_change(measured, 'max_rho_ref', OURS).percent.text}.",
    )


def _errors(measured: MatrixNumbers) -> list[float]:
    return [float(value) for value, policy in measured.by_cell if policy == OURS]


def study(results: Results) -> Findings:
    """Compare sizes of errors."""
    measured = matrix(results).measure(results, MAIN)
    errors = values(results)
    same = alike(measured, errors, POLICIES)
    return Findings(
        claims=(_claim(measured),),
        tables=measured.tables("errors", "W2, means over seeds", ("error", "policy"), MAIN_COLUMNS),
        figures=(
            Figure(
                "errors",
                f"W2: fairness against the size of errors in bids, {same.text}.",
                lambda: plot_cells(
                    same, "error", errors, POLICIES,
                    ("max_rho", "max_rho_ref", "share_fair"), MAIN_COLUMNS,
                ),
            ),
        ),
        notes=(
            ("Each app draws one factor for its iterations left and one for its slowdown, once and "
            "the same for every size of error. Only bids are wrong: jobs run by the truth."),
            ("A single app decides max rho, and any change of a bid moves everything after it: the "
            "interval tells how much of the change is chance."),
            *unprinted(measured),
        ),
    )  # fmt: skip


EXPERIMENT = Experiment(
    "E8",
    "Errors in bids",
    "Max rho changes by 10.76 % when apps misjudge their iterations and their slowdown by up to "
    "20 %.",
    study,
    plan,
)
