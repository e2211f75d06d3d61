"""E14: what each lever of the default policy is worth: the record of how it was chosen."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from themis.core.policies.themis import Themis
from themis.evaluation.comparisons import FEWEST, at_least
from themis.evaluation.experiment import (
    FEWER_REPORT_SEEDS,
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
)
from themis.evaluation.levers import OwnLeases, PlainBids, Roaming, without
from themis.evaluation.macro_benchmark import WORKLOADS
from themis.evaluation.report.charts import plot_ranges
from themis.evaluation.run_matrix import (
    MAIN,
    MAIN_COLUMNS,
    Cell,
    Matrix,
    MatrixNumbers,
    plain,
    summary,
)
from themis.sim.config import RunConfig
from themis.sim.figures.plot_style import Drawing

DEFAULT = "themis"
NONE = "none of these"


@dataclass(frozen=True, slots=True)
class Variant:
    """The default policy with something changed, as `--set` would."""

    name: str
    options: Mapping[str, object] = field(default_factory=dict)
    policy: str = OURS
    quick: bool = True
    """Whether it belongs to a quick look; what takes long does not."""
    workloads: tuple[str, ...] = WORKLOADS
    single: bool = True
    """Whether it is the default with one change."""


PRINTED: Mapping[str, object] = {
    "rank": "now", "lookahead": 0.0, "urgent": 0.0, "hysteresis": 0.0, "horizon": "end",
    "leftovers": "paper", "payment": "gpus", "convention": "paper", "contention_of": "run",
    "bidder": "app", "min_invited": 1, "guard_rounds": 0, "guard_patience": 1, "call_in_gain": 0.0,
    "fresh_tables": True, "idle_after": 0.0, "added_work": "extends", "audit_tolerance": 0.0,
}  # fmt: skip
"""Every lever that is an option back to what `themis-paper` has, on beats as everybody else."""
LEVERS: Mapping[str, tuple[str, ...]] = {
    "ranking": ("rank", "lookahead", "urgent"),
    "hysteresis": ("hysteresis",),
    "horizon": ("horizon",),
    "leftovers": ("leftovers",),
    "payment": ("payment",),
    "T_id inside": ("convention", "contention_of"),
    "bidder": ("bidder",),
    "invited": ("min_invited",),
    "guards": ("guard_rounds", "guard_patience", "idle_after"),
    "call in": ("call_in_gain",),
    "valuation": ("fresh_tables",),
}
"""Options that belong together."""


KEPT: Mapping[str, type[Themis]] = {"restart-aware bids": PlainBids, "sticky agents": Roaming}
"""Levers that `none of these` keeps, because they are no options."""


def _alone(lever: str) -> Variant:
    """One lever of ours and no other."""
    options = {key: value for key, value in PRINTED.items() if key not in LEVERS[lever]}
    return Variant(f"none but {lever}", options, quick=False, workloads=("w2",), single=False)


def _not_even(lever: str) -> Variant:
    """Without one of those that are left."""
    name = f"none, not even {lever}"
    return Variant(name, PRINTED, without(KEPT[lever]), False, ("w2",), single=False)


VARIANTS = (
    Variant(DEFAULT),
    # One lever back to what the paper says.
    Variant("rank: rho now", {"rank": "now"}),
    Variant("hysteresis: none", {"hysteresis": 0.0}),
    Variant("lookahead: none", {"lookahead": 0.0}),
    Variant("urgent: rho alone decides", {"urgent": 0.0}),
    Variant("urgent: 0.9", {"urgent": 0.9}),
    Variant("horizon: to the end", {"horizon": "end"}),
    Variant("leftovers: outside first", {"leftovers": "outside-first"}),
    Variant("leftovers: paper", {"leftovers": "paper"}),
    Variant("T_id inside: paper", {"convention": "paper"}),
    Variant("contention: of the run", {"contention_of": "run"}),
    Variant("bidder: app", {"bidder": "app"}),
    Variant("valuation: asked afresh", {"fresh_tables": True}),
    Variant("invited: at least 1", {"min_invited": 1}),
    Variant("call in: never", {"call_in_gain": 0.0}),
    Variant("guard: everybody alike", {"guard_patience": 1}),
    Variant("guards: off", {"guard_rounds": 0, "idle_after": 0}),
    # What is no option.
    Variant("beats: none", {}, without(OwnLeases), False, ("w2",)),
    Variant("bids: without restart costs", policy=without(PlainBids)),
    Variant("agents: not sticky", policy=without(Roaming)),
    # The payment rule.
    Variant("payment: gpus", {"payment": "gpus"}),
    Variant("payment: time", {"payment": "time"}),
    Variant("payment: lottery", {"payment": "lottery"}),
    Variant("payment: lottery-pf", {"payment": "lottery-pf"}, quick=False),
    Variant("payment: floor", {"payment": "floor"}),
    # Numbers.
    Variant("starvation: 1.2", {"starvation": 1.2}),
    Variant("starvation: 4", {"starvation": 4.0}),
    Variant("starvation: 10", {"starvation": 10.0}),
    Variant("f: 0.5", {"f": 0.5}, quick=False),
    Variant("f: 0.9", {"f": 0.9}),
    Variant("f: 1", {"f": 1.0}),
    Variant("lease: 5 min", {"lease": "5m"}),
    Variant("lease: 20 min", {"lease": "20m"}),
    # The other way round: none of the levers, and each of them alone.
    Variant(NONE, PRINTED, single=False),
    *(_alone(lever) for lever in LEVERS),
    *(_not_even(lever) for lever in KEPT),
    # The paper's text: also its leases, bids without restart costs, and agents that do not stick.
    Variant("themis-paper", policy=LITERAL, single=False),
)  # fmt: skip
"""Every row is a variant; one that says nothing new is left out. Add yours here."""

MEASURES = {
    **MAIN,
    "auction_share": summary("auction_share_contended"),
    "kept": summary("mean_kept_fraction"),
}
COLUMNS = {
    **MAIN_COLUMNS,
    "auction_share": Column("by auction", ".0%"),
    "kept": Column("kept", ".2f"),
}


def variants(results: Results) -> tuple[Variant, ...]:
    """Those to run: without such as are the default under another name."""
    wanted = [one for one in VARIANTS if one.quick or not results.scope.quick]
    kept: dict[str, Variant] = {}
    for one in wanted:
        kept.setdefault(repr(_config(one, RunConfig())), one)
    return tuple(kept.values())


def _config(variant: Variant, base: RunConfig) -> RunConfig:
    return plain(replace(base, policy=variant.policy, options=dict(variant.options)))


def matrix(results: Results) -> Matrix:
    """Cells are (workload, variant)."""
    scope = results.scope
    cells: dict[Cell, RunConfig] = {
        (workload, one.name): _config(one, scope.base(workload))
        for workload in WORKLOADS
        for one in variants(results)
        if workload in one.workloads
    }
    return Matrix(cells, scope.seeds_of(FEWER_REPORT_SEEDS, quick=1))


def plan(results: Results) -> Iterable[RunConfig]:
    """Every variant on both workloads."""
    return matrix(results).configs()


def _changes(measured: MatrixNumbers, workload: str) -> list[str]:
    """The variants that were run on a workload, without the default."""
    return [str(name) for work, name in measured.by_cell if work == workload and name != DEFAULT]


def _best(measured: MatrixNumbers, workload: str) -> Claim:
    better, few = [], []
    single = {one.name for one in VARIANTS if one.single}
    changes = [name for name in _changes(measured, workload) if name in single]
    idle = [name for name in changes if _changes_nothing(measured, workload, name)]
    names = [name for name in changes if name not in idle]
    for name in names:
        found = measured.factor("max_rho_ref", of=(workload, name), over=(workload, DEFAULT))
        if found.below:
            better.append(f"{name} ({found.told.text})")
        if found.seeds < FEWEST:
            few.append(name)
    chance = by_chance(len(names))
    return Claim(
        f"Our bar, {workload.upper()}: no single change makes max rho_ref surely lower",
        OWN_BAR,
        NOTHING,
        Told(f"{len(better)} of {len(names)} do" if better else "none does"),
        _verdict(len(better), len(few), chance),
        (f"{'; '.join(better)}. " if better else "")
        + "Each variant with one change against the default, by pairs. Were all of them as good, "
        f"up to {chance} of {len(names)} would come out below by chance in 19 of 20 ablations."
        + (f" {len(few)} of them have fewer than {FEWEST} pairs of seeds." if few else "")
        + (f" Not counted, since their runs are the default's: {', '.join(idle)}." if idle else ""),
    )


def _changes_nothing(measured: MatrixNumbers, workload: str, name: str) -> bool:
    """Whether what a variant changes did not occur in any of its runs."""
    return _alike(measured, (workload, name), (workload, DEFAULT))


def _alike(measured: MatrixNumbers, one: Cell, other: Cell) -> bool:
    same = measured.paired(one, other).by_cell
    return measured.count(one, other) >= FEWEST and same[one] == same[other]


def _verdict(better: int, few: int, chance: int) -> Verdict:
    if better > chance:
        return Verdict.FAILS
    return Verdict.OPEN if better or few else Verdict.HOLDS


def by_chance(comparisons: int, share: float = 0.025) -> int:
    """So many of these come out below by chance at most, but for one time in twenty."""
    count, seen = -1, 0.0
    while seen < 0.95:
        count += 1
        seen += math.comb(comparisons, count) * share**count * (1 - share) ** (comparisons - count)
    return count


def _together(measured: MatrixNumbers, workload: str) -> Claim:
    found = measured.factor("max_rho_ref", of=(workload, NONE), over=(workload, DEFAULT))
    return Claim(
        f"Our bar, {workload.upper()}: max rho_ref with none of the levers, over that with all",
        OWN_BAR,
        NOTHING,
        found.told,
        at_least(found, 1.0),
        "None: every option as the paper has it, on beats and with agents that stick.",
    )


def _single_handed(measured: MatrixNumbers) -> Claim:
    """What each lever does on its own: on W2, where all of them have been run alone."""
    pairs = {lever: (("w2", f"none but {lever}"), ("w2", NONE)) for lever in LEVERS} | {
        lever: (("w2", NONE), ("w2", f"none, not even {lever}")) for lever in KEPT
    }
    there = {lever: cells for lever, cells in pairs.items() if set(cells) <= set(measured.by_cell)}
    idle = [lever for lever, cells in there.items() if _alike(measured, *cells)]
    alone = {
        lever: measured.factor("max_rho_ref", of=of, over=over)
        for lever, (of, over) in there.items()
        if lever not in idle
    }
    known = {lever: found for lever, found in alone.items() if found.seeds >= FEWEST}
    helps = [f"{lever} {found.told.text}" for lever, found in known.items() if found.below]
    harms = [f"{lever} {found.told.text}" for lever, found in known.items() if found.above]
    whole = bool(alone) and len(known) == len(alone)
    chance = by_chance(len(alone))
    verdict = Verdict.OPEN if helps or not whole else Verdict.FAILS
    if whole and len(helps) > chance:
        verdict = Verdict.HOLDS
    return Claim(
        "Our bar, W2: a lever alone makes max rho_ref surely lower than none does",
        OWN_BAR,
        NOTHING,
        Told(f"{len(helps)} of {len(alone)} do") if known else NOTHING,
        verdict,
        f"Alone they help: {', '.join(helps) or 'none'}; they harm: {', '.join(harms) or 'none'}; "
        "the others cannot be told from nothing. What harms alone may help with the others. Did "
        f"none of them anything, up to {chance} would seem to help by chance in 19 of 20 "
        f"ablations. {' and '.join(KEPT)} are each judged by what is lost without, with the other."
        + (f" Not counted, since they change nothing alone: {', '.join(idle)}." if idle else "")
        + ("" if whole else f" {len(alone) - len(known)} have fewer than {FEWEST} pairs of seeds."),
    )


def _table(measured: MatrixNumbers) -> NumberTable:
    rows: list[Row] = []
    for workload, name in measured.by_cell:
        found = measured.factor("max_rho_ref", of=(workload, name), over=(workload, DEFAULT))
        means = (measured.estimate(key, (workload, name)).mean for key in COLUMNS)
        rows.append((workload, name, found.mean, found.low, found.high, *means))
    head = (
        Column("workload"), Column("variant"), Column("max rho_ref / themis", ".3f"),
        Column("low", ".3f"), Column("high", ".3f"),
    )  # fmt: skip
    columns = (*head, *COLUMNS.values())
    return measured.on_seeds(NumberTable("ablation", "Means over seeds", columns, tuple(rows)))


def _figure(measured: MatrixNumbers) -> Drawing:
    # Points of a seed or two beside intervals would look as sure as these.
    least = min(FEWEST, max(measured.count((workload, DEFAULT)) for workload in WORKLOADS))
    marks = {
        workload.upper(): {
            name: measured.factor("max_rho_ref", of=(workload, name), over=(workload, DEFAULT))
            for name in _changes(measured, workload)
            if measured.count((workload, name), (workload, DEFAULT)) >= least
        }
        for workload in WORKLOADS
    }
    title = "Each change against the default (right of 1: worse)"
    return plot_ranges(title, "max rho_ref over that of themis, 95 % interval", marks, log=True)


def study(results: Results) -> Findings:
    """Compare every variant with the default."""
    measured = matrix(results).measure(results, MEASURES)
    return Findings(
        claims=(
            *(claim(measured, workload) for workload in WORKLOADS for claim in (_best, _together)),
            _single_handed(measured),
        ),
        tables=(_table(measured), measured.run_table("runs", ("workload", "variant"))),
        figures=(
            Figure("ablation", "What one change does to max rho_ref, by pairs of seeds.",
                   lambda: _figure(measured)),
        ),
        notes=(
            ("Variants that say what is the default anyway are left out. `none of these` has "
             "every option as the paper has it, but leases on beats and agents that stick and "
             "count restarts; `none but` has one lever of ours alone, and `none, not even` lacks "
             "one of these two as well. Levers alone, and what has no beats and takes minutes a "
             "run, are on W2 only. "
             "`by auction` is the auction's share of GPU time under contention, `kept` the mean "
             "fraction of their rows that winners keep."),
        ),
    )  # fmt: skip


EXPERIMENT = Experiment(
    "E14",
    "Ablation",
    "Nothing: this is how the default policy was chosen.",
    study,
    plan,
)
