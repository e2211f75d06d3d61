"""Bidders as an auction over lotteries sees them: their rows as shares of the best one.

Only how an app compares its own rows counts there, so every app's best row is worth one to it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from themis.core.auction.lottery.mixture import Real
from themis.core.auction.packing.exact import by_option, needs_of, pack
from themis.core.auction.solution import Place
from themis.core.auction.solvers.dominance import can_stand_in
from themis.core.auction.solvers.prepared import Option, PreparedProblem
from themis.core.model import AppId

NEGLIGIBLE = 1e-12
"""Rows worth less than this part of an app's best one are left out.

At the optimum every bidder expects at least its share of the weights times its best row, so they
could add no more than the same part of a nat.
"""

Allocation = tuple[tuple[Option, ...], tuple[tuple[Place, ...], ...]]
"""Rows that fit together, and where they lie."""


@dataclass(frozen=True, slots=True)
class Stake:
    """A bidder that can win something. The gain of its options is a share of its best row."""

    number: int
    bidder: int
    app: AppId
    weight: float
    log_best: float
    """The logarithm of what its best row improves 1/rho by."""
    options: tuple[Option, ...]
    alone: Allocation
    """Its best row, if no other bidder bids."""


def stakes_of(prepared: PreparedProblem) -> tuple[Stake, ...]:
    """Everybody who can win something, in the order of the bidders."""
    stakes: list[Stake] = []
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
        stakes.append(Stake(number, index, bidder.app, bidder.weight, best, tuple(shares), alone))
    return tuple(stakes)


def _first_that_fits(
    prepared: PreparedProblem, options: Sequence[Option]
) -> tuple[int, Allocation] | None:
    for position, option in enumerate(options):
        places = pack(prepared.machines, needs_of(prepared, (option,)))
        if places is not None:
            return position, ((option,), by_option((option,), places))
    return None


def priced(prepared: PreparedProblem, stakes: Sequence[Stake], prices: Real) -> PreparedProblem:
    """The same auction with gains that are worth so much each; a price of zero excludes."""
    options: list[tuple[Option, ...]] = [()] * len(prepared.bidders)
    for stake, price in zip(stakes, prices.tolist(), strict=True):
        if price > 0.0:
            options[stake.bidder] = tuple(
                Option(o.bidder, o.row, o.chunks, o.gpus, price * o.gain, o.counts)
                for o in stake.options
            )
    return replace(prepared, options=tuple(options))


@dataclass(slots=True)
class StandIns:
    """Who could have what of GPUs that another one leaves: allocations without any search."""

    prepared: PreparedProblem
    stakes: tuple[Stake, ...]
    known: dict[tuple[int, int], tuple[tuple[Option | None, ...], Real]] = field(
        default_factory=dict
    )

    def of(self, left: Option) -> tuple[tuple[Option | None, ...], Real]:
        """Each stake's best option that fits into this one's place, and its share; None, zero."""
        name = (left.bidder, left.row)
        if name not in self.known:
            options = tuple(self._best(stake, left) for stake in self.stakes)
            shares = np.array([0.0 if option is None else option.gain for option in options])
            self.known[name] = (options, shares)
        return self.known[name]

    def _best(self, stake: Stake, left: Option) -> Option | None:
        allowed = self.prepared.bidders[stake.bidder].machines
        used = self.prepared.bidders[left.bidder].machines
        if allowed is not None and (used is None or not used <= allowed):
            return None
        for option in stake.options:
            if option.gpus <= left.gpus and can_stand_in(option.chunks, left.chunks):
                return option
        return None
