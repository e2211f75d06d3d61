"""The HTTP API: an application of the routes in a table.

    api = ApiContext(service, token_store, ApiSettings(hosts=frozenset({"127.0.0.1:7421"})))
    uvicorn.run(make_app(api))

Each request takes the same steps: find the caller, count the request, decide whether its verb is
allowed at all, read the body, call the handler, and wait until what it changed is durable. What
changes something is in the audit log before the answer goes out.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from themis.errors import LimitError
from themis.security.audit import CallOutcome, audited
from themis.security.permissions import decide, require
from themis.security.rate_limits import network_of
from themis.security.tokens import Identity
from themis.service.http.bodies import read_body
from themis.service.http.context import ApiContext
from themis.service.http.request_ids import RequestIds
from themis.service.http.responses import as_json, error_answer
from themis.service.http.routes.table import ROUTES
from themis.service.http.routing import AnswerKind, ApiRequest, Route


def make_app(api: ApiContext) -> Starlette:
    """The application that a server runs."""
    routes = [
        StarletteRoute(route.path, _endpoint(api, route), methods=[route.method])
        for route in ROUTES
    ]
    handlers: Any = {404: _no_page, 405: _no_page}
    return Starlette(
        routes=routes, exception_handlers=handlers, middleware=[Middleware(RequestIds)]
    )


def _endpoint(api: ApiContext, route: Route) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        return await answer(api, route, request)

    return handle


async def answer(api: ApiContext, route: Route, http: Request) -> Response:
    """Answer one request, whatever happens."""
    identity: Identity | None = None
    wall = api.settings.wall()
    try:
        address = network_of(http.client.host if http.client else "unknown")
        # Files of the pages are the same for all: a browser whose session is over needs them too.
        if route.kind is not AnswerKind.FILE:
            identity = api.gate.admit(http, address, api.service.now(), writes=route.writes)
        caller = identity.credential if identity else address
        api.charge(caller)
        _require_for_any_owner(identity, route)
        body = (
            await read_body(http, route.body, api.settings.limits.message_bytes)
            if route.writes
            else None
        )
        found = await route.handler(api, ApiRequest(http, route, identity, caller, body, wall))
        await api.service.queue.settled()
    except Exception as error:  # every error becomes an answer; an unexpected one is logged
        return _refusal(api, ApiRequest(http, route, identity, "", None, wall), error)
    return found if isinstance(found, Response) else as_json(found)


def _require_for_any_owner(identity: Identity | None, route: Route) -> None:
    """Refuse, before the body is read, a caller who may do this to no object at all."""
    owners = (None,) if identity is None else (identity.subject, None)
    if not any(decide(identity, route.verb, owner).allowed for owner in owners):
        require(identity, route.verb)


def _refusal(api: ApiContext, request: ApiRequest, error: Exception) -> Response:
    """The answer for an error; a refused write is counted in the audit log."""
    problem = error_answer(error)
    if request.route.writes and request.identity is not None:
        outcome = CallOutcome.DENIED if problem.status == 403 else CallOutcome.REFUSED
        if problem.status >= 500:  # the service's fault, not the caller's
            outcome = CallOutcome.FAILED
        target = " ".join(map(str, request.http.path_params.values())) or problem.who
        row = audited(
            request.identity, request.route.verb, target, at=request.wall, outcome=outcome
        )
        api.write_audit(*api.refusals.note(row))
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
    if isinstance(error, LimitError):
        # In whole seconds, rounded up: a caller who comes sooner is refused again.
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after or 0.0)))
    return as_json(problem.data(), problem.status, headers)


async def _no_page(request: Request, error: Any) -> Response:
    body = {"error": "missing", "who": request.url.path[:200], "reason": "there is no such page"}
    return as_json(body, error.status_code)
