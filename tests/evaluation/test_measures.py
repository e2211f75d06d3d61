"""Comparing by pairs, and distances of distributions."""

import math
from random import Random

import pytest

from themis.evaluation.claims import Quantity, Verdict, all_of, quantity
from themis.evaluation.comparisons import (
    FEWEST,
    Factor,
    at_least,
    at_most,
    cdf_at,
    curve,
    factor,
    ks_distance,
    ks_limit,
    mean_ratio,
)
from themis.evaluation.figures.charts import Steps, _peaks
from themis.sim.workloads import W1_JOBS, quantile

SIX = tuple(float(second) for second in range(6))
LINE = ((0.0, 0.0), (10.0, 1.0))


def test_a_factor_is_the_geometric_mean_of_the_pairs() -> None:
    found = factor([2.0, 8.0], [1.0, 1.0])
    assert found.mean == pytest.approx(4.0)
    assert (found.low, found.high) == pytest.approx((2.0, 8.0))


def test_pairs_that_move_together_leave_no_doubt() -> None:
    ours = [1.0, 5.0, 20.0, 3.0, 9.0, 2.0]
    found = factor([2 * value for value in ours], ours)
    assert (found.low, found.mean, found.high) == pytest.approx((2.0, 2.0, 2.0))
    assert found.above


@pytest.mark.parametrize("seeds", [6, 8, 30])
def test_intervals_hold_the_truth_as_often_as_they_say(seeds: int) -> None:
    rng = Random(1)
    ones = [1.0] * seeds
    found = [factor([rng.lognormvariate(0.0, 0.3) for _ in ones], ones) for _ in range(300)]
    held = sum(item.low is not None and item.high is not None and item.low <= 1.0 <= item.high
               for item in found)  # fmt: skip
    assert 0.92 <= held / len(found) <= 0.98


def test_intervals_of_means_and_skewed_samples_cover_the_truth() -> None:
    rng = Random(1)
    ones = [1.0] * 30
    skewed = [factor([math.exp(0.3 * (rng.expovariate(1.0) - 1.0)) for _ in ones], ones)
              for _ in range(100)]  # fmt: skip
    means = [mean_ratio([rng.lognormvariate(-0.045, 0.3) for _ in ones], ones) for _ in range(100)]
    for found in (skewed, means):
        held = sum(item.low is not None and item.high is not None and item.low <= 1.0 <= item.high
                   for item in found)  # fmt: skip
        assert held >= 88


def test_a_factor_is_the_same_every_time() -> None:
    values = ([1.0, 3.0, 2.0, 5.0], [2.0, 1.0, 1.0, 4.0])
    assert factor(*values) == factor(*values)


def test_runs_without_the_number_are_left_out_of_a_factor() -> None:
    assert factor([2.0, math.nan], [1.0, 1.0]) == Factor(2.0)
    assert math.isnan(factor([math.nan], [1.0]).mean)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Factor(2.5, 2.0, 3.0, FEWEST), Verdict.HOLDS),
        (Factor(1.5, 1.2, 1.9, FEWEST), Verdict.PARTLY),
        (Factor(1.5, 0.9, 2.9, FEWEST), Verdict.UNDECIDED),
        (Factor(0.5, 0.4, 0.6, FEWEST), Verdict.FAILS),
        (Factor(1.1, 0.9, 1.3, FEWEST), Verdict.FAILS),  # Better or not, it is surely not twice.
        (Factor(1.1, 0.9, 1.3, FEWEST - 1), Verdict.UNDECIDED),
        (Factor(2.5, 2.0, 3.0, FEWEST - 1), Verdict.UNDECIDED),
        (Factor(2.5), Verdict.UNDECIDED),
    ],
)
def test_a_factor_of_two_is_judged_by_its_interval(found: Factor, verdict: Verdict) -> None:
    assert at_least(found, 2.0) is verdict
    low, high = (None if end is None else 1.0 / end for end in (found.high, found.low))
    assert at_most(Factor(1.0 / found.mean, low, high, found.seeds), 0.5) is verdict


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([Verdict.HOLDS, Verdict.HOLDS], Verdict.HOLDS),
        ([Verdict.HOLDS, Verdict.UNDECIDED], Verdict.UNDECIDED),
        ([Verdict.HOLDS, Verdict.PARTLY], Verdict.PARTLY),
        ([Verdict.PARTLY, Verdict.UNDECIDED], Verdict.UNDECIDED),
        ([Verdict.UNDECIDED, Verdict.FAILS], Verdict.FAILS),
        ([Verdict.HOLDS, Verdict.FAILS], Verdict.FAILS),
        ([Verdict.FAILS, Verdict.FAILS], Verdict.FAILS),
    ],
)
def test_a_claim_of_several_parts(parts: list[Verdict], whole: Verdict) -> None:
    assert all_of(parts) is whole


def test_number_has_its_interval_or_is_omitted() -> None:
    assert quantity(1.234, ".1f", "x", 1.0, 2.0).text == "1.2x (1.0 to 2.0)"
    assert quantity(math.nan).text == "-"
    assert quantity(math.nan).value is None
    assert Quantity("at least -", math.nan, -math.inf) == Quantity("at least -")


def test_the_distance_of_a_sample_is_the_largest_gap_between_the_curves() -> None:
    assert cdf_at(LINE, 5.0) == pytest.approx(0.5)
    assert (cdf_at(LINE, -1.0), cdf_at(LINE, 11.0)) == (0.0, 1.0)
    assert ks_distance([5.0], LINE) == pytest.approx(0.5)
    assert ks_distance([10.0, 10.0], LINE) == pytest.approx(1.0)


def test_sample_of_the_same_distribution_is_near_and_shifted_is_not() -> None:
    exact = [quantile(W1_JOBS, (place + 0.5) / 500) for place in range(500)]
    assert ks_distance(exact, W1_JOBS) < 0.01
    assert ks_distance([round(value) for value in exact], W1_JOBS, whole=True) < 0.01
    assert ks_distance([value + 20 for value in exact], W1_JOBS) > 3 * ks_limit(500)


def test_thinning_steps_keeps_their_peaks() -> None:
    steps = Steps(SIX, (1.0, 9.0, 2.0, 0.0, 7.0, 0.0), mean=0.0, end=6.0)
    assert _peaks(steps, bins=3) == ([0.0, 2.0, 4.0], [9.0, 2.0, 7.0])
    assert _peaks(steps, bins=6)[1] == list(steps.values)
    lone = Steps((0.0, 1.0), (0.0, 5.0), mean=0.0, end=4.0)
    assert _peaks(lone, bins=4)[1] == [0.0, 5.0, 5.0, 5.0]


def test_a_curve_keeps_its_ends_when_it_is_thinned() -> None:
    values, shares = curve(range(1000), points=10)
    assert (values[0], values[-1], shares[-1]) == (0, 999, 1.0)
    assert len(values) <= 12
