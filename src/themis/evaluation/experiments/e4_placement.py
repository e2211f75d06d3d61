"""E4: how well each policy places jobs."""

from collections.abc import Iterable
from functools import partial

from themis.evaluation.claims import Claim, ClaimAnswer, Quantity, all_of, check, details, quantity
from themis.evaluation.comparisons import at_least, of_all, with_seeds
from themis.evaluation.experiment import Experiment, Figure, Findings, Results
from themis.evaluation.figures.measured import by_group, labels, records_of, seeds_text
from themis.evaluation.macro_benchmark import PAPERS, WORKLOADS, matrix, policies
from themis.evaluation.metrics import LITERAL, OURS, Metric
from themis.evaluation.metrics import METRICS as ALL_METRICS
from themis.evaluation.run_matrix import MatrixNumbers
from themis.sim.config import RunConfig
from themis.sim.figures.plot_style import Drawing
from themis.sim.figures.run_figures import plot_placement
from themis.sim.runs.result_cache import CachedRun, score_shares

NEAR_ONE = 0.97
GOOD = 0.95


def well_placed(record: CachedRun) -> float:
    """The share of GPU time with a good score."""
    total = sum(weight for _, weight in record.scores)
    return sum(weight for score, weight in record.scores if score >= GOOD) / total if total else 1.0


METRICS = {
    "score": ALL_METRICS["score"],
    "well_placed": Metric(well_placed, "GPU time at 0.95 or better", ".0%"),
}


def plan(results: Results) -> Iterable[RunConfig]:
    """The macro-benchmark."""
    return matrix(results).configs()


def _near_one(measured: MatrixNumbers) -> ClaimAnswer:
    """The lowest mean score of a policy and the paper's four on W1."""

    def lowest(policy: str) -> tuple[float, int]:
        cells = [("w1", name) for name in (policy, *PAPERS)]
        same = measured.paired(*cells)
        means = [same.estimate("score", cell).mean for cell in cells]
        return of_all(min, means), same.count(*cells)

    (ours, seeds), (literal, fewer) = lowest(OURS), lowest(LITERAL)
    return ClaimAnswer(
        quantity(ours, ".3f"),
        measured.judged(ours >= NEAR_ONE, *(("w1", name) for name in (OURS, *PAPERS))),
        with_seeds(quantity(literal, ".3f"), fewer, seeds),
    )


def _best(measured: MatrixNumbers) -> ClaimAnswer:
    """Ours against each of the others, and Gandiva against the other three, on W2."""
    same = measured.paired(*(("w2", name) for name in (OURS, *PAPERS)))
    score = {name: same.estimate("score", ("w2", name)).mean for name in (OURS, *PAPERS)}
    ranked = sorted(PAPERS, key=lambda name: -score[name] if same.count(("w2", name)) else 0.0)
    literal = measured.estimate("score", ("w2", LITERAL))
    pairs = [(OURS, name) for name in PAPERS]
    pairs += [("gandiva", name) for name in PAPERS if name != "gandiva"]
    found = [measured.factor("score", of=("w2", one), over=("w2", than)) for one, than in pairs]
    return ClaimAnswer(
        quantity(score[OURS], ".3f"),
        all_of(at_least(item, 1.0) for item in found),
        with_seeds(quantity(literal.mean, ".3f"), literal.runs, same.count(("w2", OURS))),
        details(*((name, quantity(score[name], ".3f")) for name in ranked)),
    )


CLAIMS: tuple[Claim[MatrixNumbers], ...] = (
    Claim("w1-near-1", "W1: scores near 1 under every policy", Quantity("~1"), _near_one, "W1"),
    Claim("w2-best", "W2: ours places best, Gandiva next", Quantity("best"), _best, "W2"),
)


def _cdf(results: Results, same: MatrixNumbers, workload: str) -> Drawing:
    runs = {
        name: records_of(results, matrix(results), same, (workload, policy))
        for policy, name in labels({workload: same}).items()
    }
    return plot_placement(
        {
            name: score_shares(pair for run in each for pair in run.scores)
            for name, each in runs.items()
        }
    )


def study(results: Results) -> Findings:
    """Compare placement scores."""
    measured = matrix(results).measure(results, METRICS)
    figures = (
        Figure(
            f"placement_{workload}",
            f"{workload.upper()}: share of GPU time at or below each placement score (1 / S), "
            f"{seeds_text(measured, {workload: each})}.",
            partial(_cdf, results, each, workload),
        )
        for workload, each in by_group(measured, WORKLOADS, policies(results)).items()
        if labels({workload: each})
    )
    title = "Placement, means over seeds"
    return Findings(
        check(CLAIMS, measured),
        measured.tables("scores", title, ("workload", "policy"), METRICS),
        tuple(figures),
    )


EXPERIMENT = Experiment(
    "E4",
    "Placement scores",
    "On W1 scores are about 1 under every policy; on W2 Themis places best and Gandiva next.",
    study,
    plan,
    module=__name__,
)
