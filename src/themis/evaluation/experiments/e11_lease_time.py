"""E11: how long a lease should be."""

from collections.abc import Iterable

from themis.evaluation.checks import EITHER, above, ratio
from themis.evaluation.claims import Claim, Quantity
from themis.evaluation.experiment import FEWER_REPORT_SEEDS, Experiment, Findings, Results
from themis.evaluation.metrics import LITERAL, OURS, metrics
from themis.evaluation.run_matrix import Matrix, MatrixNumbers, over, swept
from themis.evaluation.sweeps import sweep_findings
from themis.sim.config import RunConfig

VALUES = ("5m", "10m", "20m", "40m")
LITERAL_VALUES = ("5m", "10m", "40m")
POLICIES = (OURS, LITERAL)
METRICS = metrics("max_rho", "max_rho_ref", "gpu_hours", "over_work", "moves")


def matrix(results: Results) -> Matrix:
    """Cells are (lease, policy); the mechanism as printed is run with a few leases only."""
    base = results.scope.base("w2")
    cells = over(swept(base, "lease", VALUES), (OURS,))
    cells |= over(swept(base, "lease", LITERAL_VALUES), (LITERAL,))
    return Matrix(cells, results.scope.seeds_of(FEWER_REPORT_SEEDS, quick=1))


def plan(results: Results) -> Iterable[RunConfig]:
    """Every lease."""
    return matrix(results).configs()


def claims() -> tuple[Claim[MatrixNumbers], ...]:
    """Both compare the ends of the sweep."""
    shortest, longest = VALUES[0], VALUES[-1]
    return (
        Claim(
            "fairness",
            f"Max rho with {longest} leases over {shortest}",
            Quantity("above 1x"),
            ratio("max_rho", of=(longest, EITHER), over=(shortest, EITHER), judge=above(1.0)),
            "Max rho",
        ),
        Claim(
            "efficiency",
            f"GPU time with {shortest} leases over {longest}",
            Quantity("above 1x"),
            ratio("gpu_hours", of=(shortest, EITHER), over=(longest, EITHER), judge=above(1.0)),
            "GPU time",
        ),
    )


def study(results: Results) -> Findings:
    """Compare lengths of leases."""
    return sweep_findings(
        matrix(results).measure(results, METRICS),
        claims(),
        METRICS,
        name="lease",
        key="lease",
        title="W2",
        caption="W2: fairness and GPU time against the lease",
        policies=POLICIES,
        shown=("max_rho", "max_rho_ref", "over_work"),
    )


EXPERIMENT = Experiment(
    "E11",
    "The length of leases",
    "Shorter leases are fairer, longer ones more efficient; the paper chooses 10 minutes.",
    study,
    plan,
    module=__name__,
)
