"""The ladder on auctions as large as the real ones, and on tables nobody should send."""

import math
from dataclasses import replace

import pytest

from tests.support.random_auctions import generated_problem
from themis.core.auction import Bidder, Candidate, OfferedMachine, Problem, check_solution, solver
from themis.core.auction.solvers.ladder.ladder import Ladder, effort_for
from themis.core.auction.solvers.prepared import prepare
from themis.core.model import MACHINE, RACK, SLOT, AppId, Chunk


def _value(problem: Problem) -> float:
    solution = solver("ladder").solve(problem)
    check_solution(problem, solution)
    assert solution.exact
    return solution.value


def _agree(problem: Problem) -> None:
    mine, truth = solver("ladder").solve(problem), solver("highs").solve(problem)
    check_solution(problem, mine)
    assert mine.exact
    assert mine.value == pytest.approx(truth.value, abs=1e-6)
    if {a: w.row for a, w in mine.winners.items()} == {a: w.row for a, w in truth.winners.items()}:
        for app, kept in truth.kept.items():
            assert mine.kept[app].high == pytest.approx(kept.high, abs=1e-6)


@pytest.mark.parametrize("fragmented", [False, True])
def test_it_agrees_with_plain_highs_at_64_gpus(fragmented: bool) -> None:
    for seed in (3, 4):
        _agree(generated_problem(64, 8, seed, fragmented=fragmented))


@pytest.mark.slow
@pytest.mark.parametrize("fragmented", [False, True])
def test_it_agrees_with_plain_highs_on_many_auctions(fragmented: bool) -> None:
    # With more bidders plain HiGHS takes seconds for each of them.
    for seed in range(20):
        bidders = 10 if seed == 0 else 5
        _agree(generated_problem(64, bidders, 100 + seed, fragmented=fragmented))


@pytest.mark.parametrize("seed", range(3))
def test_an_auction_with_little_at_stake_takes_no_more_work(seed: int) -> None:
    problem = generated_problem(64, 20, seed)
    flat = replace(problem, bidders=tuple(map(_flattened, problem.bidders)))
    steep, level = solver("ladder").solve(problem), solver("ladder").solve(flat)
    assert steep.exact
    assert level.exact
    assert level.value == pytest.approx(1e-3 * steep.value)
    assert level.work < 1.5 * steep.work


def _flattened(bidder: Bidder) -> Bidder:
    """The same wishes, a thousandth as strong."""
    nothing = bidder.rho_nothing
    rows = (replace(row, rho=nothing * (row.rho / nothing) ** 1e-3) for row in bidder.rows)
    return replace(bidder, rows=tuple(rows))


@pytest.mark.parametrize("seed", range(6))
def test_more_gpus_never_lower_the_value(seed: int) -> None:
    problem = generated_problem(64, 10, seed, fragmented=True)
    grown = tuple(
        replace(m, slots=tuple(size + (m.machine % 3 == 0) for size in m.slots))
        for m in problem.machines
    )
    assert _value(replace(problem, machines=grown)) >= _value(problem) - 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_scaling_rho_and_rho_of_nothing_together_changes_nothing(seed: int) -> None:
    problem = generated_problem(64, 10, seed)
    scaled = replace(
        problem,
        bidders=tuple(
            replace(
                bidder,
                rho_nothing=bidder.rho_nothing * 4.0**number,
                rows=tuple(replace(row, rho=row.rho * 4.0**number) for row in bidder.rows),
            )
            for number, bidder in enumerate(problem.bidders)
        ),
    )
    before, after = solver("ladder").solve(problem), solver("ladder").solve(scaled)
    assert after.value == pytest.approx(before.value, abs=1e-9)
    assert {a: w.row for a, w in after.winners.items()} == {
        a: w.row for a, w in before.winners.items()
    }
    for app, kept in before.kept.items():
        assert after.kept[app].high == pytest.approx(kept.high, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_which_of_two_equal_machines_is_which_changes_nothing(seed: int) -> None:
    problem = generated_problem(64, 10, seed)
    # Machines 10 to 14 stand in one rack and are alike; rows are pinned to some of them.
    turned = {10: 14, 11: 13, 13: 11, 14: 10}
    swapped = replace(
        problem,
        bidders=tuple(
            replace(
                bidder,
                rows=tuple(
                    replace(
                        row,
                        chunks=tuple(
                            replace(chunk, machine=turned.get(chunk.machine, chunk.machine))
                            if chunk.machine is not None
                            else chunk
                            for chunk in row.chunks
                        ),
                    )
                    for row in bidder.rows
                ),
            )
            for bidder in problem.bidders
        ),
    )
    before, after = solver("ladder").solve(problem), solver("ladder").solve(swapped)
    assert after.value == pytest.approx(before.value, abs=1e-9)
    assert {a: k.high for a, k in after.kept.items()} == pytest.approx(
        {a: k.high for a, k in before.kept.items()}, abs=1e-9
    )


def test_a_duplicated_row_changes_nothing_at_64_gpus() -> None:
    problem = generated_problem(64, 12, 5)
    doubled = replace(
        problem, bidders=tuple(replace(b, rows=b.rows + b.rows) for b in problem.bidders)
    )
    assert solver("ladder").solve(doubled) == solver("ladder").solve(problem)


def test_equal_budgets_give_equal_answers_and_small_ones_valid_bounds() -> None:
    problem = generated_problem(256, 12, 2, fragmented=True)
    truth = solver("ladder").solve(problem)
    for budget in (1, 500, 5_000):
        hurried = solver("ladder").solve(problem, budget)
        check_solution(problem, hurried)
        assert hurried == solver("ladder").solve(problem, budget)
        assert hurried.winners
        assert hurried.value <= truth.value + 1e-9 <= hurried.bound + 2e-9


def test_a_large_auction_comes_with_a_certificate() -> None:
    problem = generated_problem(1024, 80, 1)
    finder = Ladder(prepare(problem))
    found = finder(tuple(range(80)), None)
    assert found.value <= found.bound <= found.value + 0.01
    assert len(found.place()) == len(found.chosen)


def test_machine_constrained_bidders_keep_to_their_machines_in_large_auctions() -> None:
    problem = generated_problem(1024, 70, 3, fragmented=True)
    half = frozenset(m.machine for m in problem.machines if m.machine % 2)
    limited = tuple(
        replace(
            bidder,
            machines=half,
            rows=tuple(
                row
                for row in bidder.rows
                if all(c.machine is None or c.machine in half for c in row.chunks)
            ),
        )
        if number % 3 == 0
        else bidder
        for number, bidder in enumerate(problem.bidders)
    )
    restricted = replace(problem, bidders=limited)
    solution = solver("ladder").solve(restricted)
    check_solution(restricted, solution)
    assert solution.bound - solution.value < 0.5
    assert any(bidder.app in solution.winners for bidder in limited[::3])


def test_rows_that_cannot_win_alone_do_not_loosen_the_bound() -> None:
    machines = tuple(OfferedMachine(i, 0, (2, 2)) for i in range(3))
    # Three machines hold three chunks of four, never four of them.
    greedy = Candidate((Chunk(MACHINE, 4),) * 4, 0.01)
    modest = Candidate((Chunk(MACHINE, 4),), 1.0)
    bidders = tuple(Bidder(AppId(f"app-{i}"), 1.0, 8.0, (greedy, modest)) for i in range(3))
    prepared = prepare(Problem(machines, bidders))
    finder = Ladder(prepared)
    assert {option.row for option in finder.table.options} == {1}
    assert finder((0, 1, 2), None).value == pytest.approx(3 * math.log(8.0))


@pytest.mark.parametrize("seed", range(4))
def test_starting_again_with_other_gains_is_as_good_as_starting_afresh(seed: int) -> None:
    prepared = prepare(generated_problem(64, 10, seed, fragmented=seed % 2 == 0))
    everyone = tuple(range(10))
    finder = Ladder(prepared)
    finder(everyone, None)
    for factor in (0.5, 3.0):
        changed = replace(
            prepared,
            options=tuple(
                tuple(replace(o, gain=o.gain * (factor if o.bidder % 2 else 1.0)) for o in rows)
                for rows in prepared.options
            ),
        )
        again = finder.revalued(changed)(everyone, None)
        fresh = Ladder(changed)(everyone, None)
        assert again.exact
        assert again.value == pytest.approx(fresh.value, abs=1e-6)
        assert again.value == pytest.approx(sum(o.gain for o in again.chosen))


def test_proof_is_asked_for_where_it_can_be_had() -> None:
    assert effort_for(256, 30).highs
    assert effort_for(256, 300).highs
    assert not effort_for(4096, 200).highs


@pytest.mark.parametrize(("gpus", "bidders"), [(64, 90), (256, 61)])
def test_many_bidders_on_a_small_cluster_get_proof(gpus: int, bidders: int) -> None:
    problem = generated_problem(gpus, bidders, 3, fragmented=gpus == 256)
    solution = solver("default").solve(problem)
    check_solution(problem, solution)
    assert solution.exact


def _one_each(rows: tuple[Candidate, ...], nothing: float, count: int = 3) -> Problem:
    machines = tuple(OfferedMachine(i, i // 2, (2, 2)) for i in range(3))
    bidders = tuple(Bidder(AppId(f"app-{i}"), 1.0, nothing, rows) for i in range(count))
    return Problem(machines, bidders)


def test_equal_values_are_settled() -> None:
    rows = tuple(Candidate((Chunk(level, 4),), 1.0) for level in (SLOT, MACHINE, RACK))
    solution = solver("ladder").solve(_one_each(rows, 2.0, count=6))
    check_solution(_one_each(rows, 2.0, count=6), solution)
    assert solution.exact
    assert solution.value == pytest.approx(3 * math.log(2.0))


def test_values_of_very_different_size_are_settled() -> None:
    rows = (Candidate((Chunk(MACHINE, 4),), 1e-9), Candidate((Chunk(MACHINE, 2),), 1.0))
    problem = _one_each(rows, 1e9, count=4)
    solution, truth = solver("ladder").solve(problem), solver("brute-force").solve(problem)
    assert solution.exact
    assert solution.value == pytest.approx(truth.value, rel=1e-12)


def test_thousands_of_rows_are_settled() -> None:
    rows = tuple(
        Candidate((Chunk(1 + count % 3, 1 + count % 4),), 10.0 - count / 1000)
        for count in range(4000)
    )
    solution = solver("ladder").solve(_one_each(rows, 20.0))
    check_solution(_one_each(rows, 20.0), solution)
    assert solution.exact


def test_no_row_and_one_row_are_settled() -> None:
    assert solver("ladder").solve(_one_each((), 2.0)).winners == {}
    lone = _one_each((Candidate((Chunk(RACK, 8),), 1.0),), 2.0, count=1)
    assert set(solver("ladder").solve(lone).winners) == {"app-0"}
