"""E15: all policies against each other, the fluid equal share and the floor: the bar."""

from collections.abc import Iterable
from functools import partial

from themis.evaluation import philly_workload, small_apps
from themis.evaluation.comparisons import (
    FEWEST,
    Factor,
    all_of,
    at_least,
    beside,
    best,
    least,
    mean_ratio,
)
from themis.evaluation.experiment import (
    LITERAL,
    NOTHING,
    OURS,
    OWN_BAR,
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
from themis.evaluation.macro_benchmark import PAPERS, auction_sentence, labels, same_seeds
from themis.evaluation.report.charts import plot_ranges
from themis.evaluation.report.headline import front
from themis.evaluation.report.provenance import seed_text
from themis.evaluation.run_matrix import (
    MatrixNumbers,
    Measure,
    gather,
    gpu_over_work,
    summary,
    unprinted,
)
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
from themis.sim.runs.result_cache import CachedRun

MOST_RHO = 1.2
_ALL = 0.9995
"""A share that is told as 100 %."""
LEAST_FAIR = 0.95
GPU_LIMITS = {"w1": 1.01, "w2": 1.02}
"""GPU time over Gandiva's that the bar allows."""


def over(floor: str) -> Measure:
    """How far max rho_ref is from what no policy could do better than."""

    def of(record: CachedRun) -> float:
        least = record.summary.get(floor)
        worst = record.summary["max_rho_ref"]["fair_share"]
        return float(worst) / float(least) if least and worst else float("nan")

    return of


MEASURES = {
    "max_rho_ref": summary("max_rho_ref", "fair_share"),
    "p95_rho_ref": summary("p95_rho_ref", "fair_share"),
    "share_fair": summary("share_fair_ref", "fair_share"),
    "floor": summary("floor_rho_ref"),
    "over_floor": over("floor_rho_ref"),
    "placed_floor": summary("placed_floor_rho_ref"),
    "over_placed_floor": over("placed_floor_rho_ref"),
    "most_fair": summary("most_fair_ref"),
    "completion_h": summary("mean_completion_h"),
    "fluid_h": summary("fluid_completion_h"),
    "placed_fluid_h": summary("placed_fluid_h"),
    "gpu_hours": summary("gpu_hours"),
    "over_work": gpu_over_work,
    "jain": summary("jain"),
    "moves": summary("moves"),
    "auction_share": summary("auction_share_contended"),
}
COLUMNS = {
    "max_rho_ref": Column("mean", ".2f"),
    "p95_rho_ref": Column("p95 rho_ref", ".2f"),
    "share_fair": Column("share fair", ".0%"),
    "over_floor": Column("max / floor", ".2f"),
    "placed_floor": Column("placed floor", ".2f"),
    "over_placed_floor": Column("max / placed floor", ".2f"),
    "most_fair": Column("could be fair", ".1%"),
    "completion_h": Column("completion h", ".1f"),
    "fluid_h": Column("fluid h", ".1f"),
    "over_work": Column("GPU time / work", ".3f"),
    "jain": Column("Jain", ".3f"),
    "moves": Column("moves", ".0f"),
}


def plan(results: Results) -> Iterable[RunConfig]:
    """Every policy in every scenario."""
    return [config for each in runs(results).values() for config in each]


def _against(
    measured: MatrixNumbers, scenario: str, policy: str, names: Iterable[str]
) -> dict[str, Factor]:
    """Max rho_ref of the others over that of one: above 1, they are worse."""
    return {
        name: measured.factor("max_rho_ref", of=(scenario, name), over=(scenario, policy))
        for name in names
        if name != policy
    }


def _unbeaten(measured: MatrixNumbers, scenario: str, names: tuple[str, ...]) -> Claim:
    def beaten_by(policy: str) -> list[str]:
        found = _against(measured, scenario, policy, names)
        # The two presets are not opponents of each other here: see `_printed`.
        return [name for name, item in found.items() if item.below and name not in {OURS, LITERAL}]

    def listed(policy: str) -> Told:
        if seeds[policy] < FEWEST:
            return NOTHING  # on a few seeds nobody surely beats anybody
        beaten = beaten_by(policy)
        return Told(", ".join(beaten) or "none", len(beaten))

    seeds = {name: measured.count((scenario, name)) for name in (OURS, LITERAL)}
    found = _against(measured, scenario, OURS, [name for name in names if name != LITERAL])
    asked = len(measured.seeds)
    # That nobody is surely better says little on a few seeds: who has not been run on all of them
    # has to be surely worse.
    few = [name for name, item in found.items() if item.seeds < asked and not item.above]
    verdict = Verdict.OPEN if few or asked < FEWEST else Verdict.HOLDS
    fewest = min((item.seeds for item in found.values()), default=0)
    same = same_seeds(measured, scenario, [name for name in names if name != LITERAL])
    alike = _against(same, scenario, OURS, [str(name) for _, name in same.by_cell])
    nearest = best({name: item.mean for name, item in alike.items()}, min)
    told_nearest = "Nobody else was run." if nearest is None else (
        f"On the seeds that all have ({seed_text(same.seeds)}) {nearest} is nearest: its max "
        f"rho_ref is {alike[nearest].told.text} that of themis (geometric mean, paired bootstrap)"
        + (f"; on all that it has, {found[nearest].told.text}." if
           found[nearest].seeds != alike[nearest].seeds else ".")
    )  # fmt: skip
    return Claim(
        f"Our bar, {scenario}: no opponent's max rho_ref is surely lower",
        OWN_BAR,
        beside(listed(LITERAL), seeds[LITERAL], seeds[OURS]),
        listed(OURS),
        Verdict.FAILS if beaten_by(OURS) else verdict,
        f"Listed are policies that surely beat it. {told_nearest} {_unjudged(seeds[LITERAL])}"
        + (f" Others have {fewest} of {asked} seeds or more." if fewest < asked else "")
        + (f" Not surely worse, and not on all seeds: {', '.join(few)}." if few else ""),
    )


def _unjudged(seeds: int) -> str:
    """Why the mechanism as printed is not among the opponents."""
    if seeds >= FEWEST:
        return f"{LITERAL} has a claim of its own."
    return f"{LITERAL} ({seeds} seed{'s' * (seeds != 1)}) is not judged here."


def _printed(measured: MatrixNumbers, scenario: str) -> Claim:
    found = measured.factor("max_rho_ref", of=(scenario, LITERAL), over=(scenario, OURS))
    # It is run on a few seeds only, on which nobody is surely anything: it has to be worse.
    verdict = Verdict.FAILS if found.below else Verdict.HOLDS if found.above else Verdict.OPEN
    return Claim(
        f"Our bar, {scenario}: max rho_ref, {LITERAL} over ours",
        OWN_BAR,
        NOTHING,
        beside(found.told, found.seeds, len(measured.seeds)),
        verdict,
        "Surely above 1 it has to be. " + (
            "The mechanism as printed holds a round whenever a lease ends, so a run takes minutes."
            if found.seeds else "Not run."),
    )  # fmt: skip


def _better(measured: MatrixNumbers, scenario: str) -> Claim:
    ours = _against(measured, scenario, OURS, PAPERS)
    literal = _against(measured, scenario, LITERAL, PAPERS)

    worst, printed = least(ours), least(literal)
    return Claim(
        f"Our bar, {scenario}: max rho_ref surely better than the paper's four",
        OWN_BAR,
        beside(printed.told_least, printed.seeds, worst.seeds),
        beside(worst.told_least, worst.seeds, len(measured.seeds)),
        all_of(at_least(item, 1.0) for item in ours.values()),
        "; ".join(f"{name} {item.told.text}" for name, item in ours.items()) + ".",
    )


def _level(measured: MatrixNumbers, scenario: str) -> Claim:
    ranges, shares = (
        {name: measured.estimate(key, (scenario, name)) for name in (OURS, LITERAL)}
        for key in ("max_rho_ref", "share_fair")
    )
    mean, fair = ({name: item.mean for name, item in each.items()} for each in (ranges, shares))
    seeds = {name: measured.count((scenario, name)) for name in mean}
    floor, placed, over_placed, most = (
        measured.estimate(name, (scenario, OURS)).mean
        for name in ("over_floor", "placed_floor", "over_placed_floor", "most_fair")
    )
    good = mean[OURS] <= MOST_RHO and fair[OURS] >= LEAST_FAIR
    verdict = measured.judged(good, (scenario, OURS))
    text = {
        name: Told(f"{_told(ranges[name], '.2f')}, {_told(shares[name], '.1%')}", mean[name])
        if seeds[name]
        else NOTHING
        for name in mean
    }
    close = _spans(ranges[OURS], MOST_RHO) or _spans(shares[OURS], LEAST_FAIR)
    return Claim(
        f"Our bar, {scenario}: mean max rho_ref <= {MOST_RHO:g}, {LEAST_FAIR:.0%} of apps fair",
        OWN_BAR,
        beside(text[LITERAL], seeds[LITERAL], seeds[OURS]),
        text[OURS],
        verdict,
        ("The means over these seeds decide; on others it might come out otherwise: an interval "
         "holds the limit. " if close else "")
        + f"Fair: rho_ref at most 1.05. Max rho_ref is {told(floor, unit='x').text} the floor, "
        f"which no policy could go below, and {told(over_placed, unit='x').text} the floor with "
        f"jobs in the best places that the cluster has for them, which is {told(placed).text}"
        + (f": above {MOST_RHO:g} for every policy." if placed > MOST_RHO else ".")
        + (f" At most {most:.1%} of the apps could be fair: the others would be late even alone "
           "on the cluster, in its best places." if most < _ALL else ""),
    )  # fmt: skip


def _told(found: Estimate, form: str) -> str:
    if found.half is None:
        return told(found.mean, form).text
    return told(found.mean, form, low=found.mean - found.half, high=found.mean + found.half).text


def _spans(found: Estimate, limit: float) -> bool:
    """Whether a limit is within the interval."""
    return found.half is not None and abs(found.mean - limit) <= found.half


def _sooner(measured: MatrixNumbers, scenario: str, names: tuple[str, ...]) -> Claim:
    def against_fluid(policy: str) -> Factor:
        cell = (scenario, policy)
        return mean_ratio(measured.values("completion_h", cell), measured.values("fluid_h", cell))

    ours, literal = against_fluid(OURS), against_fluid(LITERAL)
    placed = mean_ratio(
        measured.values("placed_fluid_h", (scenario, OURS)),
        measured.values("fluid_h", (scenario, OURS)),
    )
    return Claim(
        f"Our bar, {scenario}: mean completion time below the fluid equal share's",
        OWN_BAR,
        beside(literal.told, literal.seeds, ours.seeds),
        ours.told,
        measured.judged(ours.mean < 1.0, (scenario, OURS)),
        "The fluid reference has no beats, no restarts and no distance"
        + (f". If its jobs were slowed as on all their GPUs, in the best places that the cluster "
           f"has for them, it would itself take {told(placed.mean).text}x as long (on fewer GPUs "
           "they are slowed less)." if placed.seeds == ours.seeds else ".")
        + _soonest(measured, scenario, names),
    )  # fmt: skip


def _soonest(measured: MatrixNumbers, scenario: str, names: tuple[str, ...]) -> str:
    """Which opponent's apps are done soonest, on the seeds that all have."""
    same = same_seeds(measured, scenario, [name for name in names if name != LITERAL])
    found = {
        str(name): mean_ratio(same.values("completion_h", cell), same.values("fluid_h", cell))
        for cell in same.by_cell
        if (name := cell[1]) != OURS
    }
    first = best({name: each.mean for name, each in found.items()}, min)
    if first is None:
        return ""
    on = "" if same.seeds == measured.seeds else f" on seeds {seed_text(same.seeds)}"
    return f" Of the opponents {first} is soonest, {found[first].told.text}{on}."


def _gpu_time(measured: MatrixNumbers, one: Scenario) -> Claim:
    limit = GPU_LIMITS[one.workload]
    ours, literal = (
        measured.factor("gpu_hours", of=(one.name, policy), over=(one.name, "gandiva"))
        for policy in (OURS, LITERAL)
    )
    return Claim(
        f"Our bar, {one.name}: GPU time at most {limit:g}x Gandiva's",
        OWN_BAR,
        beside(literal.told, literal.seeds, ours.seeds),
        beside(ours.told, ours.seeds, len(measured.seeds)),
        measured.judged(ours.mean <= limit, (one.name, OURS), (one.name, "gandiva")),
        "Gandiva packs jobs and seldom takes anything away.",
    )


def _table(measured: MatrixNumbers) -> NumberTable:
    rows: list[Row] = []
    for cell in measured.by_cell:
        scenario, policy = str(cell[0]), str(cell[1])
        typical = measured.typical("max_rho_ref", cell)
        found = measured.factor("max_rho_ref", of=cell, over=(scenario, OURS))
        means = (measured.estimate(name, cell).mean for name in COLUMNS)
        rows.append((scenario, policy, typical.mean, typical.low, typical.high,
                     found.mean, found.low, found.high, *means))  # fmt: skip
    head = (
        Column("scenario"), Column("policy"), Column("max rho_ref (geometric)", ".3f"),
        Column("low", ".3f"), Column("high", ".3f"), Column("over themis", ".3f"),
        Column("over themis, low", ".3f"), Column("over themis, high", ".3f"),
    )  # fmt: skip
    columns = (*head, *COLUMNS.values())
    return measured.on_seeds(
        NumberTable("bar", "All policies, means over seeds", columns, tuple(rows))
    )


def _figure(measured: MatrixNumbers, shown: tuple[str, ...], names: tuple[str, ...]) -> Drawing:
    marks: dict[str, dict[str, Factor]] = {}
    same = {scenario: same_seeds(measured, scenario, names) for scenario in shown}
    called = labels(same)
    for scenario, each in same.items():
        points = marks[f"{scenario}, seeds {seed_text(each.seeds) or 'none'}"] = {
            label: each.typical("max_rho_ref", (scenario, name))
            for name, label in called.items()
            if (scenario, name) in each.by_cell
        }
        for name, floor in (("placed floor", "placed_floor"), ("floor", "floor")):
            points[name] = each.typical(floor, (scenario, OURS))
    title = "The app that fares worst (left is better; 1: as on a private share)"
    label = "max rho_ref (fair share), geometric mean over seeds, 95 % interval"
    return plot_ranges(title, label, marks, log=True)


def _headline(measured: MatrixNumbers) -> str:
    parts: dict[str, tuple[int, ...]] = {}
    for scenario in dict.fromkeys(str(cell[0]) for cell in measured.by_cell):
        cells = [(scenario, name) for name in (OURS, "equal-share")]
        same = measured.paired(*cells)
        ours, equal = (told(same.typical("max_rho_ref", cell).mean).text for cell in cells)
        parts[f"{scenario} {ours} ({equal})"] = same.seeds
    whole = len(set(parts.values())) == 1
    given = seed_text(measured.seeds)
    there = seed_text(next(iter(parts.values()))) if whole else "as named,"
    seeds = there if there == given else f"{there or 'none'} of {given}"
    return (
        "Largest rho_ref (fair share) of any app under themis, in brackets under equal-share, "
        f"geometric mean over seeds {seeds}: "
        + ", ".join(
            part if whole else f"{part}, seeds {seed_text(each) or 'none'}"
            for part, each in parts.items()
        )
        + "."
    )


def study(results: Results) -> Findings:
    """Hold the default policy against all others."""
    measured = gather(results, runs(results), MEASURES | small_apps.MEASURES, seeds_of(results))
    names = rivals(results)
    claims: list[Claim] = []
    for one in scenarios(results):
        claims.append(_unbeaten(measured, one.name, names))
        if LITERAL in names:
            claims.append(_printed(measured, one.name))
        if one.philly:
            continue
        claims += [_better(measured, one.name), _level(measured, one.name)]
        claims += [_sooner(measured, one.name, names), _gpu_time(measured, one)]
    figures = [
        Figure(
            "headline",
            "The app that fares worst under each policy, on W1 and W2 and on half of the machines: "
            "largest rho_ref (fair share). The floor is the one of the best places.",
            partial(front, measured, GENERATED, names),
        ),
        Figure(
            "bar", "W1 and W2: largest rho_ref (fair share) under every policy, and the floor.",
            partial(_figure, measured, ("W1", "W2"), names),
        ),
        Figure(
            "bar_contended", "The same with half of the machines.",
            partial(_figure, measured, ("W1 2x", "W2 2x"), names),
        ),
    ]  # fmt: skip
    if philly_workload.at_hand(results):
        shown = tuple(one.name for one in REAL)
        figures.append(
            Figure("bar_philly", "The Philly trace at two loads.",
                   partial(_figure, measured, shown, names))
        )  # fmt: skip
    about_philly = (
        "Philly is one trace, on which calling in was made, too: its seeds draw models and "
        "lotteries only, so that intervals say nothing of other traces."
        if philly_workload.at_hand(results)
        else f"Without the Philly trace: THEMIS_DATA names no folder with {philly_workload.FILE}."
    )
    return Findings(
        claims=tuple(claims),
        tables=(
            _table(measured),
            small_apps.apart_table(measured),
            measured.run_table("runs", ("scenario", "policy")),
        ),
        figures=tuple(figures),
        notes=(
            (
                "2x: half of the machines of each kind, the same apps. The floor is clairvoyant: "
                "perfect placement, one start for each app, parallelism as declared. The placed "
                "floor knows that a job of four GPUs is slower on two slots of two."
            ),
            (
                "Opponents have the beats, stickiness and restart costs of themis. With `+call` "
                "they also call GPUs in for newcomers between beats, as themis does; that is an "
                "option of these policies, not their default."
            ),
            (
                "Apps whose demand is below their share at all times (largest demand of a phase at "
                "most GPUs / mean contention of the reference) are told apart: sharing costs them "
                "nothing but waiting and placement."
            ),
            (
                "Themis ranks apps by the contention that equal shares would "
                "have, which rho_ref is measured with too; rho as the paper computes it is in E1."
            ),
            *unprinted(measured),
            about_philly,
        ),
        lead=(
            _headline(measured),
            auction_sentence(measured, [(one.name, OURS) for one in scenarios(results)]),
        ),
    )


EXPERIMENT = Experiment(
    "E15",
    "All policies, the floor, and our bar",
    "Nothing: it knows neither equal-share nor a floor. The bar is our own.",
    study,
    plan,
    reads_data=True,
)
