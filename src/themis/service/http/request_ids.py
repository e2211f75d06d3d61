"""Every HTTP request has an id: in the log, in the answer, and in errors.

app = Starlette(routes=routes, middleware=[Middleware(RequestIds)])

A caller may send an id of its own, so that its log and the service's agree; text that is no plain
id is replaced. Requests that change something are logged; the others only at `log_level: debug`,
because callers may send any number of them.
"""

import logging
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from themis.ops.log_format import marked, request_id
from themis.security.redaction import clean

HEADER = "X-Request-Id"

_LOG = logging.getLogger(__name__)
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class RequestIds:
    """Middleware that gives each request its id, and puts the id into the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        number = request_id(Headers(scope=scope).get(HEADER))

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = number
                _note(scope, message["status"], time.monotonic() - began)
            await send(message)

        with marked(request=number):
            await self._app(scope, receive, answer)


def _note(scope: Scope, status: Any, seconds: float) -> None:
    """Log the request, without its query: a query may hold anything."""
    changed = scope["method"] not in _READS and status < 400
    level = logging.INFO if changed else logging.DEBUG
    if _LOG.isEnabledFor(level):
        method, path = clean(scope["method"]), clean(scope["path"])
        _LOG.log(level, "%s %s: %d after %.3f s", method, path, status, seconds)
