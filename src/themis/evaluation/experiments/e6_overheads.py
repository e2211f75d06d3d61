"""E6: what scheduling costs: bids, auctions, changes of containers, checkpoints."""

import math
from collections.abc import Callable, Iterable

from themis.evaluation.comparisons import FEWEST
from themis.evaluation.experiment import (
    LITERAL,
    NOTHING,
    OURS,
    Claim,
    Column,
    Experiment,
    Figure,
    Findings,
    NumberTable,
    Results,
    Row,
    Told,
    Verdict,
    alike,
    told,
)
from themis.evaluation.macro_benchmark import WORKLOADS, matrix
from themis.evaluation.report.charts import Bars, plot_bars
from themis.evaluation.report.provenance import seed_text
from themis.sim.compare import estimate
from themis.sim.config import RunConfig
from themis.sim.figures.plot_style import Drawing
from themis.sim.metrics import quantile
from themis.sim.modelled_jobs import JobCosts as Modelled
from themis.sim.runs.run_timing import Span, Timing

POLICIES = (OURS, LITERAL)
MILLI = 1000.0
PAPER = {"bid": (29.0, 334.0), "auction": (354.0, 1398.0)}
"""Milliseconds: median and 95th percentile."""
OVERHEAD = (0.2, 2.0)
"""Per cent of an app's duration."""


def plan(results: Results) -> Iterable[RunConfig]:
    """Those of E1 that hold auctions."""
    cells = matrix(results)
    return [
        config for work in WORKLOADS for name in POLICIES for config in cells.runs((work, name))
    ]


def timings(results: Results, policy: str) -> list[Timing]:
    """What the runs of a policy cost, where that was kept."""
    cells = matrix(results)
    found = [
        results.store.timing(config) for work in WORKLOADS for config in cells.runs((work, policy))
    ]
    return [timing for timing in found if timing is not None]


def typical(costs: Iterable[Timing], what: str, part: Callable[[Span], float]) -> float:
    """The median over runs, in milliseconds."""
    values = [MILLI * part(timing.spans[what]) for timing in costs if what in timing.spans]
    return quantile(values, 0.5)


def _pair(median: float, high: float) -> Told:
    return Told(f"{_ms(median)} ({_ms(high)}) ms", median) if math.isfinite(median) else NOTHING


def _ms(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _time(costs: dict[str, list[Timing]], what: str, why: str) -> Claim:
    median, high = PAPER[what]

    def found(policy: str) -> tuple[float, float]:
        return (
            typical(costs[policy], what, lambda span: span.median),
            typical(costs[policy], what, lambda span: span.p95),
        )

    ours = found(OURS)
    verdict = Verdict.HOLDS if ours[0] <= median and ours[1] <= high else Verdict.FAILS
    if not math.isfinite(ours[0]) or few(costs[OURS]):
        verdict = Verdict.OPEN
    return Claim(
        f"Time of {'a bid' if what == 'bid' else 'an auction'}: median (95th percentile)",
        _pair(median, high),
        _pair(*found(LITERAL)),
        _pair(*ours),
        verdict,
        why,
    )


def few(costs: Iterable[Timing]) -> bool:
    """Whether these runs are of too few seeds for a verdict."""
    return len({timing.config.seed for timing in costs}) < FEWEST


def overheads(results: Results, policy: str) -> list[float]:
    """For each run all its bids and auctions, in per cent of the sum of its apps' durations.

    Each is counted once, however many apps take part in an auction: apps train meanwhile.
    """
    cells = matrix(results)
    shares = []
    for work in WORKLOADS:
        for config in cells.runs((work, policy)):
            timing = results.store.timing(config)
            if timing is None:
                continue
            record = results.find(config)
            if record is None:
                continue
            spans = timing.spans
            total = sum(spans[what].total for what in ("bid", "auction") if what in spans)
            lived = sum(app.completion for app in record.apps)
            shares.append(100.0 * total / lived if lived else float("nan"))
    return shares


def _overhead(results: Results, costs: dict[str, list[Timing]]) -> Claim:
    means = {}
    for policy in POLICIES:
        shares = overheads(results, policy)
        means[policy] = estimate(shares).mean if shares else float("nan")
    ours = means[OURS]
    verdict = Verdict.OPEN
    if math.isfinite(ours) and not few(costs[OURS]):
        verdict = Verdict.HOLDS if ours <= OVERHEAD[0] else Verdict.PARTLY
        verdict = Verdict.FAILS if ours > OVERHEAD[1] else verdict
    return Claim(
        "Bids and auctions, of the apps' duration",
        Told("0.2 (2) %", OVERHEAD[0]),
        _percent(means[LITERAL]),
        _percent(ours),
        verdict,
        "All bids and auctions of a run, each counted once, over the sum of its apps' durations. "
        "Rounds run ahead of "
        "the beat, so apps train meanwhile; changes of hands are in E2's columns restart and "
        "checkpoint.",
    )


def _percent(value: float) -> Told:
    """With two digits that say something, however small it is."""
    if not math.isfinite(value) or value <= 0.0:
        return told(value, "g", " %")
    return told(value, f".{max(1, 1 - math.floor(math.log10(value)))}f", " %")


def _given(statement: str, paper: str, ours: str) -> Claim:
    why = "Taken from the paper into the simulator; E17 measures what Themis itself takes."
    return alike(statement, Told(paper), Told(ours), Verdict.GIVEN, why)


def _bars(costs: dict[str, list[Timing]]) -> Drawing:
    def heights(what: str, part: Callable[[Span], float]) -> list[float]:
        return [typical(costs[policy], what, part) for policy in there]

    there = [policy for policy in POLICIES if costs[policy]]

    shown = {
        what: Bars(
            there,
            {
                "median": heights(what, lambda span: span.median),
                "95th percentile": heights(what, lambda span: span.p95),
            },
        )
        for what in PAPER
    }
    return plot_bars("", "milliseconds of processor time", shown)


def study(results: Results) -> Findings:
    """Read what the runs cost."""
    costs = {policy: timings(results, policy) for policy in POLICIES}
    rows: list[Row] = [
        (policy, work, what, sum(span.count for span in spans),
         *(quantile([MILLI * pick(span) for span in spans], 0.5) for pick in _PICKS))
        for policy in POLICIES
        for work in WORKLOADS
        for what in PAPER
        if (spans := [timing.spans[what] for timing in costs[policy]
                      if timing.config.workload == work and what in timing.spans])
    ]  # fmt: skip
    model = Modelled()
    return Findings(
        claims=(
            _time(costs, "bid", "Processor time of one core; the paper's machine was another one."),
            _time(
                costs, "auction",
                "With all that payments need: the best allocation without each winner as well.",
            ),
            _overhead(results, costs),
            _given(
                "A change of containers: median (95th percentile)", "35 (50) s",
                f"{model.restart_median:g} ({model.restart_p95:g}) s",
            ),
            _given(
                "A checkpoint", "5-10 s", f"{model.checkpoint_low:g}-{model.checkpoint_high:g} s"
            ),
        ),
        tables=(
            NumberTable(
                "times",
                f"Milliseconds of processor time, medians over runs ({_seeds(results, costs)})",
                (Column("policy"), Column("workload"), Column("what"), Column("count"),
                 Column("median", ".3g"), Column("p95", ".3g"), Column("longest", ".3g")),
                tuple(rows),
            ),
        ),
        figures=(
            Figure("times", "Bids and auctions: medians over runs.", lambda: _bars(costs)),
        ),
        notes=(
            ("Measured while the runs of E1 were made, on the machine that made them: unlike all "
            "other numbers, these differ from machine to machine."),
            *_missing(results, costs),
        ),
    )  # fmt: skip


def _missing(results: Results, costs: dict[str, list[Timing]]) -> list[str]:
    """What there are no times of, and why."""
    notes = []
    for policy in POLICIES:
        there = sum(results.has(one) for one in plan(results) if one.policy == policy)
        if not there:
            notes.append(f"{policy}: not run yet, so there are no times of it.")
        elif there > len(costs[policy]):
            lost = there - len(costs[policy])
            notes.append(f"{policy}: {lost} of {there} runs came without their times.")
    return notes


def _seeds(results: Results, costs: dict[str, list[Timing]]) -> str:
    """Which seeds the times of each policy are of, of those asked for."""
    asked = seed_text(matrix(results).seeds)
    told = {
        policy: seed_text(timing.config.seed for timing in each) or "none"
        for policy, each in costs.items()
    }
    if set(told.values()) == {asked}:
        return f"seeds {asked}"
    return "; ".join(f"{policy}: seeds {seeds} of {asked}" for policy, seeds in told.items())


_PICKS: tuple[Callable[[Span], float], ...] = (
    lambda span: span.median,
    lambda span: span.p95,
    lambda span: span.longest,
)


EXPERIMENT = Experiment(
    "E6",
    "What scheduling costs",
    "A bid takes 29 (334) ms, an auction 354 (1398) ms, a change of containers 35 (50) s and a "
    "checkpoint 5-10 s: 0.2 (2) % of an app's duration.",
    study,
    plan,
)
