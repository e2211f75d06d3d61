"""The auction's worked numbers and instances, one by one."""

import pytest

from themis.core.auction import Bidder, Candidate, OfferedMachine, Problem, Solution, solver
from themis.core.model import AppId, Chunk

SOLVERS = ("search", "default", "highs")
INSENSITIVE = (1.0, 1.0, 1.0, 1.0)
SENSITIVE = (1.0, 1.0, 2.0, 3.0)


def _app(name: str, slowdown: tuple[float, ...], nothing: float = 8.0) -> Bidder:
    """Four tasks; rho falls with the GPUs and rises with how far apart they are."""
    rows = tuple(
        Candidate((Chunk(level, count),), rho=4.0 / count * (slowdown[level] if count > 1 else 1.0))
        for count in (1, 2, 4)
        for level in (0, 1, 2, 3)
    )
    return Bidder(AppId(name), 1.0, nothing, rows)


def _machines_of(solution: Solution, app: str) -> dict[int, int]:
    machines: dict[int, int] = {}
    for place in solution.winners[AppId(app)].chunks:
        for machine, _, count in place:
            machines[machine] = machines.get(machine, 0) + count
    return machines


@pytest.mark.parametrize("name", SOLVERS)
def test_first_of_rho_8_and_2_wins_and_keeps_half(name: str) -> None:
    row = Candidate((Chunk(1, 2),), 1.0)
    bidders = tuple(Bidder(AppId(app), 1.0, rho, (row,)) for app, rho in (("x", 8.0), ("y", 2.0)))
    solution = solver(name).solve(Problem((OfferedMachine(0, 0, (2,)),), bidders))
    assert set(solution.winners) == {AppId("x")}
    assert solution.kept[AppId("x")].low == pytest.approx(0.5)
    assert solution.kept[AppId("x")].high == pytest.approx(0.5)


@pytest.mark.parametrize(("bidders", "kept"), [(2, 0.5), (4, 0.4219), (8, 0.3927)])
def test_identical_linear_bidders_for_a_divisible_pool(bidders: int, kept: float) -> None:
    # N (N - 1) GPUs divide evenly among N apps and among N - 1.
    pool = bidders * (bidders - 1)
    rows = tuple(Candidate((Chunk(3, count),), 1.0 / count) for count in range(1, pool + 1))
    apps = tuple(Bidder(AppId(f"app-{i}"), 1.0, 10.0, rows) for i in range(bidders))
    solution = solver("default").solve(Problem((OfferedMachine(0, 0, (pool,)),), apps))
    assert solution.exact
    assert len(solution.winners) == bidders
    for interval in solution.kept.values():
        assert interval.high == pytest.approx((1 - 1 / bidders) ** (bidders - 1))
        assert interval.high == pytest.approx(kept, abs=5e-5)


@pytest.mark.parametrize("name", SOLVERS)
def test_instance_1_each_sensitive_app_gets_a_machine(name: str) -> None:
    machines = (OfferedMachine(0, 0, (4,)), OfferedMachine(1, 0, (4,)))
    problem = Problem(machines, (_app("one", SENSITIVE), _app("two", SENSITIVE)))
    solution = solver(name).solve(problem)
    placed = [_machines_of(solution, "one"), _machines_of(solution, "two")]
    assert sorted(placed, key=str) == [{0: 4}, {1: 4}]
    # Neither stands in the other's way, so neither pays.
    assert [kept.high for kept in solution.kept.values()] == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("name", SOLVERS)
def test_instance_2_the_large_machine_goes_to_the_sensitive_app(name: str) -> None:
    machines = tuple(OfferedMachine(i, 0, (size,)) for i, size in enumerate((4, 2, 2)))
    problem = Problem(machines, (_app("calm", INSENSITIVE), _app("sensitive", SENSITIVE)))
    solution = solver(name).solve(problem)
    assert _machines_of(solution, "sensitive") == {0: 4}
    assert _machines_of(solution, "calm") == {1: 2, 2: 2}
    # Pareto efficient and free of envy: both have the best rho they could have alone.
    for bidder in problem.bidders:
        row = bidder.rows[solution.winners[bidder.app].row]
        assert row.rho == pytest.approx(min(candidate.rho for candidate in bidder.rows))
