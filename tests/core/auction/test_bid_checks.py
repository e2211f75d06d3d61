"""Bids are checked once, where they enter."""

import math

import pytest

from themis.core.auction import (
    Bidder,
    Candidate,
    OfferedMachine,
    Problem,
    check_bid,
    offered_machines,
)
from themis.core.model import (
    AppId,
    Bid,
    Chunk,
    GpuId,
    Machine,
    Row,
    TableRow,
    Topology,
)
from themis.errors import InvalidBidError, InvariantError

APP = AppId("app")
OFFER = (OfferedMachine(3, 0, (2, 2)), OfferedMachine(7, 1, (1,)))


def _bid(*chunks: Chunk, seconds: float = 10.0) -> Bid:
    return Bid(APP, (Row(chunks, seconds),))


@pytest.mark.parametrize(
    "bid",
    [
        pytest.param(Bid(APP), id="an empty bid"),
        pytest.param(_bid(Chunk(3, 5)), id="everything offered"),
        pytest.param(_bid(Chunk(1, 4, machine=3), Chunk(0, 1)), id="a pin and a single GPU"),
        pytest.param(Bid(APP, table=(TableRow(3, 999, 1.0),)), id="a valuation beyond the offer"),
    ],
)
def test_a_sensible_bid_is_taken(bid: Bid) -> None:
    check_bid(bid, OFFER)


@pytest.mark.parametrize(
    ("bid", "words"),
    [
        pytest.param(_bid(), "chunks", id="no chunks"),
        pytest.param(_bid(Chunk(1, 0)), "GPU count", id="a count of zero"),
        pytest.param(_bid(Chunk(1, -2)), "GPU count", id="a negative count"),
        pytest.param(_bid(Chunk(1, True)), "GPU count", id="a bool for a count"),
        pytest.param(_bid(Chunk(3, 6)), "GPU count", id="more than offered"),
        pytest.param(_bid(Chunk(3, 4), Chunk(3, 4)), "GPUs of row", id="chunks beyond the offer"),
        pytest.param(_bid(Chunk(1, 2, machine=7)), "GPU count", id="more than its machine has"),
        pytest.param(_bid(Chunk(1, 1, machine=4)), "machine", id="a machine not offered"),
        pytest.param(_bid(Chunk(1, 1, machine=-1)), "machine", id="a machine that cannot be"),
        pytest.param(_bid(Chunk(4, 1)), "level", id="a level above three"),
        pytest.param(_bid(Chunk(-1, 1)), "level", id="a negative level"),
        pytest.param(_bid(Chunk(True, 1)), "level", id="a bool for a level"),
        pytest.param(_bid(Chunk(0, 1), seconds=0.0), "seconds", id="zero seconds"),
        pytest.param(_bid(Chunk(0, 1), seconds=-1.0), "seconds", id="negative seconds"),
        pytest.param(_bid(Chunk(0, 1), seconds=math.nan), "seconds", id="NaN"),
        pytest.param(_bid(Chunk(0, 1), seconds=math.inf), "seconds", id="infinite seconds"),
        pytest.param(_bid(Chunk(0, 1), seconds=10**400), "seconds", id="seconds beyond a float"),
        pytest.param(_bid(*[Chunk(0, 1)] * 1025), "chunks", id="too many chunks"),
        pytest.param(Bid(APP, (Row((Chunk(0, 1),), 1.0),) * 4097), "rows", id="too many rows"),
        pytest.param(Bid(APP, table=(TableRow(4, 1, 1.0),)), "valuation", id="table: level"),
        pytest.param(Bid(APP, table=(TableRow(0, 0, 1.0),)), "valuation", id="table: count"),
        pytest.param(Bid(APP, table=(TableRow(0, 1, math.nan),)), "valuation", id="table: NaN"),
    ],
)
def test_a_senseless_bid_is_refused_with_its_reason(bid: Bid, words: str) -> None:
    with pytest.raises(InvalidBidError, match=words) as caught:
        check_bid(bid, OFFER)
    assert caught.value.who == APP


@pytest.mark.parametrize(
    "bidder",
    [
        pytest.param(Bidder(APP, 1.0, math.nan, ()), id="NaN for nothing"),
        pytest.param(Bidder(APP, 0.0, 2.0, ()), id="no weight"),
        pytest.param(Bidder(APP, 1.0, 2.0, (Candidate((Chunk(0, 1),), 0.0),)), id="rho of zero"),
    ],
)
def test_numbers_that_cannot_be_ordered_do_not_enter_an_auction(bidder: Bidder) -> None:
    with pytest.raises(InvariantError, match="finite"):
        Problem(OFFER, (bidder,))


def test_an_app_bids_once_and_a_machine_is_offered_once() -> None:
    twice = Bidder(APP, 1.0, 2.0, ())
    with pytest.raises(InvariantError, match="bids twice"):
        Problem(OFFER, (twice, twice))
    with pytest.raises(InvariantError, match="offered twice"):
        Problem((OFFER[0], OFFER[0]), ())


def test_a_row_of_nothing_does_not_enter_an_auction() -> None:
    with pytest.raises(InvariantError, match="no chunks"):
        Problem(OFFER, (Bidder(APP, 1.0, 2.0, (Candidate((), 1.0),)),))


def test_offered_gpus_are_counted_per_machine_and_slot() -> None:
    topology = Topology((Machine("m0", "r0", (2, 2)), Machine("m1", "r0", (2,))))
    gpus = [GpuId(5), GpuId(2), GpuId(3), GpuId(0)]
    assert offered_machines(gpus, topology) == (
        OfferedMachine(0, 0, (1, 2)),
        OfferedMachine(1, 0, (1,)),
    )
    assert offered_machines([GpuId(0)], topology) == (OfferedMachine(0, 0, (1, 0)),)
