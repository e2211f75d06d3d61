"""E8: apps misjudge their iterations left and their slowdown, in bids only."""

import math
from collections.abc import Iterable

from themis.evaluation.checks import compared
from themis.evaluation.claims import Claim, ClaimAnswer, Quantity, details, quantity
from themis.evaluation.comparisons import Factor, best, mean_ratio
from themis.evaluation.experiment import FEWER_REPORT_SEEDS, Experiment, Findings, Results
from themis.evaluation.metrics import LITERAL, MAIN, OURS
from themis.evaluation.run_matrix import Matrix, MatrixNumbers, over, swept
from themis.evaluation.sweeps import sweep_findings
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
    """Cells are (error, policy); the mechanism as printed is run at the ends only."""
    base = results.scope.base("w2")
    cells = over(swept(base, "error", values(results)), (OURS,))
    cells |= over(swept(base, "error", (NONE, MOST)), (LITERAL,))
    return Matrix(cells, results.scope.seeds_of(FEWER_REPORT_SEEDS, quick=1))


def plan(results: Results) -> Iterable[RunConfig]:
    """Every error."""
    return matrix(results).configs()


def _change(measured: MatrixNumbers, name: str, policy: str, error: float = MOST) -> Factor:
    """The mean over seeds over that without errors, with a bootstrap interval over pairs."""
    return mean_ratio(measured.values(name, (error, policy)), measured.values(name, (NONE, policy)))


def _answer(measured: MatrixNumbers) -> ClaimAnswer:
    ours, literal = (_change(measured, "max_rho", policy) for policy in POLICIES)
    errors = [float(value) for value, policy in measured.by_cell if policy == OURS]
    changes = {x: abs(_change(measured, "max_rho", OURS, x).mean - 1) for x in errors}
    at = best(changes, max)
    return compared(
        ours,
        literal,
        measured.judged(abs(ours.mean - 1) <= PAPER, (NONE, OURS), (MOST, OURS)),
        percent=True,
        details=details(
            ("largest change at any error",
             quantity(math.nan if at is None else 100 * changes[at], ".1f", " %")),
            ("of max rho_ref at 20 %", _change(measured, "max_rho_ref", OURS).percent),
        ),
    )  # fmt: skip


CLAIMS: tuple[Claim[MatrixNumbers], ...] = (
    Claim(
        "change",
        "Change of mean max rho when apps err by up to 20 %",
        Quantity("10.76 %", 100 * PAPER),
        _answer,
        "Change of mean max rho",
    ),
)


def study(results: Results) -> Findings:
    """Compare sizes of errors."""
    return sweep_findings(
        matrix(results).measure(results, MAIN),
        CLAIMS,
        MAIN,
        name="errors",
        key="error",
        title="W2",
        caption="W2: fairness against the size of errors in bids",
        policies=POLICIES,
        shown=("max_rho", "max_rho_ref", "share_fair"),
    )


EXPERIMENT = Experiment(
    "E8",
    "Errors in bids",
    "Max rho changes by 10.76 % when apps misjudge their iterations and their slowdown by up to "
    "20 %.",
    study,
    plan,
    module=__name__,
)
