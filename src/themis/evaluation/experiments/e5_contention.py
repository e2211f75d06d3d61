"""E5: the same apps on half and on a quarter of the machines."""

from collections.abc import Iterable

from themis.evaluation.comparisons import beside
from themis.evaluation.experiment import (
    LITERAL,
    NOTHING,
    OURS,
    QUICK_SEEDS,
    REPORT_SEEDS,
    Claim,
    Experiment,
    Figure,
    Findings,
    Results,
    Told,
    Verdict,
    told,
)
from themis.evaluation.macro_benchmark import PAPERS
from themis.evaluation.run_matrix import (
    MAIN,
    MAIN_COLUMNS,
    Matrix,
    MatrixNumbers,
    over,
    swept,
    unprinted,
)
from themis.evaluation.sweeps import alike, plot_cells
from themis.sim.config import RunConfig
from themis.sim.metrics import FAIR

VALUES = (1, 2, 4)
POLICIES = (OURS, LITERAL, "equal-share", *PAPERS)


def matrix(results: Results) -> Matrix:
    """Cells are (contention, policy)."""
    scope = results.scope
    cells = over(swept(scope.base("w1"), "contention", VALUES), POLICIES)
    return Matrix(cells, scope.seeds_of(REPORT_SEEDS, QUICK_SEEDS))


def plan(results: Results) -> Iterable[RunConfig]:
    """W1 on all, half and a quarter of the testbed."""
    return matrix(results).configs()


def _only(measured: MatrixNumbers, contention: int) -> Claim:
    statement = f"{contention}x contention: max rho at most 1, and nobody else's"
    cells = [(contention, name) for name in (OURS, *PAPERS)]
    same = measured.paired(*cells)
    mean = {name: same.estimate("max_rho", (contention, name)).mean for name in (OURS, *PAPERS)}
    literal = measured.estimate("max_rho", (contention, LITERAL))
    others = [name for name in PAPERS if mean[name] <= FAIR]
    fair = mean[OURS] <= FAIR
    verdict = measured.judged(fair and not others, *cells)
    if verdict is Verdict.FAILS and fair:
        verdict = Verdict.PARTLY
    also = ", ".join(others) or "none"
    if not measured.present[contention, OURS]:
        return Claim(statement, Told("<= 1, alone"), NOTHING, NOTHING, Verdict.OPEN, "Not run.")
    beside_equal = measured.paired((contention, OURS), (contention, "equal-share"))
    return Claim(
        statement,
        Told("<= 1, alone"),
        beside(told(literal.mean), literal.runs, same.count((contention, OURS))),
        beside(told(mean[OURS]), same.count((contention, OURS)), len(measured.seeds)),
        verdict,
        f"Mean over seeds as the paper computes rho, at most {FAIR:g} counts; of its four "
        f"opponents these are fair as well: {also}. The paper's ideal time is generous to small "
        "apps, and rho against a run's own contention flatters who keeps apps waiting: under "
        f"rho_ref (fair share) ours is {_ref(beside_equal, contention, OURS)}, equal-share "
        f"{_ref(beside_equal, contention, 'equal-share')} on the same seeds.",
    )


def _ref(measured: MatrixNumbers, contention: int, policy: str) -> str:
    return told(measured.estimate("max_rho_ref", (contention, policy)).mean).text


def study(results: Results) -> Findings:
    """Compare levels of contention."""
    measured = matrix(results).measure(results, MAIN)
    same = alike(measured, VALUES, POLICIES)
    return Findings(
        claims=tuple(_only(measured, value) for value in VALUES),
        tables=measured.tables("contention", "W1, means over seeds", ("x", "policy"), MAIN_COLUMNS),
        figures=(
            Figure(
                "contention",
                f"W1: fairness against contention, {same.text}.",
                lambda: plot_cells(
                    same, "contention", VALUES, POLICIES,
                    ("max_rho", "max_rho_ref", "share_fair"), MAIN_COLUMNS,
                    log=("max_rho", "max_rho_ref"),
                ),
            ),
        ),
        notes=(
            "2x and 4x: half and a quarter of the machines of each kind, the same apps.",
            *unprinted(measured),
        ),
    )  # fmt: skip


EXPERIMENT = Experiment(
    "E5",
    "Contention",
    "With fewer GPUs for the same apps (W1), Themis is the only scheme whose max rho stays at "
    "most 1.",
    study,
    plan,
)
