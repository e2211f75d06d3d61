"""What all handlers of the API share: the service, who may, and the audit log.

A subject is a class on top of `Handlers`, in a file of its own; its methods are the handlers that
`ENDPOINTS` names.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from themis.config.keys import CallerLimits
from themis.errors import RefusedError
from themis.recording.codec import dumps, loads
from themis.security.audit import Refusals, audited
from themis.security.failed_logins import Strangers
from themis.security.permissions import require
from themis.security.rate_limits import RateBuckets
from themis.security.tokens import Identity, Vault
from themis.service.http.routes.endpoints import Endpoint
from themis.service.persistence.round_history import RoundHistory
from themis.service.service import Service

Data = dict[str, Any]

SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Headers of answers that browsers do not keep, guess at or show inside another page."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """What the API must know of its surroundings."""

    hosts: frozenset[str] = frozenset()
    """Names with ports under which browsers reach it."""
    tls: bool = False
    grpc_port: int | None = None
    """Where agents call."""
    session: float = 12 * 3600.0
    limits: CallerLimits = field(default=CallerLimits())
    describe: Callable[[], Data] = dict
    """The configuration, for `config show`."""
    reload: Callable[[], Awaitable[Data]] | None = None
    trouble: Callable[[], str] = str
    """What is wrong with the engine as a whole; empty: nothing."""
    wall: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True)
class Call:
    """One request whose caller is known."""

    request: Request
    endpoint: Endpoint
    identity: Identity | None
    caller: str
    """By whom it is counted."""
    body: Data
    wall: float

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])


class Handlers:
    """Each handler decides for itself whose its object is, by `_allow`."""

    def __init__(
        self, service: Service, vault: Vault, book: RoundHistory, settings: ApiSettings
    ) -> None:
        self._service = service
        self._vault = vault
        self._book = book
        self._settings = settings
        self._rates = RateBuckets(settings.limits)
        self._strangers = Strangers(settings.limits)
        self._refusals = Refusals()

    def change(self, settings: ApiSettings) -> None:
        """Go by other settings from now on."""
        self._settings = settings
        self._rates.change(settings.limits)
        self._strangers.change(settings.limits)

    def _charge(self, call: Call, cost: float) -> None:
        """Count a call for more than one, as it makes more work.

        Raises:
            LimitError: It is too much for now.
        """
        self._rates.take(call.caller, self._service.now(), cost)

    def _allow(self, call: Call, owner: str | None = None) -> bool:
        """Let the call pass or raise; returns whether names of others must be left out."""
        return require(call.identity, call.endpoint.verb, owner).anonymous

    def _row(self, call: Call, target: str, **details: object) -> Any:
        return audited(call.identity, call.endpoint.verb, target, at=call.wall, details=details)

    async def _carry_out(self, call: Call, event: Any, target: str, **details: object) -> Data:
        await self._service.carry_out(event, self._row(call, target, **details))
        return {"done": True}


def whole(call: Call, name: str, default: int, what: str, low: int | None = None) -> int:
    """A whole number in the query, raised to the lowest (the default, if nothing else is said).

    Raises:
        RefusedError: It is none.
    """
    text = call.request.query_params.get(name, str(default))
    if not text.isdecimal() or len(text) > 15:
        raise RefusedError(name, what)
    return max(default if low is None else low, int(text))


def loads_row(row: object) -> Data:
    """A value of ours as plain data."""
    data: Any = loads(dumps(row))
    return dict(data)


def as_json(
    data: Mapping[str, Any] | bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer that browsers do not keep, guess at or show inside another page."""
    told = {**SAFE, **(headers or {})}
    if isinstance(data, bytes):  # it was written before
        return Response(data, status, told, "application/json")
    return JSONResponse(data, status, told)
