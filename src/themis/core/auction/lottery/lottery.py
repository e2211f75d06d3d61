"""Auctions over lotteries of allocations: the payment rule `lottery-pf`.

    solution = solver("default").solve(replace(problem, objective=Objective.LOTTERY))
    solution.lottery[0].probability, solution.kept[app]

It maximises the sum of w_i log E[u_i], where u_i is what 1/rho gains over winning nothing, over all
ways to draw an allocation. That is concave, so Frank-Wolfe steps solve it: at the present
expectations a unit of u_i is worth w_i / E[u_i]; the allocation worth most at these prices is an
ordinary winner determination; it joins those known, and the best lottery over all of them is worked
out anew (the fully corrective variant, which needs by far the fewest determinations).

Every determination also proves a bound. If no allocation is worth more than H at prices p, then

    sum w_i log E[u_i]  <=  W log(H / W) - sum w_i log(p_i / w_i),      W = sum w_i

for every lottery, by the inequality of the means; at the optimum both sides are equal.

What an app keeps needs the same without it. The allocations known by then serve there too, once
another bidder takes the place of the absent app.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from themis.core.auction.lottery.bidder_shares import Allocation, Stake, StandIns, priced, stakes_of
from themis.core.auction.lottery.mixture import Balance, Real, balance, thin_out
from themis.core.auction.solution import TOLERANCE, WHOLE, Interval, Place, Solution, Ticket, Win
from themis.core.auction.solvers.greedy import serve
from themis.core.auction.solvers.prepared import Option, PreparedProblem
from themis.core.auction.solvers.registry import (
    Determination,
    Find,
    Left,
    StartSolve,
    is_late,
    restarted,
)
from themis.core.model import AppId

ENOUGH = 0.1 * TOLERANCE
"""Nats, for a bidder of average weight: the gap at which a lottery counts as the best."""

PROGRESS = 1e-8
"""An allocation worth less than this much more than all known ones (relatively) is no news."""

PORTIONS = 4
"""A determination may use this part of the budget that is left, until that no longer helps."""

JOINING = 20
"""This many known allocations join a lottery before it is worked out anew."""

STAND_INS = 10
"""This many allocations are made of known ones before the lottery is worked out anew."""


def solve_lottery(
    prepared: PreparedProblem,
    start: StartSolve,
    name: str,
    budget: int | None,
    left: Left | None = None,
) -> Solution:
    """Find the best lottery, then what every bidder in it keeps.

    Half the budget goes to the lottery, the rest evenly to the re-solves.
    """
    stakes = stakes_of(prepared)
    if not stakes:
        return Solution({}, 0.0, 0.0, {}, True, name, 0)
    search = _LotterySearch(prepared, stakes, start, left)
    search.cover()
    everyone = tuple(range(len(stakes)))
    best = search.maximise(everyone, None if budget is None else max(1, budget // 2), ENOUGH)
    chosen, chances = _tickets(search, best)
    expected = chances @ search.values[chosen]
    work, exact = best.work, True
    kept: dict[AppId, Interval] = {}
    for count, stake in enumerate(stakes):
        share = None if budget is None else max(1, (budget - work) // (len(stakes) - count))
        interval, proven, spent = search.kept(stake, best, expected, share)
        kept[stake.app] = interval
        exact = exact and proven
        work += spent
    # Back from shares of everybody's best row, and from an average weight of one.
    constant = math.fsum(stake.weight * stake.log_best for stake in stakes)
    served = math.fsum(s.weight * math.log(e) for s, e in zip(stakes, expected, strict=True))
    value = served + constant
    gap = max(0.0, best.bound * search.scale - served)
    lottery = _written(search, chosen, chances)
    exact = exact and gap <= TOLERANCE * search.scale
    return Solution(lottery[0].winners, value, value + gap, kept, exact, name, work, lottery)


def _tickets(search: "_LotterySearch", best: "_Best") -> tuple[list[int], Real]:
    least = 1e-9 * float(search.weights.min() / search.weights.sum())
    chosen, chances = thin_out(search.values, best.lottery, least)
    order = sorted(range(len(chosen)), key=lambda index: (-chances[index], chosen[index]))
    return [chosen[index] for index in order], chances[order]


def _written(search: "_LotterySearch", chosen: Sequence[int], chances: Real) -> tuple[Ticket, ...]:
    tickets = []
    for index, chance in zip(chosen, chances.tolist(), strict=True):
        options, places = search.known[index]
        winners = {
            search.prepared.bidders[option.bidder].app: Win(option.row, place)
            for option, place in zip(options, places, strict=True)
        }
        tickets.append(Ticket(chance, winners))
    return tuple(tickets)


@dataclass(frozen=True, slots=True)
class _Best:
    """The best lottery found for some bidders, and a bound on all of them.

    At `prices` no allocation is worth more than `limit`.
    """

    lottery: Balance
    value: float
    bound: float
    prices: Real
    limit: float
    work: int


@dataclass(slots=True)
class _LotterySearch:
    """The allocations known so far, and how more are found. They serve all re-solves."""

    prepared: PreparedProblem
    stakes: tuple[Stake, ...]
    start: StartSolve
    left: Left | None = None
    weights: Real = field(init=False)
    scale: float = field(init=False)
    values: Real = field(init=False)
    stand_ins: StandIns = field(init=False)
    known: list[Allocation] = field(default_factory=list)
    names: set[tuple[tuple[int, int], ...]] = field(default_factory=set)
    find: Find | None = None

    def __post_init__(self) -> None:
        weights = np.array([stake.weight for stake in self.stakes])
        # Solvers know absolute tolerances; with an average of one they suit any weights.
        self.scale = float(weights.mean())
        self.weights = weights / self.scale
        self.values = np.zeros((0, len(self.stakes)))
        self.stand_ins = StandIns(self.prepared, self.stakes)

    def cover(self) -> None:
        """Allocations that together let every bidder win; a lottery needs them."""
        waiting = list(range(len(self.stakes)))
        while waiting:
            prices = np.full(len(self.stakes), 1e-3)
            prices[waiting] = 1.0
            bidders = tuple(stake.bidder for stake in self.stakes)
            found = serve(priced(self.prepared, self.stakes, prices), bidders)
            served = {option.bidder for option in found.chosen}
            still = [number for number in waiting if self.stakes[number].bidder not in served]
            if len(still) == len(waiting):
                # Quick packing gave up on all of them; alone, the next one fits for certain.
                self._add(*self.stakes[waiting[0]].alone)
                still = waiting[1:]
            else:
                self._add(found.chosen, found.place())
            waiting = still

    def maximise(
        self,
        present: tuple[int, ...],
        budget: int | None,
        enough: float,
        proven: tuple[Real, float] | None = None,
    ) -> _Best:
        """The best lottery for some stakes.

        Args:
            present: The numbers of the stakes that count.
            budget: Units of work for determinations; at least one is made if it is needed.
            enough: The gap at which to stop.
            proven: Prices, and what no allocation is worth more than at them.
        """
        weights = self.weights[list(present)]
        total = float(weights.sum())
        # To start with: no bidder can have more than its best row for certain.
        prices, limit = (weights, total) if proven is None else proven
        bound = min(0.0, _bound(weights, prices, limit))
        work, portions = 0, PORTIONS
        # Everybody's best allocation to start with; others join when they are worth it.
        used = sorted({int(index) for index in self.values[:, list(present)].argmax(axis=0)})
        while True:
            lottery = self._lottery(present, used)
            value = lottery.value(weights)
            left = None if budget is None else budget - work
            if bound - value <= enough or (left is not None and left < 1) or is_late(self.left):
                break
            asked = lottery.prices(weights)
            if self._stand_in(present, asked):
                work += 1
                continue
            found = self._determine(present, asked, left, portions)
            work += max(1, found.work)
            highest = max(found.bound, total)
            if _bound(weights, asked, highest) < bound:
                bound, prices, limit = _bound(weights, asked, highest), asked, highest
            if found.value <= total * (1.0 + PROGRESS) or not self._learn(found, present):
                if found.exact or portions == 1 or left is None:
                    break
                portions = 1
        return _Best(lottery, value, max(bound, value), prices, limit, work)

    def _lottery(self, present: tuple[int, ...], used: list[int]) -> Balance:
        """The best lottery over all that is known, worked out over what is of use in it."""
        values, weights = self.values[:, list(present)], self.weights[list(present)]
        limit = float(weights.sum()) * (1.0 + PROGRESS)
        while True:
            best = balance(values[used], weights)
            worth = values @ best.prices(weights)
            worth[used] = 0.0
            missing = [k for k in np.argsort(-worth, kind="stable").tolist() if worth[k] > limit]
            if not missing:
                chances = np.zeros(len(values))
                chances[used] = best.probabilities
                return Balance(chances, best.expected)
            used += missing[:JOINING]

    def kept(
        self, stake: Stake, best: _Best, expected: Real, budget: int | None
    ) -> tuple[Interval, bool, int]:
        """What an app keeps, whether that is proven, and the work it took."""
        others = tuple(other.number for other in self.stakes if other is not stake)
        weight = float(self.weights[stake.number])
        served = float(self.weights[list(others)] @ np.log(expected[list(others)]))
        if served >= -1e-12:
            return WHOLE, True, 0  # all others have their best row for certain, or there are none
        # Without one bidder no allocation is worth more than with it.
        proven = (best.prices[list(others)], best.limit)
        alone = self.maximise(others, budget, ENOUGH * min(1.0, weight), proven)
        low = max(alone.value, served)
        high = max(alone.bound, low)
        interval = Interval(_fraction(served - high, weight), _fraction(served - low, weight))
        return interval, (high - low) / weight <= TOLERANCE, alone.work

    def _determine(
        self, present: tuple[int, ...], prices: Real, left: int | None, portions: int
    ) -> Determination:
        """The allocation worth most to these stakes at these prices."""
        every = self._every(present, prices)
        bidders = tuple(self.stakes[number].bidder for number in present)
        budget = None if left is None else max(1, left // portions)
        auction = priced(self.prepared, self.stakes, every)
        self.find = restarted(self.find, self.start, auction, self.left)
        return self.find(bidders, budget)

    def _stand_in(self, present: tuple[int, ...], prices: Real) -> int:
        """Let others have the place of the one who is away; says how many allocations are new."""
        away = [stake for stake in self.stakes if stake.number not in set(present)]
        if not away:
            return 0
        every = self._every(present, prices)
        worth = self.values @ every
        enough = float(self.weights[list(present)].sum()) * (1.0 + PROGRESS)
        added = 0
        for index in np.argsort(-worth, kind="stable").tolist():
            chosen = self.known[index][0]
            left = next((option for option in chosen if option.bidder == away[0].bidder), None)
            if left is None:
                continue
            if worth[index] + every.max() <= enough:
                break  # no bidder can gain more than its best row; later ones are worth less
            options, shares = self.stand_ins.of(left)
            more = every * (shares - self.values[index])
            heir = options[int(more.argmax())]
            if heir is None or worth[index] + more.max() <= enough:
                continue
            gone = {left.bidder, heir.bidder}
            rows = (heir, *(option for option in chosen if option.bidder not in gone))
            rows = tuple(sorted(rows, key=lambda option: option.bidder))
            added += self.prepared.within_caps(rows) and self._add(rows, ())
            if added == STAND_INS:
                break
        return added

    def _every(self, present: tuple[int, ...], prices: Real) -> Real:
        every = np.zeros(len(self.stakes))
        every[list(present)] = prices
        return every

    def _learn(self, found: Determination, present: tuple[int, ...]) -> bool:
        # Where rows lie matters only for what may be drawn: the lottery among all.
        whole = len(present) == len(self.stakes)
        return self._add(found.chosen, found.place() if whole else ())

    def _add(self, chosen: tuple[Option, ...], places: tuple[tuple[Place, ...], ...]) -> bool:
        name = tuple((option.bidder, option.row) for option in chosen)
        if name in self.names:
            return False
        self.names.add(name)
        self.known.append((chosen, places))
        rows = {(option.bidder, option.row) for option in chosen}
        line = [
            next((o.gain for o in stake.options if (o.bidder, o.row) in rows), 0.0)
            for stake in self.stakes
        ]
        self.values = np.vstack([self.values, line])
        return True


def _bound(weights: Real, prices: Real, limit: float) -> float:
    total = float(weights.sum())
    return total * math.log(limit / total) - float(weights @ np.log(prices / weights))


def _fraction(harm: float, weight: float) -> float:
    return math.exp(min(0.0, harm / weight))
