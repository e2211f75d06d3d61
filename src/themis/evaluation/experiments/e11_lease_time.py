"""E11: how long a lease should be."""

from collections.abc import Iterable

from themis.evaluation.comparisons import at_least, beside
from themis.evaluation.experiment import (
    FEWER_REPORT_SEEDS,
    LITERAL,
    OURS,
    Claim,
    Column,
    Experiment,
    Figure,
    Findings,
    Results,
    Told,
)
from themis.evaluation.run_matrix import (
    Matrix,
    MatrixNumbers,
    gpu_over_work,
    over,
    summary,
    swept,
    unprinted,
)
from themis.evaluation.sweeps import alike, as_printed, plot_cells
from themis.sim.config import RunConfig

VALUES = ("5m", "10m", "20m", "40m")
SHORTEST, LONGEST = VALUES[0], VALUES[-1]
LITERAL_VALUES = (SHORTEST, "10m", LONGEST)
POLICIES = (OURS, LITERAL)

MEASURES = {
    "max_rho": summary("max_rho", "paper"),
    "max_rho_ref": summary("max_rho_ref", "fair_share"),
    "gpu_hours": summary("gpu_hours"),
    "over_work": gpu_over_work,
    "moves": summary("moves"),
}
COLUMNS = {
    "max_rho": Column("max rho (paper)", ".2f"),
    "max_rho_ref": Column("max rho_ref", ".2f"),
    "gpu_hours": Column("GPU hours", ".0f"),
    "over_work": Column("GPU time / work", ".3f"),
    "moves": Column("moves", ".0f"),
}


def matrix(results: Results) -> Matrix:
    """Cells are (lease, policy)."""
    scope = results.scope
    base = scope.base("w2")
    cells = over(swept(base, "lease", VALUES), (OURS,)) | as_printed(base, "lease", LITERAL_VALUES)
    return Matrix(cells, scope.seeds_of(FEWER_REPORT_SEEDS, quick=1))


def plan(results: Results) -> Iterable[RunConfig]:
    """The default policy with each lease, the mechanism as printed with a few."""
    return matrix(results).configs()


def _claim(
    measured: MatrixNumbers, statement: str, name: str, of: str, than: str, why: str
) -> Claim:
    ours, literal = (
        measured.factor(name, of=(of, policy), over=(than, policy)) for policy in (OURS, LITERAL)
    )
    printed = beside(literal.told, literal.seeds, ours.seeds)
    return Claim(statement, Told("above 1x"), printed, ours.told, at_least(ours, 1.0), why)


def study(results: Results) -> Findings:
    """Compare lengths of leases."""
    measured = matrix(results).measure(results, MEASURES)
    same = alike(measured, VALUES, POLICIES)
    return Findings(
        claims=(
            _claim(measured, f"Max rho with {LONGEST} leases over {SHORTEST}", "max_rho", LONGEST,
                   SHORTEST, "GPUs change hands less often, so a short app waits longer."),
            _claim(measured, f"GPU time with {SHORTEST} leases over {LONGEST}", "gpu_hours",
                   SHORTEST, LONGEST, "Every change of hands costs a checkpoint and a restart."),
        ),
        tables=measured.tables("lease", "W2, means over seeds", ("lease", "policy"), COLUMNS),
        figures=(
            Figure("lease", f"W2: fairness and GPU time against the lease, {same.text}.",
                   lambda: plot_cells(same, "lease", VALUES, POLICIES,
                                      ("max_rho", "max_rho_ref", "over_work"), COLUMNS)),
        ),
        notes=unprinted(measured),
    )  # fmt: skip


EXPERIMENT = Experiment(
    "E11",
    "The length of leases",
    "Shorter leases are fairer, longer ones more efficient; the paper chooses 10 minutes.",
    study,
    plan,
)
