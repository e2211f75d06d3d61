from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.core.fairness import (
    halving_counts,
    halving_from_budget,
    halving_from_max,
    hyperband,
    upper_median,
)
from themis.core.model import Phase
from themis.errors import ConfigError


@pytest.mark.parametrize(
    ("jobs", "eta", "counts"),
    [
        pytest.param(1, 2, (1,), id="a single job has one phase"),
        pytest.param(4, 2, (4, 2, 1), id="a power of two"),
        pytest.param(7, 2, (7, 3, 1), id="odd counts round down"),
        pytest.param(98, 2, (98, 49, 24, 12, 6, 3, 1), id="the largest app of the workload"),
        pytest.param(5, 3, (5, 1), id="another factor"),
        pytest.param(3, 10, (3, 1), id="a factor above the count"),
    ],
)
def test_each_phase_keeps_one_job_in_eta(jobs: int, eta: int, counts: tuple[int, ...]) -> None:
    assert halving_counts(jobs, eta) == counts


def test_a_factor_of_one_would_never_end_and_is_refused() -> None:
    with pytest.raises(ConfigError, match="eta"):
        halving_counts(4, eta=1)


@pytest.mark.parametrize(
    ("values", "median"),
    [((3.0, 1.0, 2.0), 2.0), ((1.0, 4.0), 4.0), ((80.0, 100.0, 100.0, 120.0), 100.0)],
)
def test_the_upper_median_takes_the_larger_of_two_middles(
    values: tuple[float, ...], median: float
) -> None:
    assert upper_median(values) == median


def test_the_median_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError):
        upper_median(())


def test_a_quotient_meant_to_be_whole_is_not_rounded_down() -> None:
    # 3 * 0.1 exceeds 0.3 in binary, so a plain floor of each part would lose an iteration.
    assert halving_from_budget((0.1,), budget=0.3) == (Phase(1, 3),)


def test_a_tiny_budget_still_trains_one_iteration_in_each_phase() -> None:
    assert [phase.iterations for phase in halving_from_budget((5.0,) * 8, 1.0)] == [1, 1, 1, 1]


@given(st.lists(st.floats(0.1, 1000.0), min_size=1, max_size=60), st.floats(1e6, 1e9))
def test_a_budget_is_spent_but_never_exceeded(times: list[float], budget: float) -> None:
    phases = halving_from_budget(times, budget)
    median = upper_median(times)
    costs = [sum(times), *(phase.jobs * median for phase in phases[1:])]
    spent = [phase.iterations * cost for phase, cost in zip(phases, costs, strict=True)]
    assert sum(spent) <= budget * (1 + 1e-9)
    assert sum(spent) > budget - costs[-1] * (1 + 1e-6)
    for part, cost in zip(spent[:-1], costs, strict=False):
        assert budget / len(phases) - cost * (1 + 1e-6) < part <= budget / len(phases) * (1 + 1e-9)


@given(st.integers(1, 200), st.integers(0, 5000), st.integers(2, 5))
def test_the_last_survivor_reaches_exactly_its_maximum(jobs: int, extra: int, eta: int) -> None:
    most = len(halving_counts(jobs, eta)) + extra
    phases = halving_from_max(jobs, most, eta)
    steps = [phase.iterations for phase in phases]
    assert sum(steps) == most
    assert tuple(phase.jobs for phase in phases) == halving_counts(jobs, eta)
    assert steps == sorted(steps)


def test_increments_go_with_one_over_the_number_of_jobs() -> None:
    steps = [phase.iterations for phase in halving_from_max(8, 150)]
    assert steps == [10, 20, 40, 80]


def test_fewer_iterations_than_phases_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_iterations"):
        halving_from_max(8, 3)


def test_hyperband_counts_its_brackets_without_logarithms() -> None:
    assert [bracket.s for bracket in hyperband(243)] == [5, 4, 3, 2, 1, 0]
    assert [bracket.s for bracket in hyperband(242)] == [4, 3, 2, 1, 0]
    assert [bracket.s for bracket in hyperband(1)] == [0]


def test_hyperband_rungs_cost_only_the_difference() -> None:
    first = hyperband(81)[0]
    assert first.phases == (Phase(81, 1), Phase(27, 2), Phase(9, 6), Phase(3, 18), Phase(1, 54))


@pytest.mark.parametrize(
    ("most", "eta", "steps"),
    [
        pytest.param(100, 3, [1, 3, 7, 22, 67], id="rungs end at 1, 4, 11, 33, 100"),
        pytest.param(5, 2, [1, 2, 2], id="a half goes up: rungs end at 1, 3, 5"),
    ],
)
def test_hyperband_rungs_end_at_the_nearest_iteration(
    most: int, eta: int, steps: list[int]
) -> None:
    assert [phase.iterations for phase in hyperband(most, eta)[0].phases] == steps


@given(st.integers(1, 5000), st.integers(2, 6))
def test_every_bracket_ends_at_maximum_and_starts_more_than_previous_kept(
    most: int, eta: int
) -> None:
    brackets = hyperband(most, eta)
    for bracket in brackets:
        assert sum(phase.iterations for phase in bracket.phases) == most
        assert len(bracket.phases) == bracket.s + 1
        assert bracket.phases[0].jobs == bracket.jobs
    for before, after in pairwise(brackets):
        # What `remaining_phases` relies on to see where a bracket begins.
        assert after.jobs > before.phases[-1].jobs
