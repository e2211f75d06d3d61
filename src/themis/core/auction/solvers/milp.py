"""Winner determination as a mixed integer program over classes of machines.

One binary per row. Chunks that need a hole (one slot or one machine) are served by patterns: how
often each class is cut in each way. Chunks of one rack get a count per rack, and they and the loose
ones are carried by flows out of what the patterns leave.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from themis.core.auction.solvers.ladder.machine_patterns import (
    MachineClass,
    Size,
    bidder_groups,
    machine_classes,
    maximal_patterns,
)
from themis.core.auction.solvers.prepared import Option, PreparedProblem, is_hard
from themis.core.model import MACHINE, RACK, SLOT, Chunk

Kind = tuple[int, int, int | None, int]
"""Chunks a solver need not tell apart: (level, GPUs, pinned machine, group of the bidder)."""

LOOSE = -1
"""Stands for a level: GPUs that may lie anywhere, counted one by one."""


@dataclass(slots=True)
class MilpProgram:
    """Columns and rows. Maximise."""

    cost: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    rows: list[tuple[float, float, list[tuple[int, float]]]] = field(default_factory=list)

    def column(self, upper: float, cost: float = 0.0, *, integer: bool = True) -> int:
        """Add a variable between 0 and `upper`."""
        self.cost.append(cost)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.cost) - 1

    def row(self, low: float, high: float, terms: Iterable[tuple[int, float]]) -> None:
        """Add a constraint; one without terms says nothing."""
        entries = list(terms)
        if entries:
            self.rows.append((low, high, entries))


@dataclass(slots=True)
class MilpModel:
    """The program of a problem, and what its columns mean."""

    program: MilpProgram
    rows: dict[int, list[tuple[Option, int]]]
    """Per bidder, its options and their columns."""
    cuts: list[tuple[int, tuple[int, ...], dict[Size, int]]]
    """A column that says how many of these machines are cut into these chunks."""
    hard: dict[tuple[Kind, int], int]
    """Chunks of a kind that lie in a class (by number)."""
    racks: dict[tuple[Kind, int], int]
    """Chunks of a kind that lie in a rack."""
    classes: list[MachineClass]
    groups: tuple[int, ...]


def kind_of(chunk: Chunk, group: int) -> Kind:
    """The kind of a normal chunk."""
    if is_hard(chunk):
        # One GPU of a given machine can come from any of its slots.
        level = MACHINE if chunk.count == 1 else chunk.level
        return (level, chunk.count, chunk.machine, -1 if chunk.machine is not None else group)
    if chunk.level == RACK:
        return (RACK, chunk.count, None, group)
    return (LOOSE, 1, None, group)


def build(prepared: PreparedProblem) -> MilpModel:
    """Write the program of a problem."""
    _, groups = bidder_groups(prepared)
    model = MilpModel(MilpProgram(), {}, [], {}, {}, machine_classes(prepared), groups)
    demand = _choose_rows(prepared, model)
    leaving: list[list[tuple[int, float]]] = [[] for _ in model.classes]
    _serve_hard(model, demand, leaving)
    _serve_soft(model, demand, leaving)
    for members, terms in zip(model.classes, leaving, strict=True):
        model.program.row(-math.inf, members.gpus, terms)
    return model


def _choose_rows(
    prepared: PreparedProblem, model: MilpModel
) -> dict[Kind, list[tuple[int, float]]]:
    """One column per row, at most one row per bidder, quotas; returns who demands what."""
    program = model.program
    demand: dict[Kind, list[tuple[int, float]]] = {}
    for bidder, options in enumerate(prepared.options):
        columns = [(option, program.column(1.0, option.gain)) for option in options]
        model.rows[bidder] = columns
        program.row(-math.inf, 1.0, [(column, 1.0) for _, column in columns])
        for option, column in columns:
            counts: dict[Kind, int] = {}
            for chunk in option.chunks:
                kind = kind_of(chunk, model.groups[bidder])
                counts[kind] = counts.get(kind, 0) + (chunk.count if kind[0] == LOOSE else 1)
            for kind, count in counts.items():
                demand.setdefault(kind, []).append((column, float(count)))
    for cap in prepared.caps:
        members = [entry for bidder in sorted(cap.bidders) for entry in model.rows[bidder]]
        program.row(-math.inf, cap.gpus, [(column, float(o.gpus)) for o, column in members])
    return demand


def _usable(kind: Kind, members: MachineClass) -> bool:
    _, _, machine, group = kind
    return members.pinned == machine if machine is not None else group in members.groups


def _serve_hard(
    model: MilpModel,
    demand: dict[Kind, list[tuple[int, float]]],
    leaving: list[list[tuple[int, float]]],
) -> None:
    """Chunks with a hole of their own: each lies in one class, within what its cuts supply."""
    program = model.program
    kinds = sorted((k for k in demand if k[0] in {SLOT, MACHINE}), key=_kind_order)
    sources: dict[Kind, list[tuple[int, float]]] = {kind: [] for kind in kinds}
    for number, members in enumerate(model.classes):
        usable = [kind for kind in kinds if _usable(kind, members) and _may_hold(kind, members)]
        used: dict[Size, list[tuple[int, float]]] = {}
        for kind in usable:
            level, size, _, _ = kind
            column = program.column(float(members.gpus // size))
            model.hard[kind, number] = column
            sources[kind].append((column, 1.0))
            leaving[number].append((column, float(size)))
            used.setdefault((level, size), []).append((column, -1.0))
        supply = _cut(model, members, sorted(used))
        for size_key, terms in used.items():
            program.row(0.0, math.inf, [*supply[size_key], *terms])
    for kind in kinds:
        program.row(0.0, 0.0, [*sources[kind], *((c, -n) for c, n in demand[kind])])


def _may_hold(kind: Kind, members: MachineClass) -> bool:
    return kind[1] <= (max(members.slots) if kind[0] == SLOT else sum(members.slots))


def _cut(
    model: MilpModel, members: MachineClass, sizes: Sequence[Size]
) -> dict[Size, list[tuple[int, float]]]:
    """Columns that cut the machines of a class; returns what they supply of each size."""
    supply: dict[Size, list[tuple[int, float]]] = {size: [] for size in sizes}
    if not sizes:
        return supply
    patterns = maximal_patterns(members.slots, sizes)
    if patterns is None:
        for machine in members.members:
            _cut_alone(model, members, machine, supply)
        return supply
    count = float(len(members.members))
    columns = []
    for pattern in patterns:
        column = model.program.column(count)
        columns.append((column, 1.0))
        held = {size: n for size, n in zip(sizes, pattern, strict=True) if n}
        model.cuts.append((column, members.members, held))
        for size, n in held.items():
            supply[size].append((column, float(n)))
    model.program.row(-math.inf, count, columns)
    return supply


def _cut_alone(
    model: MilpModel,
    members: MachineClass,
    machine: int,
    supply: dict[Size, list[tuple[int, float]]],
) -> None:
    """A machine with too many patterns: a count of each size per slot, and in the machine."""
    program = model.program
    total: list[tuple[int, float]] = []

    def hold(size: Size, room: int) -> tuple[int, float]:
        column = program.column(float(room // size[1]))
        model.cuts.append((column, (machine,), {size: 1}))
        supply[size].append((column, 1.0))
        total.append((column, float(size[1])))
        return (column, float(size[1]))

    for slot in members.slots:
        terms = [hold(size, slot) for size in supply if size[0] == SLOT and size[1] <= slot]
        program.row(-math.inf, slot, terms)
    for size in supply:
        if size[0] == MACHINE:
            hold(size, sum(members.slots))
    program.row(-math.inf, sum(members.slots), total)


def _serve_soft(
    model: MilpModel,
    demand: dict[Kind, list[tuple[int, float]]],
    leaving: list[list[tuple[int, float]]],
) -> None:
    """Chunks of one rack and loose GPUs: flows out of the classes their bidder may use."""
    program = model.program
    racks = sorted({members.rack for members in model.classes})
    inflow: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for kind in sorted((k for k in demand if k[0] == RACK), key=_kind_order):
        _, size, _, group = kind
        sources = []
        for rack in racks:
            room = sum(m.gpus for m in model.classes if m.rack == rack and group in m.groups)
            if room >= size:
                column = program.column(float(room // size))
                model.racks[kind, rack] = column
                sources.append((column, 1.0))
                inflow.setdefault((rack, group), []).append((column, -float(size)))
        program.row(0.0, 0.0, [*sources, *((c, -n) for c, n in demand[kind])])
    for (rack, group), terms in inflow.items():
        usable = [c for c, m in enumerate(model.classes) if m.rack == rack and group in m.groups]
        program.row(0.0, 0.0, [*_flows(model, usable, leaving), *terms])
    for kind in sorted((k for k in demand if k[0] == LOOSE), key=_kind_order):
        usable = [c for c, m in enumerate(model.classes) if kind[3] in m.groups]
        terms = [(column, -count) for column, count in demand[kind]]
        program.row(0.0, 0.0, [*_flows(model, usable, leaving), *terms])


def _flows(
    model: MilpModel, usable: Sequence[int], leaving: list[list[tuple[int, float]]]
) -> list[tuple[int, float]]:
    # Whole once everything else is: a flow between whole numbers can be made whole.
    terms = []
    for number in usable:
        column = model.program.column(float(model.classes[number].gpus), integer=False)
        leaving[number].append((column, 1.0))
        terms.append((column, 1.0))
    return terms


def _kind_order(kind: Kind) -> tuple[int, int, int, int]:
    level, size, machine, group = kind
    return (level, size, -1 if machine is None else machine, group)
