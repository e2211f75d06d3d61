"""Answers as bytes: JSON that browsers do not keep, and errors in one shape."""

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse, Response

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

_LOG = logging.getLogger(__name__)

SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Headers of answers that browsers do not keep, guess at or show inside another page."""

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


def as_json(
    data: Mapping[str, Any] | bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON answer; bytes are JSON already."""
    sent = {**SAFE, **(headers or {})}
    if isinstance(data, bytes):
        return Response(data, status, sent, "application/json")
    return JSONResponse(data, status, sent)


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error as the caller gets it."""

    status: int
    error: str
    reason: str
    who: str = ""
    reference: str = ""
    """Where the service's log has an unexpected error."""

    def data(self) -> dict[str, Any]:
        """The body of the answer."""
        body = {"error": self.error, "who": self.who, "reason": self.reason}
        return {**body, "reference": self.reference} if self.reference else body


def error_answer(error: Exception) -> ErrorAnswer:
    """The answer for an error. An unexpected one is logged, and its text stays in the log."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            who = error.who if isinstance(error, RefusedError) else getattr(error, "key", "")
            reason = error.reason if isinstance(error, RefusedError) else str(error)
            name = kind.__name__.removesuffix("Error").lower()
            return ErrorAnswer(status, name, reason, str(who))
    # Never the request's own id, which its caller chose and may use for several requests.
    reference = secrets.token_hex(6)
    _LOG.error("unexpected error %s", reference, exc_info=error)
    if isinstance(error, ThemisError | OSError):
        status, name = HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"
    else:
        status, name = HTTPStatus.INTERNAL_SERVER_ERROR, "internal"
    return ErrorAnswer(status, name, "the service's log has more", reference=reference)
