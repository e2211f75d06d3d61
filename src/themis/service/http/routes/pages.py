"""The dashboard: files of its pages, what they show, and what changes meanwhile."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from themis.config.keys import CallerLimits
from themis.core.model import AppId
from themis.dashboard.assets import HEADERS, INDEX, asset
from themis.dashboard.model import RunComparison
from themis.errors import MissingError, RefusedError, UnavailableError
from themis.recording.codec import dumps
from themis.security.permissions import require
from themis.security.rate_limits import OpenStreams
from themis.service.dashboard.live_model import LiveBoard, StreamState
from themis.service.http.authentication import identify
from themis.service.http.routes.base import ApiSettings, Call, Handlers, as_json, whole
from themis.service.http.routes.endpoints import MOST_ROUNDS, ROUNDS

PACE = 1.0
"""Seconds between two messages of a stream, at least."""
QUIET = 5.0
"""Seconds after which one comes although nothing changed: rho does, by itself."""
LONGEST = 3600.0
"""Seconds after which a stream ends, and its browser comes anew."""
MOST_STREAMS = 8
"""Of one caller, whatever else is allowed: each costs something every second."""
_SEGMENTS_AS_A_CALL = 2000.0
"""So many segments to write count as one call more."""


class PageRoutes(Handlers):
    """What browsers ask for."""

    async def page(self, call: Call) -> Response:
        return _file(call, INDEX)

    async def file(self, call: Call) -> Response:
        return _file(call, call.path("name"))

    @cached_property
    def _board(self) -> LiveBoard:
        return LiveBoard(self._service, self._settings.wall)

    @cached_property
    def _streams(self) -> OpenStreams:
        return OpenStreams(_few(self._settings.limits))

    def change(self, settings: ApiSettings) -> None:
        """Go by other settings from now on."""
        super().change(settings)
        self._streams.change(_few(settings.limits))

    async def board(self, call: Call) -> Response:
        self._allow(call)
        return _told(self._board.board(call.identity))

    async def timeline(self, call: Call) -> Response:
        self._allow(call)
        self._charge(call, self._service.past.kept / _SEGMENTS_AS_A_CALL)
        return as_json(await self._board.timeline(call.identity))

    async def board_app(self, call: Call) -> Response:
        name = AppId(call.path("app"))
        self._allow(call, self._service.owner_of(name))
        if self._service.owner_of(name) is None:
            raise MissingError(name[:200], "there is no such app, or it was forgotten")
        return _told(self._board.app(name))

    async def board_rounds(self, call: Call) -> Response:
        self._allow(call)
        before = whole(call, "before", 0, "the number of a round")
        limit = whole(call, "limit", ROUNDS, f"how many rounds, at most {MOST_ROUNDS}", low=1)
        return _told(self._board.rounds(before, min(limit, MOST_ROUNDS)))

    async def board_runs(self, call: Call) -> Response:
        self._allow(call)
        return _told(RunComparison(()))

    # What changes

    async def stream(self, call: Call) -> Response:
        self._allow(call)
        if self._service.watchers.closed:
            raise UnavailableError("the service is stopping")
        # Who does not say what they know asks for what comes from now on.
        closed = self._service.past.closed
        given = "since" in call.request.query_params
        since = whole(call, "since", 0, "how many segments are known") if given else closed
        self._streams.open(call.caller)
        headers = {**HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        over = partial(self._streams.close, call.caller)
        return _Stream(self._messages(call, StreamState(since)), over, headers)

    async def _messages(self, call: Call, seen: StreamState) -> AsyncGenerator[bytes]:
        until = time.monotonic() + LONGEST
        yield b": begins\n\n"
        async for _ in self._service.watchers.turns(pace=PACE, quiet=QUIET):
            if time.monotonic() > until or not self._still(call):
                return
            change = self._board.change(call.identity, seen)
            yield b"event: change\ndata: %b\n\n" % dumps(change).encode()
            if self._board.behind:
                # Rows are worked out for all streams at once, and were a little old: once more.
                self._service.watchers.tell()

    def _still(self, call: Call) -> bool:
        """Whether who opened the stream could open it now: tokens end, and sessions too."""
        settings, request = self._settings, call.request
        try:
            identity = identify(
                self._vault,
                request.headers,
                request.cookies,
                writes=False,
                hosts=settings.hosts,
                tls=settings.tls,
                now=settings.wall(),
            )
            require(identity, call.endpoint.verb)
        except RefusedError:
            return False
        return identity == call.identity


class _Stream(StreamingResponse):
    """An answer that goes on; tells when it is over, however that came about."""

    def __init__(
        self,
        messages: AsyncGenerator[bytes],
        over: Callable[[], None],
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(messages, headers=headers, media_type="text/event-stream")
        self._messages = messages
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the reader goes or nothing more comes."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._over()
            await self._messages.aclose()


def _few(limits: CallerLimits) -> CallerLimits:
    return replace(limits, streams=min(limits.streams, MOST_STREAMS))


def _told(value: object) -> Response:
    return as_json(dumps(value).encode())


def _file(call: Call, name: str) -> Response:
    found = asset(name)
    if call.request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=found.headers)
    return Response(found.data, headers=found.headers, media_type=found.media_type)
