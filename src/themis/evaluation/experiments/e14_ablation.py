"""E14: what each lever of the default policy is worth: the record of how it was chosen."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from themis.core.policies.themis import Themis
from themis.evaluation.claims import (
    NO_VALUE,
    OWN_BAR,
    Claim,
    ClaimAnswer,
    Quantity,
    Verdict,
    check,
    details,
)
from themis.evaluation.comparisons import FEWEST, Factor, at_least
from themis.evaluation.experiment import (
    FEWER_REPORT_SEEDS,
    Column,
    Experiment,
    Figure,
    Findings,
    NumberTable,
    Results,
)
from themis.evaluation.figures.charts import plot_ranges
from themis.evaluation.levers import OwnLeases, PlainBids, Roaming, without
from themis.evaluation.macro_benchmark import WORKLOADS
from themis.evaluation.metrics import LITERAL, MAIN, OURS, metrics
from themis.evaluation.run_matrix import Cell, Matrix, MatrixNumbers, plain
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
    """Whether it belongs to a quick look; slow variants do not."""
    workloads: tuple[str, ...] = WORKLOADS
    single: bool = True
    """Whether it is the default with one change."""


PRINTED: Mapping[str, object] = {
    "rank": "now", "lookahead": 0.0, "urgent": 0.0, "hysteresis": 0.0, "horizon": "end",
    "leftovers": "paper", "payment": "gpus", "convention": "paper", "contention_of": "run",
    "bidder": "app", "min_invited": 1, "guard_rounds": 0, "guard_patience": 1, "call_in_gain": 0.0,
    "fresh_tables": True, "idle_after": 0.0, "added_work": "extends", "audit_tolerance": 0.0,
}  # fmt: skip
"""Every lever that is an option, set as in `themis-paper`, but on beats as all policies are."""
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
    """Without one of the levers that are left."""
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
    # Levers that are no options.
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
"""Every row is a variant; one that equals another is left out. Add yours here."""

METRICS = {**MAIN, **metrics("auction_share", "kept")}


def variants(results: Results) -> tuple[Variant, ...]:
    """The variants to run: without those that are the default under another name."""
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


def by_chance(comparisons: int, share: float = 0.025) -> int:
    """The most of these that come out below by chance in 19 of 20 ablations."""
    count, seen = -1, 0.0
    while seen < 0.95:
        count += 1
        seen += math.comb(comparisons, count) * share**count * (1 - share) ** (comparisons - count)
    return count


def _over_default(measured: MatrixNumbers, workload: str, name: str) -> Factor:
    return measured.factor("max_rho_ref", of=(workload, name), over=(workload, DEFAULT))


def _changes(measured: MatrixNumbers, workload: str) -> list[str]:
    """The variants that were run on a workload, without the default."""
    return [str(name) for work, name in measured.by_cell if work == workload and name != DEFAULT]


def _equal_runs(measured: MatrixNumbers, one: Cell, other: Cell) -> bool:
    """Whether the difference between two variants affected none of their runs."""
    same = measured.paired(one, other).by_cell
    return measured.count(one, other) >= FEWEST and same[one] == same[other]


def _listed(found: Mapping[str, Factor]) -> str:
    return ", ".join(f"{name} {factor.shown.text}" for name, factor in found.items())


def _best(measured: MatrixNumbers, workload: str) -> ClaimAnswer:
    """Each variant with one change against the default, by pairs."""
    single = {one.name for one in VARIANTS if one.single}
    changes = [name for name in _changes(measured, workload) if name in single]
    idle = [
        name for name in changes if _equal_runs(measured, (workload, name), (workload, DEFAULT))
    ]
    found = {name: _over_default(measured, workload, name) for name in changes if name not in idle}
    better = {name: item for name, item in found.items() if item.below}
    few = sum(item.seeds < FEWEST for item in found.values())
    chance = by_chance(len(found))
    verdict = Verdict.UNDECIDED if better or few else Verdict.HOLDS
    return ClaimAnswer(
        Quantity(f"{len(better)} of {len(found)} do" if better else "none does"),
        Verdict.FAILS if len(better) > chance else verdict,
        details=details(
            ("better", _listed(better)),
            ("better by chance, at most", f"{chance} of {len(found)}"),
            (f"with fewer than {FEWEST} pairs of seeds", str(few) if few else None),
            ("not counted, since their runs are the default's", ", ".join(idle)),
        ),
    )


def _together(measured: MatrixNumbers, workload: str) -> ClaimAnswer:
    found = _over_default(measured, workload, NONE)
    return ClaimAnswer(found.shown, at_least(found, 1.0))


def _single_handed(measured: MatrixNumbers) -> ClaimAnswer:
    """The effect of each lever on its own: on W2, where all of them have been run alone."""
    pairs = {lever: (("w2", f"none but {lever}"), ("w2", NONE)) for lever in LEVERS} | {
        lever: (("w2", NONE), ("w2", f"none, not even {lever}")) for lever in KEPT
    }
    run = {lever: cells for lever, cells in pairs.items() if set(cells) <= set(measured.by_cell)}
    idle = [lever for lever, cells in run.items() if _equal_runs(measured, *cells)]
    alone = {
        lever: measured.factor("max_rho_ref", of=of, over=over)
        for lever, (of, over) in run.items()
        if lever not in idle
    }
    known = {lever: found for lever, found in alone.items() if found.seeds >= FEWEST}
    helps = {lever: found for lever, found in known.items() if found.below}
    harms = {lever: found for lever, found in known.items() if found.above}
    whole = bool(alone) and len(known) == len(alone)
    chance = by_chance(len(alone))
    verdict = Verdict.UNDECIDED if helps or not whole else Verdict.FAILS
    if whole and len(helps) > chance:
        verdict = Verdict.HOLDS
    return ClaimAnswer(
        Quantity(f"{len(helps)} of {len(alone)} do") if known else NO_VALUE,
        verdict,
        details=details(
            ("alone they help", _listed(helps) or "none"),
            ("they harm", _listed(harms) or "none"),
            ("seem to help by chance, at most", str(chance)),
            ("not counted, since they change nothing alone", ", ".join(idle)),
            (f"with fewer than {FEWEST} pairs of seeds",
             None if whole else str(len(alone) - len(known))),
        ),
    )  # fmt: skip


CLAIMS: tuple[Claim[MatrixNumbers], ...] = (
    *(
        claim
        for workload in WORKLOADS
        for claim in (
            Claim(
                f"{workload}-best",
                f"Our bar, {workload.upper()}: no single change makes max rho_ref surely lower",
                OWN_BAR,
                partial(_best, workload=workload),
                "Single changes",
            ),
            Claim(
                f"{workload}-together",
                f"Our bar, {workload.upper()}: max rho_ref with none of the levers, over that with "
                "all",
                OWN_BAR,
                partial(_together, workload=workload),
                "None of the levers",
            ),
        )
    ),
    Claim(
        "w2-alone",
        "Our bar, W2: a lever alone makes max rho_ref surely lower than none does",
        OWN_BAR,
        _single_handed,
        "Levers alone",
    ),
)


def _table(measured: MatrixNumbers) -> NumberTable:
    """The means, after the factor over the default."""
    rows = []
    for workload, name in measured.by_cell:
        found = _over_default(measured, str(workload), str(name))
        each = (measured.estimate(key, (workload, name)).mean for key in METRICS)
        rows.append((workload, name, found.mean, found.low, found.high, *each))
    head = (
        Column("workload"), Column("variant"), Column("max rho_ref / themis", ".3f"),
        Column("low", ".3f"), Column("high", ".3f"),
    )  # fmt: skip
    columns = (*head, *(Column(one.title, one.form) for one in METRICS.values()))
    return measured.on_seeds(NumberTable("ablation", "Means over seeds", columns, tuple(rows)))


def _figure(measured: MatrixNumbers) -> Drawing:
    # Points of a seed or two beside intervals would look as sure as these.
    least = min(FEWEST, max(measured.count((workload, DEFAULT)) for workload in WORKLOADS))
    marks = {
        workload.upper(): {
            name: _over_default(measured, workload, name)
            for name in _changes(measured, workload)
            if measured.count((workload, name), (workload, DEFAULT)) >= least
        }
        for workload in WORKLOADS
    }
    title = "Each change against the default (right of 1: worse)"
    return plot_ranges(title, "max rho_ref over that of themis, 95 % interval", marks, log=True)


def study(results: Results) -> Findings:
    """Compare every variant with the default."""
    measured = matrix(results).measure(results, METRICS)
    caption = "What one change does to max rho_ref, by pairs of seeds."
    return Findings(
        check(CLAIMS, measured),
        (_table(measured), measured.run_table("runs", ("workload", "variant"))),
        (Figure("ablation", caption, partial(_figure, measured)),),
    )


EXPERIMENT = Experiment(
    "E14",
    "Ablation",
    "Nothing: this is how the default policy was chosen.",
    study,
    plan,
    module=__name__,
)
