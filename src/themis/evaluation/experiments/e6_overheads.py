"""E6: what scheduling costs: bids, auctions, changes of containers, checkpoints."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter

from themis.evaluation.claims import (
    NO_VALUE,
    Claim,
    ClaimAnswer,
    Quantity,
    Verdict,
    check,
    quantity,
)
from themis.evaluation.comparisons import FEWEST
from themis.evaluation.experiment import Experiment, Figure, Findings, Results, Row, number_table
from themis.evaluation.figures.charts import Bars, plot_bars
from themis.evaluation.macro_benchmark import WORKLOADS, matrix
from themis.evaluation.metrics import LITERAL, OURS
from themis.evaluation.provenance import seed_text
from themis.sim.compare import estimate
from themis.sim.config import RunConfig
from themis.sim.figures.plot_style import Drawing
from themis.sim.metrics import quantile
from themis.sim.modelled_jobs import JobCosts
from themis.sim.runs.run_timing import Timing

POLICIES = (OURS, LITERAL)
MILLI = 1000.0
PAPER = {"bid": (29.0, 334.0), "auction": (354.0, 1398.0)}
"""Milliseconds: median and 95th percentile."""
OVERHEAD = (0.2, 2.0)
"""Per cent of an app's duration."""
PARTS = {"median": "median", "95th percentile": "p95"}
"""Attributes of a `Span`, by their names in the figure."""

Costs = Mapping[str, Sequence[tuple[Timing, float]]]
"""By policy: what each run cost, and the sum of its apps' durations in seconds."""


def plan(results: Results) -> Iterable[RunConfig]:
    """Those of E1 that hold auctions."""
    return [config for policy in POLICIES for config in _runs(results, policy)]


def _runs(results: Results, policy: str) -> list[RunConfig]:
    cells = matrix(results)
    return [config for work in WORKLOADS for config in cells.runs((work, policy))]


def _costs(results: Results) -> Costs:
    """What the runs cost, where that was kept."""
    costs: dict[str, list[tuple[Timing, float]]] = {}
    for policy in POLICIES:
        costs[policy] = []
        for config in _runs(results, policy):
            timing = results.store.timing(config)
            if timing is not None:
                record = results.find(config)
                durations = () if record is None else (app.completion for app in record.apps)
                costs[policy].append((timing, math.fsum(durations)))
    return costs


def typical(costs: Iterable[tuple[Timing, float]], step: str, part: str) -> float:
    """The median over runs of a part of a step's times, in milliseconds."""
    pick = attrgetter(part)
    spans = (timing.spans for timing, _ in costs)
    return quantile([MILLI * pick(each[step]) for each in spans if step in each], 0.5)


def _pair(median: float, high: float) -> Quantity:
    if not math.isfinite(median):
        return NO_VALUE
    return Quantity(f"{_ms(median)} ({_ms(high)}) ms", median)


def _ms(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _enough(costs: Costs) -> bool:
    """Whether these runs are of enough seeds for a verdict."""
    return len({timing.config.seed for timing, _ in costs[OURS]}) >= FEWEST


def _time(costs: Costs, step: str) -> ClaimAnswer:
    found = {
        policy: (typical(each, step, "median"), typical(each, step, "p95"))
        for policy, each in costs.items()
    }
    ours, (median, high) = found[OURS], PAPER[step]
    verdict = Verdict.UNDECIDED
    if math.isfinite(ours[0]) and _enough(costs):
        verdict = Verdict.HOLDS if ours[0] <= median and ours[1] <= high else Verdict.FAILS
    return ClaimAnswer(_pair(*ours), verdict, _pair(*found[LITERAL]))


def _share(timing: Timing, durations: float) -> float:
    """All bids and auctions of a run, each counted once, in per cent of its apps' durations."""
    total = sum(timing.spans[step].total for step in PAPER if step in timing.spans)
    return 100.0 * total / durations


def _overhead(costs: Costs) -> ClaimAnswer:
    means = {}
    for policy, each in costs.items():
        shares = [_share(timing, durations) for timing, durations in each if durations]
        means[policy] = estimate(shares).mean if shares else math.nan
    ours, verdict = means[OURS], Verdict.UNDECIDED
    if math.isfinite(ours) and _enough(costs):
        verdict = Verdict.HOLDS if ours <= OVERHEAD[0] else Verdict.PARTLY
        verdict = Verdict.FAILS if ours > OVERHEAD[1] else verdict
    return ClaimAnswer(_percent(ours), verdict, _percent(means[LITERAL]))


def _percent(value: float) -> Quantity:
    """With two significant digits, however small it is."""
    if not math.isfinite(value) or value <= 0.0:
        return quantity(value, "g", " %")
    return quantity(value, f".{max(1, 1 - math.floor(math.log10(value)))}f", " %")


def _assumed(_: Costs, text: str) -> ClaimAnswer:
    return ClaimAnswer(Quantity(text), Verdict.BY_CONSTRUCTION, printed=None)


_MODEL = JobCosts()
CLAIMS: tuple[Claim[Costs], ...] = (
    Claim(
        "bid",
        "Time of a bid: median (95th percentile)",
        _pair(*PAPER["bid"]),
        partial(_time, step="bid"),
        "Time of a bid",
    ),
    Claim(
        "auction",
        "Time of an auction: median (95th percentile)",
        _pair(*PAPER["auction"]),
        partial(_time, step="auction"),
        "Time of an auction",
    ),
    Claim(
        "overhead",
        "Bids and auctions, of the apps' duration",
        Quantity("0.2 (2) %", OVERHEAD[0]),
        _overhead,
        "Bids and auctions, of the apps' duration",
    ),
    Claim(
        "containers",
        "A change of containers: median (95th percentile)",
        Quantity("35 (50) s"),
        partial(_assumed, text=f"{_MODEL.restart_median:g} ({_MODEL.restart_p95:g}) s"),
        "Containers and checkpoints",
    ),
    Claim(
        "checkpoint",
        "A checkpoint",
        Quantity("5-10 s"),
        partial(_assumed, text=f"{_MODEL.checkpoint_low:g}-{_MODEL.checkpoint_high:g} s"),
        "Containers and checkpoints",
    ),
)


def _bars(costs: Costs) -> Drawing:
    shown = {policy: each for policy, each in costs.items() if each}
    bars = {
        step: Bars(
            list(shown),
            {
                name: [typical(each, step, part) for each in shown.values()]
                for name, part in PARTS.items()
            },
        )
        for step in PAPER
    }
    return plot_bars("", "milliseconds of processor time", bars)


def study(results: Results) -> Findings:
    """Read what the runs cost."""
    costs = _costs(results)
    rows: list[Row] = []
    for policy, each in costs.items():
        for work in WORKLOADS:
            here = [one for one in each if one[0].config.workload == work]
            for step in PAPER:
                spans = [one.spans[step] for one, _ in here if step in one.spans]
                if spans:
                    times = (typical(here, step, part) for part in ("median", "p95", "longest"))
                    rows.append((policy, work, step, sum(one.count for one in spans), *times))
    columns = dict.fromkeys(("policy", "workload", "step", "count"), "")
    columns |= dict.fromkeys(("median", "p95", "longest"), ".3g")
    title = f"Milliseconds of processor time, medians over runs ({_seeds(results, costs)})"
    return Findings(
        check(CLAIMS, costs),
        (number_table("times", title, columns, rows),),
        (Figure("times", "Bids and auctions: medians over runs.", partial(_bars, costs)),),
        tuple(_missing(results, costs)),
    )


def _missing(results: Results, costs: Costs) -> Iterable[str]:
    """Which times are missing, and why."""
    for policy, each in costs.items():
        finished = sum(map(results.has, _runs(results, policy)))
        if not finished:
            yield f"{policy}: not run yet, so there are no times of it."
        elif finished > len(each):
            yield f"{policy}: {finished - len(each)} of {finished} runs came without their times."


def _seeds(results: Results, costs: Costs) -> str:
    """Of which seeds the times of each policy are, of those asked for."""
    asked = seed_text(matrix(results).seeds)
    found = {
        policy: seed_text(timing.config.seed for timing, _ in each) or "none"
        for policy, each in costs.items()
    }
    if set(found.values()) == {asked}:
        return f"seeds {asked}"
    return "; ".join(f"{policy}: seeds {seeds} of {asked}" for policy, seeds in found.items())


EXPERIMENT = Experiment(
    "E6",
    "What scheduling costs",
    "A bid takes 29 (334) ms, an auction 354 (1398) ms, a change of containers 35 (50) s and a "
    "checkpoint 5-10 s: 0.2 (2) % of an app's duration.",
    study,
    plan,
    module=__name__,
)
