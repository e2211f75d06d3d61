"""E2: how much GPU time each policy takes for the same work."""

import math
from collections.abc import Iterable
from functools import partial
from itertools import pairwise

from themis.core.model import CLUSTER
from themis.core.model.zoo import CATEGORY_SHARES, models_of_category, slowdown_of
from themis.evaluation.checks import EITHER, above, below, ratio
from themis.evaluation.claims import (
    NO_VALUE,
    Claim,
    ClaimAnswer,
    Quantity,
    check,
    details,
    quantity,
)
from themis.evaluation.comparisons import of_all, with_seeds
from themis.evaluation.experiment import Experiment, Figure, Findings, Results
from themis.evaluation.figures.charts import plot_ranges
from themis.evaluation.figures.measured import by_group, seeds_text, typicals
from themis.evaluation.macro_benchmark import PAPERS, WORKLOADS, matrix, policies
from themis.evaluation.metrics import LITERAL, OURS, Measure, Metric, gpu_over_work, summary
from themis.evaluation.metrics import METRICS as ALL_METRICS
from themis.evaluation.run_matrix import Matrix, MatrixNumbers
from themis.sim.config import RunConfig
from themis.sim.runs.result_cache import CachedRun

SPENT = ("useful", "slowed", "restart", "checkpoint", "lost")
EQUAL = 0.02
"""GPU times that differ by less count as equal."""
ENDS = (0.0, 0.25, 0.5, 0.75, 0.95, 1.0)
"""Bounds of the ranges of c in the table; multiples of 0.05, as runs store it."""


def spent_on(kind: str) -> Measure:
    """GPU hours of one kind."""
    return lambda record: float(record.summary["gpu_hours_spent"][kind])


def idle_held(record: CachedRun) -> float:
    """GPU hours that were held and spent on nothing: the rest of those that the columns name."""
    held = summary("gpu_hours")(record)
    return held - math.fsum(record.summary["gpu_hours_spent"].values())


def utilisation(record: CachedRun) -> float:
    """Held GPU time over all GPU time from the first arrival to the end of the last app."""
    capacity = summary("gpus")(record) * summary("makespan_h")(record)
    return summary("gpu_hours")(record) / capacity if capacity > 0.0 else math.nan


def kept_within(low: float, high: float) -> Measure:
    """The share of winners that kept more than `low` and at most `high` of what they won."""

    def of(record: CachedRun) -> float:
        bins = record.summary.get("kept_fraction_bins") or ()
        total = sum(bins)
        first, last = (round(end * len(bins)) for end in (low, high))
        return sum(bins[first:last]) / total if total else math.nan

    return of


METRICS = {
    "gpu_hours": Metric(summary("gpu_hours"), "GPU hours held", ".0f"),
    "over_work": Metric(gpu_over_work, "/ work", ".3f"),
    **{kind: Metric(spent_on(kind), kind, ".0f") for kind in SPENT},
    "idle": Metric(idle_held, "idle", ".1f"),
    "utilisation": Metric(utilisation, "utilisation", ".0%"),
}
KEPT = {
    "winners": Metric(
        lambda record: float(sum(record.summary.get("kept_fraction_bins") or (math.nan,))),
        "winners",
        ".0f",
    ),
    "kept": Metric(ALL_METRICS["kept"].of, "mean c", ".2f"),
    **{
        f"to_{high:g}": Metric(kept_within(low, high), f"{low:g} to {high:g}", ".1%")
        for low, high in pairwise(ENDS)
    },
}


def most_that_placement_costs() -> float:
    """GPU time over bare work if every job of the paper's mix ran across racks."""
    return sum(
        share * slowdown_of(model).levels[CLUSTER] / len(models_of_category(category))
        for category, share in CATEGORY_SHARES.items()
        for model in models_of_category(category)
    )


def plan(results: Results) -> Iterable[RunConfig]:
    """The macro-benchmark."""
    return matrix(results).configs()


def _equal(measured: MatrixNumbers) -> ClaimAnswer:
    """How far GPU time on W1 is from that of the paper's four at most."""
    found = {
        policy: [measured.factor("gpu_hours", of=("w1", policy), over=("w1", one))
                 for one in PAPERS]
        for policy in (OURS, LITERAL)
    }  # fmt: skip
    farthest = {
        policy: of_all(max, [abs(item.mean - 1) for item in items])
        for policy, items in found.items()
    }

    def within(policy: str) -> Quantity:
        far = quantity(100 * farthest[policy], ".2f", " %")
        return far if far == NO_VALUE else Quantity(f"within {far.text}", farthest[policy])

    seeds = {policy: min(item.seeds for item in items) for policy, items in found.items()}
    each = zip(PAPERS, found[OURS], strict=True)
    return ClaimAnswer(
        within(OURS),
        measured.judged(farthest[OURS] <= EQUAL, *(("w1", name) for name in (OURS, *PAPERS))),
        with_seeds(within(LITERAL), seeds[LITERAL], seeds[OURS]),
        details(*((f"over {name}", item.percent) for name, item in each)),
    )


CLAIMS: tuple[Claim[MatrixNumbers], ...] = (
    Claim("w1-equal", "W1: GPU time equal to the others'", Quantity("equal"), _equal, "W1"),
    Claim(
        "w2-gandiva",
        "W2: GPU time against Gandiva's",
        Quantity("-4.8 %", -4.8),
        ratio("gpu_hours", of=("w2", EITHER), over=("w2", "gandiva"), judge=below(1 - 0.048),
              percent=True),
        "W2, Gandiva",
    ),
    Claim(
        "w2-slaq",
        "W2: SLAQ's GPU time above ours",
        Quantity("~+250 %", 250.0),
        ratio("gpu_hours", of=("w2", "slaq"), over=("w2", EITHER), judge=above(3.5), percent=True,
              details=lambda _: details(
                  ("everything across racks", f"{most_that_placement_costs():.2f}x"))),
        "W2, SLAQ",
    ),
)  # fmt: skip


def study(results: Results) -> Findings:
    """Compare GPU time."""
    cells = matrix(results)
    measured = cells.measure(results, METRICS)
    same = by_group(measured, WORKLOADS, policies(results))
    seeds = seeds_text(measured, same)
    head = ("workload", "policy")
    means, runs = measured.tables("gpu_time", "GPU hours, means over seeds", head, METRICS)
    auctions = {cell: run for cell, run in cells.cells.items() if cell[1] in (OURS, LITERAL)}
    title = "Share of winners by c, the fraction that they keep: means over seeds"
    kept = Matrix(auctions, cells.seeds).measure(results, KEPT).table("kept", title, head, KEPT)
    figure = Figure(
        "gpu_time",
        f"GPU time held over bare work: geometric mean over {seeds}, 95 % interval.",
        partial(
            plot_ranges,
            "GPU time for the same work (left is better)",
            f"GPU time / work, geometric mean over {seeds}",
            typicals(same, "over_work"),
        ),
    )
    return Findings(check(CLAIMS, measured), (means, kept, runs), (figure,))


EXPERIMENT = Experiment(
    "E2",
    "Total GPU time",
    "On W1 GPU time is equal; on W2 it is 4.8 % below Gandiva's, and SLAQ's is about 250 % above.",
    study,
    plan,
    module=__name__,
)
