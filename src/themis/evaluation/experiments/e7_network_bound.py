"""E7: more and more apps that suffer from the network, on the simulated cluster of 256 GPUs."""

import math
from collections.abc import Iterable, Mapping
from functools import partial

from themis.evaluation.checks import EITHER, above, below, compared, ratio
from themis.evaluation.claims import (
    NO_VALUE,
    Claim,
    ClaimAnswer,
    Detail,
    Quantity,
    Verdict,
    details,
    quantity,
)
from themis.evaluation.comparisons import Factor, best, factor
from themis.evaluation.experiment import FEWER_REPORT_SEEDS, Experiment, Findings, Results
from themis.evaluation.macro_benchmark import PAPERS
from themis.evaluation.metrics import LITERAL, MAIN, OURS, Measure, Metric, metrics
from themis.evaluation.provenance import seed_text
from themis.evaluation.run_matrix import (
    Cell,
    Matrix,
    MatrixNumbers,
    over,
    swept,
)
from themis.evaluation.sweeps import sweep_findings
from themis.sim.config import RunConfig
from themis.sim.runs.result_cache import CachedRun

VALUES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
QUICK_VALUES = (0.0, 1.0)
POLICIES = (OURS, *PAPERS)
FACTORS = {"gandiva": 1.24, "slaq": 2.04, "tiresias": 1.72, "optimus": 1.77}
ALL = 1.0
MOST_EXCESS = 0.5
"""GPU time above the bare work that our bar allows, over Gandiva's."""
MIDDLE = (0.4, 0.6)
CLUSTER, APPS, QUICK_APPS = "sim256", 340, 6


def spent_on(*kinds: str) -> Measure:
    """GPU time of these kinds, per unit of bare work."""

    def of(record: CachedRun) -> float:
        spent = record.summary["gpu_hours_spent"]
        useful = float(spent["useful"])
        return sum(float(spent[kind]) for kind in kinds) / useful if useful else math.nan

    return of


METRICS = {
    **MAIN,
    **metrics("gpu_hours", "placed"),
    "slowed": Metric(spent_on("slowed")),
    "starting": Metric(spent_on("restart", "checkpoint")),
}


def values(results: Results) -> tuple[float, ...]:
    """Shares of network-intensive apps."""
    return QUICK_VALUES if results.scope.quick else VALUES


def matrix(results: Results) -> Matrix:
    """Cells are (share of network-intensive apps, policy)."""
    scope = results.scope
    base = scope.base("w2", CLUSTER, APPS, quick=QUICK_APPS)
    cells = over(swept(base, "network_intensive", values(results)), POLICIES)
    cells |= over(swept(base, "network_intensive", (ALL,)), (LITERAL,))
    return Matrix(cells, scope.seeds_of(FEWER_REPORT_SEEDS, quick=1))


def plan(results: Results) -> Iterable[RunConfig]:
    """W2 with each share."""
    return matrix(results).configs()


def _by_reference(measured: MatrixNumbers, other: str) -> tuple[Detail, ...]:
    ref = measured.factor("max_rho_ref", of=(ALL, other), over=(ALL, OURS))
    return details(("by rho_ref", ref.shown))


def _excess(measured: MatrixNumbers) -> ClaimAnswer:
    """GPU time above the bare work, against Gandiva's."""

    def against(policy: str) -> Factor:
        return factor(
            [value - 1 for value in measured.values("over_work", (ALL, policy))],
            [value - 1 for value in measured.values("over_work", (ALL, "gandiva"))],
        )

    ours = against(OURS)
    verdict = measured.judged(ours.mean <= MOST_EXCESS, (ALL, OURS), (ALL, "gandiva"))
    same = measured.paired((ALL, "gandiva"), (ALL, OURS))
    placed = 100.0 * (same.estimate("placed", (ALL, OURS)).mean - 1.0)
    limit = 100.0 * MOST_EXCESS * (same.estimate("over_work", (ALL, "gandiva")).mean - 1.0)
    binds = ours.mean > MOST_EXCESS and placed > limit
    supporting = details(
        ("Gandiva's", _parts(same, (ALL, "gandiva"))),
        ("ours", _parts(same, (ALL, OURS))),
        ("with all GPUs in the best places, without a start", quantity(placed, ".1f", " %")),
        ("less than that is the bar", quantity(limit, ".1f", " %") if binds else None),
    )
    return compared(ours, against(LITERAL), verdict, details=supporting)


def _parts(measured: MatrixNumbers, cell: Cell) -> str:
    """The GPU time above the bare work, by cause."""
    excess, slowed, starting = (
        quantity(100.0 * (measured.estimate(name, cell).mean - less), ".1f", " %").text
        for name, less in (("over_work", 1.0), ("slowed", 0.0), ("starting", 0.0))
    )
    moves = quantity(measured.estimate("moves", cell).mean, ",.0f").text
    return (
        f"{excess}, of it {slowed} by placement and {starting} by starts and checkpoints "
        f"({moves} moves)"
    )


def _worst(measured: MatrixNumbers) -> ClaimAnswer:
    """At which share max rho is largest, on the seeds that all shares have."""
    shares = [float(share) for share, policy in measured.by_cell if policy == OURS]
    cells = [(share, OURS) for share in shares]
    if not all(map(measured.count, cells)):  # the largest of the finished ones would say nothing
        return ClaimAnswer(NO_VALUE, Verdict.UNDECIDED)
    same = measured.paired(*cells)
    means = {share: same.estimate("max_rho", (share, OURS)).mean for share in shares}
    largest = best(means, max)
    if largest is None:
        return ClaimAnswer(NO_VALUE, Verdict.UNDECIDED)
    ours = quantity(100 * largest, ".0f", " %")
    each = ", ".join(f"{mean:.2f} at {share:.0%}" for share, mean in means.items())
    on = (f"on seeds {seed_text(same.seeds)}", each)
    if not set(MIDDLE) < set(shares):
        return ClaimAnswer(ours, Verdict.UNDECIDED, details=details(on))
    verdict, nearest = _middle_or_outside(same, means)
    return ClaimAnswer(ours, verdict, details=details(on, nearest))


def _middle_or_outside(same: MatrixNumbers, means: Mapping[float, float]) -> tuple[Verdict, Detail]:
    """Whether the largest is surely in the middle or surely outside, and the nearest two."""
    outside = [share for share in means if share not in MIDDLE]

    def times(one: float, other: float) -> Factor:
        return same.factor("max_rho", of=(one, OURS), over=(other, OURS))

    verdict = Verdict.UNDECIDED
    if any(all(times(share, middle).above for middle in MIDDLE) for share in outside):
        verdict = Verdict.FAILS
    elif any(all(times(middle, share).above for share in outside) for middle in MIDDLE):
        verdict = Verdict.HOLDS
    inner, outer = (max(some, key=means.__getitem__) for some in (MIDDLE, outside))
    return verdict, (
        f"that at {outer:.0%} over that at {inner:.0%}",
        times(outer, inner).shown.text,
    )


CLAIMS: tuple[Claim[MatrixNumbers], ...] = (
    *(
        Claim(
            other,
            f"100 % network-intensive: max rho, {other} over ours",
            quantity(paper, "g", "x"),
            ratio("max_rho", of=(ALL, other), over=(ALL, EITHER), judge=above(paper),
                  details=partial(_by_reference, other=other)),
        )
        for other, paper in FACTORS.items()
    ),
    Claim(
        "gpu-time",
        "100 % network-intensive: GPU time against Gandiva's",
        Quantity("-8.1 %", -8.1),
        ratio("gpu_hours", of=(ALL, EITHER), over=(ALL, "gandiva"), judge=below(1 - 0.081),
              percent=True),
        "GPU time against Gandiva's",
    ),
    Claim(
        "excess",
        "Our bar: GPU time above the bare work, over Gandiva's",
        Quantity(f"<= {MOST_EXCESS:g}x (ours)"),
        _excess,
        "GPU time above the bare work",
    ),
    Claim(
        "worst-share",
        "The share with the largest max rho",
        Quantity("40-60 %"),
        _worst,
        "The share with the largest max rho",
    ),
)  # fmt: skip


def study(results: Results) -> Findings:
    """Compare shares of network-intensive apps."""
    return sweep_findings(
        matrix(results).measure(results, METRICS),
        CLAIMS,
        METRICS,
        name="network",
        key="share",
        title="W2",
        caption="W2 on sim256: against the share of network-intensive apps",
        policies=POLICIES,
        shown=("max_rho", "max_rho_ref", "over_work"),
        axis="share of network-intensive apps",
        log=("max_rho_ref",),
    )


EXPERIMENT = Experiment(
    "E7",
    "Network-intensive apps",
    "With only network-intensive apps max rho is 1.24x, 2.04x, 1.72x and 1.77x better than "
    "Gandiva's, SLAQ's, Tiresias' and Optimus', and GPU time 8.1 % below Gandiva's; max rho is "
    "worst at 40-60 %.",
    study,
    plan,
    literal=lambda _: (),  # four times the GPUs and apps: such a run takes about an hour
    module=__name__,
)
