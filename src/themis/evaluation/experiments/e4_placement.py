"""E4: how well each policy places jobs."""

from collections.abc import Iterable
from functools import partial

from themis.evaluation.comparisons import all_of, at_least, beside, of_all
from themis.evaluation.experiment import (
    LITERAL,
    OURS,
    Claim,
    Column,
    Experiment,
    Figure,
    Findings,
    Results,
    Told,
    told,
)
from themis.evaluation.macro_benchmark import (
    PAPERS,
    WORKLOADS,
    labels,
    matrix,
    policies,
    records_of,
    same_seeds,
    seeds_text,
)
from themis.evaluation.run_matrix import MatrixNumbers, summary
from themis.sim.config import RunConfig
from themis.sim.figures.plot_style import Drawing
from themis.sim.figures.run_figures import plot_placement
from themis.sim.runs.result_cache import CachedRun, score_shares

NEAR_ONE = 0.97


def well_placed(record: CachedRun) -> float:
    """The share of GPU time at a score of at least 0.95."""
    total = sum(weight for _, weight in record.scores)
    return sum(weight for score, weight in record.scores if score >= 0.95) / total if total else 1.0


MEASURES = {"score": summary("placement_score"), "well_placed": well_placed}
COLUMNS = {
    "score": Column("mean score", ".3f"),
    "well_placed": Column("GPU time at 0.95 or better", ".0%"),
}


def plan(results: Results) -> Iterable[RunConfig]:
    """The macro-benchmark."""
    return matrix(results).configs()


def _near_one(measured: MatrixNumbers) -> Claim:
    def lowest(policy: str) -> tuple[float, int]:
        cells = [("w1", name) for name in (policy, *PAPERS)]
        same = measured.paired(*cells)
        means = [same.estimate("score", cell).mean for cell in cells]
        return of_all(min, means), same.count(*cells)

    (ours, seeds), (literal, fewer) = lowest(OURS), lowest(LITERAL)
    return Claim(
        "W1: scores near 1 under every policy",
        Told("~1"),
        beside(told(literal, ".3f"), fewer, seeds),
        told(ours, ".3f"),
        measured.judged(ours >= NEAR_ONE, *(("w1", name) for name in (OURS, *PAPERS))),
        "The lowest mean score of ours and the paper's four. Jobs of one or two GPUs are easily "
        f"placed; at least {NEAR_ONE} counts as near.",
    )


def _best(measured: MatrixNumbers) -> Claim:
    same = measured.paired(*(("w2", name) for name in (OURS, *PAPERS)))
    score = {name: same.estimate("score", ("w2", name)).mean for name in (OURS, *PAPERS)}
    ranked = sorted(PAPERS, key=lambda name: -score[name] if same.count(("w2", name)) else 0.0)
    literal = measured.estimate("score", ("w2", LITERAL))
    pairs = [(OURS, name) for name in PAPERS]
    pairs += [("gandiva", name) for name in PAPERS if name != "gandiva"]
    found = [measured.factor("score", of=("w2", one), over=("w2", than)) for one, than in pairs]
    return Claim(
        "W2: ours places best, Gandiva next",
        Told("best"),
        beside(told(literal.mean, ".3f"), literal.runs, same.count(("w2", OURS))),
        told(score[OURS], ".3f"),
        all_of(at_least(item, 1.0) for item in found),
        "Ours against each of the others, and Gandiva against the other three. Of the others: "
        + ", ".join(f"{name} {told(score[name], '.3f').text}" for name in ranked)
        + ".",
    )


def _cdf(results: Results, same: MatrixNumbers, workload: str) -> Drawing:
    return plot_placement(
        {
            name: score_shares(
                pair for run in records_of(results, same, (workload, policy)) for pair in run.scores
            )
            for policy, name in labels({workload: same}).items()
        }
    )


def study(results: Results) -> Findings:
    """Compare placement scores."""
    measured = matrix(results).measure(results, MEASURES)
    same = {workload: same_seeds(measured, workload, policies(results)) for workload in WORKLOADS}
    return Findings(
        claims=(_near_one(measured), _best(measured)),
        tables=measured.tables(
            "scores", "Placement, means over seeds", ("workload", "policy"), COLUMNS
        ),
        figures=tuple(
            Figure(
                f"placement_{workload}",
                f"{workload.upper()}: share of GPU time at or below each placement score (1 / S), "
                f"{seeds_text(measured, {workload: each})}.",
                partial(_cdf, results, each, workload),
            )
            for workload, each in same.items()
            if labels({workload: each})
        ),
    )


EXPERIMENT = Experiment(
    "E4",
    "Placement scores",
    "On W1 scores are about 1 under every policy; on W2 Themis places best and Gandiva next.",
    study,
    plan,
)
