"""Policies, seeds and a swept key: what most experiments run.

    matrix = Matrix(over(base, ("w1", "w2"), POLICIES), seeds)
    matrix.configs()                                    # the plan
    measured = matrix.measure(results, {"max": max_rho})
    measured.factor("max", of=("w1", "gandiva"), over=("w1", "themis"))

A cell is a tuple of whatever tells the runs apart: ("w1", "themis"), or (0.8, "themis-paper").
Runs that are not there yet are left out: every number is of the seeds that a cell has, and cells
are compared on the seeds that both have.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from themis.core.policies import policy_class, policy_options
from themis.evaluation.comparisons import FEWEST, Factor, factor
from themis.evaluation.experiment import LITERAL, Column, NumberTable, Results, Row, Verdict
from themis.evaluation.report.provenance import seed_text
from themis.recording.written_settings import settings_for
from themis.sim.compare import Estimate, estimate, with_value
from themis.sim.config import RunConfig, allowed_keys
from themis.sim.runs.result_cache import CachedRun

Cell = tuple[str | float | int, ...]
Measure = Callable[[CachedRun], float]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Cells, each with the run that it is on every seed. The seeds are the same for all."""

    cells: Mapping[Cell, RunConfig]
    seeds: tuple[int, ...]

    def configs(self) -> list[RunConfig]:
        """Every run."""
        return [config for cell in self.cells for config in self.runs(cell)]

    def runs(self, cell: Cell) -> list[RunConfig]:
        """The runs of one cell, in the order of the seeds."""
        return [replace(self.cells[cell], seed=seed) for seed in self.seeds]

    def records(self, results: Results, cell: Cell) -> Iterator[CachedRun]:
        """The finished runs of one cell, one at a time."""
        found = (results.find(config) for config in self.runs(cell))
        return (record for record in found if record is not None)

    def measure(self, results: Results, measures: Mapping[str, Measure]) -> "MatrixNumbers":
        """The numbers of all runs. Reads each of them once."""
        return gather(results, {cell: self.runs(cell) for cell in self.cells}, measures, self.seeds)


@dataclass(frozen=True, slots=True)
class MatrixNumbers:
    """Numbers of every cell, seed by seed; NaN where a run is not there or has none."""

    by_cell: Mapping[Cell, Mapping[str, Sequence[float]]]
    seeds: tuple[int, ...]
    """Those that were asked for."""
    present: Mapping[Cell, tuple[int, ...]]
    """Those of which each cell has its run."""

    def judged(self, is_so: bool, *cells: Cell) -> Verdict:
        """A verdict on means of these cells, for which a few seeds are not enough."""
        if self.count(*cells) < FEWEST:
            return Verdict.OPEN
        return Verdict.HOLDS if is_so else Verdict.FAILS

    def count(self, *cells: Cell) -> int:
        """How many seeds all of these cells have."""
        return len(self._common(cells))

    def _common(self, cells: Iterable[Cell]) -> tuple[int, ...]:
        sets = [set(self.present[cell]) for cell in cells]
        return tuple(seed for seed in self.seeds if all(seed in one for one in sets))

    def paired(self, *cells: Cell) -> "MatrixNumbers":
        """These cells alone, on the seeds that all of them have: their means can be compared.

        A cell without any run is left as it is, or there would be nothing to compare.
        """
        kept = set(self._common(cell for cell in cells if self.present[cell]))
        places = [place for place, seed in enumerate(self.seeds) if seed in kept]
        return MatrixNumbers(
            {
                cell: {name: [each[p] for p in places] for name, each in self.by_cell[cell].items()}
                for cell in cells
            },
            tuple(self.seeds[place] for place in places),
            {cell: tuple(s for s in self.present[cell] if s in kept) for cell in cells},
        )

    def values(self, name: str, cell: Cell) -> Sequence[float]:
        """One number over the seeds."""
        return self.by_cell[cell][name]

    def estimate(self, name: str, cell: Cell) -> Estimate:
        """Its mean with the interval of Student's t, over the runs that are there."""
        there = set(self.present[cell])
        values = [
            value
            for seed, value in zip(self.seeds, self.values(name, cell), strict=True)
            if seed in there
        ]
        return estimate(values) if values else Estimate(math.nan, None, 0)

    def typical(self, name: str, cell: Cell) -> Factor:
        """Its geometric mean: for ratios, where twice and half weigh the same."""
        values = self.values(name, cell)
        return factor(values, [1.0] * len(values))

    def factor(self, name: str, *, of: Cell, over: Cell) -> Factor:
        """How many times larger it is in one cell than in the other, paired by seed."""
        return factor(self.values(name, of), self.values(name, over))

    def table(
        self, name: str, title: str, head: Sequence[str], columns: Mapping[str, Column]
    ) -> NumberTable:
        """Means over the seeds, a row for each cell; `head` names the parts of a cell."""
        rows: list[Row] = [
            (*cell, *(self.estimate(measure, cell).mean for measure in columns))
            for cell in self.by_cell
        ]
        heads = tuple(Column(part) for part in head)
        return self.on_seeds(NumberTable(name, title, (*heads, *columns.values()), tuple(rows)))

    def on_seeds(self, table: NumberTable) -> NumberTable:
        """A table with a row for each cell, saying which seeds it rests on; its title ends so.

        Where cells have different seeds every row names its own.
        """
        given = seed_text(self.seeds)
        told = {cell: seed_text(self.present[cell]) or "none" for cell in self.by_cell}
        if len(set(told.values())) <= 1:
            seeds = next(iter(told.values()), given)
            part = "" if seeds == given else f" of {given}"
            return replace(table, title=f"{table.title} {seeds}{part}")
        width = len(next(iter(self.by_cell)))
        rows = tuple(
            (*row[:width], told[cell], *row[width:])
            for cell, row in zip(self.by_cell, table.rows, strict=True)
        )
        columns = (*table.columns[:width], Column("seeds"), *table.columns[width:])
        title = f"{table.title} of {given}, those that each row has"
        return replace(table, title=title, columns=columns, rows=rows)

    def tables(
        self, name: str, title: str, head: Sequence[str], columns: Mapping[str, Column]
    ) -> tuple[NumberTable, NumberTable]:
        """What most experiments show: the means, and every run for programs."""
        return self.table(name, title, head, columns), self.run_table("runs", head)

    def run_table(self, name: str, head: Sequence[str]) -> NumberTable:
        """Every number of every run, for programs."""
        names = list(next(iter(self.by_cell.values()), {}))
        rows: list[Row] = [
            (*cell, seed, *(numbers[measure][place] for measure in names))
            for cell, numbers in self.by_cell.items()
            for place, seed in enumerate(self.seeds)
            if seed in self.present[cell]
        ]
        columns = tuple(Column(part) for part in (*head, "seed", *names))
        return NumberTable(name, "Every run", columns, tuple(rows), shown=False)


def gather(
    results: Results,
    runs: Mapping[Any, Sequence[RunConfig]],
    measures: Mapping[str, Measure],
    seeds: tuple[int, ...],
) -> MatrixNumbers:
    """The numbers of finished runs, by cell and in the order of the seeds."""
    values: dict[Cell, dict[str, list[float]]] = {}
    present: dict[Cell, list[int]] = {}
    for cell, configs in runs.items():
        values[cell] = {name: [] for name in measures}
        present[cell] = []
        for seed, config in zip(seeds, configs, strict=True):
            record = results.find(config)
            if record is not None:
                present[cell].append(seed)
                # Its files may lie elsewhere than where it was made.
                record = replace(record, config=config)
            for name, measure in measures.items():
                values[cell][name].append(math.nan if record is None else measure(record))
    return MatrixNumbers(values, seeds, {cell: tuple(found) for cell, found in present.items()})


def unprinted(measured: MatrixNumbers) -> tuple[str, ...]:
    """A note where the mechanism as printed has hardly been run; cells end with their policy."""
    counts = [len(found) for cell, found in measured.present.items() if cell[-1] == LITERAL]
    if min(counts, default=FEWEST) >= min(FEWEST, len(measured.seeds)):
        return ()
    if not any(counts):
        note = "is not run here, for a run takes long"
    else:
        note = (
            f"has fewer than {FEWEST} seeds in some rows, for a run takes long: what such a row "
            "shows may be chance, and figures leave it out"
        )
    return (f"{LITERAL} {note} (docs/decisions/0053). More with --policies {LITERAL}.",)


def over(
    bases: Mapping[str | float | int, RunConfig], policies: Sequence[str]
) -> dict[Cell, RunConfig]:
    """Cells of a first key and a policy; a policy gets the options that it knows."""
    cells: dict[Cell, RunConfig] = {}
    for first, base in bases.items():
        for policy in policies:
            known = allowed_keys(policy, base.workload)
            options = {key: value for key, value in base.options.items() if key in known}
            cells[first, policy] = plain(replace(base, policy=policy, options=options))
    return cells


def plain(config: RunConfig) -> RunConfig:
    """The same run without options that say what would be so anyway.

    So a sweep shares the run at the default with every other experiment that has it.
    """
    kind = policy_class(config.policy)
    keys = allowed_keys(config.policy, config.workload)
    usual = {**policy_options(kind), "error": 0.0}
    settings = settings_for(kind, {})

    def says_nothing(key: str, value: Any) -> bool:
        if keys.get(key) == "arbiter":
            return settings_for(kind, {key: value}) == settings
        return key in usual and bool(usual[key] == value)

    kept = {key: value for key, value in config.options.items() if not says_nothing(key, value)}
    return replace(config, options=kept)


def swept(
    base: RunConfig, key: str, values: Sequence[str | float | int]
) -> dict[str | float | int, RunConfig]:
    """The base with each value of a key, a flag or an option."""
    return {value: with_value(base, key, value) for value in values}


def gpu_over_work(record: CachedRun) -> float:
    """GPU time held for each unit of bare work, so that seeds with more work weigh no more."""
    useful = float(record.summary["gpu_hours_spent"]["useful"])
    return float(record.summary["gpu_hours"]) / useful if useful else float("nan")


def summary(key: str, convention: str = "") -> Measure:
    """A number of a run's summary; NaN where the run had none, or was made before there was one."""

    def of(record: CachedRun) -> float:
        value: Any = record.summary.get(key)
        if convention and value is not None:
            value = value[convention]
        return float("nan") if value is None else float(value)

    return of


MAIN = {
    "max_rho": summary("max_rho", "paper"),
    "max_rho_ref": summary("max_rho_ref", "fair_share"),
    "share_fair": summary("share_fair_ref", "fair_share"),
    "completion_h": summary("mean_completion_h"),
    "over_work": gpu_over_work,
    "moves": summary("moves"),
}
MAIN_COLUMNS = {
    "max_rho": Column("max rho (paper)", ".2f"),
    "max_rho_ref": Column("max rho_ref", ".2f"),
    "share_fair": Column("share fair", ".0%"),
    "completion_h": Column("completion h", ".1f"),
    "over_work": Column("GPU time / work", ".3f"),
    "moves": Column("moves", ".0f"),
}
"""What nearly every table shows."""
