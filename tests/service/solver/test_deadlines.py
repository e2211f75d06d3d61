"""When a solver's answer must be ready: by what agents were told, whatever was lost before."""

import pytest

from tests.support.random_auctions import generated_problem
from themis.core.arbiter import Settings
from themis.core.arbiter.commands import Ask, Solve
from themis.core.model import AppId, Offer
from themis.service.solver.auctions import BidDeadlines

SETTINGS = Settings(bid_deadline=2.0, solve_budget=1.0, heartbeat=2.0)
PROBLEM = generated_problem(8, 2, 0)


def ask(number: int, deadline: float) -> Ask:
    return Ask(AppId("a"), Offer(number, (), ()), deadline)


def solve(number: int, at: float) -> Solve:
    return Solve(number, PROBLEM, 100, at + SETTINGS.solve_budget + SETTINGS.heartbeat)


def test_time_lost_after_the_bids_deadline_is_the_solver_s() -> None:
    deadlines = BidDeadlines()
    deadlines.note(ask(7, 102.0))
    assert deadlines.of(solve(7, at=102.0), SETTINGS).ready == pytest.approx(102.8)
    assert deadlines.of(solve(7, at=102.6), SETTINGS).ready == pytest.approx(102.8)


def test_bids_that_are_all_there_early_end_the_round_early() -> None:
    deadlines = BidDeadlines()
    deadlines.note(ask(7, 102.0))
    assert deadlines.of(solve(7, at=100.5), SETTINGS).ready == pytest.approx(101.3)


@pytest.mark.parametrize("other", [0, 6])
def test_requests_of_other_rounds_do_not_set_the_deadline(other: int) -> None:
    deadlines = BidDeadlines()
    deadlines.note(ask(other, 50.0))
    assert deadlines.of(solve(7, at=100.0), SETTINGS).ready == pytest.approx(100.8)


def test_a_first_answer_may_come_until_the_arbiter_gives_up() -> None:
    deadlines = BidDeadlines()
    deadlines.note(ask(7, 102.0))
    assert deadlines.of(solve(7, at=102.6), SETTINGS).last == pytest.approx(105.4)
    hasty = Settings(bid_deadline=2.0, solve_budget=0.0, heartbeat=0.05)
    due = deadlines.of(Solve(7, PROBLEM, 100, 102.05), hasty)
    assert due.ready <= due.last < 102.0
