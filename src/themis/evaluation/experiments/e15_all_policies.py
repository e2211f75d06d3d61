"""E15: all policies against each other, the fluid equal share and the floor: the bar."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from themis.evaluation import philly_workload, small_apps
from themis.evaluation.checks import compared, estimates, factors_over, worst_ratio
from themis.evaluation.claims import (
    NO_VALUE,
    OWN_BAR,
    Claim,
    ClaimAnswer,
    Detail,
    Quantity,
    Verdict,
    check,
    details,
    quantity,
)
from themis.evaluation.comparisons import FEWEST, Factor, best, mean_ratio, with_seeds
from themis.evaluation.experiment import Column, Experiment, Figure, Findings, NumberTable, Results
from themis.evaluation.figures.charts import plot_ranges
from themis.evaluation.figures.headline import front
from themis.evaluation.figures.measured import by_group, typicals
from themis.evaluation.macro_benchmark import PAPERS, auction_sentence
from themis.evaluation.metrics import LITERAL, OURS, Metric, metrics
from themis.evaluation.metrics import METRICS as ALL_METRICS
from themis.evaluation.provenance import seed_text
from themis.evaluation.run_matrix import MatrixNumbers, gather, literal_notes
from themis.evaluation.scenarios import (
    GENERATED,
    REAL,
    Scenario,
    rivals,
    runs,
    scenarios,
    seeds_of,
)
from themis.sim.compare import Estimate
from themis.sim.config import RunConfig
from themis.sim.figures.plot_style import Drawing

MOST_RHO = 1.2
LEAST_FAIR = 0.95
_ALL = 0.9995
"""A share that is shown as 100 %."""
GPU_LIMITS = {"w1": 1.01, "w2": 1.02}
"""GPU time over Gandiva's that the bar allows."""

METRICS = {
    **metrics(
        "max_rho_ref", "p95_rho_ref", "share_fair", "over_floor", "placed_floor",
        "over_placed_floor", "most_fair", "completion_h", "fluid_h", "over_work", "jain", "moves",
        "placed_fluid_h",
    ),
    **{name: Metric(ALL_METRICS[name].of) for name in ("floor", "gpu_hours", "auction_share")},
    "max_rho_ref": replace(ALL_METRICS["max_rho_ref"], title="mean"),
}  # fmt: skip


def plan(results: Results) -> Iterable[RunConfig]:
    """Every policy in every scenario."""
    return [config for each in runs(results).values() for config in each]


def _opponents(measured: MatrixNumbers, scenario: str) -> list[str]:
    return [str(name) for first, name in measured.by_cell if first == scenario and name != LITERAL]


def _comparable(measured: MatrixNumbers, scenario: str) -> MatrixNumbers:
    """The opponents and ours, on the seeds that all have."""
    return measured.on_common_seeds((scenario, name) for name in _opponents(measured, scenario))


def _unbeaten(measured: MatrixNumbers, scenario: str) -> ClaimAnswer:
    """The policies that surely beat ours; the two presets are judged by `_printed`."""
    names = _opponents(measured, scenario)
    against = partial(factors_over, measured, "max_rho_ref", scenario)
    seeds = {name: measured.count((scenario, name)) for name in (OURS, LITERAL)}

    def listed(policy: str) -> Quantity:
        if seeds[policy] < FEWEST:
            return NO_VALUE  # a few seeds decide nothing
        found = against(policy, [name for name in names if name != OURS])
        beaten = [name for name, item in found.items() if item.below]
        return Quantity(", ".join(beaten) or "none", len(beaten))

    found = against(OURS, names)
    asked = len(measured.seeds)
    # "No policy is surely better" says little on a few seeds: a policy that lacks some of the seeds
    # has to be surely worse.
    few = [name for name, item in found.items() if item.seeds < asked and not item.above]
    verdict = Verdict.UNDECIDED if few or asked < FEWEST else Verdict.HOLDS
    if any(item.below for item in found.values()):
        verdict = Verdict.FAILS
    fewest = min((item.seeds for item in found.values()), default=0)
    return ClaimAnswer(
        listed(OURS),
        verdict,
        with_seeds(listed(LITERAL), seeds[LITERAL], seeds[OURS]) if LITERAL in seeds else NO_VALUE,
        (
            *_nearest(measured, scenario, found),
            *details(
                (f"{LITERAL}, not judged here", _seeds(seeds[LITERAL], FEWEST)),
                ("seeds of the others, at least", _seeds(fewest, asked, f" of {asked}")),
                ("not surely worse, and not on all seeds", ", ".join(few)),
            ),
        ),
    )


def _seeds(count: int, enough: int, more: str = "") -> str | None:
    """A count of seeds where it is not enough."""
    return f"{count}{more}" if count < enough else None


def _nearest(
    measured: MatrixNumbers, scenario: str, found: dict[str, Factor]
) -> tuple[Detail, ...]:
    """The nearest opponent, on the seeds that all have and on all of its own."""
    same = _comparable(measured, scenario)
    equal = factors_over(same, "max_rho_ref", scenario, OURS, _opponents(same, scenario))
    nearest = best({name: item.mean for name, item in equal.items()}, min)
    if nearest is None:
        return details(("nearest", "no other policy was run"))
    whole = found[nearest]
    return details(
        (f"nearest, on seeds {seed_text(same.seeds)}, {nearest}", equal[nearest].shown),
        ("on all of its seeds", whole.shown if whole.seeds != equal[nearest].seeds else None),
    )


def _printed(measured: MatrixNumbers, scenario: str) -> ClaimAnswer:
    """The mechanism as printed has only a few seeds, so it must be surely worse."""
    found = measured.factor("max_rho_ref", of=(scenario, LITERAL), over=(scenario, OURS))
    return ClaimAnswer(
        with_seeds(found.shown, found.seeds, len(measured.seeds)),
        Verdict.FAILS if found.below else Verdict.HOLDS if found.above else Verdict.UNDECIDED,
    )


def _each_of_the_four(measured: MatrixNumbers, scenario: str) -> tuple[Detail, ...]:
    found = factors_over(measured, "max_rho_ref", scenario, OURS, PAPERS)
    return details(*((name, item.shown) for name, item in found.items()))


def _level(measured: MatrixNumbers, scenario: str) -> ClaimAnswer:
    """The means over these seeds, which the bar is about, beside the floors."""
    rhos, shares = (
        dict(zip((OURS, LITERAL), estimates(measured, name, scenario), strict=True))
        for name in ("max_rho_ref", "share_fair")
    )
    seeds = {name: measured.count((scenario, name)) for name in rhos}
    floor, placed, over_placed, most = (
        measured.estimate(name, (scenario, OURS)).mean
        for name in ("over_floor", "placed_floor", "over_placed_floor", "most_fair")
    )

    def shown(policy: str) -> Quantity:
        if not seeds[policy]:
            return NO_VALUE
        rho, share = rhos[policy], shares[policy]
        return Quantity(f"{_with_interval(rho, '.2f')}, {_with_interval(share, '.1%')}", rho.mean)

    close = _contains(rhos[OURS], MOST_RHO) or _contains(shares[OURS], LEAST_FAIR)
    good = rhos[OURS].mean <= MOST_RHO and shares[OURS].mean >= LEAST_FAIR
    beyond = f", above {MOST_RHO:g} for every policy" if placed > MOST_RHO else ""
    return ClaimAnswer(
        shown(OURS),
        measured.judged(good, (scenario, OURS)),
        with_seeds(shown(LITERAL), seeds[LITERAL], seeds[OURS]),
        details(
            ("an interval contains the limit", "on other seeds the verdict might differ"
             if close else None),
            ("over the floor", quantity(floor, unit="x")),
            ("over the floor with the best places", quantity(over_placed, unit="x")),
            ("that floor", f"{quantity(placed).text}{beyond}"),
            ("could be fair, at most", f"{most:.1%} of the apps" if most < _ALL else None),
        ),
    )  # fmt: skip


def _with_interval(found: Estimate, form: str) -> str:
    if found.half is None:
        return quantity(found.mean, form).text
    return quantity(
        found.mean, form, low=found.mean - found.half, high=found.mean + found.half
    ).text


def _contains(found: Estimate, limit: float) -> bool:
    """Whether a limit is within the interval."""
    return found.half is not None and abs(found.mean - limit) <= found.half


def _over_fluid(measured: MatrixNumbers, name: str, scenario: str, policy: str) -> Factor:
    cell = (scenario, policy)
    return mean_ratio(measured.values(name, cell), measured.values("fluid_h", cell))


def _sooner(measured: MatrixNumbers, scenario: str) -> ClaimAnswer:
    """Mean completion time over that of the fluid equal share."""
    ours, literal = (
        _over_fluid(measured, "completion_h", scenario, policy) for policy in (OURS, LITERAL)
    )
    placed = _over_fluid(measured, "placed_fluid_h", scenario, OURS)
    verdict = measured.judged(ours.mean < 1.0, (scenario, OURS))
    beside = f"{quantity(placed.mean).text}x" if placed.seeds == ours.seeds else None
    supporting = details(("the fluid share itself in the best places", beside))
    return compared(ours, literal, verdict, details=supporting + _soonest(measured, scenario))


def _soonest(measured: MatrixNumbers, scenario: str) -> tuple[Detail, ...]:
    """The opponent whose apps end soonest, on the seeds that all have."""
    same = _comparable(measured, scenario)
    found = {
        name: _over_fluid(same, "completion_h", scenario, name)
        for name in _opponents(same, scenario)
        if name != OURS
    }
    first = best({name: each.mean for name, each in found.items()}, min)
    if first is None:
        return ()
    on = "" if same.seeds == measured.seeds else f" on seeds {seed_text(same.seeds)}"
    return details((f"soonest of the opponents, {first}", f"{found[first].shown.text}{on}"))


def _gpu_time(measured: MatrixNumbers, one: Scenario) -> ClaimAnswer:
    cells = [(one.name, policy) for policy in (OURS, LITERAL, "gandiva")]
    ours, literal = (measured.factor("gpu_hours", of=cell, over=cells[2]) for cell in cells[:2])
    verdict = measured.judged(ours.mean <= GPU_LIMITS[one.workload], cells[0], cells[2])
    answer = compared(ours, literal, verdict)
    return replace(answer, ours=with_seeds(ours.shown, ours.seeds, len(measured.seeds)))


def claims(shown: Sequence[Scenario]) -> list[Claim[MatrixNumbers]]:
    """The bar in each scenario; on the real trace only whether a policy beats ours."""
    found: list[Claim[MatrixNumbers]] = []
    for one in shown:
        key, bar = one.name.lower().replace(" ", "-"), f"Our bar, {one.name}"
        on = partial(partial, scenario=one.name)
        found += [
            Claim(f"{key}-unbeaten", f"{bar}: no opponent's max rho_ref is surely lower", OWN_BAR,
                  on(_unbeaten), "No opponent is surely better"),
            Claim(f"{key}-printed", f"{bar}: max rho_ref, {LITERAL} over ours", OWN_BAR,
                  on(_printed), "The mechanism as printed"),
        ]  # fmt: skip
        if one.philly:
            continue
        limit = GPU_LIMITS[one.workload]
        level = f"mean max rho_ref <= {MOST_RHO:g}, {LEAST_FAIR:.0%} of apps fair"
        four = worst_ratio("max_rho_ref", one.name, PAPERS, on(_each_of_the_four))
        found += [
            Claim(f"{key}-four", f"{bar}: max rho_ref surely better than the paper's four",
                  OWN_BAR, four, "The paper's four"),
            Claim(f"{key}-level", f"{bar}: {level}", OWN_BAR, on(_level), "The level"),
            Claim(f"{key}-sooner", f"{bar}: mean completion time below the fluid equal share's",
                  OWN_BAR, on(_sooner), "Completion time"),
            Claim(f"{key}-gpu-time", f"{bar}: GPU time at most {limit:g}x Gandiva's", OWN_BAR,
                  partial(_gpu_time, one=one), "GPU time"),
        ]  # fmt: skip
    return found


# Tables and figures


def _table(measured: MatrixNumbers) -> NumberTable:
    shown = {key: metric for key, metric in METRICS.items() if metric.title}
    rows = []
    for cell in measured.by_cell:
        typical = measured.typical("max_rho_ref", cell)
        found = measured.factor("max_rho_ref", of=cell, over=(cell[0], OURS))
        means = (measured.estimate(name, cell).mean for name in shown)
        rows.append((*cell, typical.mean, typical.low, typical.high,
                     found.mean, found.low, found.high, *means))  # fmt: skip
    factors = (
        "max rho_ref (geometric)", "low", "high",
        "over themis", "over themis, low", "over themis, high",
    )  # fmt: skip
    columns = (
        Column("scenario"),
        Column("policy"),
        *(Column(name, ".3f") for name in factors),
        *(Column(one.title, one.form) for one in shown.values()),
    )
    title = "All policies, means over seeds"
    return measured.on_seeds(NumberTable("bar", title, columns, tuple(rows)))


def _figure(measured: MatrixNumbers, shown: tuple[str, ...], names: tuple[str, ...]) -> Drawing:
    same = by_group(measured, shown, names)
    points = typicals(same, "max_rho_ref")
    marks: dict[str, dict[str, Factor]] = {}
    for scenario, each in same.items():
        floors = {
            title: each.typical(name, (scenario, OURS))
            for title, name in (("placed floor", "placed_floor"), ("floor", "floor"))
        }
        title = f"{scenario}, seeds {seed_text(each.seeds) or 'none'}"
        marks[title] = points[scenario.upper()] | floors
    return plot_ranges(
        "The app that fares worst (left is better; 1: as on a private share)",
        "max rho_ref (fair share), geometric mean over seeds, 95 % interval",
        marks,
        log=True,
    )


def _headline(measured: MatrixNumbers) -> str:
    """The worst-off app under ours and under equal-share, in a sentence."""
    parts: dict[str, tuple[int, ...]] = {}
    for scenario in dict.fromkeys(str(cell[0]) for cell in measured.by_cell):
        cells = [(scenario, name) for name in (OURS, "equal-share")]
        same = measured.paired(*cells)
        ours, equal = (quantity(same.typical("max_rho_ref", cell).mean).text for cell in cells)
        parts[f"{scenario} {ours} ({equal})"] = same.seeds
    whole = len(set(parts.values())) == 1
    given = seed_text(measured.seeds)
    common = seed_text(next(iter(parts.values()))) if whole else "as named,"
    seeds = common if common == given else f"{common or 'none'} of {given}"
    each = (
        part if whole else f"{part}, seeds {seed_text(own) or 'none'}"
        for part, own in parts.items()
    )
    return (
        "Largest rho_ref (fair share) of any app under themis, in brackets under equal-share, "
        f"geometric mean over seeds {seeds}: {', '.join(each)}."
    )


def study(results: Results) -> Findings:
    """Compare the default policy with all others."""
    measures = METRICS | small_apps.METRICS
    measured = gather(results, runs(results), measures, seeds_of(results))
    names, shown = rivals(results), scenarios(results)
    figures = [
        Figure(
            "headline",
            "The app that fares worst under each policy, on W1 and W2 and on half of the machines: "
            "largest rho_ref (fair share). The floor is the one of the best places.",
            partial(front, measured, GENERATED, names),
        ),
        Figure(
            "bar",
            "W1 and W2: largest rho_ref (fair share) under every policy, and the floor.",
            partial(_figure, measured, ("W1", "W2"), names),
        ),
        Figure(
            "bar_contended",
            "The same with half of the machines.",
            partial(_figure, measured, ("W1 2x", "W2 2x"), names),
        ),
    ]
    note = f"Without the Philly trace: THEMIS_DATA names no folder with {philly_workload.FILE}."
    if philly_workload.at_hand(results):
        draw = partial(_figure, measured, tuple(one.name for one in REAL), names)
        figures.append(Figure("bar_philly", "The Philly trace at two loads.", draw))
        note = (
            "Philly is one trace, on which calling in was developed, too: its seeds draw models "
            "and lotteries only, so intervals say nothing about other traces."
        )
    return Findings(
        check(claims(shown), measured),
        (
            _table(measured),
            small_apps.apart_table(measured),
            measured.run_table("runs", ("scenario", "policy")),
        ),
        tuple(figures),
        (*literal_notes(measured), note),
        (_headline(measured), auction_sentence(measured, [(one.name, OURS) for one in shown])),
    )


EXPERIMENT = Experiment(
    "E15",
    "All policies, the floor, and our bar",
    "Nothing: it knows neither equal-share nor a floor. The bar is our own.",
    study,
    plan,
    reads_data=True,
    module=__name__,
)
