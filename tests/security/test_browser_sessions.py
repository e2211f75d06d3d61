"""Browsers: links that work once, cookies that end with their token, and foreign pages."""

import json

import pytest

from tests.support.memory_token_store import MemoryTokenStore
from themis.errors import DeniedError, UnknownCallerError
from themis.security.browser_sessions import (
    BrowserSession,
    check_csrf,
    check_origin,
    check_session,
    clear_cookie,
    csrf_of,
    drop_expired_sessions,
    end_session,
    make_link,
    redeem_link,
    set_cookie,
)
from themis.security.tokens import Identity, Role, create_token, revoke_token

NOW = 1_800_000_000.0


@pytest.fixture
def token_store() -> MemoryTokenStore:
    return MemoryTokenStore()


@pytest.fixture
def identity(token_store: MemoryTokenStore) -> Identity:
    return create_token(token_store, Role.TENANT, "vision", now=NOW).credential.identity


@pytest.fixture
def session(token_store: MemoryTokenStore, identity: Identity) -> BrowserSession:
    return redeem_link(
        token_store, make_link(token_store, identity, now=NOW).reveal(), now=NOW, lifetime=60.0
    )


def test_a_link_logs_in_once(token_store: MemoryTokenStore, identity: Identity) -> None:
    code = make_link(token_store, identity, now=NOW).reveal()
    assert redeem_link(token_store, code, now=NOW + 1).identity == identity
    with pytest.raises(UnknownCallerError, match="not valid"):
        redeem_link(token_store, code, now=NOW + 1)


def test_only_one_of_two_simultaneous_logins_succeeds(
    token_store: MemoryTokenStore, identity: Identity
) -> None:
    code = make_link(token_store, identity, now=NOW).reveal()
    inner: list[BrowserSession] = []

    class Racing(MemoryTokenStore):
        def take(self, key: str) -> dict[str, str | float | None] | None:
            if not inner:
                inner.append(redeem_link(token_store, code, now=NOW))
            taken = token_store.take(key)
            return None if taken is None else dict(taken)

    racing = Racing()
    racing.rows = token_store.rows
    with pytest.raises(UnknownCallerError):
        redeem_link(racing, code, now=NOW)
    assert len(inner) == 1


def test_a_link_does_not_last(token_store: MemoryTokenStore, identity: Identity) -> None:
    code = make_link(token_store, identity, now=NOW).reveal()
    with pytest.raises(UnknownCallerError):
        redeem_link(token_store, code, now=NOW + 300.0)


def test_a_wrong_guess_does_not_use_a_link_up(
    token_store: MemoryTokenStore, identity: Identity
) -> None:
    code = make_link(token_store, identity, now=NOW).reveal()
    wrong = code[:-1] + ("0" if code[-1] != "0" else "1")
    with pytest.raises(UnknownCallerError):
        redeem_link(token_store, wrong, now=NOW)
    assert redeem_link(token_store, code, now=NOW).identity == identity


@pytest.mark.parametrize("code", [None, 7, "", "x", "a" * 10**6, "0" * 12 + "-" + "0" * 64, "\0"])
def test_invalid_code_logs_no_browser_in(token_store: MemoryTokenStore, code: object) -> None:
    with pytest.raises(UnknownCallerError):
        redeem_link(token_store, code, now=NOW)
    with pytest.raises(UnknownCallerError):
        check_session(token_store, code, now=NOW)
    end_session(token_store, code)


def test_a_cookie_is_its_person_until_it_ends(
    token_store: MemoryTokenStore, session: BrowserSession
) -> None:
    cookie = session.cookie.reveal()
    assert check_session(token_store, cookie, now=NOW + 59.0) == session.identity
    with pytest.raises(UnknownCallerError):
        check_session(token_store, cookie, now=NOW + 60.0)


def test_a_link_is_no_cookie(token_store: MemoryTokenStore, identity: Identity) -> None:
    code = make_link(token_store, identity, now=NOW).reveal()
    with pytest.raises(UnknownCallerError):
        check_session(token_store, code, now=NOW)


def test_a_session_ends_with_its_token(
    token_store: MemoryTokenStore, session: BrowserSession
) -> None:
    revoke_token(token_store, session.identity.credential, now=NOW)
    with pytest.raises(UnknownCallerError, match="revoked"):
        check_session(token_store, session.cookie.reveal(), now=NOW + 1)


def test_login_link_of_a_revoked_token_expires(
    token_store: MemoryTokenStore, identity: Identity
) -> None:
    code = make_link(token_store, identity, now=NOW).reveal()
    revoke_token(token_store, identity.credential, now=NOW)
    with pytest.raises(UnknownCallerError):
        redeem_link(token_store, code, now=NOW)


def test_logging_out_ends_it_for_good(
    token_store: MemoryTokenStore, session: BrowserSession
) -> None:
    end_session(token_store, session.cookie.reveal()[:13] + "0" * 64)
    assert check_session(token_store, session.cookie.reveal(), now=NOW) == session.identity
    end_session(token_store, session.cookie.reveal())
    with pytest.raises(UnknownCallerError):
        check_session(token_store, session.cookie.reveal(), now=NOW)


def test_the_store_holds_no_codes_and_no_cookies(
    token_store: MemoryTokenStore, identity: Identity, session: BrowserSession
) -> None:
    code = make_link(token_store, identity, now=NOW).reveal()
    kept = json.dumps(dict(token_store.rows))
    for secret in (code, session.cookie.reveal()):
        assert secret.partition("-")[2] not in kept
    assert session.cookie.reveal() not in repr(session)


def test_cookies_have_strict_attributes(session: BrowserSession) -> None:
    told = set_cookie(session, tls=True, now=NOW)
    assert told.startswith(f"__Host-themis={session.cookie.reveal()}; ")
    parts = told.split("; ")[1:]
    assert sorted(parts) == ["HttpOnly", "Max-Age=60", "Path=/", "SameSite=Strict", "Secure"]
    assert "Secure" not in set_cookie(session, tls=False, now=NOW)
    assert "Max-Age=0" in clear_cookie(tls=True)


def test_write_needs_the_csrf_token_of_its_session(session: BrowserSession) -> None:
    cookie = session.cookie.reveal()
    check_csrf(cookie, session.csrf.reveal())
    other = csrf_of("another").reveal()
    for header in (None, "", other, session.csrf.reveal() + "0", "\u00e9", 7):
        with pytest.raises(DeniedError, match="x-themis-csrf"):
            check_csrf(cookie, header)
    with pytest.raises(DeniedError):
        check_csrf(None, "")


@pytest.mark.parametrize(
    ("host", "origin", "fine"),
    [
        ("127.0.0.1:7421", None, True),
        ("127.0.0.1:7421", "http://127.0.0.1:7421", True),
        ("LAB:7421", "https://lab:7421", True),
        ("127.0.0.1:7421", "http://evil.example", False),
        ("127.0.0.1:7421", "null", False),
        ("127.0.0.1:7421", "http://127.0.0.1:8080", False),
        ("127.0.0.1:7421", "http://lab:7421", False),
        ("127.0.0.1:7421", "http://[", False),
        ("evil.example:7421", None, False),
        (None, None, False),
    ],
)
def test_foreign_pages_and_bent_names_are_kept_out(
    host: object, origin: object, fine: bool
) -> None:
    allowed = ["127.0.0.1:7421", "lab:7421"]
    if fine:
        check_origin(host, origin, allowed)
    else:
        with pytest.raises(DeniedError):
            check_origin(host, origin, allowed)


def test_expired_sessions_are_removed(
    token_store: MemoryTokenStore, identity: Identity, session: BrowserSession
) -> None:
    make_link(token_store, identity, now=NOW)
    assert drop_expired_sessions(token_store, now=NOW) == 0
    assert drop_expired_sessions(token_store, now=NOW + 60.0) == 1
    assert drop_expired_sessions(token_store, now=NOW + 301.0) == 1
    assert all(key.startswith("credential/") for key in token_store.rows)
