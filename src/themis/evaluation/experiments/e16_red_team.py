"""E16: the red team. The lie that pays best, found by search, with the defences off and on."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from themis.evaluation.comparisons import FEWEST, Factor, best
from themis.evaluation.experiment import (
    NOTHING,
    OURS,
    OWN_BAR,
    REPORT_SEEDS,
    TUNING_SEEDS,
    Claim,
    Column,
    Experiment,
    Figure,
    Findings,
    NumberTable,
    Results,
    Row,
    Verdict,
)
from themis.evaluation.lie_search import Axis, Family, Hunt, Point, SearchEffort, search
from themis.evaluation.report.charts import plot_ranges
from themis.sim.compare import Estimate, estimate
from themis.sim.config import RunConfig
from themis.sim.figures.plot_style import Drawing
from themis.sim.workloads import RIVALS, contender

CLUSTER = "demo16"
TOLD_SEEDS = range(REPORT_SEEDS[0], REPORT_SEEDS[0] + 120)
"""More than elsewhere: one app's completion time depends on luck, and these runs are short."""
MOST_TOLD, NARROW = 1800, 0.01
"""A lie that could be above the bar gets more, until the half width is this."""
LIAR = str(contender())

MOST = 1.05
"""The bar: with the defences on, no lie may gain more."""
CLOSED = f"Our bar: with the defences on, no lie gains more than {MOST:g}x"
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
"""So many of the best lies are tried on more seeds, lest luck on the first ones decides."""


@dataclass(frozen=True, slots=True)
class Seeds:
    """Which runs are for what. None is for both searching and telling."""

    first: tuple[int, ...]
    """Every lie is tried on these."""
    more: tuple[int, ...]
    """And the best ones on these."""
    report: tuple[int, ...]


def seeds_of(results: Results) -> Seeds:
    """Search on tuning seeds, tell of the others."""
    scope = results.scope
    if scope.quick:
        report = scope.seeds or tuple(TUNING_SEEDS[-2:])
        free = [seed for seed in TUNING_SEEDS if seed not in report]
        return Seeds(tuple(free[:1]), (), report)
    report = scope.seeds or tuple(TOLD_SEEDS)
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
    """Nobody lies."""
    return run_of(TRUTH, (), defences, seed)


def _end(results: Results, config: RunConfig) -> float | None:
    """When the liar's work was done, all parts of it; None if nobody knows yet."""
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
        # Who is early has more time; it is not given to it.
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
class Quarry:
    """How far the search in one family has come."""

    hunt: Hunt
    named: tuple[tuple[Point, tuple[int, ...]], ...]
    """Lies that were run or are to be run next, and on which seeds."""
    best: Point | None = None
    """The lie that was chosen, once the search is over."""
    told_on: tuple[int, ...] = ()
    """The seeds that it is told on."""


def hunt_in(results: Results, family: Family, defences: str) -> Quarry:
    """Search, then try the best on more seeds, then choose."""
    seeds = seeds_of(results)

    def score(on: Sequence[int], point: Point) -> float | None:
        gains = _gains(results, family, point, defences, on)
        return None if gains is None else sum(gains) / len(gains)

    hunt = search(family, effort_of(results), lambda point: score(seeds.first, point))
    named = [(point, seeds.first) for point in (*hunt.scores, *hunt.wanted)]
    if hunt.wanted:
        return Quarry(hunt, tuple(named))
    every = (*seeds.first, *seeds.more)
    shortlist = {point: score(every, point) for point in hunt.best(SHORTLIST)}
    named += [(point, seeds.more) for point in shortlist]
    if None in shortlist.values():
        return Quarry(hunt, tuple(named))
    chosen = max(shortlist, key=lambda point: shortlist[point] or 0.0)
    told_on = told_seeds(results, family, chosen, defences)
    return Quarry(hunt, (*named, (chosen, told_on)), chosen, told_on)


def _upper(found: Estimate) -> float:
    return found.mean + (found.half or 0.0)


def told_seeds(results: Results, family: Family, point: Point, defences: str) -> tuple[int, ...]:
    """The seeds that a lie is told on: more of them if its interval reaches over the bar.

    Until it is narrow: were it until the lie is below, chance would decide when to stop.
    """
    seeds = seeds_of(results).report
    if results.scope.quick or results.scope.seeds or defences == OFF:
        return seeds
    step, gains = len(seeds), _gains(results, family, point, defences, seeds)
    if gains is None or _upper(estimate(gains)) <= MOST:
        return seeds
    while len(seeds) < MOST_TOLD:
        gains = _gains(results, family, point, defences, seeds)
        if gains is None or (estimate(gains).half or 0.0) <= NARROW:
            break
        seeds = (*seeds, *range(seeds[-1] + 1, seeds[-1] + 1 + step))
    return seeds


def plan(results: Results) -> Iterable[RunConfig]:
    """The honest runs, and of every family what the search has tried and wants to know next."""
    seeds = seeds_of(results)
    configs = [
        honest(defences, seed)
        for defences in DEFENCES
        for seed in (*seeds.first, *seeds.more, *seeds.report)
    ]
    if all(map(results.has, configs)):
        for defences in DEFENCES:
            for family in FAMILIES:
                for point, on in hunt_in(results, family, defences).named:
                    configs += [run_of(family, point, defences, seed) for seed in on]
                    configs += [honest(defences, seed) for seed in on]
    return list({repr(config): config for config in configs}.values())


@dataclass(frozen=True, slots=True)
class BestLie:
    """The best lie of a family."""

    lie: str
    gain: Estimate
    searched: float
    """What it gained on the seeds of the search: more, because it was chosen for that."""
    lies: int
    """How many different ones were tried."""

    @property
    def factor(self) -> Factor:
        """With its interval."""
        half = self.gain.half
        if half is None:
            return Factor(self.gain.mean, seeds=self.gain.runs)
        return Factor(self.gain.mean, self.gain.mean - half, self.gain.mean + half, self.gain.runs)


Catch = Mapping[str, Mapping[str, BestLie]]
"""By family and defences."""


def _found(results: Results, family: Family, defences: str) -> BestLie:
    quarry = hunt_in(results, family, defences)
    point, tried = quarry.best, len(quarry.hunt.scores)
    if point is None:
        return BestLie("not chosen yet", Estimate(math.nan, None, 0), math.nan, tried)
    each = (gain_of(results, family, point, defences, seed) for seed in quarry.told_on)
    gains = [gain for gain in each if gain is not None]
    options = run_of(family, point, defences, 0).options
    lie = "the truth"
    if "lie" in options:
        kinds, factors = str(options["lie"]).split(","), str(options["lie_factor"]).split(",")
        lie = ", ".join(map(" ".join, zip(kinds, factors, strict=True)))
    told_gain = estimate(gains) if gains else Estimate(math.nan, None, 0)
    return BestLie(lie, told_gain, quarry.hunt.scores[point], tried)


def _strong(catch: Catch, family: str) -> Claim:
    found = catch[family][OFF].factor
    verdict = Verdict.HOLDS if found.mean >= STRONG else Verdict.FAILS
    return Claim(
        f"Defences off: the search finds a lie by {family} that gains {STRONG:g}x",
        OWN_BAR,
        NOTHING,
        found.told,
        verdict if found.seeds >= FEWEST else Verdict.OPEN,
        f"Found: {catch[family][OFF].lie}. A search that misses the known lies says nothing about "
        "others.",
    )


def _closed(catch: Catch) -> Claim:
    known = best({family: each[ON].gain.mean for family, each in catch.items()}, max)
    if known is None:
        why = "No family has been searched to its end."
        return Claim(CLOSED, OWN_BAR, NOTHING, NOTHING, Verdict.OPEN, why)
    found = {family: catch[family][ON].factor for family in catch}
    sure = [family for family in found if (found[family].low or 0.0) > MOST]
    above = [family for family in found if (found[family].high or math.inf) > MOST]
    few = [family for family in found if found[family].seeds < FEWEST]
    verdict = Verdict.FAILS if sure else Verdict.OPEN if above or few else Verdict.HOLDS
    others = ", ".join(f"{family} {found[family].told.text}" for family in above)
    return Claim(
        CLOSED,
        OWN_BAR,
        NOTHING,
        found[known].told,
        verdict if found[known].seeds >= FEWEST else Verdict.OPEN,
        f"The best of all lies found, by {known}: {catch[known][ON].lie}. "
        + (
            f"Not surely below the bar: {others}."
            if above
            else "All families are surely below the bar."
        )
        + (f" Not told yet: {', '.join(few)}." if few else ""),
    )


def _table(catch: Catch, asked: Sequence[int]) -> NumberTable:
    rows: list[Row] = [
        (
            family,
            defences,
            found.lie,
            found.gain.mean,
            found.gain.half,
            found.gain.runs,
            found.searched,
            found.lies,
        )
        for family, each in catch.items()
        for defences, found in each.items()
    ]
    columns = (
        Column("family"), Column("defences"), Column("best lie"), Column("gain", ".3f"),
        Column("half width", ".3f"), Column("seeds"), Column("in the search", ".3f"),
        Column("lies tried"),
    )  # fmt: skip
    title = (
        f"The lie that pays best in each family, told on seeds from {min(asked)} on, so many as "
        "each row says"
    )
    return NumberTable("lies", title, columns, tuple(rows))


def _evaluations(results: Results) -> NumberTable:
    rows: list[Row] = [
        (family.name, defences, " ".join(f"{value:g}" for value in point), score)
        for defences in DEFENCES
        for family in FAMILIES
        for point, score in hunt_in(results, family, defences).hunt.scores.items()
    ]
    columns = (Column("family"), Column("defences"), Column("factors"), Column("gain"))
    return NumberTable("evaluations", "Every lie that was tried", columns, tuple(rows), shown=False)


def _runs(results: Results) -> NumberTable:
    rows: list[Row] = []
    for defences in DEFENCES:
        for family in FAMILIES:
            quarry = hunt_in(results, family, defences)
            point = quarry.best
            if point is not None:
                rows += [
                    (family.name, defences, seed, gain_of(results, family, point, defences, seed))
                    for seed in quarry.told_on
                    if gain_of(results, family, point, defences, seed) is not None
                ]
    columns = (Column("family"), Column("defences"), Column("seed"), Column("gain"))
    return NumberTable("runs", "The best lies, seed by seed", columns, tuple(rows), shown=False)


def _figure(catch: Catch) -> Drawing:
    marks = {
        f"defences {defences}": {family: each[defences].factor for family, each in catch.items()}
        for defences in (OFF, ON)
    }
    title = "What the best lie found gains (right of 1: it pays)"
    return plot_ranges(title, "honest over lying completion time, 95 % interval", marks, log=True)


def study(results: Results) -> Findings:
    """What the best lies gain."""
    catch = {
        family.name: {defences: _found(results, family, defences) for defences in (OFF, ON)}
        for family in FAMILIES
    }
    effort = effort_of(results)
    seeds = seeds_of(results)
    return Findings(
        claims=(_strong(catch, IDEAL), _strong(catch, SPLIT), _closed(catch)),
        tables=(_table(catch, seeds.report), _evaluations(results), _runs(results)),
        figures=(
            Figure("gains", "Gain of the best lie of each family, mean over seeds that the search "
                   "did not see, with 95 % interval.", lambda: _figure(catch)),
        ),
        notes=(
            (f"{RIVALS} apps on {CLUSTER}, one of which lies; {effort.evaluations} lies of each "
             "family are proposed and the different ones among them (to three digits) tried on "
             f"{len(seeds.first)} seeds, the best {SHORTLIST} on {len(seeds.more)} more, and the "
             f"best of those is told on {len(seeds.report)} others, if it could "
             f"be above the bar on as many (up to {MOST_TOLD}) as make the half width at most "
             f"{NARROW:g}. Times count "
             "from when the app could really begin, however early it was submitted."),
            ("Defences on: `themis` as it is. Off: claims of rho are believed, apps are asked for "
             "fresh tables, nothing is audited, work added later counts from the start, idle GPUs "
             "are not reclaimed, every app is a bidder."),
            ("With the defences on nobody looks at claims of T_id and elapsed time; what is left "
             "of T_id is the declared iteration time."),
        ),
    )  # fmt: skip


EXPERIMENT = Experiment(
    "E16",
    "The red team",
    "Nothing: it argues that truth-telling is best in one auction.",
    study,
    plan,
    grows="about 20,000 in all",
)
