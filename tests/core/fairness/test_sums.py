import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.core.fairness.exact_sums import ExactSum, StepIntegral
from themis.errors import InvariantError


def test_a_sum_returns_to_zero_after_any_history() -> None:
    rng = random.Random(5)
    total = ExactSum()
    terms = [rng.uniform(1e-9, 1e9) for _ in range(300)]
    for term in terms:
        total.change(added=term)
    rng.shuffle(terms)
    for term in terms:
        total.change(removed=term)
    assert total.value == 0.0


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300))
)
def test_a_sum_is_the_exact_one_rounded_once(terms: list[float]) -> None:
    total = ExactSum()
    for term in terms:
        total.change(added=term)
    assert total.value == float(sum(map(Fraction, terms)))


def test_an_integral_keeps_small_differences_after_a_long_time() -> None:
    integral = StepIntegral()
    integral.change(1e6 / 3, 0.0)
    integral.change(0.1, 1e9)
    mark = integral.at(1e9)
    for step in range(1, 1001):
        integral.change(0.1, 1e9 + step)
    # The area so far is 3e14, where floats are 1/16 apart: plain sums would lose most of this.
    assert integral.at(1e9 + 1000).since(mark) == pytest.approx(100.0, rel=1e-12)


def test_an_integral_refuses_to_go_back_in_time() -> None:
    integral = StepIntegral(1.0, at=5.0)
    with pytest.raises(InvariantError, match="backwards"):
        integral.at(4.0)
