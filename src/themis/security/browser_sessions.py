"""Browsers: a login link that works once, then a cookie.

    link = make_link(vault, identity, now=now)       # the path goes into a URL for this person
    session = redeem_link(vault, code, now=now)      # the second time it is refused
    set_cookie(session, tls=True)                    # for the Set-Cookie header
    check_session(vault, cookie, now=now)            # Identity, on every later request

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
from themis.security.tokens import Identity, Row, Secret, TokenStore, digest_of, find

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
    vault: TokenStore, identity: Identity, *, now: float, lifetime: float = LINK_SECONDS
) -> Secret:
    """A code that logs one browser in as this identity, once and soon."""
    number, secret = secrets.token_hex(6), secrets.token_hex(32)
    row: Row = {
        "credential": identity.credential,
        "digest": digest_of(f"link/{number}", secret),
        "expires": now + lifetime,
    }
    vault.write(_LINK + number, row)
    return Secret(f"{number}-{secret}")


def redeem_link(
    vault: TokenStore, code: object, *, now: float, lifetime: float = SESSION_SECONDS
) -> BrowserSession:
    """Use up a code for a session.

    Raises:
        UnknownCallerError: It is none, was used, or is too old; or its token is not valid.
    """
    problem = UnknownCallerError("login", "this link is not valid (any more): ask for another")
    row, number, secret = _looked_up(vault, _LINK, code)
    if row is None or not hmac.compare_digest(
        str(row["digest"]), digest_of(f"link/{number}", secret)
    ):
        raise problem
    # Only who knows the secret uses it up; of two who do, one gets it.
    taken = vault.take(_LINK + number)
    if taken is None or now >= _time(taken):
        raise problem
    identity = _alive(vault, taken, now)
    return _begin(vault, identity, now, lifetime)


def check_session(vault: TokenStore, cookie: object, *, now: float) -> Identity:
    """Who this cookie belongs to.

    Raises:
        UnknownCallerError: It is none, has expired, or its token is not valid any more.
    """
    row, number, secret = _looked_up(vault, _SESSION, cookie)
    kept = str(row["digest"]) if row else "0" * 64
    same = hmac.compare_digest(kept, digest_of(f"session/{number}", secret))
    if row is None or not same or now >= _time(row):
        raise UnknownCallerError("session", "not logged in, or not any more")
    return _alive(vault, row, now)


def end_session(vault: TokenStore, cookie: object) -> None:
    """Log out. A cookie that is none changes nothing."""
    row, number, secret = _looked_up(vault, _SESSION, cookie)
    if row and hmac.compare_digest(str(row["digest"]), digest_of(f"session/{number}", secret)):
        vault.take(_SESSION + number)


def csrf_of(cookie: str) -> Secret:
    """What pages of this session send along with writes: only they can know it."""
    return Secret(digest_of("csrf", cookie))


def check_csrf(cookie: object, header: object) -> None:
    """Let a write pass if the page that sent it is ours.

    Raises:
        DeniedError: The header is missing or belongs to another session.
    """
    right = csrf_of(cookie).reveal() if isinstance(cookie, str) else ""
    given = header if isinstance(header, str) and header.isascii() else ""
    if not right or not hmac.compare_digest(right, given):
        raise DeniedError("browser", f"the header {CSRF_HEADER} is missing or not this session's")


def check_origin(host: object, origin: object, allowed: Collection[str]) -> None:
    """Let a request pass if it was meant for us and comes from our own pages.

    Args:
        host: The `Host` header.
        origin: The `Origin` header; None where there is none (not a browser, or a plain visit).
        allowed: Names with ports under which people reach the service.

    Raises:
        DeniedError: It was not: a name that was bent to our address, or another site's page.
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
    """With TLS a name that browsers take only from us, over TLS, and for every path."""
    return "__Host-themis" if tls else "themis"


def set_cookie(session: BrowserSession, *, tls: bool, now: float) -> str:
    """The value of the `Set-Cookie` header that logs a browser in."""
    seconds = max(0, int(session.expires - now))
    return _cookie(session.cookie.reveal(), seconds, tls=tls)


def clear_cookie(*, tls: bool) -> str:
    """The value of the `Set-Cookie` header that logs a browser out."""
    return _cookie("", 0, tls=tls)


def sweep(vault: TokenStore, *, now: float) -> int:
    """Forget links and sessions that are over; returns how many."""
    over = [
        key
        for prefix in (_LINK, _SESSION)
        for key in vault.keys(prefix)
        if now >= _time(vault.read(key) or {"expires": 0.0})
    ]
    return sum(vault.take(key) is not None for key in over)


def _begin(vault: TokenStore, identity: Identity, now: float, lifetime: float) -> BrowserSession:
    number, secret = secrets.token_hex(6), secrets.token_hex(32)
    row: Row = {
        "credential": identity.credential,
        "digest": digest_of(f"session/{number}", secret),
        "expires": now + lifetime,
    }
    vault.write(_SESSION + number, row)
    cookie = f"{number}-{secret}"
    return BrowserSession(Secret(cookie), csrf_of(cookie), identity, now + lifetime)


def _alive(vault: TokenStore, row: Row, now: float) -> Identity:
    credential = find(vault, str(row["credential"]))
    fault = credential.fault(now) if credential else "its token is gone"
    if credential is None or fault:
        raise UnknownCallerError("session", f"not logged in any more: {fault}")
    return credential.identity


def _looked_up(vault: TokenStore, prefix: str, text: object) -> tuple[Row | None, str, str]:
    found = _CODE.fullmatch(text) if isinstance(text, str) and len(text) <= 256 else None
    if found is None:
        return None, "", ""
    return vault.read(prefix + found[1]), found[1], found[2]


def _time(row: Row) -> float:
    value: Any = row["expires"]
    return float(value)


def _cookie(value: str, seconds: int, *, tls: bool) -> str:
    secure = "; Secure" if tls else ""
    rest = f"Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    return f"{cookie_name(tls=tls)}={value}; {rest}"
