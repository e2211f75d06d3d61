"""Times of other machines: a lease is never told to end later than it does."""

import random

from themis.engines.remote.clock_offsets import ClockOffsets


def test_the_own_clock_needs_no_reading() -> None:
    clocks = ClockOffsets("here")
    assert clocks.knows("here", 5.0)
    assert (clocks.there("here", 7.0), clocks.here("here", 7.0)) == (7.0, 7.0)


def test_readings_that_took_their_time_end_leases_early_and_never_late() -> None:
    rng = random.Random(3)
    clocks, ahead = ClockOffsets("here"), 1000.0
    at = told = 0.0
    for second in range(100):
        at = float(second)
        clocks.learn("there", at + ahead, at + rng.uniform(0.0, 2.0))
        told = clocks.there("there", at + 10.0)
        assert told <= at + 10.0 + ahead
    assert told > at + 10.0 + ahead - 0.5  # the best one counts


def test_readings_of_long_ago_do_not_count() -> None:
    """The other clock is slower: by the first reading leases would end later and later."""
    clocks, theirs = ClockOffsets("here"), 0.0
    for second in range(100_000):
        theirs = 50.0 + second * (1 - 500e-6)
        clocks.learn("there", theirs, float(second))
    error = clocks.there("there", 99_999.0) - theirs
    assert 0.0 <= error < 0.07


def test_machine_silent_for_long_must_report_its_clock_again() -> None:
    clocks = ClockOffsets("here")
    assert not clocks.knows("there", 0.0)
    clocks.learn("there", 500.0, 1.0)
    assert clocks.knows("there", 300.0)
    assert not clocks.knows("there", 1000.0)
