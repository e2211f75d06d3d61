"""The dashboard: the files of its pages, what they show, and the stream of what changes."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from themis.core.model import AppId
from themis.dashboard.assets import HEADERS, INDEX, asset
from themis.dashboard.model import RunComparison
from themis.errors import MissingError, RefusedError, UnavailableError
from themis.recording.codec import dumps
from themis.security.permissions import require
from themis.service.dashboard.live_model import StreamState
from themis.service.http.context import ApiContext
from themis.service.http.query import whole_number
from themis.service.http.responses import as_json
from themis.service.http.routes.rounds import BEFORE, LIMIT
from themis.service.http.routing import ApiRequest

SINCE = whole_number("since", "The `cursor` of the timeline that the page has.")

PACE = 1.0
"""seconds between two messages of a stream, at least."""
QUIET = 5.0
"""seconds after which a message comes although nothing happened: rho changes with time alone."""
LONGEST = 3600.0
"""seconds after which a stream ends, and the browser opens another."""
_SEGMENTS_AS_A_REQUEST = 2000.0
"""Writing this many segments counts as one more request."""


async def index(_api: ApiContext, request: ApiRequest) -> Response:
    """The page that loads all others."""
    return _file(request, INDEX)


async def file(_api: ApiContext, request: ApiRequest) -> Response:
    """A script, style or picture of the pages."""
    return _file(request, request.path("name"))


def _file(request: ApiRequest, name: str) -> Response:
    found = asset(name)
    if request.http.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=found.headers)
    return Response(found.data, headers=found.headers, media_type=found.media_type)


async def board(api: ApiContext, request: ApiRequest) -> Response:
    """Apps, machines and GPU counts now."""
    request.allow()
    return _written(api.board.board(request.identity))


async def timeline(api: ApiContext, request: ApiRequest) -> Response:
    """Which app held which GPU when."""
    request.allow()
    api.charge(request.caller, api.service.past.kept / _SEGMENTS_AS_A_REQUEST)
    return as_json(await api.board.timeline(request.identity))


async def app_page(api: ApiContext, request: ApiRequest) -> Response:
    """One app in full."""
    name = AppId(request.path("app"))
    owner = api.service.owner_of(name)
    request.allow(owner)
    if owner is None:
        raise MissingError(name[:200], "there is no such app, or it was forgotten")
    return _written(api.board.app(name))


async def list_rounds(api: ApiContext, request: ApiRequest) -> Response:
    """A page of rounds in short."""
    request.allow()
    return _written(api.board.rounds(request.read(BEFORE), request.read(LIMIT)))


async def list_runs(_api: ApiContext, request: ApiRequest) -> Response:
    """The runs to compare: a live service has none."""
    request.allow()
    return _written(RunComparison(()))


def _written(value: object) -> Response:
    return as_json(dumps(value).encode())


async def stream(api: ApiContext, request: ApiRequest) -> Response:
    """What changes, as server-sent events."""
    request.allow()
    if api.service.watchers.closed:
        raise UnavailableError("the service is stopping")
    since = request.read(SINCE, default=api.service.past.closed)
    api.streams.open(request.caller)
    headers = {**HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    close = partial(api.streams.close, request.caller)
    return _Stream(_messages(api, request, StreamState(since)), close, headers)


async def _messages(
    api: ApiContext, request: ApiRequest, seen: StreamState
) -> AsyncGenerator[bytes]:
    until = time.monotonic() + LONGEST
    yield b": begins\n\n"
    async for _ in api.service.watchers.turns(pace=PACE, quiet=QUIET):
        if time.monotonic() > until or not _still_allowed(api, request):
            return
        change = api.board.change(request.identity, seen)
        yield b"event: change\ndata: %b\n\n" % dumps(change).encode()
        if api.board.behind:
            # All streams share the rows, which were a little old: another message follows.
            api.service.watchers.tell()


def _still_allowed(api: ApiContext, request: ApiRequest) -> bool:
    """Whether the caller could open the stream now: tokens and sessions end."""
    try:
        identity = api.gate.identify(request.http, writes=False)
        require(identity, request.route.verb)
    except RefusedError:
        return False
    return identity == request.identity


class _Stream(StreamingResponse):
    """A stream that calls `close` when it ends, for whatever reason."""

    def __init__(
        self,
        messages: AsyncGenerator[bytes],
        close: Callable[[], None],
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(messages, headers=headers, media_type="text/event-stream")
        self._messages = messages
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the reader leaves or the messages end."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()
            await self._messages.aclose()
