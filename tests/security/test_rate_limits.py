"""Limits: what is taken from one caller, with the time passed in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.config.keys import CallerLimits
from themis.errors import LimitError
from themis.security.rate_limits import Bucket, OpenStreams, RateBuckets, network_of

LIMITS = CallerLimits(requests=2.0, burst=4.0, streams=2)


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    rates = RateBuckets(LIMITS)
    for _ in range(4):
        rates.take("vision", 0.0)
    with pytest.raises(LimitError) as caught:
        rates.take("vision", 0.0)
    assert caught.value.retry_after == 0.5
    rates.take("vision", 0.5)
    with pytest.raises(LimitError):
        rates.take("vision", 0.9)


def test_call_costlier_than_a_burst_waits_for_a_full_bucket() -> None:
    rates = RateBuckets(LIMITS)
    rates.take("vision", 0.0, 1000.0)
    with pytest.raises(LimitError) as caught:
        rates.take("vision", 0.0, 1000.0)
    assert caught.value.retry_after == 2.0
    rates.take("vision", 2.0, 1000.0)


def test_one_caller_does_not_use_up_anothers_rate() -> None:
    rates = RateBuckets(LIMITS)
    for _ in range(4):
        rates.take("vision", 0.0)
    rates.take("speech", 0.0)


def test_refused_calls_do_not_put_off_the_next_one() -> None:
    rates = RateBuckets(LIMITS)
    for _ in range(4):
        rates.take("vision", 0.0)
    for step in range(1, 5):
        with pytest.raises(LimitError):
            rates.take("vision", step * 0.1)
    rates.take("vision", 0.5)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    rates = RateBuckets(LIMITS)
    for _ in range(4):
        rates.take("vision", 100.0)
    with pytest.raises(LimitError):
        rates.take("vision", 0.0)
    with pytest.raises(LimitError):
        rates.take("vision", 100.0)


def test_invented_names_use_bounded_memory_and_regulars_are_kept() -> None:
    rates = RateBuckets(LIMITS, max_callers=3)
    for _ in range(4):
        rates.take("regular", 0.0)
    for number in range(2):
        rates.take(f"stranger-{number}", 0.0)
    with pytest.raises(LimitError):
        rates.take("regular", 0.0)
    rates.take("stranger-3", 0.0)
    with pytest.raises(LimitError):
        rates.take("regular", 0.0)


@given(
    rate=st.floats(0.1, 1e3),
    size=st.floats(1.0, 1e3),
    steps=st.lists(st.floats(0.0, 10.0), max_size=30),
)
def test_no_pattern_of_calls_gets_more_than_burst_and_rate(
    rate: float, size: float, steps: list[float]
) -> None:
    bucket, now, passed = Bucket(rate, size, size, 0.0), 0.0, 0
    for step in steps:
        now += step
        bucket, wait = bucket.taken(now)
        passed += wait == 0.0
        assert wait >= 0.0
    assert passed <= size + rate * now + 1e-6


def test_caller_waiting_for_retry_after_gets_through() -> None:
    bucket = Bucket(0.3, 1.0, 0.0, 0.0)
    _, wait = bucket.taken(0.0)
    assert bucket.taken(wait + 1e-9)[1] == 0.0


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_addresses_of_one_network_share_a_place(address: str, place: str) -> None:
    assert network_of(address) == place


def test_streams_are_counted_for_each_caller() -> None:
    streams = OpenStreams(LIMITS)
    streams.open("vision")
    streams.open("vision")
    with pytest.raises(LimitError, match="close one"):
        streams.open("vision")
    streams.open("speech")
    streams.close("vision")
    streams.open("vision")
    streams.close("nobody")
    assert (streams.count("vision"), streams.count("nobody")) == (2, 0)


def test_other_limits_hold_at_once() -> None:
    rates, streams = RateBuckets(LIMITS), OpenStreams(LIMITS)
    rates.change(CallerLimits(requests=1.0, burst=1.0))
    rates.take("vision", 0.0)
    with pytest.raises(LimitError):
        rates.take("vision", 0.0)
    streams.change(CallerLimits(streams=1))
    streams.open("vision")
    with pytest.raises(LimitError):
        streams.open("vision")
