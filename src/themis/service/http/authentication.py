"""Finds the caller of an HTTP request: by a token, or by the session of a browser."""

from starlette.requests import Request

from themis.errors import UnknownCallerError
from themis.security.browser_sessions import (
    CSRF_HEADER,
    check_csrf,
    check_origin,
    check_session,
    cookie_name,
)
from themis.security.rate_limits import WRONG_CREDENTIALS, RateBuckets
from themis.security.tokens import Identity, TokenStore, check_bearer, note_use
from themis.service.http.settings import ApiSettings


class Gate:
    """Names the caller, and makes an address wait that sends too many wrong credentials."""

    def __init__(self, token_store: TokenStore, settings: ApiSettings) -> None:
        self._token_store = token_store
        self._settings = settings
        self._wrong = RateBuckets(settings.limits, WRONG_CREDENTIALS)

    def change(self, settings: ApiSettings) -> None:
        """Use other settings from now on."""
        self._settings = settings
        self._wrong.change(settings.limits)

    def admit(self, request: Request, address: str, now: float, *, writes: bool) -> Identity | None:
        """The caller of a new request; a wrong credential counts against its address.

        Raises:
            UnknownCallerError: The credential is not valid.
            LimitError: It is not, and too many such came from this address.
            DeniedError: A page of another site sent the request.
        """
        try:
            return self.identify(request, writes=writes)
        except UnknownCallerError:
            # Only wrong credentials wait. Many callers share an address (behind a proxy, or on a
            # machine with jobs), and one of them who guesses must not lock out the others. Guessing
            # gains nothing: a secret has 256 bits.
            self._wrong.take(address, now)
            raise

    def identify(self, request: Request, *, writes: bool) -> Identity | None:
        """The caller of a request; None for one without a credential.

        A token in the header counts for itself. A browser's session counts only for requests that
        were meant for this service and, where they change something, come from its own pages.

        Raises:
            UnknownCallerError: The credential is not valid.
            DeniedError: A page of another site sent the request.
        """
        now, headers = self._settings.wall(), request.headers
        if "authorization" in headers:
            identity = check_bearer(self._token_store, headers["authorization"], now=now)
            note_use(self._token_store, identity.credential, now=now)
            return identity
        cookie = request.cookies.get(cookie_name(tls=self._settings.tls))
        if cookie is None:
            return None
        check_origin(headers.get("host"), headers.get("origin"), self._settings.hosts)
        if writes:
            check_csrf(cookie, headers.get(CSRF_HEADER.lower()))
        return check_session(self._token_store, cookie, now=now)
