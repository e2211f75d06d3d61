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
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from themis.auction.balance import Balance, Real, balance, thin_out
from themis.auction.greedy import serve
from themis.auction.packing import by_option, needs_of, pack
from themis.auction.prepared import Option, Prepared
from themis.auction.solution import TOLERANCE, WHOLE, Interval, Place, Solution, Ticket, Win
from themis.auction.solver import Found, Start
from themis.model import AppId

ENOUGH = 0.1 * TOLERANCE
"""Nats, for a bidder of average weight: the gap at which a lottery counts as the best."""

PROGRESS = 1e-8
"""An allocation worth less than this much more than all known ones (relatively) is no news."""

NEGLIGIBLE = 1e-12
"""Rows worth less than this part of an app's best one are left out.

At the optimum everybody expects at least its share of the weights times its best row, so they
could add no more than the same part of a nat.
"""

PORTIONS = 4
"""A determination may use this part of the budget that is left, until that no longer helps."""

_Allocation = tuple[tuple[Option, ...], tuple[tuple[Place, ...], ...]]


def solve_lottery(prepared: Prepared, start: Start, name: str, budget: int | None) -> Solution:
    """Find the best lottery, then what everybody in it keeps.

    Half the budget goes to the lottery, the rest evenly to the re-solves. What each app may win is
    independent of the others' draws: first a ticket is drawn, then each of its winners keeps its
    row with the kept fraction as probability.
    """
    stakes = _stakes(prepared)
    if not stakes:
        return Solution({}, 0.0, 0.0, {}, True, name, 0)
    search = _Search(prepared, stakes, start)
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


def _tickets(search: "_Search", best: "_Best") -> tuple[list[int], Real]:
    least = 1e-9 * float(search.weights.min() / search.weights.sum())
    chosen, chances = thin_out(search.values, best.lottery, least)
    order = sorted(range(len(chosen)), key=lambda index: (-chances[index], chosen[index]))
    return [chosen[index] for index in order], chances[order]


def _written(search: "_Search", chosen: Sequence[int], chances: Real) -> tuple[Ticket, ...]:
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
class _Stake:
    """A bidder that can win something; `options` have their share of its best row as gain."""

    number: int
    bidder: int
    app: AppId
    weight: float
    log_best: float
    options: tuple[Option, ...]
    alone: _Allocation
    """Its best row, if nobody else bids."""


def _stakes(prepared: Prepared) -> tuple[_Stake, ...]:
    stakes: list[_Stake] = []
    for index, bidder in enumerate(prepared.bidders):
        fits = _first_that_fits(prepared, prepared.options[index])
        if fits is None:
            continue
        position, alone = fits
        # Rows before it are better but cannot be had at all.
        rows = [(o, bidder.log_improvement(o.row)) for o in prepared.options[index][position:]]
        best = max(log for _, log in rows)
        shares = [replace(option, gain=math.exp(log - best)) for option, log in rows]
        shares = [option for option in shares if option.gain > NEGLIGIBLE]
        shares.sort(key=lambda option: (-option.gain, option.gpus, option.row))
        number = len(stakes)
        stakes.append(_Stake(number, index, bidder.app, bidder.weight, best, tuple(shares), alone))
    return tuple(stakes)


def _first_that_fits(
    prepared: Prepared, options: Sequence[Option]
) -> tuple[int, _Allocation] | None:
    for position, option in enumerate(options):
        places = pack(prepared.machines, needs_of(prepared, (option,)))
        if places is not None:
            return position, ((option,), by_option((option,), places))
    return None


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
class _Search:
    """The allocations known so far, and how more are found. They serve all re-solves."""

    prepared: Prepared
    stakes: tuple[_Stake, ...]
    start: Start
    weights: Real = field(init=False)
    scale: float = field(init=False)
    values: Real = field(init=False)
    known: list[_Allocation] = field(default_factory=list)
    names: set[tuple[tuple[int, int], ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        weights = np.array([stake.weight for stake in self.stakes])
        # Solvers know absolute tolerances; with an average of one they suit any weights.
        self.scale = float(weights.mean())
        self.weights = weights / self.scale
        self.values = np.zeros((0, len(self.stakes)))

    def cover(self) -> None:
        """Allocations in which everybody wins at some time: without them no lottery is any good."""
        waiting = list(range(len(self.stakes)))
        while waiting:
            prices = np.full(len(self.stakes), 1e-3)
            prices[waiting] = 1.0
            bidders = tuple(stake.bidder for stake in self.stakes)
            found = serve(self._priced(prices), bidders)
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
        # To start with: nobody can have more than its best row for certain.
        prices, limit = (weights, total) if proven is None else proven
        bound = min(0.0, _bound(weights, prices, limit))
        work, portions = 0, PORTIONS
        while True:
            lottery = balance(self.values[:, list(present)], weights)
            value = lottery.value(weights)
            left = None if budget is None else budget - work
            if bound - value <= enough or (left is not None and left < 1):
                break
            asked = lottery.prices(weights)
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

    def kept(
        self, stake: _Stake, best: _Best, expected: Real, budget: int | None
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
    ) -> Found:
        """The allocation worth most to these stakes at these prices."""
        every = np.zeros(len(self.stakes))
        every[list(present)] = prices
        bidders = tuple(self.stakes[number].bidder for number in present)
        budget = None if left is None else max(1, left // portions)
        return self.start(self._priced(every))(bidders, budget)

    def _priced(self, prices: Real) -> Prepared:
        options: list[tuple[Option, ...]] = [()] * len(self.prepared.bidders)
        for stake, price in zip(self.stakes, prices.tolist(), strict=True):
            if price > 0.0:
                options[stake.bidder] = tuple(
                    Option(o.bidder, o.row, o.chunks, o.gpus, price * o.gain) for o in stake.options
                )
        return replace(self.prepared, options=tuple(options))

    def _learn(self, found: Found, present: tuple[int, ...]) -> bool:
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
