"""What is taken of a bid."""

import pytest

from themis.core.auction.problem import MAX_ROWS
from themis.errors import RefusedError
from themis.protocol.agent_messages import BidReply
from themis.rpc.wire import Bounds, themis_pb2
from themis.rpc.wire.convert import from_message


def bid_of(rows: int) -> themis_pb2.BidReply:
    row = themis_pb2.Row(chunks=[themis_pb2.Chunk(level=0, count=1)], seconds=1.0)
    return themis_pb2.BidReply(round=1, bid=themis_pb2.Bid(app="a", rows=[row] * rows))


def test_a_bid_has_no_more_rows_than_are_looked_at() -> None:
    assert len(from_message(BidReply, bid_of(MAX_ROWS)).bid.rows) == MAX_ROWS
    with pytest.raises(RefusedError, match=f"rows.*{MAX_ROWS + 1}.*at most {MAX_ROWS}"):
        from_message(BidReply, bid_of(MAX_ROWS + 1))


def test_a_service_may_take_fewer() -> None:
    bounds = Bounds(rows=16)
    assert len(from_message(BidReply, bid_of(16), bounds).bid.rows) == 16
    with pytest.raises(RefusedError, match=r"rows.*17.*at most 16"):
        from_message(BidReply, bid_of(17), bounds)
