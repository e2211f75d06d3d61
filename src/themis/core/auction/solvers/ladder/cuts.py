"""A limit that a set of rows breaks, when they do not fit into the machines there are.

Counting pieces of one size at a time misses how sizes, slots and pinned chunks get into each
other's way. Weights on chunks prove that a demand is too large if it weighs more than the heaviest
filling of every machine (or of every rack, where chunks may lie anywhere in a rack). The weights
come from a linear program that meets the heaviest fillings one by one; they are rounded to whole
numbers and the limit is worked out again from them, so it always holds.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import highspy
import numpy as np

from themis.core.auction.problem import OfferedMachine
from themis.core.auction.solvers.ladder.knapsack import (
    Cuts,
    Pins,
    TooManyWaysError,
    Ways,
    Weights,
    closure,
    heaviest,
    heaviest_of_one,
    spread,
)
from themis.core.auction.solvers.ladder.machine_patterns import Size
from themis.core.auction.solvers.ladder.pin_lifting import Bundle, Lifting, OneMachine, bundles_of
from themis.core.auction.solvers.ladder.resource_table import Real, ResourceTable, Whole
from themis.core.auction.solvers.milp import LOOSE
from themis.core.model import MACHINE, RACK, SLOT

_SCALES = (1.0, 2.0, 0.5, 3.0)
_MARGIN = 1e-6
_ROUNDS = 30


@dataclass(frozen=True, slots=True)
class _Scene:
    """A demand in sizes, and the groups of machines it has to fit into."""

    sizes: tuple[Size, ...]
    spans: tuple[int, ...]
    amounts: Real
    cuts: Cuts
    groups: list[list[Ways]]
    counts: Real


class Cutter:
    """Finds limits for one auction, by machines or by racks."""

    def __init__(
        self, machines: Sequence[OfferedMachine], table: ResourceTable, *, racks: bool = True
    ) -> None:
        self.table = table
        self.slots = {
            offered.machine: tuple(sorted((size for size in offered.slots if size), reverse=True))
            for offered in machines
        }
        self.alone = [[machine] for machine in self.slots]
        groups: dict[int, list[int]] = {}
        for offered in machines:
            groups.setdefault(offered.rack, []).append(offered.machine)
        self.racks = list(groups.values()) if racks else []
        self.bundles: list[list[Bundle]] = [bundles_of(option) for option in table.options]
        self.on: dict[int, list[Bundle]] = {}
        for bundle in dict.fromkeys(bundle for some in self.bundles for bundle in some):
            self.on.setdefault(bundle.machine, []).append(bundle)
        self._known: dict[tuple[Size, ...], Cuts] = {}
        self._machines: dict[tuple[tuple[Size, ...], int], OneMachine] = {}
        self.largest = max((kind[1] for kind in table.kinds), default=1)

    def limit(self, rows: Whole) -> tuple[Whole, int] | None:
        """What each row of the table takes, and the most there is, if these rows exceed it.

        Machine by machine: quick, and seldom without success.
        """
        demand, pinned = self._asked(rows)
        try:
            found = self._conflict(pinned)
            return found or self._separate(rows, demand, pinned, self.alone, wide=False)
        except TooManyWaysError:
            return None

    def wide_limit(self, rows: Whole) -> tuple[Whole, int] | None:
        """The same rack by rack, where some of these rows need one: that takes longer."""
        demand, pinned = self._asked(rows)
        kinds = zip(self.table.kinds, demand, strict=True)
        if not self.racks or not any(amount and kind[0] == RACK for kind, amount in kinds):
            return None
        try:
            return self._separate(rows, demand, pinned, self.racks, wide=True)
        except TooManyWaysError:
            return None

    def _asked(self, rows: Whole) -> tuple[list[int], set[Bundle]]:
        demand: list[int] = self.table.demand[rows].sum(axis=0).tolist()
        return demand, {bundle for row in rows.tolist() for bundle in self.bundles[row]}

    def _conflict(self, pinned: set[Bundle]) -> tuple[Whole, int] | None:
        """A machine on which not all that is pinned fits: only this many of these rows can win."""
        by_machine: dict[int, list[Bundle]] = {}
        for bundle in sorted(pinned, key=lambda bundle: (bundle.machine, bundle.bidder)):
            by_machine.setdefault(bundle.machine, []).append(bundle)
        cuts = self._cuts(())
        for machine, some in by_machine.items():
            slots = self.slots.get(machine, ())
            most = 0
            for size in range(len(some), 0, -1):
                if any(_fit(cuts, slots, chosen) for chosen in combinations(some, size)):
                    most = size
                    break
            if most < len(some):
                taken = [len(set(some).intersection(bundles)) for bundles in self.bundles]
                return np.array(taken, dtype=np.int64), most
        return None

    def _separate(
        self,
        rows: Whole,
        demand: Sequence[int],
        pinned: set[Bundle],
        groups: Sequence[Sequence[int]],
        *,
        wide: bool,
    ) -> tuple[Whole, int] | None:
        scene = self._scene(demand, pinned, groups, wide=wide)
        weights = None if scene is None else _weigh(scene)
        if scene is None or weights is None:
            return None
        for scale in _SCALES:
            rounded = np.rint(weights * scale)
            whole = _split(scene, rounded)
            tops = [heaviest(machines, scene.spans, whole)[0] for machines in scene.groups]
            if rounded @ scene.amounts <= float(np.array(tops) @ scene.counts):
                continue
            for tight in (False, True)[: 1 if wide else 2]:
                found = self._lift(scene, whole, pinned, wide=wide, tight=tight)
                if found is not None and int(found[0][rows].sum()) > found[1]:
                    return found
        return None

    def _scene(
        self,
        demand: Sequence[int],
        pinned: set[Bundle],
        groups: Sequence[Sequence[int]],
        *,
        wide: bool,
    ) -> _Scene | None:
        holes: dict[Size, int] = {}
        spans: dict[int, int] = {}
        loose = 0
        for (level, size, machine, _), amount in zip(self.table.kinds, demand, strict=True):
            if not amount or machine is not None:
                continue
            if level == LOOSE:
                loose += amount * wide
            elif level == RACK:
                spans[size] = spans.get(size, 0) + amount * wide
            else:
                holes[level, size] = holes.get((level, size), 0) + amount
        sizes = tuple(sorted(holes))
        widths = tuple(sorted(spans)) if wide else ()
        if not sizes and not widths:
            return None
        cuts = self._cuts(sizes)
        held: dict[int, list[Size]] = {}
        for bundle in pinned:
            held.setdefault(bundle.machine, []).extend(bundle.pins)
        pools: Counter[tuple[tuple[tuple[int, ...], Pins], ...]] = Counter()
        for members in groups:
            pools[
                tuple(sorted((self.slots[m], tuple(sorted(held.get(m, ())))) for m in members))
            ] += 1
        inside: list[list[Ways]] = []
        for pool in pools:
            ways = [cuts.ways(slots, pins) for slots, pins in pool]
            known = [way for way in ways if way is not None]
            if len(known) < len(ways):
                return None
            inside.append(known)
        amounts = [*(holes[s] for s in sizes), *(spans[k] for k in widths), loose]
        counts = np.array(list(pools.values()), dtype=np.float64)
        return _Scene(sizes, widths, np.array(amounts, dtype=np.float64), cuts, inside, counts)

    def _cuts(self, sizes: tuple[Size, ...]) -> Cuts:
        return self._known.setdefault(sizes, Cuts(sizes))

    def _lift(
        self,
        scene: _Scene,
        weights: Weights,
        pinned: set[Bundle],
        *,
        wide: bool,
        tight: bool,
    ) -> tuple[Whole, int] | None:
        """Weights of all rows, and the most that fits; what is pinned weighs what it spoils."""
        slot, machine, span = closure(scene.sizes, scene.spans, weights, self.largest)
        by_level = {SLOT: slot, MACHINE: machine, RACK: span, LOOSE: span}
        values = np.array(
            [0 if kind[2] is not None else by_level[kind[0]][kind[1]] for kind in self.table.kinds],
            dtype=np.int64,
        )
        closed = Weights(
            np.array([by_level[level][size] for level, size in scene.sizes], dtype=np.float64),
            np.array([span[size] for size in scene.spans], dtype=np.float64),
            float(span[1]),
        )
        lifted = (
            self._lift_racks(scene, closed, pinned, by_level)
            if wide
            else self._lift_machines(scene, closed, pinned, by_level, tight=tight)
        )
        if lifted is None:
            return None
        room, heavy = lifted
        taken = self.table.demand @ values
        for row, some in enumerate(self.bundles):
            for bundle in some:
                taken[row] += heavy[bundle]
        return taken, room

    def _lift_machines(
        self,
        scene: _Scene,
        weights: Weights,
        pinned: set[Bundle],
        by_level: dict[int, list[int]],
        *,
        tight: bool,
    ) -> tuple[int, dict[Bundle, int]] | None:
        """The most that fits machine by machine, and what pinned bundles weigh."""
        room = 0
        heavy: dict[Bundle, int] = {}
        known: dict[int, float] = {}

        def top(ways: Ways) -> float:
            # The ways to cut a machine are kept for good, so that they can be told by identity.
            if id(ways) not in known:
                known[id(ways)] = heaviest_of_one(ways, weights)[0]
            return known[id(ways)]

        for machine, slots in self.slots.items():
            name = (scene.sizes, machine)
            if name not in self._machines:
                self._machines[name] = OneMachine(scene.cuts, slots, self.on.get(machine, ()))
            if not self._machines[name].is_listed:
                return None
            most, here = self._machines[name].run(top, pinned, by_level, tight=tight)
            room += most
            heavy.update(here)
        return room, heavy

    def _lift_racks(
        self,
        scene: _Scene,
        weights: Weights,
        pinned: set[Bundle],
        by_level: dict[int, list[int]],
    ) -> tuple[int, dict[Bundle, int]] | None:
        """The same rack by rack."""
        room = 0
        heavy: dict[Bundle, int] = {}
        bare: dict[tuple[tuple[int, ...], ...], int] = {}
        for members in self.racks:
            name = tuple(sorted(self.slots[machine] for machine in members))
            plain = not any(machine in self.on for machine in members)
            if plain and name in bare:
                room += bare[name]
                continue
            here = [(self.slots[machine], self.on.get(machine, ())) for machine in members]
            over = spread(scene.spans, weights, sum(sum(slots) for slots, _ in here))
            lifted = Lifting(scene.cuts, weights, here, over, pinned).run(by_level)
            if lifted is None:
                return None
            if plain:
                bare[name] = lifted[0]
            room += lifted[0]
            heavy.update(lifted[1])
        return room, heavy


def _fit(cuts: Cuts, slots: tuple[int, ...], bundles: Iterable[Bundle]) -> bool:
    pins = tuple(sorted(pin for bundle in bundles for pin in bundle.pins))
    return sum(size for _, size in pins) <= sum(slots) and cuts.ways(slots, pins) is not None


def _split(scene: _Scene, weights: Real) -> Weights:
    count = len(scene.sizes)
    return Weights(weights[:count], weights[count:-1], float(weights[-1]))


def _weigh(scene: _Scene) -> Real | None:
    """Weights under which the demand exceeds the heaviest fillings, if there are any."""
    per_gpu = np.array([*(size for _, size in scene.sizes), *scene.spans, 1], dtype=np.float64)
    count, groups = len(per_gpu), len(scene.groups)
    highs = highspy.Highs()  # type: ignore[no-untyped-call]  # highspy leaves it bare
    for name, value in (("output_flag", False), ("threads", 1), ("presolve", "off")):
        highs.setOptionValue(name, value)
    lp = highspy.HighsLp()
    lp.num_col_ = count + groups
    lp.num_row_ = 0
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = np.concatenate((scene.amounts, -scene.counts))
    lp.col_lower_ = np.zeros(lp.num_col_)
    lp.col_upper_ = np.concatenate((per_gpu, np.full(groups, np.inf)))
    highs.passModel(lp)
    weights = per_gpu
    for _ in range(_ROUNDS):
        pieces = _split(scene, weights)
        filled = [heaviest(machines, scene.spans, pieces) for machines in scene.groups]
        tops = np.array([top for top, _ in filled])
        if weights @ scene.amounts > float(tops @ scene.counts) + _MARGIN:
            return weights
        for group, (_, held) in enumerate(filled):
            used = np.flatnonzero(held)
            index = np.append(used, count + group).astype(np.int32)
            highs.addRow(-np.inf, 0.0, len(index), index, np.append(held[used], -1.0))
        highs.run()
        if highs.getInfo().objective_function_value <= _MARGIN:
            return None
        weights = np.asarray(highs.getSolution().col_value, dtype=np.float64)[:count]
    return None
