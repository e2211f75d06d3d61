"""The last rounds of the arbiter, redacted for the caller."""

import asyncio

from starlette.responses import Response

from themis.core.arbiter.records import RoundRecord
from themis.errors import MissingError
from themis.recording.codec import dumps
from themis.service.http.context import ApiContext
from themis.service.http.query import whole_number
from themis.service.http.responses import as_json
from themis.service.http.routing import ApiRequest
from themis.service.persistence.round_history import Owners
from themis.service.viewer import Viewer

BEFORE = whole_number("before", "Only rounds before this one.")
LIMIT = whole_number("limit", "Rounds in one answer.", default=50, least=1, most=100)

_Kept = tuple[RoundRecord, RoundRecord | None, Owners]
"""A round, the one before it, and the owners of its apps."""

_MOST_BYTES = 4 << 20
"""A page of rounds ends after so many bytes, whatever its limit is."""
_ROUNDS_AS_A_REQUEST = 5.0
"""Writing this many rounds counts as one more request."""


async def list_rounds(api: ApiContext, request: ApiRequest) -> Response:
    """A page of rounds, the oldest first."""
    viewer = request.viewer()
    before, limit = request.read(BEFORE), request.read(LIMIT)
    api.charge(request.caller, limit / _ROUNDS_AS_A_REQUEST)
    numbers = [number for number in api.service.rounds.numbers() if not before or number < before]
    # All of them now: old rounds are forgotten while others are answered in between.
    page = [_kept(api, number) for number in numbers[-limit:]]
    written: list[bytes] = []
    length = 0
    # The newest first, so that a page which gets too long lacks the oldest.
    for kept in reversed(page):
        written.append(_written(viewer, kept))
        length += len(written[-1])
        if length > _MOST_BYTES:
            break
        # A round takes milliseconds to write: other requests get their turn in between.
        await asyncio.sleep(0)
    earlier = numbers[-len(written)] if len(written) < len(numbers) else None
    body = b'{"now":%b,"rounds":[%b],"before":%b}'
    rounds = b",".join(reversed(written))
    return as_json(body % (_now(api), rounds, dumps(earlier).encode()))


async def show_round(api: ApiContext, request: ApiRequest) -> Response:
    """One round."""
    viewer = request.viewer()
    number, kept = request.path("round"), api.service.rounds.numbers()
    if not number.isdecimal() or len(number) > 15 or int(number) not in kept:
        span = f"{kept[0]} to {kept[-1]} are kept" if kept else "there was none yet"
        raise MissingError(f"round {number[:20]}", span)
    written = _written(viewer, _kept(api, int(number)))
    return as_json(b'{"now":%b,%b' % (_now(api), written[1:]))


def _now(api: ApiContext) -> bytes:
    """The cluster's time, by which readers tell how long ago a round was."""
    return dumps(api.service.now()).encode()


def _kept(api: ApiContext, number: int) -> _Kept:
    record, before = api.service.rounds.round(number)
    return record, before, api.service.rounds.owners(number)


def _written(viewer: Viewer, kept: _Kept) -> bytes:
    """A round as JSON, without a detour over plain data: it may be large."""
    record, before, owners = kept
    return dumps(viewer.round(record, owners, before)).encode()
