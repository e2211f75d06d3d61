"""E9: one liar among eight identical apps, only one of which can have a machine to itself."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from themis.evaluation.claims import Claim, ClaimAnswer, Quantity, Verdict, check, details, quantity
from themis.evaluation.comparisons import FEWEST, best, with_seeds
from themis.evaluation.experiment import (
    REPORT_SEEDS,
    Experiment,
    Figure,
    Findings,
    Results,
    Row,
    number_table,
)
from themis.evaluation.figures.charts import ChartLine, Sweep, plot_sweeps
from themis.evaluation.metrics import LITERAL, OURS
from themis.evaluation.provenance import seed_text
from themis.evaluation.run_matrix import plain
from themis.sim.compare import Estimate, estimate
from themis.sim.config import RunConfig, allowed_keys
from themis.sim.figures.plot_style import Drawing
from themis.sim.workloads import TRUTH_APPS

VALUES = (0, 10, 20, 34, 50, 75, 100)
QUICK_VALUES = (0, 34, 100)
TURN = 34
"""Beyond this many per cent the paper's liar loses."""
LIAR = "truth-01"
CLUSTER = "truth64"

MOST_SEEDS = 300
STEP = len(REPORT_SEEDS)
NARROW = 0.005
"""Seeds are added until the half width of every interval of the gain is at most this."""
GAIN = 0.01
"""The bar: no lie may gain more."""
SHARP = 0.05
"""A smaller loss is not sharp."""

AUDIT_OFF: dict[str, object] = {"audit_tolerance": 0.0}
"""Options that switch the audit of claimed slowdowns off, where the policy has one."""


@dataclass(frozen=True, slots=True)
class LyingCase:
    """A policy, its f, and the way of lying."""

    policy: str
    f: float
    lie: str
    precise: bool = False
    """Whether seeds are added until its intervals are narrow."""

    @property
    def name(self) -> str:
        """The case in a figure."""
        lie = "spread rows worse" if self.lie == "spread" else "dense rows better"
        return f"{self.policy}, f = {self.f:g}, {lie}"


MAIN = LyingCase(OURS, 0.8, "spread", precise=True)
DENSE = LyingCase(OURS, 0.8, "dense", precise=True)
PRINTED = LyingCase(LITERAL, 0.8, "spread")
OPEN = LyingCase(OURS, 0.0, "spread")
PRINTED_OPEN = LyingCase(LITERAL, 0.0, "spread")
CASES = (MAIN, DENSE, PRINTED, OPEN, PRINTED_OPEN)

Gains = Mapping[LyingCase, Mapping[int, Estimate]]
"""By case and by the per cent that the liar overstates."""


def run_of(case: LyingCase, percent: int, seed: int) -> RunConfig:
    """All apps honest at 0 per cent, else one app that overstates by this much."""
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
    """How long the app took that lies in other runs, in seconds; None if the run is missing."""
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
    """The seeds of a case; a precise one gets more until its intervals are narrow."""
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
    configs = (run_of(case, percent, seed) for seed in seeds for percent in values(results))
    return all(repr(config) in results.memo or results.has(config) for config in configs)


def plan(results: Results) -> Iterable[RunConfig]:
    """Every case at every size of the lie."""
    configs = (
        run_of(case, percent, seed)
        for case in CASES
        for seed in seeds_of(results, case)
        for percent in values(results)
    )
    return list({repr(config): config for config in configs}.values())


def _percent(found: Estimate) -> Quantity:
    mean, half = 100 * found.mean, found.half
    if half is None:
        return quantity(mean, "+.1f", " %")
    return quantity(mean, "+.1f", " %", mean - 100 * half, mean + 100 * half, limit=0.0)


def _best_lie(gains: Gains, case: LyingCase) -> Estimate:
    """The gain of the lie that pays best."""
    at = best({x: item.mean for x, item in gains[case].items() if x}, max)
    return gains[case][max(gains[case]) if at is None else at]


def judge(found: Iterable[Estimate]) -> Verdict:
    """Whether no lie gains more than the bar allows."""
    seen = list(found)
    if any(item.half is None or item.runs < FEWEST for item in seen):
        return Verdict.UNDECIDED
    if any(item.mean - (item.half or 0.0) > GAIN for item in seen):
        return Verdict.FAILS
    if all(item.mean <= GAIN and (item.half or 0.0) <= NARROW for item in seen):
        return Verdict.HOLDS
    return Verdict.UNDECIDED


def _no_gain(gains: Gains, case: LyingCase, literal: LyingCase | None) -> ClaimAnswer:
    ours = _best_lie(gains, case)
    verdict = judge(item for x, item in gains[case].items() if x)
    if literal is None:
        return ClaimAnswer(_percent(ours), verdict)
    most = _best_lie(gains, literal)
    return ClaimAnswer(_percent(ours), verdict, with_seeds(_percent(most), most.runs, ours.runs))


def _loss(gains: Gains) -> ClaimAnswer:
    """The gain of the largest lie; all beyond the turn must surely lose, and sharply."""
    beyond = [item for x, item in gains[MAIN].items() if x > TURN]
    sure = all(item.half is not None and item.mean + item.half < 0 for item in beyond)
    sharp = all(item.mean <= -SHARP for item in beyond)
    verdict = Verdict.HOLDS if sure and sharp else Verdict.PARTLY if sure else Verdict.FAILS
    if any(item.half is None or item.runs < FEWEST for item in beyond):
        verdict = Verdict.UNDECIDED
    ours, literal = (gains[case][max(gains[case])] for case in (MAIN, PRINTED))
    smallest = min(x for x in gains[MAIN] if x)
    return ClaimAnswer(
        _percent(ours),
        verdict,
        with_seeds(_percent(literal), literal.runs, ours.runs),
        details((f"gain of the smallest lie, {smallest} %", _percent(gains[MAIN][smallest]))),
    )


NO_GAIN = Quantity("no gain")
CLAIMS: tuple[Claim[Gains], ...] = (
    Claim(
        "spread",
        "f = 0.8: overstating S of spread rows",
        NO_GAIN,
        partial(_no_gain, case=MAIN, literal=PRINTED),
        "f = 0.8",
    ),
    Claim(
        "dense",
        "f = 0.8: understating S of dense rows",
        NO_GAIN,
        partial(_no_gain, case=DENSE, literal=None),
        "f = 0.8",
    ),
    Claim("loss", f"Lies beyond {TURN} % lose", Quantity("a sharp loss"), _loss, "Large lies"),
    Claim(
        "all-bid",
        "f = 0: overstating S of spread rows",
        NO_GAIN,
        partial(_no_gain, case=OPEN, literal=PRINTED_OPEN),
        "f = 0",
    ),
)


def _figure(gains: Gains, shown: tuple[LyingCase, ...]) -> Drawing:
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
    return plot_sweeps("overstated by, %", list(gains[MAIN]), [sweep])


def study(results: Results) -> Findings:
    """The gain of the liar."""
    gains: dict[LyingCase, dict[int, Estimate]] = {}
    means: list[Row] = []
    runs: list[Row] = []
    for case in CASES:
        seeds = seeds_of(results, case)
        gains[case] = {x: gain(results, case, x, seeds) for x in values(results)}
        for x, item in gains[case].items():
            row = (case.policy, case.f, case.lie, x)
            each = {seed: completion(results, run_of(case, x, seed)) for seed in seeds}
            finished = {seed: seconds for seed, seconds in each.items() if seconds is not None}
            have, asked = seed_text(finished) or "none", seed_text(seeds)
            named = have if have == asked else f"{have} of {asked}"
            means.append((*row, item.mean, item.half, named))
            runs += [(*row, *pair) for pair in finished.items()]
    head = {"policy": "", "f": "g", "lie": "", "overstated %": ""}
    title = "Gain of the liar: honest over lying completion time, minus 1"
    columns = {**head, "gain": "+.2%", "half width": ".2%", "seeds": ""}
    figures = (
        Figure(
            "gain",
            "Gain of the liar at f = 0.8, mean over seeds with 95 % interval.",
            partial(_figure, gains, (MAIN, DENSE, PRINTED)),
        ),
        Figure(
            "gain_all_bid",
            "The same at f = 0, where all apps bid.",
            partial(_figure, gains, (OPEN, PRINTED_OPEN)),
        ),
    )
    return Findings(
        check(CLAIMS, gains),
        (
            number_table("gains", title, columns, means),
            number_table("runs", "Every run", (*head, "seed", "completion_s"), runs, shown=False),
        ),
        figures,
    )


EXPERIMENT = Experiment(
    "E9",
    "One liar",
    "Overstating how much being spread costs brings nothing while the truthful apps do better, "
    "and a sharp loss beyond 34 %.",
    study,
    plan,
    literal=lambda _: REPORT_SEEDS,  # a run takes a second
    grows="up to ten times as many in all",
    module=__name__,
)
