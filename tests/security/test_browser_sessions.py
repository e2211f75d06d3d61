"""Browsers: links that work once, cookies that end with their token, and foreign pages."""

import json

import pytest

from tests.support.memory_token_store import MemoryVault
from themis.errors import DeniedError, UnknownCallerError
from themis.security.browser_sessions import (
    BrowserSession,
    check_csrf,
    check_origin,
    check_session,
    clear_cookie,
    csrf_of,
    end_session,
    make_link,
    redeem_link,
    set_cookie,
    sweep,
)
from themis.security.tokens import Identity, Role, create_token, revoke_token

NOW = 1_800_000_000.0


@pytest.fixture
def vault() -> MemoryVault:
    return MemoryVault()


@pytest.fixture
def identity(vault: MemoryVault) -> Identity:
    return create_token(vault, Role.TENANT, "vision", now=NOW).credential.identity


@pytest.fixture
def session(vault: MemoryVault, identity: Identity) -> BrowserSession:
    return redeem_link(vault, make_link(vault, identity, now=NOW).reveal(), now=NOW, lifetime=60.0)


def test_a_link_logs_in_once(vault: MemoryVault, identity: Identity) -> None:
    code = make_link(vault, identity, now=NOW).reveal()
    assert redeem_link(vault, code, now=NOW + 1).identity == identity
    with pytest.raises(UnknownCallerError, match="not valid"):
        redeem_link(vault, code, now=NOW + 1)


def test_of_two_at_the_same_time_one_gets_in(vault: MemoryVault, identity: Identity) -> None:
    code = make_link(vault, identity, now=NOW).reveal()
    inner: list[BrowserSession] = []

    class Racing(MemoryVault):
        def take(self, key: str) -> dict[str, str | float | None] | None:
            if not inner:
                inner.append(redeem_link(vault, code, now=NOW))
            taken = vault.take(key)
            return None if taken is None else dict(taken)

    racing = Racing()
    racing.rows = vault.rows
    with pytest.raises(UnknownCallerError):
        redeem_link(racing, code, now=NOW)
    assert len(inner) == 1


def test_a_link_does_not_last(vault: MemoryVault, identity: Identity) -> None:
    code = make_link(vault, identity, now=NOW).reveal()
    with pytest.raises(UnknownCallerError):
        redeem_link(vault, code, now=NOW + 300.0)


def test_a_wrong_guess_does_not_use_a_link_up(vault: MemoryVault, identity: Identity) -> None:
    code = make_link(vault, identity, now=NOW).reveal()
    wrong = code[:-1] + ("0" if code[-1] != "0" else "1")
    with pytest.raises(UnknownCallerError):
        redeem_link(vault, wrong, now=NOW)
    assert redeem_link(vault, code, now=NOW).identity == identity


@pytest.mark.parametrize("code", [None, 7, "", "x", "a" * 10**6, "0" * 12 + "-" + "0" * 64, "\0"])
def test_what_is_no_code_logs_nobody_in(vault: MemoryVault, code: object) -> None:
    with pytest.raises(UnknownCallerError):
        redeem_link(vault, code, now=NOW)
    with pytest.raises(UnknownCallerError):
        check_session(vault, code, now=NOW)
    end_session(vault, code)


def test_a_cookie_is_its_person_until_it_ends(vault: MemoryVault, session: BrowserSession) -> None:
    cookie = session.cookie.reveal()
    assert check_session(vault, cookie, now=NOW + 59.0) == session.identity
    with pytest.raises(UnknownCallerError):
        check_session(vault, cookie, now=NOW + 60.0)


def test_a_link_is_no_cookie(vault: MemoryVault, identity: Identity) -> None:
    code = make_link(vault, identity, now=NOW).reveal()
    with pytest.raises(UnknownCallerError):
        check_session(vault, code, now=NOW)


def test_a_session_ends_with_its_token(vault: MemoryVault, session: BrowserSession) -> None:
    revoke_token(vault, session.identity.credential, now=NOW)
    with pytest.raises(UnknownCallerError, match="revoked"):
        check_session(vault, session.cookie.reveal(), now=NOW + 1)


def test_a_link_of_a_revoked_token_is_over(vault: MemoryVault, identity: Identity) -> None:
    code = make_link(vault, identity, now=NOW).reveal()
    revoke_token(vault, identity.credential, now=NOW)
    with pytest.raises(UnknownCallerError):
        redeem_link(vault, code, now=NOW)


def test_logging_out_ends_it_for_good(vault: MemoryVault, session: BrowserSession) -> None:
    end_session(vault, session.cookie.reveal()[:13] + "0" * 64)
    assert check_session(vault, session.cookie.reveal(), now=NOW) == session.identity
    end_session(vault, session.cookie.reveal())
    with pytest.raises(UnknownCallerError):
        check_session(vault, session.cookie.reveal(), now=NOW)


def test_the_store_holds_no_codes_and_no_cookies(
    vault: MemoryVault, identity: Identity, session: BrowserSession
) -> None:
    code = make_link(vault, identity, now=NOW).reveal()
    kept = json.dumps(dict(vault.rows))
    for secret in (code, session.cookie.reveal()):
        assert secret.partition("-")[2] not in kept
    assert session.cookie.reveal() not in repr(session)


def test_cookies_are_for_us_only(session: BrowserSession) -> None:
    told = set_cookie(session, tls=True, now=NOW)
    assert told.startswith(f"__Host-themis={session.cookie.reveal()}; ")
    parts = told.split("; ")[1:]
    assert sorted(parts) == ["HttpOnly", "Max-Age=60", "Path=/", "SameSite=Strict", "Secure"]
    assert "Secure" not in set_cookie(session, tls=False, now=NOW)
    assert "Max-Age=0" in clear_cookie(tls=True)


def test_a_write_needs_the_word_of_its_own_session(session: BrowserSession) -> None:
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


def test_what_is_over_is_swept_away(
    vault: MemoryVault, identity: Identity, session: BrowserSession
) -> None:
    make_link(vault, identity, now=NOW)
    assert sweep(vault, now=NOW) == 0
    assert sweep(vault, now=NOW + 60.0) == 1
    assert sweep(vault, now=NOW + 301.0) == 1
    assert all(key.startswith("credential/") for key in vault.rows)
