"""E1: how late apps finish under each policy: the distribution of rho, and its maximum."""

from collections.abc import Iterable, Mapping
from functools import partial

from themis.core.fairness.ideal_time import Convention
from themis.evaluation.checks import EITHER, above, ratio, worst_ratio
from themis.evaluation.claims import Claim, Detail, Quantity, check, details, quantity
from themis.evaluation.comparisons import curve, factor
from themis.evaluation.experiment import Experiment, Figure, Findings, Results
from themis.evaluation.figures.charts import plot_behind, plot_ranges
from themis.evaluation.figures.measured import (
    by_group,
    labels,
    records_of,
    seeds_text,
    typicals,
)
from themis.evaluation.macro_benchmark import (
    PAPERS,
    QUICK,
    WORKLOADS,
    auction_sentence,
    matrix,
    policies,
)
from themis.evaluation.metrics import OURS, metrics
from themis.evaluation.run_matrix import MatrixNumbers
from themis.sim.config import RunConfig
from themis.sim.figures.plot_style import Drawing
from themis.sim.figures.run_figures import plot_rho_cdf

FACTORS = {"gandiva": 2.2, "tiresias": 2.25, "optimus": 1.75, "slaq": 3.25}
"""How many times larger the paper found the others' largest rho."""
STRONG = QUICK
"""Policies with a line of their own in the figures of all apps; the others are grey."""
METRICS = metrics(
    "max_rho", "max_rho_alone", "spread_rho", "max_rho_ref", "p95_rho_ref", "share_fair",
    "completion_h", "floor", "auction_share",
)  # fmt: skip


def plan(results: Results) -> Iterable[RunConfig]:
    """The macro-benchmark."""
    return matrix(results).configs()


def _beside(measured: MatrixNumbers, workload: str, other: str) -> tuple[Detail, ...]:
    """The factor by the common reference; where the claim fails, the most it could have been."""
    ref = measured.factor("max_rho_ref", of=(workload, other), over=(workload, OURS))
    ours = measured.factor("max_rho", of=(workload, other), over=(workload, OURS))
    # The factor if no app had waited for anything under our policy.
    most = factor(
        measured.values("max_rho", (workload, other)),
        measured.values("max_rho_alone", (workload, OURS)),
    )
    fails = above(FACTORS[other])(ours) != "holds" and most.mean < FACTORS[other]
    if not (fails and most.seeds == ours.seeds):
        return details(("by rho_ref", ref.shown))
    both = measured.paired((workload, OURS), (workload, other))
    alone = both.typical("max_rho_alone", (workload, OURS)).mean
    return details(
        ("by rho_ref", ref.shown),
        ("could hardly be more than", f"{quantity(most.mean).text}x"),
        ("max rho of an app alone on the cluster", quantity(alone)),
    )


CLAIMS: tuple[Claim[MatrixNumbers], ...] = (
    *(
        Claim(
            f"{workload}-{other}",
            f"{workload.upper()}: max rho, {other} over ours",
            quantity(paper, "g", "x"),
            ratio(
                "max_rho",
                of=(workload, other),
                over=(workload, EITHER),
                judge=above(paper),
                details=partial(_beside, workload=workload, other=other),
            ),
            "Max rho",
        )
        for workload in WORKLOADS
        for other, paper in FACTORS.items()
    ),
    *(
        Claim(
            f"{workload}-spread",
            f"{workload.upper()}: narrower spread of rho than the paper's four",
            Quantity("narrower"),
            worst_ratio("spread_rho", workload, PAPERS),
            "Spread of rho",
        )
        for workload in WORKLOADS
    ),
)


def _cdf(results: Results, same: MatrixNumbers, workload: str) -> Drawing:
    called = labels({workload: same})
    apps = {
        name: [
            app
            for run in records_of(results, matrix(results), same, (workload, name))
            for app in run.apps
        ]
        for name in called
    }
    drawing = plot_rho_cdf({called[name]: apps[name] for name in apps if name in STRONG})
    weak = [each for name, each in apps.items() if name not in STRONG]
    curves = [curve(app.rho_ref[Convention.FAIR_SHARE] for app in each) for each in weak]
    plot_behind(drawing, curves)
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
    title = "The app that fares worst (left is better)"
    label = f"max rho_ref, geometric mean over {seeds}"
    return plot_ranges(title, label, typicals(same, "max_rho_ref"), log=True)


def study(results: Results) -> Findings:
    """Compare the policies."""
    measured = matrix(results).measure(results, METRICS)
    same = by_group(measured, WORKLOADS, policies(results))
    seeds = seeds_text(measured, same)
    maxima = Figure(
        "max_rho",
        f"Largest rho_ref (fair share): geometric mean over {seeds}, 95 % interval.",
        partial(_maxima, same, seeds),
    )
    cdfs = (
        _cdf_figure(results, measured, each, workload)
        for workload, each in same.items()
        if labels({workload: each})
    )
    return Findings(
        check(CLAIMS, measured),
        measured.tables("policies", "Means over seeds", ("workload", "policy"), METRICS),
        (*cdfs, maxima),
        lead=(auction_sentence(measured, [(name, OURS) for name in WORKLOADS]),),
    )


EXPERIMENT = Experiment(
    "E1",
    "Finish-time fairness of all policies",
    "The largest rho is 2.2x better than Gandiva's, 2.25x than Tiresias', 1.75x than Optimus' and "
    "3.25x than SLAQ's, and rho spreads less.",
    study,
    plan,
    module=__name__,
)
