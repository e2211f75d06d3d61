"""What a route is: a row of the table, the request that its handler gets, and its answer.

A handler is a function of the context and the request. It calls `request.allow(owner)` as soon as
it knows the owner of the object that the request is about.

    async def pause(api: ApiContext, request: ApiRequest) -> Data:
        app = active_app(api, request)
        ...

    Route("POST", "/v1/apps/{app}/pause", Verb.PAUSE, apps.pause)
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from themis.recording.validation import Validator
from themis.security.audit import AuditRow, audited
from themis.security.permissions import Decision, Verb, decide, require
from themis.security.tokens import Identity
from themis.service.http.context import ApiContext
from themis.service.http.query import QueryParameter
from themis.service.viewer import Viewer, viewer_of

Data = dict[str, Any]

_Value = TypeVar("_Value")


class AnswerKind(StrEnum):
    """What an answer is."""

    JSON = "application/json"
    FILE = "text/html"
    """A file of the pages, for every caller."""
    STREAM = "text/event-stream"
    """Goes on until the caller or the service ends it."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request whose caller is known."""

    http: Request
    route: "Route"
    identity: Identity | None
    caller: str
    """Whose rate limit the request counts against: a credential, or an address without one."""
    body: Any
    """The dataclass of the route's validator, or None."""
    wall: float
    """When it came, in seconds since 1970."""

    @property
    def subject(self) -> str | None:
        """The subject of the caller's credential."""
        return self.identity.subject if self.identity else None

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.http.path_params[name])

    def read(self, parameter: QueryParameter[_Value], default: _Value | None = None) -> _Value:
        """The value of a query parameter.

        Raises:
            RefusedError: It cannot be read.
        """
        text = self.http.query_params.get(parameter.name)
        if text is not None:
            return parameter.parse(text)
        return parameter.default if default is None else default

    def decide(self, owner: str | None = None) -> Decision:
        """What the table of permissions says of this caller, this verb and an owner's object."""
        return decide(self.identity, self.route.verb, owner)

    def allow(self, owner: str | None = None) -> bool:
        """Raise unless the request is allowed; returns whether names of others are left out.

        Raises:
            UnknownCallerError: It needs a credential.
            DeniedError: This caller may not.
        """
        return require(self.identity, self.route.verb, owner).anonymous

    def viewer(self) -> Viewer:
        """What the caller may see, if it may do this at all.

        Raises:
            UnknownCallerError: It needs a credential.
            DeniedError: This caller may not.
        """
        return viewer_of(self.identity, self.route.verb)

    def audit_row(self, target: str, **details: object) -> AuditRow:
        """The row of the audit log that says that this was done."""
        return audited(self.identity, self.route.verb, target, at=self.wall, details=details)


Handler = Callable[[ApiContext, ApiRequest], Awaitable[Data | Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """One route: how it is called, its verb in the table of permissions, and its handler."""

    method: str
    path: str
    verb: Verb
    handler: Handler
    body: Validator[Any] | None = None
    """What its body may hold, if it takes one."""
    query: tuple[QueryParameter[Any], ...] = ()
    kind: AnswerKind = AnswerKind.JSON

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return (self.handler.__doc__ or "").partition("\n")[0]

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return self.method != "GET"
