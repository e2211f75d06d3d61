"""E5: the same apps on half and on a quarter of the machines."""

from collections.abc import Iterable
from functools import partial

from themis.evaluation.checks import estimates, mean_text
from themis.evaluation.claims import (
    NO_VALUE,
    Claim,
    ClaimAnswer,
    Quantity,
    Verdict,
    details,
    quantity,
)
from themis.evaluation.comparisons import with_seeds
from themis.evaluation.experiment import QUICK_SEEDS, REPORT_SEEDS, Experiment, Findings, Results
from themis.evaluation.macro_benchmark import PAPERS
from themis.evaluation.metrics import LITERAL, MAIN, OURS
from themis.evaluation.run_matrix import Matrix, MatrixNumbers, over, swept
from themis.evaluation.sweeps import sweep_findings
from themis.sim.config import RunConfig
from themis.sim.metrics import FAIR

VALUES = (1, 2, 4)
POLICIES = (OURS, LITERAL, "equal-share", *PAPERS)


def matrix(results: Results) -> Matrix:
    """Cells are (contention, policy)."""
    cells = over(swept(results.scope.base("w1"), "contention", VALUES), POLICIES)
    return Matrix(cells, results.scope.seeds_of(REPORT_SEEDS, QUICK_SEEDS))


def plan(results: Results) -> Iterable[RunConfig]:
    """W1 on all, half and a quarter of the testbed."""
    return matrix(results).configs()


def _alone(measured: MatrixNumbers, contention: int) -> ClaimAnswer:
    """Whether ours is fair and none of the paper's four is."""
    ours = (contention, OURS)
    if not measured.present[ours]:
        return ClaimAnswer(NO_VALUE, Verdict.UNDECIDED)
    cells = [(contention, name) for name in (OURS, *PAPERS)]
    same = measured.paired(*cells)
    mean = {name: same.estimate("max_rho", (contention, name)).mean for name in (OURS, *PAPERS)}
    others = [name for name in PAPERS if mean[name] <= FAIR]
    fair = mean[OURS] <= FAIR
    verdict = measured.judged(fair and not others, *cells)
    if verdict is Verdict.FAILS and fair:
        verdict = Verdict.PARTLY
    _, literal = estimates(measured, "max_rho", contention)
    pair = measured.paired(ours, (contention, "equal-share"))
    return ClaimAnswer(
        with_seeds(quantity(mean[OURS]), same.count(ours), len(measured.seeds)),
        verdict,
        with_seeds(quantity(literal.mean), literal.runs, same.count(ours)),
        details(
            ("fair as well", ", ".join(others) or "none"),
            ("rho_ref", mean_text(pair, "max_rho_ref", ours)),
            ("rho_ref of equal-share on the same seeds",
             mean_text(pair, "max_rho_ref", (contention, "equal-share"))),
        ),
    )  # fmt: skip


CLAIMS: tuple[Claim[MatrixNumbers], ...] = tuple(
    Claim(
        f"{value}x",
        f"{value}x contention: max rho at most 1, and nobody else's",
        Quantity("<= 1, alone"),
        partial(_alone, contention=value),
        "Max rho at most 1",
    )
    for value in VALUES
)


def study(results: Results) -> Findings:
    """Compare levels of contention."""
    return sweep_findings(
        matrix(results).measure(results, MAIN),
        CLAIMS,
        MAIN,
        name="contention",
        key="x",
        title="W1",
        caption="W1: fairness against contention",
        policies=POLICIES,
        shown=("max_rho", "max_rho_ref", "share_fair"),
        log=("max_rho", "max_rho_ref"),
        axis="contention",
    )


EXPERIMENT = Experiment(
    "E5",
    "Contention",
    "With fewer GPUs for the same apps (W1), Themis is the only scheme whose max rho stays at "
    "most 1.",
    study,
    plan,
    module=__name__,
)
