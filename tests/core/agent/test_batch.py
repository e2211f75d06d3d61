"""Many shapes at once are rated just as one by one."""

import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import themis.core.agent.training_rates
from themis.core.agent.training_rates import LEAST_IN_BATCH, JobRates, Runs
from themis.core.model import CLUSTER, LEVELS, MACHINE, SLOT, Slowdown
from themis.core.model.zoo import ZOO, slowdown_of

VGG = Slowdown((1.0, 1.05, 1.29, 1.44))
NUMBERS = (100, 20, 3, 1)

_VALUES = st.sampled_from([1.0, 1.05, 1.3, 1.5, 2.0, 4.0, 9.0])
_PRIORS = st.lists(_VALUES, min_size=4, max_size=4).map(
    lambda values: Slowdown(tuple(sorted(values)))  # type: ignore[arg-type] # four of them
)
_SLOWDOWNS = _PRIORS | st.sampled_from([slowdown_of(entry.name) for entry in ZOO])


def _known(rates: JobRates, jobs: int) -> set[Runs]:
    return {runs for runs, by_jobs in rates._known.items() if jobs in by_jobs}


def _shapes(seed: int, count: int = LEAST_IN_BATCH + 6) -> list[Runs]:
    rng = random.Random(seed)
    shapes: dict[Runs, None] = {}
    while len(shapes) < count:
        chunks = {(rng.choice(LEVELS), rng.randint(1, 9)) for _ in range(rng.randint(1, 4))}
        runs = tuple((*chunk, rng.choice((1, 1, 2, 3, 7, 20))) for chunk in sorted(chunks))
        shapes[runs] = None
    return list(shapes)


@given(
    low=st.sampled_from([1, 1, 2, 3, 4]),
    extra=st.integers(0, 4),
    slowdown=_SLOWDOWNS,
    seed=st.integers(0, 10**6),
)
def test_together_they_are_rated_as_one_by_one_to_the_last_bit(
    low: int, extra: int, slowdown: Slowdown, seed: int
) -> None:
    shapes = _shapes(seed)
    high = max(2, low + extra)
    together, one_by_one = JobRates(low, high, slowdown), JobRates(low, high, slowdown)
    together.prepare(shapes, NUMBERS)
    for jobs in NUMBERS:
        for runs in shapes:
            assert together.reach(runs, jobs) == one_by_one.reach(runs, jobs)


def test_prepared_values_are_reused() -> None:
    rates = JobRates(1, 4, VGG)
    shapes = _shapes(1)
    rates.prepare(shapes, (20, 5))
    wide = {runs for runs in shapes if sum(count * many for _, count, many in runs) >= 4}
    assert wide
    for jobs in (1, 5, 20):
        assert wide <= _known(rates, jobs)


def test_prepared_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(themis.core.agent.training_rates, "MOST_REMEMBERED", 300)
    rates, one_by_one = JobRates(1, 4, VGG), JobRates(1, 4, VGG)
    for seed in range(5):
        shapes = _shapes(seed)
        for numbers in ((20, 5), (9, 7, 6, 4, 3, 2)):
            rates.prepare(shapes, numbers)
            assert 0 < sum(len(_known(rates, jobs)) for jobs in range(1, 21)) <= 300
            for runs in shapes:
                assert rates.reach(runs, numbers[-1]) == one_by_one.reach(runs, numbers[-1])


def test_a_few_new_shapes_wait_until_they_are_asked_for() -> None:
    rates = JobRates(1, 4, VGG)
    rates.prepare(_shapes(1, LEAST_IN_BATCH - 1), (5,))
    assert not _known(rates, 5)


@pytest.mark.parametrize(
    ("high", "slowdown"),
    [
        pytest.param(4, Slowdown((2.0, 1.0, 1.0, 1.0)), id="faster with distance"),
        pytest.param(4, VGG.with_measured(MACHINE, 2, 0.9), id="measured"),
        pytest.param(16, VGG, id="too wide"),
        pytest.param(1, VGG, id="one GPU"),
    ],
)
def test_kinds_of_jobs_that_need_the_long_way_are_left_to_it(high: int, slowdown: Slowdown) -> None:
    rates = JobRates(1, high, slowdown)
    rates.prepare(_shapes(1), (5,))
    assert not _known(rates, 5)


def test_without_numpy_everything_is_found_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "themis.core.agent.batched_rates", raising=False)
    monkeypatch.setitem(sys.modules, "numpy", None)
    rates = JobRates(1, 2, VGG)
    rates.prepare(_shapes(1), (5,))
    assert not _known(rates, 5)
    assert rates.reach(((SLOT, 2, 3), (CLUSTER, 1, 1)), 3) == (6.0, 2.0)
