"""Who calls, whether they may, and what they are told when something is wrong.

Every answer to people goes through here: identity from a token or a browser's session, limits, the
audit log, and errors as one JSON shape.
"""

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from themis.errors import (
    ConfigError,
    DeniedError,
    DuplicateError,
    LimitError,
    MissingError,
    RefusedError,
    ThemisError,
    UnavailableError,
    UnknownAppError,
    UnknownCallerError,
)
from themis.security.browser_sessions import (
    CSRF_HEADER,
    check_csrf,
    check_origin,
    check_session,
    cookie_name,
)
from themis.security.tokens import Identity, Vault, check_bearer, note_use

_LOG = logging.getLogger(__name__)

_STATUS: tuple[tuple[type[Exception], HTTPStatus], ...] = (
    (UnknownCallerError, HTTPStatus.UNAUTHORIZED),
    (DeniedError, HTTPStatus.FORBIDDEN),
    (LimitError, HTTPStatus.TOO_MANY_REQUESTS),
    (UnknownAppError, HTTPStatus.NOT_FOUND),
    (MissingError, HTTPStatus.NOT_FOUND),
    (DuplicateError, HTTPStatus.CONFLICT),
    (RefusedError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (ConfigError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
)


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error as it is told."""

    status: int
    error: str
    reason: str
    who: str = ""
    reference: str = ""
    """Under which an unexpected error stands in the service's log."""

    def data(self) -> dict[str, Any]:
        """What goes out."""
        told = {"error": self.error, "who": self.who, "reason": self.reason}
        return {**told, "reference": self.reference} if self.reference else told


def problem_of(error: Exception) -> ErrorAnswer:
    """How an error is told to the caller. What nobody expected is logged, not told."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            who = error.who if isinstance(error, RefusedError) else getattr(error, "key", "")
            reason = error.reason if isinstance(error, RefusedError) else str(error)
            name = kind.__name__.removesuffix("Error").lower()
            return ErrorAnswer(status, name, reason, str(who))
    # Never the caller's own id, which could lead to another error; the line has that one beside it.
    reference = secrets.token_hex(6)
    _LOG.error("unexpected error %s", reference, exc_info=error)
    if isinstance(error, ThemisError | OSError):
        status, name = HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"
    else:
        status, name = HTTPStatus.INTERNAL_SERVER_ERROR, "internal"
    return ErrorAnswer(status, name, "the service's log has more", reference=reference)


def identify(
    vault: Vault,
    headers: Mapping[str, str],
    cookies: Mapping[str, str],
    *,
    writes: bool,
    hosts: frozenset[str],
    tls: bool,
    now: float,
) -> Identity | None:
    """Who calls; None for nobody in particular.

    A token in the header counts for itself. A browser's session counts only for requests that were
    meant for this service and, where something changes, come from its own pages.

    Raises:
        UnknownCallerError: A credential that is not valid.
        DeniedError: A page of another site sent it.
    """
    if "authorization" in headers:
        identity = check_bearer(vault, headers["authorization"], now=now)
        note_use(vault, identity.credential, now=now)
        return identity
    cookie = cookies.get(cookie_name(tls=tls))
    if cookie is None:
        return None
    check_origin(headers.get("host"), headers.get("origin"), hosts)
    if writes:
        check_csrf(cookie, headers.get(CSRF_HEADER.lower()))
    return check_session(vault, cookie, now=now)
