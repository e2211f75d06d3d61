"""A search for lies that pay, in small auctions that can be solved exactly.

    market = small_market(seed=3)
    probe(market, payment("lottery-pf"), solver("search"), lies=20, seed=3)   # best gain per app

A lie is a bid with other seconds, or without some rows. It pays if the app can expect more 1/rho of
it than of the truth, over all draws of the auction. Leftovers are left out: this is about the
auction alone. For payment rules under which a row is won whole or not at all.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from themis.core.auction import (
    Bidder,
    Candidate,
    OfferedMachine,
    Payment,
    Problem,
    Solution,
    Solver,
)
from themis.core.auction.solution import Win
from themis.core.model import CLUSTER, MACHINE, AppId, Chunk

_OFFERS: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((4,),),
    ((2,), (2,)),
    ((2, 2),),
    ((4,), (2,)),
    ((1,), (2,)),
)
LEASE = 600.0
STARVATION = 2.0
FACTORS = (0.5, 0.7, 0.85, 0.95, 1.05, 1.2, 1.5, 2.5)


@dataclass(frozen=True, slots=True)
class Gain:
    """What an app expects in 1/rho from the truth, and from the best lie that was tried."""

    app: AppId
    honest: float
    best: float

    @property
    def factor(self) -> float:
        """How many times as much the best lie brings; never below one."""
        return max(1.0, self.best / self.honest)


def small_market(seed: int) -> Problem:
    """A small auction among honest apps: some have waited, some can use little."""
    rng = random.Random(f"market/{seed}")
    offer = rng.choice(_OFFERS)
    machines = tuple(OfferedMachine(n, 0, slots) for n, slots in enumerate(offer))
    apps = [AppId(f"app-{number}") for number in range(rng.randint(2, 4))]
    return Problem(machines, tuple(_bidder(app, machines, rng) for app in apps))


def _bidder(app: AppId, machines: tuple[OfferedMachine, ...], rng: random.Random) -> Bidder:
    work = rng.uniform(600.0, 7200.0)
    elapsed = rng.choice((0.0, rng.uniform(0.0, 7200.0)))
    ideal = rng.uniform(0.5, 1.5) * work
    spread = rng.choice((1.0, 1.0 + rng.random()))
    widest = max(machine.gpus for machine in machines)
    most = min(rng.choice((1, 2, 4, 8)), sum(machine.gpus for machine in machines))
    rows = []
    for count in range(1, most + 1):
        if count <= widest:
            rows.append(Candidate((Chunk(MACHINE, count),), (elapsed + work / count) / ideal))
        if count > 1:
            far = (elapsed + work * spread / count) / ideal
            rows.append(Candidate((Chunk(CLUSTER, count),), far))
    nothing = STARVATION * (elapsed + LEASE + work) / ideal
    return Bidder(app, rng.choice((1.0, 1.0, 1.0, 2.0)), nothing, tuple(rows))


def probe(
    market: Problem, payment: Payment, solver: Solver, lies: int, seed: int
) -> tuple[Gain, ...]:
    """Try random lies of each app against the truth of all others."""
    auction = replace(market, objective=payment.objective)
    honest = solver.solve(auction)
    gains = []
    for number, bidder in enumerate(auction.bidders):
        best = truth = expected(bidder, honest)
        for attempt in range(lies):
            rng = random.Random(f"lie/{seed}/{number}/{attempt}")
            bids = list(auction.bidders)
            bids[number] = _lied(bidder, rng)
            answer = solver.solve(replace(auction, bidders=tuple(bids)))
            best = max(best, expected(bidder, answer))
        gains.append(Gain(bidder.app, truth, best))
    return tuple(gains)


def _lied(bidder: Bidder, rng: random.Random) -> Bidder:
    """All rows better or worse alike, each by its own factor, or only some of them.

    Rows keep their places, so that what was won can be looked up in the truth; one that is left
    out is written as no better than nothing.
    """
    kind = rng.randrange(3)
    common = rng.choice(FACTORS)
    rows = []
    for row in bidder.rows:
        factor = common if kind == 0 else rng.choice(FACTORS)
        rho = row.rho * factor
        if kind == 2:
            rho = row.rho if rng.random() < 0.5 else bidder.rho_nothing
        rows.append(replace(row, rho=rho))
    return replace(bidder, rows=tuple(rows))


def expected(truth: Bidder, solution: Solution) -> float:
    """What this app can really expect in 1/rho, whatever it said."""
    tickets: list[tuple[float, Mapping[AppId, Win]]] = [
        (ticket.probability, ticket.winners) for ticket in solution.lottery
    ] or [(1.0, solution.winners)]
    nothing = 1.0 / truth.rho_nothing
    gained = math.fsum(
        chance * (1.0 / truth.rows[winners[truth.app].row].rho - nothing)
        for chance, winners in tickets
        if truth.app in winners
    )
    kept = solution.kept.get(truth.app)
    return nothing + (gained * kept.high if kept else 0.0)
