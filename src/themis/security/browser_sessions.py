"""Browsers: a login link that works once, then a cookie.

    link = make_link(store, identity, now=now)       # the path goes into a URL for this person
    session = redeem_link(store, code, now=now)      # the second time it is refused
    set_cookie(session, tls=True)                    # for the Set-Cookie header
    check_session(store, cookie, now=now)            # Identity, on every later request

A session is no stronger than the token it was made with, and ends with it. Writes need the
session's CSRF token in a header: `check_csrf`.
"""

import hmac
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from themis.errors import DeniedError, UnknownCallerError
from themis.security.tokens import (
    Identity,
    Secret,
    TokenRow,
    TokenStore,
    digest_of,
    find_credential,
)

LINK_SECONDS = 300.0
SESSION_SECONDS = 12 * 3600.0
CSRF_HEADER = "x-themis-csrf"

_LINK = "link/"
_SESSION = "session/"
_CODE = re.compile(r"([0-9a-f]{12})-([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A browser that is logged in."""

    cookie: Secret
    csrf: Secret
    identity: Identity
    expires: float


def make_link(
    token_store: TokenStore, identity: Identity, *, now: float, lifetime: float = LINK_SECONDS
) -> Secret:
    """A code that logs one browser in as this identity, once and soon."""
    return Secret(_issue(token_store, _LINK, identity, now + lifetime))


def redeem_link(
    token_store: TokenStore, code: object, *, now: float, lifetime: float = SESSION_SECONDS
) -> BrowserSession:
    """Begin a session with the code of a link, which is used up.

    Raises:
        UnknownCallerError: The code was used, is too old or wrong, or its token is not valid.
    """
    problem = UnknownCallerError("login", "this link is not valid (any more): ask for another")
    found = _matching(token_store, _LINK, code)
    # Only a browser that knows the secret uses the code up; of two that do, one gets the session.
    taken = token_store.take(found[0]) if found is not None else None
    if taken is None or now >= _time(taken):
        raise problem
    identity = _alive(token_store, taken, now)
    cookie = _issue(token_store, _SESSION, identity, now + lifetime)
    return BrowserSession(Secret(cookie), csrf_of(cookie), identity, now + lifetime)


def check_session(token_store: TokenStore, cookie: object, *, now: float) -> Identity:
    """The identity behind a cookie.

    Raises:
        UnknownCallerError: The cookie or its token is not valid, or not any more.
    """
    found = _matching(token_store, _SESSION, cookie)
    if found is None or now >= _time(found[1]):
        raise UnknownCallerError("session", "not logged in, or not any more")
    return _alive(token_store, found[1], now)


def end_session(token_store: TokenStore, cookie: object) -> None:
    """Log out; an invalid cookie changes nothing."""
    found = _matching(token_store, _SESSION, cookie)
    if found is not None:
        token_store.take(found[0])


def csrf_of(cookie: str) -> Secret:
    """The text that pages of this session send with writes; other pages cannot know it."""
    return Secret(digest_of("csrf", cookie))


def check_csrf(cookie: object, header: object) -> None:
    """Refuse a write unless a page of this service sent it.

    Raises:
        DeniedError: The header is missing or belongs to another session.
    """
    right = csrf_of(cookie).reveal() if isinstance(cookie, str) else ""
    given = header if isinstance(header, str) and header.isascii() else ""
    if not right or not hmac.compare_digest(right, given):
        raise DeniedError("browser", f"the header {CSRF_HEADER} is missing or not this session's")


def check_origin(host: object, origin: object, allowed: Collection[str]) -> None:
    """Refuse a request unless it was meant for this service and comes from its pages.

    Args:
        host: The `Host` header.
        origin: The `Origin` header; None where there is none (not a browser, or a plain visit).
        allowed: Names with ports under which browsers reach the service.

    Raises:
        DeniedError: Another site's page sent it, or a host name that was rebound to this address.
    """
    names = {name.lower() for name in allowed}
    if not isinstance(host, str) or host.lower() not in names:
        raise DeniedError("browser", "this name is not in `hosts` of the configuration")
    if origin is None:
        return
    try:
        place = urlsplit(origin).netloc.lower() if isinstance(origin, str) else ""
    except ValueError:
        place = ""
    if place != host.lower():
        raise DeniedError("browser", "a page of another site may not ask for this")


def cookie_name(*, tls: bool) -> str:
    """With TLS a name that browsers accept only from this host, over TLS, for every path."""
    return "__Host-themis" if tls else "themis"


def set_cookie(session: BrowserSession, *, tls: bool, now: float) -> str:
    """The value of the `Set-Cookie` header that logs a browser in."""
    seconds = max(0, int(session.expires - now))
    return _cookie(session.cookie.reveal(), seconds, tls=tls)


def clear_cookie(*, tls: bool) -> str:
    """The value of the `Set-Cookie` header that logs a browser out."""
    return _cookie("", 0, tls=tls)


def drop_expired_sessions(token_store: TokenStore, *, now: float) -> int:
    """Delete links and sessions that have expired; returns how many."""
    expired = [
        key
        for prefix in (_LINK, _SESSION)
        for key in token_store.keys(prefix)
        if now >= _time(token_store.read(key) or {"expires": 0.0})
    ]
    return sum(token_store.take(key) is not None for key in expired)


def _issue(token_store: TokenStore, prefix: str, identity: Identity, expires: float) -> str:
    """A new code; the store has only a hash of it, bound to its key."""
    number, secret = secrets.token_hex(6), secrets.token_hex(32)
    key = prefix + number
    row: TokenRow = {
        "credential": identity.credential,
        "digest": digest_of(key, secret),
        "expires": expires,
    }
    token_store.write(key, row)
    return f"{number}-{secret}"


def _alive(token_store: TokenStore, row: TokenRow, now: float) -> Identity:
    credential = find_credential(token_store, str(row["credential"]))
    fault = credential.fault(now) if credential else "its token is gone"
    if credential is None or fault:
        raise UnknownCallerError("session", f"not logged in any more: {fault}")
    return credential.identity


def _matching(token_store: TokenStore, prefix: str, code: object) -> tuple[str, TokenRow] | None:
    """Key and row of a code, if its secret is right."""
    found = _CODE.fullmatch(code) if isinstance(code, str) and len(code) <= 256 else None
    if found is None:
        return None
    key = prefix + found[1]
    row = token_store.read(key)
    # Hashed and compared even if there is none, so that the time taken reveals no codes.
    same = hmac.compare_digest(str(row["digest"]) if row else "0" * 64, digest_of(key, found[2]))
    return (key, row) if row is not None and same else None


def _time(row: TokenRow) -> float:
    value: Any = row["expires"]
    return float(value)


def _cookie(value: str, seconds: int, *, tls: bool) -> str:
    secure = "; Secure" if tls else ""
    rest = f"Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    return f"{cookie_name(tls=tls)}={value}; {rest}"
