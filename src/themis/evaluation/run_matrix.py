"""Policies, seeds and a swept key: what most experiments run.

    matrix = Matrix(over(base, ("w1", "w2"), POLICIES), seeds)
    matrix.configs()                                    # the plan
    measured = matrix.measure(results, {"max": max_rho})
    measured.factor("max", of=("w1", "gandiva"), over=("w1", "themis"))

A cell is a tuple of what distinguishes its runs: ("w1", "themis"), or (0.8, "themis-paper").
Missing runs are left out: every number is over the seeds that a cell has, and cells are compared on
the seeds that both have.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from themis.core.policies import policy_class, policy_options
from themis.evaluation.claims import Verdict
from themis.evaluation.comparisons import FEWEST, Factor, factor
from themis.evaluation.experiment import Column, NumberTable, Results, Row
from themis.evaluation.metrics import LITERAL, Metric
from themis.evaluation.provenance import seed_text
from themis.recording.written_settings import settings_for
from themis.sim.compare import Estimate, estimate, with_value
from themis.sim.config import RunConfig, allowed_keys

Value = str | float | int
Cell = tuple[Value, ...]


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

    def measure(self, results: Results, metrics: Mapping[str, Metric]) -> "MatrixNumbers":
        """The numbers of all runs. Reads each of them once."""
        return gather(results, {cell: self.runs(cell) for cell in self.cells}, metrics, self.seeds)


@dataclass(frozen=True, slots=True)
class MatrixNumbers:
    """Numbers of every cell, seed by seed; NaN where a run is missing or lacks the number."""

    by_cell: Mapping[Cell, Mapping[str, Sequence[float]]]
    seeds: tuple[int, ...]
    """The seeds that were asked for."""
    present: Mapping[Cell, tuple[int, ...]]
    """The seeds of which a cell has its run."""

    def judged(self, is_so: bool, *cells: Cell) -> Verdict:
        """A verdict on means of these cells; a few seeds leave it undecided."""
        if self.count(*cells) < FEWEST:
            return Verdict.UNDECIDED
        return Verdict.HOLDS if is_so else Verdict.FAILS

    def count(self, *cells: Cell) -> int:
        """How many seeds all of these cells have."""
        return len(self._common(cells))

    def _common(self, cells: Iterable[Cell]) -> tuple[int, ...]:
        sets = [set(self.present[cell]) for cell in cells]
        return tuple(seed for seed in self.seeds if all(seed in one for one in sets))

    def paired(self, *cells: Cell) -> "MatrixNumbers":
        """These cells alone, on the seeds that all of them have, so that means are comparable.

        A cell without runs stays empty and does not cost the others their seeds.
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

    def on_common_seeds(self, cells: Iterable[Cell]) -> "MatrixNumbers":
        """These cells on the seeds that all of them have, to be shown side by side.

        A cell with very few seeds would cost the others theirs: it is left empty. So is the
        mechanism as printed, whose runs take long; it keeps those of the common seeds that all of
        its cells have, if they are enough.
        """
        names = [cell for cell in cells if cell in self.by_cell]
        names.sort(key=lambda cell: cell[-1] == LITERAL)
        counts = {cell: self.count(cell) for cell in names if cell[-1] != LITERAL}
        least = max(1, min(FEWEST, max(counts.values(), default=0)))
        kept = [cell for cell, count in counts.items() if count >= least]
        common = self._common(kept) if kept else ()
        printed = [cell for cell in names if cell[-1] == LITERAL]
        own = tuple(one for one in common if all(one in self.present[each] for each in printed))
        if len(own) < least:
            own = ()
        present = dict.fromkeys(names, ()) | dict.fromkeys(kept, common)
        present |= dict.fromkeys(printed, own)
        places = {seed: place for place, seed in enumerate(self.seeds)}
        by_cell = {
            cell: {
                name: [each[places[one]] if one in there else math.nan for one in common]
                for name, each in self.by_cell[cell].items()
            }
            for cell, there in present.items()
        }
        return MatrixNumbers(by_cell, common, present)

    def values(self, name: str, cell: Cell) -> Sequence[float]:
        """One number over the seeds."""
        return self.by_cell[cell][name]

    def estimate(self, name: str, cell: Cell) -> Estimate:
        """Its mean over the finished runs, with the interval of Student's t."""
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
        self, name: str, title: str, head: Sequence[str], metrics: Mapping[str, Metric]
    ) -> NumberTable:
        """Means over the seeds, a row for each cell; `head` names the parts of a cell."""
        shown = {key: metric for key, metric in metrics.items() if metric.title}
        rows: list[Row] = [
            (*cell, *(self.estimate(key, cell).mean for key in shown)) for cell in self.by_cell
        ]
        columns = (*map(Column, head), *(Column(one.title, one.form) for one in shown.values()))
        return self.on_seeds(NumberTable(name, title, columns, tuple(rows)))

    def on_seeds(self, table: NumberTable) -> NumberTable:
        """A table with a row for each cell and its seeds in the title.

        Where cells have different seeds, each row names its own in a column.
        """
        given = seed_text(self.seeds)
        seeds_of = {cell: seed_text(self.present[cell]) or "none" for cell in self.by_cell}
        if len(set(seeds_of.values())) <= 1:
            seeds = next(iter(seeds_of.values()), given)
            part = "" if seeds == given else f" of {given}"
            return replace(table, title=f"{table.title} {seeds}{part}")
        width = len(next(iter(self.by_cell)))
        rows = tuple(
            (*row[:width], seeds_of[cell], *row[width:])
            for cell, row in zip(self.by_cell, table.rows, strict=True)
        )
        columns = (*table.columns[:width], Column("seeds"), *table.columns[width:])
        title = f"{table.title} of {given}, those that each row has"
        return replace(table, title=title, columns=columns, rows=rows)

    def tables(
        self, name: str, title: str, head: Sequence[str], metrics: Mapping[str, Metric]
    ) -> tuple[NumberTable, NumberTable]:
        """The tables of most experiments: the means, and every run for programs."""
        return self.table(name, title, head, metrics), self.run_table("runs", head)

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
    metrics: Mapping[str, Metric],
    seeds: tuple[int, ...],
) -> MatrixNumbers:
    """The numbers of finished runs, by cell and in the order of the seeds."""
    values: dict[Cell, dict[str, list[float]]] = {}
    present: dict[Cell, list[int]] = {}
    for cell, configs in runs.items():
        values[cell] = {name: [] for name in metrics}
        present[cell] = []
        for seed, config in zip(seeds, configs, strict=True):
            numbers = results.numbers(config, metrics)
            if numbers is not None:
                present[cell].append(seed)
            for name in metrics:
                values[cell][name].append(math.nan if numbers is None else numbers[name])
    return MatrixNumbers(values, seeds, {cell: tuple(found) for cell, found in present.items()})


def literal_notes(measured: MatrixNumbers) -> tuple[str, ...]:
    """A note where the mechanism as printed has few runs; the last part of a cell is its policy."""
    counts = [len(found) for cell, found in measured.present.items() if cell[-1] == LITERAL]
    if min(counts, default=FEWEST) >= min(FEWEST, len(measured.seeds)):
        return ()
    note = (
        f"has fewer than {FEWEST} seeds in some rows because its runs take long: such a row may "
        "show chance, and figures leave it out"
        if any(counts)
        else "is not run here because its runs take long"
    )
    return (f"{LITERAL} {note} (docs/decisions/0053). More with --policies {LITERAL}.",)


def over(bases: Mapping[Value, RunConfig], policies: Sequence[str]) -> dict[Cell, RunConfig]:
    """Cells of a first key and a policy; a policy gets the options that it knows."""
    cells: dict[Cell, RunConfig] = {}
    for first, base in bases.items():
        for policy in policies:
            known = allowed_keys(policy, base.workload)
            options = {key: value for key, value in base.options.items() if key in known}
            cells[first, policy] = plain(replace(base, policy=policy, options=options))
    return cells


def plain(config: RunConfig) -> RunConfig:
    """The same run without options that equal their defaults.

    A sweep then shares the run at the default with every other experiment that has it.
    """
    kind = policy_class(config.policy)
    keys = allowed_keys(config.policy, config.workload)
    usual = {**policy_options(kind), "error": 0.0}
    settings = settings_for(kind, {})

    def is_default(key: str, value: Any) -> bool:
        if keys.get(key) == "arbiter":
            return settings_for(kind, {key: value}) == settings
        return key in usual and bool(usual[key] == value)

    kept = {key: value for key, value in config.options.items() if not is_default(key, value)}
    return replace(config, options=kept)


def swept(base: RunConfig, key: str, values: Sequence[Value]) -> dict[Value, RunConfig]:
    """The base with each value of a key, a flag or an option."""
    return {value: with_value(base, key, value) for value in values}
