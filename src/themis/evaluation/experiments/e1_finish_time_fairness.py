"""E1: how late apps finish under each policy: the distribution of rho, and its maximum."""

from collections.abc import Iterable, Mapping
from functools import partial

from themis.core.fairness.ideal_time import Convention
from themis.evaluation.comparisons import Factor, all_of, at_least, beside, curve, factor, least
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
    Verdict,
    told,
)
from themis.evaluation.macro_benchmark import (
    PAPERS,
    QUICK,
    WORKLOADS,
    auction_sentence,
    labels,
    matrix,
    policies,
    records_of,
    same_seeds,
    seeds_text,
    typicals,
)
from themis.evaluation.report.charts import plot_behind, plot_ranges
from themis.evaluation.run_matrix import MatrixNumbers, summary
from themis.sim.config import RunConfig
from themis.sim.figures.plot_style import Drawing
from themis.sim.figures.run_figures import plot_rho_cdf
from themis.sim.metrics import quantile
from themis.sim.runs.result_cache import CachedRun

FACTORS = {"gandiva": 2.2, "tiresias": 2.25, "optimus": 1.75, "slaq": 3.25}
"""How many times larger the paper found the others' largest rho."""
STRONG = QUICK
"""Told apart in the figures of all apps; the others are there for comparison."""


def spread(record: CachedRun) -> float:
    """From the 5th to the 95th percentile of rho, as the paper computes it."""
    values = [app.rho[Convention.PAPER] for app in record.apps]
    return quantile(values, 0.95) - quantile(values, 0.05)


MEASURES = {
    "max_rho": summary("max_rho", "paper"),
    "max_rho_alone": summary("max_rho_alone", "paper"),
    "spread_rho": spread,
    "max_rho_ref": summary("max_rho_ref", "fair_share"),
    "p95_rho_ref": summary("p95_rho_ref", "fair_share"),
    "share_fair": summary("share_fair_ref", "fair_share"),
    "completion_h": summary("mean_completion_h"),
    "floor": summary("floor_rho_ref"),
    "auction_share": summary("auction_share_contended"),
}
COLUMNS = {
    "max_rho": Column("max rho (paper)", ".2f"),
    "max_rho_alone": Column("of it alone", ".2f"),
    "spread_rho": Column("p95 - p5 (paper)", ".2f"),
    "max_rho_ref": Column("max rho_ref", ".2f"),
    "p95_rho_ref": Column("p95 rho_ref", ".2f"),
    "share_fair": Column("share fair", ".0%"),
    "completion_h": Column("completion h", ".1f"),
    "floor": Column("floor", ".2f"),
    "auction_share": Column("by auction", ".0%"),
}


def plan(results: Results) -> Iterable[RunConfig]:
    """The macro-benchmark."""
    return matrix(results).configs()


def _better(measured: MatrixNumbers, workload: str, other: str) -> Claim:
    paper = FACTORS[other]
    ours, literal = (
        measured.factor("max_rho", of=(workload, other), over=(workload, policy))
        for policy in (OURS, LITERAL)
    )
    ref = measured.factor("max_rho_ref", of=(workload, other), over=(workload, OURS))
    verdict = at_least(ours, paper)
    # What it would be if under our policy nobody had waited for anything.
    most = factor(
        measured.values("max_rho", (workload, other)),
        measured.values("max_rho_alone", (workload, OURS)),
    )
    limit = ""
    if most.seeds == ours.seeds and verdict is not Verdict.HOLDS and most.mean < paper:
        both = measured.paired((workload, OURS), (workload, other))
        alone = both.typical("max_rho_alone", (workload, OURS)).mean
        limit = (
            f" It could hardly be more than {told(most.mean).text}x: even alone on the cluster "
            f"some app would have had a rho of {told(alone).text} (geometric mean), by starting, "
            "by the slowdown of its best place, and because the paper's ideal time "
            "divides all work by all GPUs that an app can ever use, though phases that are nearly "
            "over have few jobs and the longest goes on alone. (With the contention of our runs; a "
            "policy that lets apps wait has more of it, and longer ideal times.)"
        )
    return Claim(
        f"{workload.upper()}: max rho, {other} over ours",
        told(paper, "g", "x"),
        beside(literal.told, literal.seeds, ours.seeds),
        ours.told,
        verdict,
        "rho by the paper's convention, against each run's own contention; against the common "
        f"reference (rho_ref, fair share) the factor is {ref.told.text}.{limit}",
    )


def _narrower(measured: MatrixNumbers, workload: str) -> Claim:
    def factors(policy: str) -> dict[str, Factor]:
        return {
            other: measured.factor("spread_rho", of=(workload, other), over=(workload, policy))
            for other in PAPERS
        }

    ours, literal = least(factors(OURS)), least(factors(LITERAL))
    return Claim(
        f"{workload.upper()}: narrower spread of rho than the paper's four",
        Told("narrower"),
        beside(literal.told_least, literal.seeds, ours.seeds),
        ours.told_least,
        all_of(at_least(item, 1.0) for item in factors(OURS).values()),
        "From the 5th to the 95th percentile; the smallest of the four factors is shown.",
    )


def _cdf(results: Results, same: MatrixNumbers, workload: str) -> Drawing:
    apps = {
        name: [app for run in records_of(results, same, (workload, name)) for app in run.apps]
        for name in labels({workload: same})
    }
    called = labels({workload: same})
    drawing = plot_rho_cdf({called[name]: apps[name] for name in apps if name in STRONG})
    plot_behind(
        drawing,
        [
            curve(app.rho_ref[Convention.FAIR_SHARE] for app in each)
            for name, each in apps.items()
            if name not in STRONG
        ],
    )
    return drawing


def _cdf_figure(
    results: Results, measured: MatrixNumbers, same: MatrixNumbers, workload: str
) -> Figure:
    others = [name for name in labels({workload: same}) if name not in STRONG]
    grey = f" Grey: {', '.join(others)}." if others else ""
    return Figure(
        f"rho_{workload}",
        f"{workload.upper()}: share of apps at or below each rho_ref (fair share), all apps of "
        f"{seeds_text(measured, {workload: same})}.{grey}",
        partial(_cdf, results, same, workload),
    )


def _maxima(same: Mapping[str, MatrixNumbers], seeds: str) -> Drawing:
    marks = typicals(same, "max_rho_ref")
    title = "The app that fares worst (left is better)"
    return plot_ranges(title, f"max rho_ref, geometric mean over {seeds}", marks, log=True)


def study(results: Results) -> Findings:
    """Compare the policies."""
    measured = matrix(results).measure(results, MEASURES)
    claims = [_better(measured, workload, other) for workload in WORKLOADS for other in FACTORS]
    claims += [_narrower(measured, workload) for workload in WORKLOADS]
    same = {workload: same_seeds(measured, workload, policies(results)) for workload in WORKLOADS}
    seeds = seeds_text(measured, same)
    figures = [
        _cdf_figure(results, measured, each, workload)
        for workload, each in same.items()
        if labels({workload: each})
    ]
    figures.append(
        Figure("max_rho", f"Largest rho_ref (fair share): geometric mean over {seeds}, 95 % "
               "interval.", lambda: _maxima(same, seeds))
    )  # fmt: skip
    return Findings(
        claims=tuple(claims),
        tables=measured.tables("policies", "Means over seeds", ("workload", "policy"), COLUMNS),
        figures=tuple(figures),
        notes=(
            (
                "Factors are geometric means over seeds, intervals by paired bootstrap. `by "
                "auction` is the auction's share of the GPU time under contention, `of it alone` "
                "the largest rho that an app would have had with the cluster to itself, in its "
                "best places, against its ideal time of that run."
            ),
        ),
        lead=(auction_sentence(measured, [(name, OURS) for name in WORKLOADS]),),
    )


EXPERIMENT = Experiment(
    "E1",
    "Finish-time fairness of all policies",
    "The largest rho is 2.2x better than Gandiva's, 2.25x than Tiresias', 1.75x than Optimus' and "
    "3.25x than SLAQ's, and rho spreads less.",
    study,
    plan,
)
