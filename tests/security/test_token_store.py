"""The token_store over a store: what is told is durable, and survives a restart."""

import json
from collections.abc import Mapping

import pytest

from themis.errors import UnavailableError, UnknownCallerError
from themis.security.browser_sessions import check_session, make_link, redeem_link
from themis.security.token_store import TokenStore
from themis.security.tokens import (
    Role,
    check_token,
    create_token,
    find_credential,
    note_use,
    revoke_token,
)

NOW = 1_800_000_000.0


class PretendStore:
    """Keeps texts; may be unavailable."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {"app/a": "not ours: not even JSON"}
        self.down = False

    def commit(self, rows: Mapping[str, str | None]) -> None:
        if self.down:
            raise UnavailableError("the disk is full")
        for key, text in rows.items():
            if text is None:
                del self.kept[key]
            else:
                self.kept[key] = text

    def token_store(self) -> TokenStore:
        return TokenStore(self.kept, self.commit)


@pytest.fixture
def store() -> PretendStore:
    return PretendStore()


def test_everything_survives_a_restart(store: PretendStore) -> None:
    token_store = store.token_store()
    made = create_token(token_store, Role.TENANT, "vision", now=NOW, lifetime=99.0, note="for ann")
    note_use(token_store, made.credential.id, now=NOW + 1)
    code = make_link(token_store, made.credential.identity, now=NOW).reveal()
    session = redeem_link(token_store, code, now=NOW)
    again = store.token_store()
    assert check_token(again, made.token.reveal(), now=NOW) == made.credential.identity
    assert check_session(again, session.cookie.reveal(), now=NOW) == made.credential.identity
    kept = find_credential(again, made.credential.id)
    assert kept is not None
    assert (kept.used, kept.expires, kept.note) == (NOW + 1, NOW + 99.0, "for ann")


def test_a_used_link_stays_used_after_a_restart(store: PretendStore) -> None:
    token_store = store.token_store()
    identity = create_token(token_store, Role.TENANT, "vision", now=NOW).credential.identity
    code = make_link(token_store, identity, now=NOW).reveal()
    redeem_link(token_store, code, now=NOW)
    with pytest.raises(UnknownCallerError):
        redeem_link(store.token_store(), code, now=NOW)


def test_unstored_change_has_not_happened(store: PretendStore) -> None:
    token_store = store.token_store()
    made = create_token(token_store, Role.TENANT, "vision", now=NOW)
    code = make_link(token_store, made.credential.identity, now=NOW).reveal()
    store.down = True
    with pytest.raises(UnavailableError):
        create_token(token_store, Role.ADMIN, "eve", now=NOW)
    with pytest.raises(UnavailableError):
        revoke_token(token_store, made.credential.id, now=NOW)
    with pytest.raises(UnavailableError):
        redeem_link(token_store, code, now=NOW)
    store.down = False
    assert token_store.keys("credential/") == [f"credential/{made.credential.id}"]
    assert check_token(token_store, made.token.reveal(), now=NOW).subject == "vision"
    assert redeem_link(token_store, code, now=NOW).identity == made.credential.identity


def test_rows_of_others_are_left_alone(store: PretendStore) -> None:
    token_store = store.token_store()
    assert token_store.read("app/a") is None
    assert token_store.keys("") == []
    assert token_store.take("app/a") is None
    assert "app/a" in store.kept


def test_the_store_gets_no_secrets(store: PretendStore) -> None:
    made = create_token(store.token_store(), Role.TENANT, "vision", now=NOW)
    assert made.token.reveal().rpartition("_")[2] not in json.dumps(store.kept)
