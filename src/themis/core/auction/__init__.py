"""The partial-allocation auction: who gets which of the offered GPUs this round.

solution = solver("default").solve(Problem(offered_machines(free, topology), bidders))
solution = draw(solution, rng)  # matters to lotteries only
bound = bind(solution, free, held, topology)
outcome = settle(solution, bound, units, payment("lottery"), lease, topology, free, rng_for)
"""

from themis.core.auction.mechanism import AuctionOutcome, bind, draw, settle
from themis.core.auction.payments import Award, Payment, Won, best_placed, local_part, payment
from themis.core.auction.problem import (
    Bidder,
    Candidate,
    Objective,
    OfferedMachine,
    Problem,
    Quota,
    check_bid,
    offered_machines,
)
from themis.core.auction.solution import Interval, Solution, Ticket, Win, check_solution
from themis.core.auction.solvers.registry import Solver, solver

__all__ = [
    "AuctionOutcome",
    "Award",
    "Bidder",
    "Candidate",
    "Interval",
    "Objective",
    "OfferedMachine",
    "Payment",
    "Problem",
    "Quota",
    "Solution",
    "Solver",
    "Ticket",
    "Win",
    "Won",
    "best_placed",
    "bind",
    "check_bid",
    "check_solution",
    "draw",
    "local_part",
    "offered_machines",
    "payment",
    "settle",
    "solver",
]
