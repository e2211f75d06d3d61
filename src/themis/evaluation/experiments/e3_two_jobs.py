"""E3: one long and one short job among the apps of W2, looked at closely."""

from collections.abc import Iterable
from functools import partial

from themis.core.fairness.ideal_time import Convention
from themis.evaluation.checks import EITHER, above, estimates, mean_text, ratio
from themis.evaluation.claims import Claim, ClaimAnswer, Verdict, check, details, quantity
from themis.evaluation.comparisons import with_seeds
from themis.evaluation.experiment import FEWER_REPORT_SEEDS, Experiment, Figure, Findings, Results
from themis.evaluation.figures.charts import plot_ranges
from themis.evaluation.figures.measured import by_group, seeds_text, typicals
from themis.evaluation.macro_benchmark import PAPERS
from themis.evaluation.metrics import LITERAL, OURS, Measure, Metric
from themis.evaluation.run_matrix import Matrix, MatrixNumbers, literal_notes, over
from themis.sim.compare import with_value
from themis.sim.config import RunConfig
from themis.sim.runs.result_cache import CachedRun
from themis.sim.workloads.inserted_jobs import LONG, SHORT

OTHER = "tiresias"
POLICIES = (OURS, LITERAL, "equal-share", *PAPERS)
QUICK = (OURS, LITERAL, OTHER)
PAPER = {LONG.name: {OURS: 1.0, OTHER: 0.9}, SHORT.name: {OURS: 1.2, OTHER: 1.9}}
"""The rhos that the paper prints."""
SLACK = 1.05
"""A level this much above the paper's still counts."""


def rho_of(name: str, *, reference: bool = False) -> Measure:
    """Rho (paper) or rho_ref (fair share) of one app."""

    def measure(record: CachedRun) -> float:
        for app in record.apps:
            if app.app == name:
                return (
                    app.rho_ref[Convention.FAIR_SHARE] if reference else app.rho[Convention.PAPER]
                )
        return float("nan")

    return measure


METRICS = {
    "long": Metric(rho_of(LONG.name), "long: rho (paper)", ".2f"),
    "short": Metric(rho_of(SHORT.name), "short: rho (paper)", ".2f"),
    "long_ref": Metric(rho_of(LONG.name, reference=True), "long: rho_ref", ".2f"),
    "short_ref": Metric(rho_of(SHORT.name, reference=True), "short: rho_ref", ".2f"),
}


def policies(results: Results) -> tuple[str, ...]:
    """The paper shows Tiresias; at full size the others are beside it."""
    return QUICK if results.scope.quick else POLICIES


def matrix(results: Results) -> Matrix:
    """Cells are ("w2", policy)."""
    base = with_value(results.scope.base("w2"), "two_jobs", value=True)
    seeds = results.scope.seeds_of(FEWER_REPORT_SEEDS, quick=1)
    return Matrix(over({"w2": base}, policies(results)), seeds)


def plan(results: Results) -> Iterable[RunConfig]:
    """W2 with the two jobs in it."""
    return matrix(results).configs()


def _level(measured: MatrixNumbers, job: str) -> ClaimAnswer:
    """Whether rho is as low as the paper's, and whether that distinguishes the policy."""
    ours, literal = estimates(measured, job, "w2")
    most = SLACK * PAPER[job][OURS]
    others = [measured.estimate(job, cell).mean for cell in measured.by_cell if cell[1] != OURS]
    verdict = measured.judged(ours.mean <= most, ("w2", OURS))
    if verdict is Verdict.HOLDS and not any(other > most for other in others):
        verdict = Verdict.UNDECIDED
    same = all(mean <= most for mean in (ours.mean, *others))
    return ClaimAnswer(
        quantity(ours.mean),
        verdict,
        with_seeds(quantity(literal.mean), literal.runs, ours.runs),
        details(
            ("rho_ref", mean_text(measured, f"{job}_ref", ("w2", OURS))),
            ("policies that do as well", "all, so this says nothing" if same else None),
        ),
    )


def _paper_factor(job: str) -> float:
    return PAPER[job][OTHER] / PAPER[job][OURS]


CLAIMS: tuple[Claim[MatrixNumbers], ...] = (
    *(
        Claim(
            f"{job}-better",
            f"The {job} job: Tiresias' rho over ours",
            quantity(_paper_factor(job), ".2f", "x"),
            ratio(job, of=("w2", OTHER), over=("w2", EITHER),
                  judge=above(max(1.0, _paper_factor(job)))),
            f"The {job} job",
        )
        for job in (SHORT.name, LONG.name)
    ),
    *(
        Claim(
            f"{job}-level",
            f"rho of the {job} job",
            quantity(PAPER[job][OURS], "g"),
            partial(_level, job=job),
            "rho of the jobs",
        )
        for job in (SHORT.name, LONG.name)
    ),
)  # fmt: skip


def study(results: Results) -> Findings:
    """Look at the two jobs."""
    measured = matrix(results).measure(results, METRICS)
    same = by_group(measured, ("w2",), policies(results))
    marks = {METRICS[name].title: typicals(same, name)["W2"] for name in ("long", "short")}
    figure = Figure(
        "jobs",
        f"rho of the two jobs (paper): geometric mean over {seeds_text(measured, same)}, 95 % "
        "interval.",
        partial(
            plot_ranges,
            "Two jobs inserted into W2 (left is better)",
            "rho (paper), geometric mean over seeds",
            marks,
            log=True,
        ),
    )
    return Findings(
        check(CLAIMS, measured),
        measured.tables("jobs", "Means over seeds", ("workload", "policy"), METRICS),
        (figure,),
        literal_notes(measured),
    )


EXPERIMENT = Experiment(
    "E3",
    "A long and a short job",
    "A long job (580 GPU-minutes) and a short one (83) have rho 1.0 and 1.2, against 0.9 and 1.9 "
    "under Tiresias. It says better for both; for the long one its numbers say otherwise.",
    study,
    plan,
    module=__name__,
)
