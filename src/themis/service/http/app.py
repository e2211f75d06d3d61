"""The HTTP API for people: every route names its verb, and the table of access decides.

    app = make_api(Api(service, vault, book, ApiSettings(hosts=frozenset({"127.0.0.1:7421"}))))
    uvicorn.run(app)

A request is read, its caller found and its verb decided before anything else is looked at. What
changes something is in the audit log, and durable, before the answer.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from themis.errors import LimitError, RefusedError, UnknownCallerError
from themis.recording.codec import loads
from themis.security.audit import CallOutcome, audited
from themis.security.permissions import decide, require
from themis.security.rate_limits import place_of
from themis.security.tokens import Identity
from themis.service.http import openapi
from themis.service.http.authentication import identify, problem_of
from themis.service.http.request_ids import RequestIds
from themis.service.http.routes.about import AboutRoutes
from themis.service.http.routes.apps import AppRoutes
from themis.service.http.routes.base import ApiSettings, Call, Data, as_json
from themis.service.http.routes.endpoints import ENDPOINTS, AnswerKind, Endpoint
from themis.service.http.routes.forecasts import Foretelling
from themis.service.http.routes.history import History
from themis.service.http.routes.logs import Logs
from themis.service.http.routes.machines import Machines
from themis.service.http.routes.pages import PageRoutes
from themis.service.http.routes.people import People

__all__ = ["ENDPOINTS", "Api", "ApiSettings", "Endpoint", "make_api"]


class Api(AboutRoutes, AppRoutes, Foretelling, Logs, Machines, People, History, PageRoutes):
    """All handlers, and the frame around each of them."""

    async def answer(self, endpoint: Endpoint, request: Request) -> Response:
        """Answer one request, whatever happens."""
        identity: Identity | None = None
        wall = self._settings.wall()
        try:
            place = place_of(request.client.host if request.client else "nobody")
            identity = self._identify(endpoint, request, place, wall)
            caller = identity.credential if identity else place
            self._rates.take(caller, self._service.now())
            # Before the body is read: who may do this to nothing at all sends it in vain.
            if not any(decide(identity, endpoint.verb, who).allowed for who in _own(identity)):
                require(identity, endpoint.verb)
            body = await self._body(endpoint, request)
            call = Call(request, endpoint, identity, caller, body, wall)
            handler = getattr(self, endpoint.handler)
            found: Data | Response = await handler(call)
            await self._service.settled()
        except Exception as error:  # told as one shape; what is unexpected goes to the log
            return self._problem(endpoint, identity, wall, error, target_of(request))
        return found if isinstance(found, Response) else as_json(found)

    def close(self) -> None:
        """No more calls come: write down what was only counted."""
        for row in self._refusals.close(self._settings.wall()):
            self._service.writer.add(audit=row)

    def _identify(
        self, endpoint: Endpoint, request: Request, place: str, wall: float
    ) -> Identity | None:
        """Who calls; wrong credentials are counted by where they come from."""
        if endpoint.kind is AnswerKind.FILE:
            return None  # The same for all: also for who must be told how to log in again.
        settings, now = self._settings, self._service.now()
        try:
            return identify(
                self._vault,
                request.headers,
                request.cookies,
                writes=endpoint.writes,
                hosts=settings.hosts,
                tls=settings.tls,
                now=wall,
            )
        except UnknownCallerError:
            self._strangers.failed(place, now)
            raise

    def _problem(
        self,
        endpoint: Endpoint,
        identity: Identity | None,
        wall: float,
        error: Exception,
        target: str,
    ) -> Response:
        problem = problem_of(error)
        if endpoint.writes and identity is not None:
            outcome = CallOutcome.DENIED if problem.status == 403 else CallOutcome.REFUSED
            if problem.status >= 500:  # The service's doing, not the caller's.
                outcome = CallOutcome.FAILED
            named = target or problem.who
            row = audited(identity, endpoint.verb, named, at=wall, outcome=outcome)
            for item in self._refusals.note(row):
                self._service.writer.add(audit=item)
        headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
        if isinstance(error, LimitError):
            # In whole seconds; who comes sooner is refused again.
            headers["Retry-After"] = str(max(1, math.ceil(error.retry_after or 0.0)))
        return as_json(problem.data(), problem.status, headers)

    async def _body(self, endpoint: Endpoint, request: Request) -> Data:
        if not endpoint.writes:
            return {}
        most = self._settings.limits.message_bytes
        text = b""
        try:
            async for part in request.stream():
                text += part
                if len(text) > most:
                    raise RefusedError("body", f"more than {most} bytes")
        except ClientDisconnect:
            raise RefusedError("body", "it was not sent to its end") from None
        if not text:
            data: Any = {}
        else:
            try:
                data = loads(text.decode())
            except UnicodeDecodeError:
                raise RefusedError("body", "it is not UTF-8") from None
        if not isinstance(data, dict):
            raise RefusedError("body", "it must be a JSON object")
        openapi.check(endpoint.body or {"type": "object", "additionalProperties": False}, data)
        return data


def target_of(request: Request) -> str:
    """What a call is about, as its path names it: an app, a machine, an owner, a token."""
    return " ".join(str(part) for part in request.path_params.values())


def make_api(api: Api) -> Starlette:
    """The application that a server runs."""
    routes = [
        Route(item.path, _handler(api, item), methods=[item.method], name=item.handler)
        for item in ENDPOINTS
    ]
    handlers: Any = {404: _nothing, 405: _nothing}
    ids = [Middleware(RequestIds)]
    return Starlette(routes=routes, exception_handlers=handlers, middleware=ids)


def _handler(api: Api, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        return await api.answer(endpoint, request)

    return handle


async def _nothing(request: Request, error: Any) -> Response:
    told = {"error": "missing", "who": request.url.path[:200], "reason": "there is no such page"}
    return as_json(told, error.status_code)


def _own(identity: Identity | None) -> tuple[str | None, ...]:
    return (None,) if identity is None else (identity.subject, None)
