"""E16: the red team: the lie that pays best, found by search, with the defences off and on."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from themis.evaluation.claims import (
    NO_VALUE,
    OWN_BAR,
    Claim,
    ClaimAnswer,
    Verdict,
    check,
    details,
)
from themis.evaluation.comparisons import FEWEST, Factor, best
from themis.evaluation.experiment import (
    REPORT_SEEDS,
    TUNING_SEEDS,
    Experiment,
    Figure,
    Findings,
    NumberTable,
    Results,
    Row,
    number_table,
)
from themis.evaluation.figures.charts import plot_ranges
from themis.evaluation.lie_search import Axis, Family, Point, SearchEffort, SearchState, search
from themis.evaluation.metrics import OURS
from themis.sim.compare import Estimate, estimate
from themis.sim.config import RunConfig
from themis.sim.figures.plot_style import Drawing
from themis.sim.workloads import RIVALS, contender

CLUSTER = "demo16"
FINAL_SEEDS = range(REPORT_SEEDS[0], REPORT_SEEDS[0] + 120)
"""More than elsewhere: one app's completion time depends on luck, and these runs are short."""
MOST_SEEDS, NARROW = 1800, 0.01
"""A lie that could be above the bar gets more seeds, until its half width is at most NARROW."""
LIAR = str(contender())

MOST = 1.05
"""The bar: with the defences on, no lie may gain more."""
STRONG = 1.3
"""What the search must find with the defences off, or it is too weak to say anything."""

IDEAL, SPLIT = "T_id", "splitting"
FAMILIES = (
    Family("iterations left", (Axis("left", 0.2, 5.0),)),
    Family("total work", (Axis("later", 0.1, 4.0),)),
    Family(
        "S per level",
        tuple(Axis(lie, 0.25, 4.0) for lie in ("slot", "machine", "rack", "cluster")),
    ),
    Family("demand", (Axis("demand", 0.25, 4.0),)),
    Family(IDEAL, (Axis("ideal", 0.1, 4.0), Axis("serial", 0.2, 4.0))),
    Family("elapsed", (Axis("elapsed", 0.1, 20.0),)),
    Family("early submission", (Axis("early", 60.0, 3600.0),)),
    # GPUs left empty for longer are taken back: such an app would never run at all.
    Family("idling", (Axis("idle", 2.0, 55.0),)),
    Family(
        SPLIT, (Axis("split", 1.0, 8.49), Axis("left", 0.25, 4.0), Axis("demand", 0.5, 2.0))
    ),
)  # fmt: skip

TRUTH = Family("truth", ())

ON, OFF = "on", "off"
DEFENCES: Mapping[str, Mapping[str, object]] = {
    ON: {},
    OFF: {
        "inputs": "claimed",
        "fresh_tables": True,
        "audit_tolerance": 0.0,
        "added_work": "extends",
        "idle_after": 0.0,
        "bidder": "app",
    },
}
FULL, QUICK = SearchEffort(10, 50), SearchEffort(2, 3)
SHORTLIST = 12
"""This many of the best lies are tried on more seeds, so that luck on the first does not decide."""


@dataclass(frozen=True, slots=True)
class Seeds:
    """The seeds of the search and those of the result; none is for both."""

    first: tuple[int, ...]
    """Every lie is tried on these."""
    more: tuple[int, ...]
    """The best lies are tried on these, too."""
    report: tuple[int, ...]
    """The chosen lie is measured on these."""


def seeds_of(results: Results) -> Seeds:
    """Search on tuning seeds, report on the others."""
    scope = results.scope
    if scope.quick:
        report = scope.seeds or tuple(TUNING_SEEDS[-2:])
        free = [seed for seed in TUNING_SEEDS if seed not in report]
        return Seeds(tuple(free[:1]), (), report)
    report = scope.seeds or tuple(FINAL_SEEDS)
    free = [seed for seed in (*TUNING_SEEDS, *REPORT_SEEDS) if seed not in report]
    return Seeds(tuple(free[:2]), tuple(free[2:10]), report)


def effort_of(results: Results) -> SearchEffort:
    """How many lies of each family are tried."""
    return QUICK if results.scope.quick else FULL


def run_of(family: Family, point: Point, defences: str, seed: int) -> RunConfig:
    """One lie; all axes at 1 is the truth."""
    lies = [
        (axis.lie, round(value) if axis.lie == "split" else value)
        for axis, value in zip(family.axes, point, strict=True)
    ]
    lies = [(lie, value) for lie, value in lies if value != 1]
    options: dict[str, object] = {**DEFENCES[defences], "floor": False}
    if lies:
        options |= {
            "liar": LIAR,
            "lie": ",".join(lie for lie, _ in lies),
            "lie_factor": ",".join(f"{value:g}" for _, value in lies),
        }
    return RunConfig(CLUSTER, 1, "rivals", RIVALS, seed, OURS, None, options)


def honest(defences: str, seed: int) -> RunConfig:
    """The run in which no app lies."""
    return run_of(TRUTH, (), defences, seed)


def _end(results: Results, config: RunConfig) -> float | None:
    """When all parts of the liar's work were done; None while the run is missing."""
    key = repr(config)
    if key not in results.memo:
        if not results.has(config):
            return None
        mine = [
            app
            for app in results.record(config).apps
            if app.app == LIAR or app.app.startswith(f"{LIAR}-p")
        ]
        results.memo[key] = max(app.end for app in mine)
        # An early submission is measured from when the app could really begin.
        results.memo[f"{key}/arrival"] = min(app.arrival for app in mine)
    return results.memo[key]


def gain_of(
    results: Results, family: Family, point: Point, defences: str, seed: int
) -> float | None:
    """Honest over lying completion time, both from when the app could really begin."""
    truth = honest(defences, seed)
    fair, lying = _end(results, truth), _end(results, run_of(family, point, defences, seed))
    if fair is None or lying is None:
        return None
    arrival = results.memo[f"{truth!r}/arrival"]
    return (fair - arrival) / (lying - arrival)


def _gains(
    results: Results, family: Family, point: Point, defences: str, seeds: Sequence[int]
) -> list[float] | None:
    found = [gain_of(results, family, point, defences, seed) for seed in seeds]
    known = [gain for gain in found if gain is not None]
    return known if len(known) == len(found) else None


@dataclass(frozen=True, slots=True)
class FamilySearch:
    """How far the search in one family has come."""

    state: SearchState
    named: tuple[tuple[Point, tuple[int, ...]], ...]
    """Lies that were run or are to be run next, with their seeds."""
    best: Point | None = None
    """The chosen lie, once the search has ended."""
    final_seeds: tuple[int, ...] = ()
    """The seeds that it is measured on."""


def search_family(results: Results, family: Family, defences: str) -> FamilySearch:
    """Search, then try the best on more seeds, then choose."""
    seeds = seeds_of(results)

    def score(on: Sequence[int], point: Point) -> float | None:
        gains = _gains(results, family, point, defences, on)
        return None if gains is None else sum(gains) / len(gains)

    state = search(family, effort_of(results), partial(score, seeds.first))
    named = [(point, seeds.first) for point in (*state.scores, *state.wanted)]
    if state.wanted:
        return FamilySearch(state, tuple(named))
    every = (*seeds.first, *seeds.more)
    shortlist = {point: score(every, point) for point in state.best(SHORTLIST)}
    named += [(point, seeds.more) for point in shortlist]
    if None in shortlist.values():
        return FamilySearch(state, tuple(named))
    chosen = max(shortlist, key=lambda point: shortlist[point] or 0.0)
    final = final_seeds(results, family, chosen, defences)
    return FamilySearch(state, (*named, (chosen, final)), chosen, final)


def final_seeds(results: Results, family: Family, point: Point, defences: str) -> tuple[int, ...]:
    """The seeds that a lie is measured on: more of them if its interval reaches over the bar.

    They grow until the interval is narrow. If they grew until the lie is below the bar, chance
    would decide when to stop.
    """
    seeds = seeds_of(results).report
    if results.scope.quick or results.scope.seeds or defences == OFF:
        return seeds
    step, gains = len(seeds), _gains(results, family, point, defences, seeds)
    if gains is None or (found := estimate(gains)).mean + (found.half or 0.0) <= MOST:
        return seeds
    while len(seeds) < MOST_SEEDS:
        gains = _gains(results, family, point, defences, seeds)
        if gains is None or (estimate(gains).half or 0.0) <= NARROW:
            break
        seeds = (*seeds, *range(seeds[-1] + 1, seeds[-1] + 1 + step))
    return seeds


def _searches(results: Results) -> Iterator[tuple[Family, str, FamilySearch]]:
    for defences in DEFENCES:
        for family in FAMILIES:
            yield family, defences, search_family(results, family, defences)


def plan(results: Results) -> Iterable[RunConfig]:
    """The honest runs, and all lies that the searches have tried or want to try next."""
    seeds = seeds_of(results)
    configs = [
        honest(defences, seed)
        for defences in DEFENCES
        for seed in (*seeds.first, *seeds.more, *seeds.report)
    ]
    if all(map(results.has, configs)):
        for family, defences, found in _searches(results):
            for point, on in found.named:
                configs += [run_of(family, point, defences, seed) for seed in on]
                configs += [honest(defences, seed) for seed in on]
    return list({repr(config): config for config in configs}.values())


@dataclass(frozen=True, slots=True)
class BestLie:
    """The best lie of a family."""

    lie: str
    gains: Mapping[int, float]
    """By seed, on seeds that the search did not see."""
    searched: float
    """Its gain on the seeds of the search: larger, because it was chosen for that."""
    scores: Mapping[Point, float]
    """All lies that were tried."""

    @property
    def gain(self) -> Estimate:
        """Its mean."""
        return estimate(list(self.gains.values())) if self.gains else Estimate(math.nan, None, 0)

    @property
    def factor(self) -> Factor:
        """Its mean with the interval."""
        gain = self.gain
        if gain.half is None:
            return Factor(gain.mean, seeds=gain.runs)
        return Factor(gain.mean, gain.mean - gain.half, gain.mean + gain.half, gain.runs)


BestLies = Mapping[str, Mapping[str, BestLie]]
"""By family and defences."""


def _best_lie(results: Results, family: Family, defences: str, found: FamilySearch) -> BestLie:
    point, scores = found.best, found.state.scores
    if point is None:
        return BestLie("not chosen yet", {}, math.nan, scores)
    each = {seed: gain_of(results, family, point, defences, seed) for seed in found.final_seeds}
    gains = {seed: gain for seed, gain in each.items() if gain is not None}
    options = run_of(family, point, defences, 0).options
    lie = "the truth"
    if "lie" in options:
        kinds, factors = str(options["lie"]).split(","), str(options["lie_factor"]).split(",")
        lie = ", ".join(map(" ".join, zip(kinds, factors, strict=True)))
    return BestLie(lie, gains, scores[point], scores)


def _strong(lies: BestLies, family: str) -> ClaimAnswer:
    """Whether the search finds a known lie while the defences are off."""
    found = lies[family][OFF].factor
    verdict = Verdict.HOLDS if found.mean >= STRONG else Verdict.FAILS
    return ClaimAnswer(
        found.shown,
        verdict if found.seeds >= FEWEST else Verdict.UNDECIDED,
        details=details(("found", lies[family][OFF].lie)),
    )


def _closed(lies: BestLies) -> ClaimAnswer:
    """The best of all lies while the defences are on."""
    known = best({family: each[ON].gain.mean for family, each in lies.items()}, max)
    if known is None:
        return ClaimAnswer(NO_VALUE, Verdict.UNDECIDED)
    found = {family: each[ON].factor for family, each in lies.items()}
    sure = [family for family, item in found.items() if (item.low or 0.0) > MOST]
    above = [family for family, item in found.items() if (item.high or math.inf) > MOST]
    few = [family for family, item in found.items() if item.seeds < FEWEST]
    verdict = Verdict.FAILS if sure else Verdict.UNDECIDED if above or few else Verdict.HOLDS
    return ClaimAnswer(
        found[known].shown,
        verdict if found[known].seeds >= FEWEST else Verdict.UNDECIDED,
        details=details(
            (f"the best lie, by {known}", lies[known][ON].lie),
            ("not surely below the bar",
             ", ".join(f"{family} {found[family].shown.text}" for family in above) or "none"),
            ("not measured yet", ", ".join(few)),
        ),
    )  # fmt: skip


CLAIMS: tuple[Claim[BestLies], ...] = (
    *(
        Claim(
            f"strong-{family}",
            f"Defences off: the search finds a lie by {family} that gains {STRONG:g}x",
            OWN_BAR,
            partial(_strong, family=family),
            "Defences off",
        )
        for family in (IDEAL, SPLIT)
    ),
    Claim(
        "closed",
        f"Our bar: with the defences on, no lie gains more than {MOST:g}x",
        OWN_BAR,
        _closed,
        "Defences on",
    ),
)


def _tables(lies: BestLies, asked: Sequence[int]) -> tuple[NumberTable, ...]:
    """The best lies, every lie that was tried, and the best lies seed by seed."""
    each = [
        (family, defences, found)
        for family, by_defences in lies.items()
        for defences, found in by_defences.items()
    ]
    summary: list[Row] = [
        (family, defences, found.lie, found.gain.mean, found.gain.half, found.gain.runs,
         found.searched, len(found.scores))
        for family, defences, found in each
    ]  # fmt: skip
    tried: list[Row] = [
        (family, defences, " ".join(f"{value:g}" for value in point), score)
        for family, defences, found in each
        for point, score in found.scores.items()
    ]
    runs: list[Row] = [
        (family, defences, *pair)
        for family, defences, found in each
        for pair in found.gains.items()
    ]
    head = ("family", "defences")
    columns = dict.fromkeys((*head, "best lie"), "") | {
        "gain": ".3f", "half width": ".3f", "seeds": "", "in the search": ".3f", "lies tried": "",
    }  # fmt: skip
    title = f"The lie that pays best in each family, on as many seeds from {min(asked)} as stated"
    return (
        number_table("lies", title, columns, summary),
        number_table(
            "evaluations", "Every lie that was tried", (*head, "factors", "gain"), tried,
            shown=False,
        ),
        number_table(
            "runs", "The best lies, seed by seed", (*head, "seed", "gain"), runs, shown=False
        ),
    )  # fmt: skip


def _figure(lies: BestLies) -> Drawing:
    marks = {
        f"defences {defences}": {family: each[defences].factor for family, each in lies.items()}
        for defences in (OFF, ON)
    }
    title = "What the best lie found gains (right of 1: it pays)"
    return plot_ranges(title, "honest over lying completion time, 95 % interval", marks, log=True)


def study(results: Results) -> Findings:
    """The gains of the best lies."""
    lies: dict[str, dict[str, BestLie]] = {}
    for family, defences, found in _searches(results):
        lies.setdefault(family.name, {})[defences] = _best_lie(results, family, defences, found)
    caption = (
        "Gain of the best lie of each family, mean over seeds that the search did not see, with "
        "95 % interval."
    )
    effort, seeds = effort_of(results), seeds_of(results)
    note = (
        f"{RIVALS} apps on {CLUSTER}, one of which lies. The search proposes {effort.evaluations} "
        "lies of each family and tries those that differ (to three digits) on "
        f"{len(seeds.first)} seeds, the best {SHORTLIST} on {len(seeds.more)} more, and measures "
        f"the best of those on {len(seeds.report)} others; a lie that could be above the bar on "
        f"more (up to {MOST_SEEDS}), until its half width is at most {NARROW:g}."
    )
    return Findings(
        check(CLAIMS, lies),
        _tables(lies, seeds.report),
        (Figure("gains", caption, partial(_figure, lies)),),
        (note,),
    )


EXPERIMENT = Experiment(
    "E16",
    "The red team",
    "Nothing: it argues that truth-telling is best in one auction.",
    study,
    plan,
    grows="about 20,000 in all",
    module=__name__,
)
