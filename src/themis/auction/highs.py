"""Exact winner determination by HiGHS, for auctions too large to search.

One thread and a fixed seed, so the same problem gets the same answer.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import highspy
import numpy as np

from themis.auction.greedy import serve
from themis.auction.milp import LOOSE, Kind, Model, Program, build, kind_of
from themis.auction.packing import by_option, pack
from themis.auction.patterns import Size
from themis.auction.prepared import Option, Prepared
from themis.auction.room import Need
from themis.auction.solution import Place
from themis.auction.solver import Find, Found
from themis.errors import InvariantError
from themis.model import RACK

NO_LIMIT = 2**31 - 1

_OPTIONS: dict[str, bool | int | float] = {
    "output_flag": False,
    "threads": 1,
    "random_seed": 0,
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 1e-9,
}


def start(prepared: Prepared) -> Find:
    """Begin: write the program once, then solve it with some bidders switched off."""
    return Finder(prepared).find


class Finder:
    """Winner determinations on one problem."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.model = build(prepared)
        self.highs = highspy.Highs()  # type: ignore[no-untyped-call]  # highspy leaves it bare
        for name, value in _OPTIONS.items():
            self.highs.setOptionValue(name, value)
        _load(self.highs, self.model.program)

    def find(self, bidders: tuple[int, ...], budget: int | None) -> Found:
        """Determine the winners among these bidders. Work is counted in nodes."""
        if not any(self.prepared.options[i] for i in bidders):
            return Found((), 0.0, True, 0, tuple)
        self._invite(bidders)
        self.highs.setOptionValue("mip_max_nodes", NO_LIMIT if budget is None else budget)
        self.highs.run()
        return self._answer(bidders)

    def _invite(self, bidders: Sequence[int]) -> None:
        present = set(bidders)
        columns, upper = [], []
        for bidder, rows in self.model.rows.items():
            for _, column in rows:
                columns.append(column)
                upper.append(1.0 if bidder in present else 0.0)
        self.highs.clearSolver()  # nothing learned before may change this answer
        index = np.array(columns, dtype=np.int32)
        self.highs.changeColsBounds(
            len(columns), index, np.zeros(len(columns)), np.array(upper, dtype=np.float64)
        )

    def _answer(self, bidders: Sequence[int]) -> Found:
        status = self.highs.getModelStatus()
        info = self.highs.getInfo()
        exact = status == highspy.HighsModelStatus.kOptimal
        work = max(1, int(info.mip_node_count))
        values: list[int] = []
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            values = np.rint(np.asarray(self.highs.getSolution().col_value)).astype(int).tolist()
        chosen = tuple(
            option
            for bidder in bidders
            for option, column in self.model.rows[bidder]
            if values and values[column]
        )
        found = Found(chosen, 0.0, exact, work, _placing(self.prepared, self.model, chosen, values))
        if exact:
            return replace(found, bound=found.value)
        hopes = sum(rows[0].gain for i in bidders if (rows := self.prepared.options[i]))
        dual = float(info.mip_dual_bound)
        bound = min(hopes, dual) if math.isfinite(dual) else hopes
        seed = serve(self.prepared, bidders)
        if not values or seed.value > found.value:
            found = replace(seed, work=work)
        return replace(found, bound=max(bound, found.value), exact=False)


def _load(highs: highspy.Highs, program: Program) -> None:
    lp = highspy.HighsLp()
    lp.num_col_ = len(program.cost)
    lp.num_row_ = len(program.rows)
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = np.array(program.cost, dtype=np.float64)
    lp.col_lower_ = np.zeros(lp.num_col_)
    lp.col_upper_ = np.array(program.upper, dtype=np.float64)
    lp.row_lower_ = np.array([low for low, _, _ in program.rows], dtype=np.float64)
    lp.row_upper_ = np.array([high for _, high, _ in program.rows], dtype=np.float64)
    starts, index, value = [0], [], []
    for _, _, terms in program.rows:
        for column, coefficient in terms:
            index.append(column)
            value.append(coefficient)
        starts.append(len(index))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array(starts, dtype=np.int32)
    lp.a_matrix_.index_ = np.array(index, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(value, dtype=np.float64)
    whole, real = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    lp.integrality_ = [whole if integer else real for integer in program.integer]
    highs.passModel(lp)


def _placing(
    prepared: Prepared, model: Model, chosen: tuple[Option, ...], values: list[int]
) -> Callable[[], tuple[tuple[Place, ...], ...]]:
    def place() -> tuple[tuple[Place, ...], ...]:
        places = pack(prepared.machines, _decode(prepared, model, chosen, values))
        if places is None:
            raise InvariantError("the rows HiGHS chose do not fit", chosen)
        return by_option(chosen, places)

    return place


@dataclass(slots=True)
class _Stock:
    """What the program promised: holes by machine, and chunks of each kind by class and rack."""

    holes: dict[int, dict[Size, int]]
    hard: dict[Kind, list[tuple[int, int]]]
    racks: dict[Kind, list[tuple[int, int]]]


def _decode(
    prepared: Prepared, model: Model, chosen: Sequence[Option], values: list[int]
) -> list[Need]:
    """The chosen chunks, pinned to the machines and racks that the program found for them."""
    stock = _stock(model, values)
    needs = []
    for option in chosen:
        allowed = prepared.bidders[option.bidder].machines
        for chunk in option.chunks:
            kind = kind_of(chunk, model.groups[option.bidder])
            if kind[0] == RACK:
                needs.append(Need(chunk, allowed, _draw(stock.racks[kind])))
            elif kind[0] == LOOSE or chunk.machine is not None:
                needs.append(Need(chunk, allowed))
            else:
                members = model.classes[_draw(stock.hard[kind])].members
                machine = _take_hole(stock.holes, members, kind[:2])
                needs.append(Need(replace(chunk, machine=machine), allowed))
    return needs


def _stock(model: Model, values: list[int]) -> _Stock:
    holes: dict[int, dict[Size, int]] = {}
    used: dict[int, int] = {}
    for column, members, held in model.cuts:
        for _ in range(values[column]):
            if len(members) == 1:
                machine = members[0]
            else:
                machine = members[used.get(members[0], 0)]
                used[members[0]] = used.get(members[0], 0) + 1
            room = holes.setdefault(machine, {})
            for size, count in held.items():
                room[size] = room.get(size, 0) + count
    hard: dict[Kind, list[tuple[int, int]]] = {}
    for (kind, number), column in model.hard.items():
        hard.setdefault(kind, []).append((number, values[column]))
    racks: dict[Kind, list[tuple[int, int]]] = {}
    for (kind, rack), column in model.racks.items():
        racks.setdefault(kind, []).append((rack, values[column]))
    return _Stock(holes, hard, racks)


def _draw(left: list[tuple[int, int]]) -> int:
    for index, (where, count) in enumerate(left):
        if count > 0:
            left[index] = (where, count - 1)
            return where
    raise InvariantError("HiGHS placed fewer chunks than it chose")


def _take_hole(holes: dict[int, dict[Size, int]], members: Sequence[int], size: Size) -> int:
    for machine in members:
        room = holes.get(machine, {})
        if room.get(size, 0) > 0:
            room[size] -= 1
            return machine
    raise InvariantError("HiGHS cut fewer holes than it filled")
