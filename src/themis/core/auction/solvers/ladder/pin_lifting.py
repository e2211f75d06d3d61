"""How heavy pinned chunks may be in a limit: as heavy as what they keep others from having.

A chunk pinned to a machine weighs at least what any chunk of its size does. It may weigh more: a
single GPU in the wrong slot can cost a hole for eight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from themis.core.auction.solvers.ladder.knapsack import (
    SINGLE,
    Cuts,
    Pins,
    Ways,
    Weights,
    join,
    joined,
    profile,
)
from themis.core.auction.solvers.ladder.machine_patterns import Size
from themis.core.auction.solvers.ladder.resource_table import Real
from themis.core.auction.solvers.prepared import Option

_MAX_SETS = 200
"""Sets of bundles that may be pinned to one machine together; with more there is no limit."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """All that one row has pinned to one machine."""

    machine: int
    bidder: int
    pins: Pins


class OneMachine:
    """What is pinned to one machine; nearly all limits are about single machines.

    Bundles are numbered here. What fits together does not depend on weights and is worked out once.
    """

    def __init__(self, cuts: Cuts, slots: tuple[int, ...], bundles: Sequence[Bundle]) -> None:
        self.bundles = sorted(bundles, key=lambda bundle: (bundle.bidder, bundle.pins))
        self.sets: list[tuple[tuple[int, ...], Ways]] = []
        """Bundles of different bidders that fit together, with the ways to cut what is left."""
        self.inside: list[list[int]] = [[] for _ in self.bundles]
        """Per bundle, the sets that it is in."""
        bare = cuts.ways(slots, ())
        self.is_listed = bare is not None and self._list(cuts, slots, bare)

    def _list(self, cuts: Cuts, slots: tuple[int, ...], bare: Ways) -> bool:
        self.sets.append(((), bare))
        for number, bundle in enumerate(self.bundles):
            for some, _ in self.sets[: len(self.sets)]:
                if any(self.bundles[other].bidder == bundle.bidder for other in some):
                    continue
                together = (*some, number)
                pins = tuple(sorted(pin for one in together for pin in self.bundles[one].pins))
                if sum(size for _, size in pins) > sum(slots):
                    continue
                ways = cuts.ways(slots, pins)
                if ways is not None:
                    for one in together:
                        self.inside[one].append(len(self.sets))
                    self.sets.append((together, ways))
            if len(self.sets) > _MAX_SETS:
                return False
        return True

    def run(
        self,
        heaviest: Callable[[Ways], float],
        pinned: set[Bundle],
        by_level: dict[int, list[int]],
        *,
        tight: bool,
    ) -> tuple[int, dict[Bundle, int]]:
        """The heaviest filling, and the weight of each bundle.

        Args:
            heaviest: The weight of the heaviest filling around what is pinned.
            pinned: The bundles that are demanded.
            by_level: Weights of chunks of every level and size.
            tight: Whether what is demanded must be among the heaviest fillings.
        """
        worth = [heaviest(ways) for _, ways in self.sets]
        demanded = [bundle in pinned for bundle in self.bundles]
        heavy: list[int | None] = [None] * len(self.bundles)
        top = worth[0]
        if tight:
            top = self._marginal(worth, demanded, heavy)
        # What is demanded now comes first: whatever is weighed later has less to take.
        for number in sorted(range(len(heavy)), key=lambda number: not demanded[number]):
            self._weigh(number, worth, top, heavy, by_level)
        return round(top), {
            bundle: weight or 0 for bundle, weight in zip(self.bundles, heavy, strict=True)
        }

    def _weigh(
        self,
        number: int,
        worth: Sequence[float],
        top: float,
        heavy: list[int | None],
        by_level: dict[int, list[int]],
    ) -> None:
        mine = heavy[number] or 0
        heavy[number] = mine
        most: float | None = None
        for index in self.inside[number]:
            total = worth[index]
            for other in self.sets[index][0]:
                weight = heavy[other]
                if weight is None:
                    break
                total += weight
            else:
                most = total if most is None else max(most, total)
        if most is None:  # never fits, so it may weigh anything
            heavy[number] = sum(by_level[level][size] for level, size in self.bundles[number].pins)
        else:
            heavy[number] = mine + round(top - most)

    def _marginal(
        self, worth: Sequence[float], demanded: Sequence[bool], heavy: list[int | None]
    ) -> float:
        """Weights under which what is demanded here is among the heaviest there can be.

        Each bundle weighs the most that it can spoil. Then no bidder gains by leaving one out, so
        all of them with what fits around them is the heaviest filling, though others may be as
        heavy.
        """
        spoilt = {
            some: value
            for (some, _), value in zip(self.sets, worth, strict=True)
            if all(demanded[number] for number in some)
        }
        everything = max(spoilt, key=len)
        total = spoilt[everything]
        for number in everything:
            weight = round(
                max(
                    spoilt[tuple(one for one in some if one != number)] - value
                    for some, value in spoilt.items()
                    if number in some
                )
            )
            heavy[number] = weight
            total += weight
        return total


class Lifting:
    """How heavy pinned bundles may be within one group, one after the other."""

    def __init__(
        self,
        cuts: Cuts,
        weights: Weights,
        machines: Sequence[tuple[tuple[int, ...], Sequence[Bundle]]],
        over: Real,
        pinned: set[Bundle],
    ) -> None:
        self.cuts = cuts
        self.weights = weights
        self.over = over
        """The heaviest use of what the cuts leave, by its amount."""
        self.pinned = pinned
        """The bundles that are demanded."""
        self.slots = [slots for slots, _ in machines]
        self.bundles = [
            sorted(bundles, key=lambda bundle: (bundle.bidder, bundle.pins))
            for _, bundles in machines
        ]

    def run(self, by_level: dict[int, list[int]]) -> tuple[int, dict[Bundle, int]] | None:
        """The heaviest filling, and the weight of each bundle."""
        tables: list[list[tuple[tuple[Bundle, ...], Real]]] = []
        for slots, bundles in zip(self.slots, self.bundles, strict=True):
            sets = self._sets(slots, bundles)
            if sets is None:
                return None
            tables.append(sets)
        top = self._fill(joined([table[0][1] for table in tables]))
        return round(top), self._one_by_one(tables, top, by_level)

    def _one_by_one(
        self,
        tables: Sequence[Sequence[tuple[tuple[Bundle, ...], Real]]],
        top: float,
        by_level: dict[int, list[int]],
    ) -> dict[Bundle, int]:
        heavy: dict[Bundle, int] = {}
        best = [
            _upper(
                [
                    load + sum(heavy[bundle] for bundle in some)
                    for some, load in table
                    if all(bundle in heavy for bundle in some)
                ]
            )
            for table in tables
        ]
        # What is demanded now comes first: whatever is weighed later has less to take.
        order = [
            (bundle not in self.pinned, i, j)
            for i, some in enumerate(self.bundles)
            for j, bundle in enumerate(some)
        ]
        others = np.zeros(1)
        last = -1
        for _, index, number in sorted(order):
            bundle = self.bundles[index][number]
            if index != last:
                last = index
                others = joined([*best[:index], *best[index + 1 :]])
            heavy.setdefault(bundle, 0)
            inside = [
                load + sum(heavy[other] for other in some)
                for some, load in tables[index]
                if bundle in some and all(other in heavy for other in some)
            ]
            if not inside:  # never fits, so it may weigh anything
                heavy[bundle] = sum(by_level[level][size] for level, size in bundle.pins)
                continue
            mine = _upper(inside)
            more = round(top - self._fill(join(others, mine)))
            heavy[bundle] += more
            best[index] = _upper([best[index], mine + more])
        return heavy

    def _fill(self, sums: Real) -> float:
        """The heaviest filling, given the profile of all machines."""
        return float((sums + self.over[: len(sums)]).max())

    def _sets(
        self, slots: tuple[int, ...], bundles: Sequence[Bundle]
    ) -> list[tuple[tuple[Bundle, ...], Real]] | None:
        """Bundles of different bidders that fit on a machine together, with what else it holds."""
        bare = self.cuts.ways(slots, ())
        if bare is None:
            return None
        found: list[tuple[tuple[Bundle, ...], Real]] = [((), profile(bare, self.weights))]
        for bundle in bundles:
            for some, _ in found[: len(found)]:
                if any(other.bidder == bundle.bidder for other in some):
                    continue
                pins = tuple(sorted(pin for one in (*some, bundle) for pin in one.pins))
                if sum(size for _, size in pins) > sum(slots):
                    continue
                ways = self.cuts.ways(slots, pins)
                if ways is not None:
                    found.append(((*some, bundle), profile(ways, self.weights)))
            if len(found) > _MAX_SETS:
                return None
        return found


def _upper(profiles: Sequence[Real]) -> Real:
    upper = np.full(max(map(len, profiles)), -1e15)
    for one in profiles:
        np.maximum(upper[: len(one)], one, out=upper[: len(one)])
    return upper


def bundles_of(option: Option) -> list[Bundle]:
    """What a row has pinned, machine by machine."""
    pins: dict[int, list[Size]] = {}
    for (level, negative, machine), count in option.counts:
        if machine >= 0:
            size = SINGLE if negative == -1 else (level, -negative)
            pins.setdefault(machine, []).extend([size] * count)
    return [Bundle(m, option.bidder, tuple(sorted(some))) for m, some in sorted(pins.items())]
