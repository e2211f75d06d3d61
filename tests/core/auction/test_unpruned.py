"""Solvers against a search over all rows as they were bid: none of what they share is used."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from themis.core.auction import Problem, check_solution, solver
from themis.core.auction.packing.exact import pack
from themis.core.auction.packing.free_gpus import ChunkNeed
from themis.core.auction.problem import normal


def _best(problem: Problem) -> float:
    """The largest sum of gains, by trying every row of everybody."""
    best = 0.0

    def extend(depth: int, value: float, needs: list[ChunkNeed], won: dict[str, int]) -> None:
        nonlocal best
        best = max(best, value)
        if depth == len(problem.bidders):
            return
        bidder = problem.bidders[depth]
        extend(depth + 1, value, needs, won)
        for index, row in enumerate(bidder.rows):
            now = {**won, bidder.app: row.gpus}
            if any(sum(now.get(app, 0) for app in q.apps) > q.gpus for q in problem.quotas):
                continue
            more = [*needs, *(ChunkNeed(normal(chunk), bidder.machines) for chunk in row.chunks)]
            if bidder.gain(index) > 0.0 and pack(problem.machines, more) is not None:
                extend(depth + 1, value + bidder.gain(index), more, now)

    extend(0, 0.0, [], {})
    return best


def test_no_row_that_matters_is_left_out(make_problem: Callable[[int], Problem]) -> None:
    for seed in range(1000, 1250):
        problem = make_problem(seed)
        solution = solver("default").solve(problem)
        check_solution(problem, solution)
        assert solution.value == pytest.approx(_best(problem), abs=1e-7), seed


def test_pruning_drops_no_row_that_affects_payments(make_problem: Callable[[int], Problem]) -> None:
    for seed in range(2000, 2080):
        problem = make_problem(seed)
        solution = solver("default").solve(problem)
        bidders = {bidder.app: bidder for bidder in problem.bidders}
        for app, kept in solution.kept.items():
            others = tuple(bidder for bidder in problem.bidders if bidder.app != app)
            served = math.fsum(
                bidders[other].gain(win.row)
                for other, win in solution.winners.items()
                if other != app
            )
            harm = (served - _best(replace(problem, bidders=others))) / bidders[app].weight
            assert kept.high == pytest.approx(math.exp(min(0.0, harm)), abs=1e-6), (seed, app)
