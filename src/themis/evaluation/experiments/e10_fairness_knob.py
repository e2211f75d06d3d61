"""E10: the knob f, which trades fairness against efficiency."""

from collections.abc import Iterable

from themis.evaluation.checks import EITHER, above, ratio
from themis.evaluation.claims import (
    NO_VALUE,
    Claim,
    ClaimAnswer,
    Quantity,
    Verdict,
    details,
    quantity,
)
from themis.evaluation.comparisons import at_least, best
from themis.evaluation.experiment import FEWER_REPORT_SEEDS, Experiment, Findings, Results
from themis.evaluation.metrics import LITERAL, OURS, metrics
from themis.evaluation.run_matrix import Matrix, MatrixNumbers, over, swept
from themis.evaluation.sweeps import sweep_findings
from themis.sim.config import RunConfig

VALUES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
QUICK_VALUES = (0.0, 0.4, 0.8, 1.0)
LITERAL_VALUES = (0.8, 1.0)
POLICIES = (OURS, LITERAL)
CHOSEN = 0.8
NEAR = 0.1 + 1e-9
METRICS = metrics("max_rho", "max_rho_ref", "gpu_hours", "over_work", "completion_h")


def values(results: Results) -> tuple[float, ...]:
    """Values of f."""
    return QUICK_VALUES if results.scope.quick else VALUES


def matrix(results: Results) -> Matrix:
    """Cells are (f, policy); the mechanism as printed is run at the values of claims only."""
    base = results.scope.base("w2")
    cells = over(swept(base, "f", values(results)), (OURS,))
    cells |= over(swept(base, "f", LITERAL_VALUES), (LITERAL,))
    return Matrix(cells, results.scope.seeds_of(FEWER_REPORT_SEEDS, quick=1))


def plan(results: Results) -> Iterable[RunConfig]:
    """Every f."""
    return matrix(results).configs()


def _best(measured: MatrixNumbers) -> ClaimAnswer:
    """Whether every f that is not near the chosen one is surely worse."""
    known = [float(value) for value, policy in measured.by_cell if policy == OURS]
    cells = [(f, OURS) for f in known]
    lowest = None
    if all(map(measured.count, cells)):  # the lowest of the finished ones would say nothing
        same = measured.paired(*cells)
        lowest = best({f: same.estimate("max_rho", (f, OURS)).mean for f in known}, min)
    others = {
        f: measured.factor("max_rho", of=(f, OURS), over=(CHOSEN, OURS))
        for f in known
        if f != CHOSEN
    }
    verdict = Verdict.UNDECIDED
    if any(found.below for found in others.values()):
        verdict = Verdict.FAILS
    elif others and all(item.above for f, item in others.items() if abs(f - CHOSEN) > NEAR):
        verdict = Verdict.HOLDS
    second = best({f: found.mean for f, found in others.items()}, min)
    beside = None if second is None else others[second].shown
    return ClaimAnswer(
        NO_VALUE if lowest is None else quantity(lowest, "g"),
        verdict,
        details=details((f"best of the others, {second} over that at {CHOSEN:g}", beside)),
    )


def _efficiency(measured: MatrixNumbers) -> ClaimAnswer:
    ours = measured.factor("gpu_hours", of=(1.0, OURS), over=(0.0, OURS))
    return ClaimAnswer(ours.percent, at_least(ours, 1.0))


CLAIMS: tuple[Claim[MatrixNumbers], ...] = (
    Claim("best", "The f with the lowest max rho", quantity(CHOSEN, "g"), _best),
    Claim(
        "at-1",
        "Max rho at f = 1 over that at 0.8",
        quantity(1.5, "g", "x"),
        ratio("max_rho", of=(1.0, EITHER), over=(CHOSEN, EITHER), judge=above(1.5)),
        "f = 1",
    ),
    Claim("efficiency", "GPU time from f = 0 to f = 1", Quantity("rises"), _efficiency, "GPU time"),
)


def study(results: Results) -> Findings:
    """Compare values of f."""
    return sweep_findings(
        matrix(results).measure(results, METRICS),
        CLAIMS,
        METRICS,
        name="f",
        key="f",
        title="W2",
        caption="W2: fairness and GPU time against f",
        policies=POLICIES,
        shown=("max_rho", "max_rho_ref", "over_work"),
        marks={"paper": CHOSEN},
    )


EXPERIMENT = Experiment(
    "E10",
    "The fairness knob f",
    "Max rho is best near f = 0.8 and about 1.5x worse at 1; efficiency falls as f rises.",
    study,
    plan,
    module=__name__,
)
