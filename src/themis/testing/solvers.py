"""What every solver of auctions must keep to. Yours inherits the tests with one fixture.

    class TestMine(SolverContract):
        @pytest.fixture
        def solver(self) -> Solver:
            return Mine()

A heuristic sets `proves = False`: its answers must hold, but need not be the best.
"""

import random
from dataclasses import replace
from typing import ClassVar

import pytest

from themis.core.auction import (
    Bidder,
    Candidate,
    Objective,
    OfferedMachine,
    Problem,
    Quota,
    Solution,
    Solver,
    check_solution,
)
from themis.core.auction import solver as solver_by_name
from themis.core.model import AppId, Chunk

CASES = range(60)
_SLOTS = ((1,), (2,), (4,), (2, 2), (0, 2), (1, 3))


def random_problem(seed: int) -> Problem:
    """A small auction: levels, several chunks, pins, constraints, weights, quotas."""
    rng = random.Random(seed)
    machines = tuple(
        OfferedMachine(2 * number, number % 2, rng.choice(_SLOTS))
        for number in range(rng.randint(1, 3))
    )
    bidders = tuple(
        _random_bidder(AppId(f"app-{number}"), machines, rng) for number in range(rng.randint(1, 4))
    )
    apps = [bidder.app for bidder in bidders]
    some = tuple(rng.sample(apps, rng.randint(1, len(apps))))
    quotas = (Quota(some, rng.randint(0, 5)),) if rng.random() < 0.3 else ()
    return Problem(machines, bidders, quotas)


def _random_bidder(app: AppId, machines: tuple[OfferedMachine, ...], rng: random.Random) -> Bidder:
    nothing = rng.uniform(1.0, 20.0)
    numbers = [offered.machine for offered in machines]
    rows = []
    for _ in range(rng.randint(0, 4)):
        chunks = tuple(
            Chunk(
                rng.randint(0, 3), rng.randint(1, 4), rng.choice((None, None, rng.choice(numbers)))
            )
            for _ in range(rng.randint(1, 2))
        )
        rows.append(Candidate(chunks, nothing * rng.uniform(0.05, 1.2)))
    allowed = frozenset(rng.sample(numbers, rng.randint(1, len(numbers))))
    weight = rng.choice((0.5, 1.0, 3.0))
    return Bidder(app, weight, nothing, tuple(rows), rng.choice((None, None, allowed)))


class SolverContract:
    """Tests for a solver given by the fixture `solver`."""

    proves: ClassVar[bool] = True
    """Whether it finds and proves the best allocation when it may work as long as it likes."""

    def test_answers_keep_what_they_promise(self, solver: Solver) -> None:
        """No GPU twice, levels, pins, machines and quotas kept, numbers that add up."""
        for seed in CASES:
            problem = random_problem(seed)
            check_solution(problem, solver.solve(problem))

    def test_bounds_hold(self, solver: Solver) -> None:
        """The best allocation lies between value and bound, and the payments in their intervals."""
        for seed in CASES:
            problem = random_problem(seed)
            answer, best = solver.solve(problem), _brute(problem)
            assert answer.value <= best.value + 1e-6, seed
            assert answer.bound >= best.value - 1e-6, seed
            if self.proves:
                assert answer.exact, seed
                assert answer.value == pytest.approx(best.value, abs=1e-6), seed
            if _same_winners(answer, best):
                for app, kept in best.kept.items():
                    low, high = answer.kept[app].low, answer.kept[app].high
                    assert low - 1e-6 <= kept.high <= high + 1e-6, seed

    def test_order_decides_nothing(self, solver: Solver) -> None:
        """Bidders and machines may come in any order."""
        for seed in CASES:
            problem = random_problem(seed)
            turned = replace(
                problem, machines=problem.machines[::-1], bidders=problem.bidders[::-1]
            )
            assert solver.solve(turned) == solver.solve(problem), seed

    def test_a_small_budget_still_gives_an_answer(self, solver: Solver) -> None:
        """A deadline is no reason to let everybody wait; it only makes promises weaker."""
        for seed in CASES:
            problem = random_problem(seed)
            hasty = solver.solve(problem, budget=1)
            check_solution(problem, hasty)
            assert hasty.bound >= _brute(problem).value - 1e-6, seed

    def test_lotteries_keep_what_they_promise(self, solver: Solver) -> None:
        """It is its own oracle where the product of expected gains is asked for."""
        for seed in CASES[::3]:
            problem = replace(random_problem(seed), objective=Objective.LOTTERY)
            answer, best = solver.solve(problem), _brute(problem)
            check_solution(problem, answer)
            assert answer.value <= best.value + 1e-6, seed
            assert answer.bound >= best.value - 1e-6, seed
            if self.proves:
                assert answer.exact, seed
                for app, kept in best.kept.items():
                    assert answer.kept[app].high == pytest.approx(kept.high, abs=1e-3), seed

    def test_a_small_budget_still_gives_a_lottery(self, solver: Solver) -> None:
        """Anytime, like everything else."""
        for seed in CASES[::3]:
            problem = replace(random_problem(seed), objective=Objective.LOTTERY)
            hasty = solver.solve(problem, budget=1)
            check_solution(problem, hasty)
            assert hasty.bound >= _brute(problem).value - 1e-6, seed

    def test_nobody_wins_where_nothing_is_offered(self, solver: Solver) -> None:
        """No machines, no bidders, or nothing worth winning."""
        row = Candidate((Chunk(0, 1),), 1.0)
        bidder = Bidder(AppId("a"), 1.0, 2.0, (row,))
        machine = OfferedMachine(0, 0, (4,))
        useless = replace(bidder, rho_nothing=1.0)
        for problem in (
            Problem((), (bidder,)),
            Problem((machine,), ()),
            Problem((machine,), (useless,)),
        ):
            answer = solver.solve(problem)
            assert (dict(answer.winners), answer.value) == ({}, 0.0)

    def test_a_lone_bidder_pays_nothing(self, solver: Solver) -> None:
        """Nobody is denied anything."""
        row = Candidate((Chunk(1, 4),), 1.0)
        problem = Problem((OfferedMachine(0, 0, (2, 2)),), (Bidder(AppId("a"), 1.0, 8.0, (row,)),))
        kept = solver.solve(problem).kept[AppId("a")]
        assert (kept.low, kept.high) == (1.0, 1.0)

    def test_the_winner_pays_for_what_it_denies_the_loser(self, solver: Solver) -> None:
        """Rho of nothing 8 and 2, both 1 with the only machine: the first keeps one half."""
        row = Candidate((Chunk(1, 4),), 1.0)
        bidders = (Bidder(AppId("a"), 1.0, 8.0, (row,)), Bidder(AppId("b"), 1.0, 2.0, (row,)))
        answer = solver.solve(Problem((OfferedMachine(0, 0, (4,)),), bidders))
        assert set(answer.winners) == {"a"}
        assert answer.kept[AppId("a")].high == pytest.approx(0.5)


def _brute(problem: Problem) -> Solution:
    return solver_by_name("brute-force").solve(problem)


def _same_winners(one: Solution, other: Solution) -> bool:
    return {app: win.row for app, win in one.winners.items()} == {
        app: win.row for app, win in other.winners.items()
    }
