"""E9: one liar among eight identical apps, only one of which can have a machine to itself."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from themis.evaluation.comparisons import FEWEST, beside, best
from themis.evaluation.experiment import (
    LITERAL,
    NOTHING,
    OURS,
    REPORT_SEEDS,
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
    told,
)
from themis.evaluation.report.charts import ChartLine, Sweep, plot_sweeps
from themis.evaluation.report.provenance import seed_text
from themis.evaluation.run_matrix import plain
from themis.sim.compare import Estimate, estimate
from themis.sim.config import RunConfig, allowed_keys
from themis.sim.figures.plot_style import Drawing
from themis.sim.workloads import TRUTH_APPS

VALUES = (0, 10, 20, 34, 50, 75, 100)
QUICK_VALUES = (0, 34, 100)
TURN = 34
"""Beyond so many per cent the paper's liar loses."""
LIAR = "truth-01"
CLUSTER = "truth64"

MOST_SEEDS = 300
STEP = len(REPORT_SEEDS)
NARROW = 0.005
"""Seeds are added until the half width of every interval of the gain is at most this."""
GAIN = 0.01
"""The bar: no lie may gain more."""

SHARP = 0.05
"""A loss of less is not sharp."""

AUDIT_OFF: dict[str, object] = {"audit_tolerance": 0.0}
"""Options that switch the audit of claimed slowdowns off, where the policy has one."""


@dataclass(frozen=True, slots=True)
class LyingCase:
    """A policy, its f, and the way of lying."""

    policy: str
    f: float
    lie: str
    precise: bool = False
    """Whether it is worth as many seeds as make the interval narrow."""

    @property
    def name(self) -> str:
        """For people."""
        lie = "spread rows worse" if self.lie == "spread" else "dense rows better"
        return f"{self.policy}, f = {self.f:g}, {lie}"


MAIN = LyingCase(OURS, 0.8, "spread", precise=True)
DENSE = LyingCase(OURS, 0.8, "dense", precise=True)
PRINTED = LyingCase(LITERAL, 0.8, "spread")
OPEN = LyingCase(OURS, 0.0, "spread")
PRINTED_OPEN = LyingCase(LITERAL, 0.0, "spread")
CASES = (MAIN, DENSE, PRINTED, OPEN, PRINTED_OPEN)


def run_of(case: LyingCase, percent: int, seed: int) -> RunConfig:
    """Everybody honest at 0 per cent, else one app that overstates by so much."""
    options: dict[str, object] = {"f": case.f}
    known = allowed_keys(case.policy, "truth")
    options |= {key: value for key, value in AUDIT_OFF.items() if key in known}
    if percent:
        options |= {"liar": LIAR, "lie": case.lie, "lie_factor": 1.0 + percent / 100}
    return plain(RunConfig(CLUSTER, 1, "truth", TRUTH_APPS, seed, case.policy, None, options))


def values(results: Results) -> tuple[int, ...]:
    """How much the liar overstates, in per cent."""
    return QUICK_VALUES if results.scope.quick else VALUES


def completion(results: Results, config: RunConfig) -> float | None:
    """Seconds that the liar took, or would have taken; None if the run is not there."""
    key = repr(config)
    if key not in results.memo:
        record = results.find(config)
        if record is None:
            return None
        results.memo[key] = next(app.completion for app in record.apps if app.app == LIAR)
    return results.memo[key]


def gain(results: Results, case: LyingCase, percent: int, seeds: Iterable[int]) -> Estimate:
    """Honest over lying completion time, minus one: mean over seeds that have both runs."""
    pairs = [
        (
            completion(results, run_of(case, 0, seed)),
            completion(results, run_of(case, percent, seed)),
        )
        for seed in seeds
    ]
    gains = [honest / lying - 1 for honest, lying in pairs if honest and lying]
    return estimate(gains) if gains else Estimate(math.nan, None, 0)


def seeds_of(results: Results, case: LyingCase) -> tuple[int, ...]:
    """The seeds of a case: more of them until its intervals are narrow, where that is wanted."""
    scope = results.scope
    seeds = scope.seeds_of(REPORT_SEEDS, quick=2)
    if scope.seeds or scope.quick or not case.precise:
        return seeds
    while len(seeds) < MOST_SEEDS and _finished(results, case, seeds):
        widest = max(
            gain(results, case, percent, seeds).half or 0.0 for percent in values(results)[1:]
        )
        if widest <= NARROW:
            break
        seeds = (*seeds, *range(seeds[-1] + 1, seeds[-1] + 1 + STEP))
    return seeds


def _finished(results: Results, case: LyingCase, seeds: Iterable[int]) -> bool:
    return all(
        repr(config) in results.memo or results.has(config)
        for seed in seeds
        for percent in values(results)
        for config in (run_of(case, percent, seed),)
    )


def plan(results: Results) -> Iterable[RunConfig]:
    """Every case at every size of the lie."""
    configs = (
        run_of(case, percent, seed)
        for case in CASES
        for seed in seeds_of(results, case)
        for percent in values(results)
    )
    return list({repr(config): config for config in configs}.values())


Gains = dict[LyingCase, dict[int, Estimate]]


def _percent(found: Estimate) -> Told:
    mean, half = 100 * found.mean, found.half
    if half is None:
        return told(mean, "+.1f", " %")
    return told(mean, "+.1f", " %", mean - 100 * half, mean + 100 * half, limit=0.0)


def _most(gains: Gains, case: LyingCase) -> Estimate:
    """The lie that pays best."""
    at = best({x: item.mean for x, item in gains[case].items() if x}, max)
    return gains[case][max(gains[case]) if at is None else at]


def judge(found: Iterable[Estimate]) -> Verdict:
    """Whether no lie gains more than the bar allows."""
    seen = list(found)
    if any(item.half is None or item.runs < FEWEST for item in seen):
        return Verdict.OPEN
    if any(item.mean - (item.half or 0.0) > GAIN for item in seen):
        return Verdict.FAILS
    if all(item.mean <= GAIN and (item.half or 0.0) <= NARROW for item in seen):
        return Verdict.HOLDS
    return Verdict.OPEN


def _no_gain(
    gains: Gains, case: LyingCase, literal: LyingCase | None, statement: str, why: str
) -> Claim:
    ours = _most(gains, case)
    printed = NOTHING
    if literal:
        most = _most(gains, literal)
        printed = beside(_percent(most), most.runs, ours.runs)
    return Claim(
        statement,
        Told("no gain"),
        printed,
        _percent(ours),
        judge(item for x, item in gains[case].items() if x),
        why,
    )


def _loss(gains: Gains) -> Claim:
    beyond = [item for x, item in gains[MAIN].items() if x > TURN]
    sure = all(item.half is not None and item.mean + item.half < 0 for item in beyond)
    few = any(item.half is None or item.runs < FEWEST for item in beyond)
    ours, literal = (gains[case][max(gains[case])] for case in (MAIN, PRINTED))
    sharp = all(item.mean <= -SHARP for item in beyond)
    verdict = Verdict.HOLDS if sure and sharp else Verdict.PARTLY if sure else Verdict.FAILS
    smallest = min(x for x in gains[MAIN] if x)
    return Claim(
        f"Lies beyond {TURN} % lose",
        Told("a sharp loss"),
        beside(_percent(literal), literal.runs, ours.runs),
        _percent(ours),
        Verdict.OPEN if few else verdict,
        f"Shown is the gain of the largest lie; judged are all beyond: they must surely lose, and "
        f"{SHARP:.0%} at least for the loss to be sharp. The smallest lie, {smallest} %, brings "
        f"{_percent(gains[MAIN][smallest]).text}. Whoever overstates what being spread costs bids "
        "less for what it will get anyway.",
    )


def _figure(gains: Gains, shown: tuple[LyingCase, ...]) -> Drawing:
    xs = list(gains[MAIN])
    lines = [
        ChartLine(
            case.name,
            [
                Estimate(100 * item.mean, 100 * item.half if item.half else None, item.runs)
                for item in gains[case].values()
            ],
        )
        for case in shown
    ]
    sweep = Sweep("gain of the liar, %", lines, {"paper's turn": float(TURN)}, from_zero=False)
    return plot_sweeps("overstated by, %", xs, [sweep])


def _seeds_text(there: Iterable[int], asked: Iterable[int]) -> str:
    found, wanted = seed_text(there) or "none", seed_text(asked)
    return found if found == wanted else f"{found} of {wanted}"


def study(results: Results) -> Findings:
    """What the liar gains."""
    gains: Gains = {}
    rows: list[Row] = []
    each: list[Row] = []
    for case in CASES:
        seeds = seeds_of(results, case)
        gains[case] = {x: gain(results, case, x, seeds) for x in values(results)}
        for x, item in gains[case].items():
            runs = {seed: completion(results, run_of(case, x, seed)) for seed in seeds}
            there = {seed: seconds for seed, seconds in runs.items() if seconds is not None}
            named = _seeds_text(there, seeds)
            rows.append((case.policy, case.f, case.lie, x, item.mean, item.half, named))
            each += [(case.policy, case.f, case.lie, x, *pair) for pair in there.items()]
    head = (Column("policy"), Column("f", "g"), Column("lie"), Column("overstated %"))
    one_of_two = "With f = 0.8 two of eight apps are invited, so most places are dealt, not won."
    return Findings(
        claims=(
            _no_gain(gains, MAIN, PRINTED, "f = 0.8: overstating S of spread rows", one_of_two),
            _no_gain(gains, DENSE, None, "f = 0.8: understating S of dense rows", one_of_two),
            _loss(gains),
            _no_gain(
                gains, OPEN, PRINTED_OPEN, "f = 0: overstating S of spread rows",
                "All eight bid for the one good machine, once for each lease. The mechanism is "
                "truthful for one auction of divisible goods; GPUs are whole and auctions repeat.",
            ),
        ),
        tables=(
            NumberTable(
                "gains", "Gain of the liar: honest over lying completion time, minus 1",
                (*head, Column("gain", "+.2%"), Column("half width", ".2%"), Column("seeds")),
                tuple(rows),
            ),
            NumberTable(
                "runs", "Every run",
                (*head, Column("seed"), Column("completion_s")), tuple(each), shown=False,
            ),
        ),
        figures=(
            Figure("gain", "Gain of the liar at f = 0.8, mean over seeds with 95 % interval.",
                   partial(_figure, gains, (MAIN, DENSE, PRINTED))),
            Figure("gain_all_bid", "The same at f = 0, where everybody bids.",
                   partial(_figure, gains, (OPEN, PRINTED_OPEN))),
        ),
        notes=(
            (f"{TRUTH_APPS} identical apps of one job (VGG16, 8 GPUs) on {CLUSTER}; shown in the "
            "claims is the lie that pays best. The audit of claimed slowdowns is off here. "
            f"Seeds are added, up to {MOST_SEEDS}, until half widths are at most "
            f"{100 * NARROW:g} % (f = 0.8, themis)."),
        ),
    )  # fmt: skip


EXPERIMENT = Experiment(
    "E9",
    "One liar",
    "Overstating how much being spread costs brings nothing while the truthful apps do better, "
    "and a sharp loss beyond 34 %.",
    study,
    plan,
    literal=lambda _: REPORT_SEEDS,  # a run takes a second
    grows="up to ten times as many in all",
)
