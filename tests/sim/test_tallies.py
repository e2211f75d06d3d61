"""Counts that stay small: GPU time while apps want more than there is."""

import pytest

from themis.core.model import LeaseSource
from themis.sim import RunConfig, run
from themis.sim.counters import Contended


def test_only_time_under_contention_is_counted() -> None:
    tally = Contended()
    tally.look(10.0, contended=True)
    tally.look(20.0, contended=True)
    tally.look(30.0, contended=False)
    tally.look(50.0, contended=True)
    tally.held(0.0, 40.0, LeaseSource.AUCTION)  # 20 of them
    tally.held(25.0, 60.0, LeaseSource.LEFTOVER)  # 5 and 10
    tally.held(32.0, 45.0, LeaseSource.GUARD)  # none
    assert tally.seconds[LeaseSource.AUCTION] == pytest.approx(20.0)
    assert tally.seconds[LeaseSource.LEFTOVER] == pytest.approx(15.0)
    assert tally.seconds[LeaseSource.GUARD] == 0.0
    assert tally.share(LeaseSource.AUCTION) == pytest.approx(20.0 / 35.0)


def test_without_contention_there_is_no_share() -> None:
    tally = Contended()
    tally.look(0.0, contended=False)
    tally.held(0.0, 10.0, LeaseSource.AUCTION)
    assert tally.share(LeaseSource.AUCTION) is None


def test_a_crowded_run_is_under_contention_most_of_the_time() -> None:
    config = RunConfig(cluster="demo16", apps=3, load=3.0, policy="themis", options={"lease": "2h"})
    told = run(config, keep_segments=False).summary
    contended = told["contended_gpu_hours_by_source"]
    total = told["gpu_hours_by_source"]
    assert all(contended[source] <= total[source] + 1e-9 for source in total)
    assert sum(contended.values()) > 0.5 * sum(total.values())
    assert told["auction_share_contended"] == pytest.approx(
        contended["auction"] / sum(contended.values())
    )
