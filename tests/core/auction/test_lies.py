"""Random lies in small exact auctions: how often they pay, and how much."""

import pytest

from tests.support.auction_lies import Gain, probe, small_market
from themis.core.auction import payment, solver

MARKETS = range(8)


def _gains(name: str, lies: int) -> list[Gain]:
    return [
        gain
        for seed in MARKETS
        for gain in probe(small_market(seed), payment(name), solver("search"), lies, seed)
    ]


def test_no_lie_pays_when_shares_of_a_lottery_are_sold() -> None:
    gains = _gains("lottery-pf", lies=5)
    assert len(gains) >= 20
    assert max(gain.factor for gain in gains) == pytest.approx(1.0, abs=1e-5)


def test_the_same_search_finds_lies_that_pay_when_rows_are_drawn_for() -> None:
    gains = _gains("lottery", lies=12)
    assert max(gain.factor for gain in gains) > 1.02
    assert sum(gain.factor > 1.001 for gain in gains) >= 2
