"""The best lottery over known allocations, against a slow method that shares nothing with it."""

import numpy as np
import pytest

from themis.core.auction.lottery.mixture import Balance, Real, balance, thin_out


def _slowly(values: Real, weights: Real, rounds: int = 20_000) -> Real:
    """Multiplicative updates: what an allocation is worth raises its probability."""
    chances = np.full(len(values), 1.0 / len(values))
    for _ in range(rounds):
        chances *= values @ (weights / (chances @ values)) / weights.sum()
    return chances @ values


def _random(seed: int) -> tuple[Real, Real]:
    rng = np.random.default_rng(seed)
    values = rng.random((rng.integers(1, 12), rng.integers(1, 7)))
    values *= rng.random(values.shape) < 0.6
    values[rng.integers(len(values), size=values.shape[1]), np.arange(values.shape[1])] = 1.0
    return values, rng.choice([0.5, 1.0, 3.0], values.shape[1])


@pytest.mark.parametrize("seed", range(25))
def test_it_agrees_with_multiplicative_updates(seed: int) -> None:
    values, weights = _random(seed)
    found = balance(values, weights)
    assert found.probabilities.sum() == pytest.approx(1.0)
    assert found.probabilities.min() >= 0.0
    assert found.expected == pytest.approx(_slowly(values, weights), rel=2e-3)
    assert found.value(weights) >= float(weights @ np.log(_slowly(values, weights))) - 1e-9


@pytest.mark.parametrize("seed", range(100))
def test_no_allocation_is_worth_more_than_the_lottery(seed: int) -> None:
    values, weights = _random(seed)
    found = balance(values, weights)
    worth = values @ found.prices(weights)
    assert worth.max() <= weights.sum() * (1.0 + 1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_weights_and_values_may_differ_by_orders_of_magnitude(seed: int) -> None:
    values, weights = _random(seed)
    rng = np.random.default_rng(1000 + seed)
    weights = weights * 10.0 ** rng.integers(-3, 3, len(weights))
    values = values * 10.0 ** rng.integers(-6, 6, values.shape[1])
    worth = values @ balance(values, weights).prices(weights)
    assert worth.max() <= weights.sum() * (1.0 + 1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_absurd_weights_still_give_a_lottery(seed: int) -> None:
    values, weights = _random(seed)
    weights = weights * 10.0 ** np.random.default_rng(seed).integers(-9, 9, len(weights))
    found = balance(values, weights)
    assert found.probabilities.sum() == pytest.approx(1.0)
    assert found.expected.min() > 0.0


def test_one_thing_for_two_is_drawn_by_their_weights() -> None:
    found = balance(np.array([[1.0, 0.0], [0.0, 5.0]]), np.array([2.0, 1.0]))
    assert found.probabilities == pytest.approx([2 / 3, 1 / 3])


@pytest.mark.parametrize("seed", range(40))
def test_thinning_out_changes_no_expectation(seed: int) -> None:
    values, weights = _random(seed)
    repeated = np.vstack([values, values, values])
    found = balance(repeated, weights)
    chosen, chances = thin_out(repeated, found, 1e-12)
    assert len(chosen) <= values.shape[1] + 1
    assert chances.sum() == pytest.approx(1.0)
    assert chances @ repeated[chosen] == pytest.approx(found.expected, rel=1e-8)


def test_options_that_are_never_drawn_are_left_out() -> None:
    found = Balance(np.array([0.5, 1e-15, 0.5]), np.array([1.0]))
    assert thin_out(np.eye(3), found, 1e-12)[0] == [0, 2]
