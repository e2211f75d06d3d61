"""Tokens: who presents one, what is kept of it, and what never shows."""

import copy
import json
import pickle

import pytest

from tests.support.memory_token_store import MemoryTokenStore
from themis.errors import ConfigError, RefusedError, UnknownCallerError
from themis.security.tokens import (
    TOKEN,
    Identity,
    IssuedToken,
    Role,
    TokenRow,
    VerifiedToken,
    all_credentials,
    check_bearer,
    check_token,
    create_token,
    find_credential,
    has_admin,
    note_use,
    revoke_token,
)

NOW = 1_800_000_000.0


@pytest.fixture
def token_store() -> MemoryTokenStore:
    return MemoryTokenStore()


def issued(
    token_store: MemoryTokenStore, role: Role = Role.TENANT, subject: str = "vision"
) -> IssuedToken:
    return create_token(token_store, role, subject, now=NOW, lifetime=100.0)


def test_token_identifies_its_caller(token_store: MemoryTokenStore) -> None:
    made = issued(token_store)
    found = check_token(token_store, made.token.reveal(), now=NOW)
    assert found == Identity(Role.TENANT, "vision", made.credential.id)


def test_nothing_that_is_kept_gives_the_token_back(token_store: MemoryTokenStore) -> None:
    made = issued(token_store)
    match = TOKEN.fullmatch(made.token.reveal())
    assert match is not None
    assert match[2] not in json.dumps(dict(token_store.rows))
    assert made.credential.digest not in repr(made)


def test_a_secret_does_not_show_itself(token_store: MemoryTokenStore) -> None:
    secret = issued(token_store).token
    for text in (repr(secret), str(secret), f"{secret}", f"{secret:>20}", repr([secret])):
        assert secret.reveal() not in text
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        copy.deepcopy(secret)


def test_tokens_differ(token_store: MemoryTokenStore) -> None:
    assert len({issued(token_store).token.reveal() for _ in range(50)}) == 50


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        True,
        b"themis_000000000000_x",
        "",
        "themis_",
        "themis_000000000000_" + "a" * 43,
        "themis_000000000000_" + "a" * 42,
        "themis_000000000000_" + "a" * 10**6,
        "themis_000000000000_" + "a" * 42 + "\0",
        "themis_00000000000\u0660_" + "a" * 43,
        "themis_../../../etc_" + "a" * 43,
    ],
)
def test_invalid_token_identifies_no_caller(token_store: MemoryTokenStore, text: object) -> None:
    issued(token_store)
    with pytest.raises(UnknownCallerError, match="no valid token"):
        check_token(token_store, text, now=NOW)


def test_a_newline_after_a_token_is_not_part_of_one(token_store: MemoryTokenStore) -> None:
    with pytest.raises(UnknownCallerError):
        check_token(token_store, issued(token_store).token.reveal() + "\n", now=NOW)


def test_right_id_with_a_wrong_secret_gets_the_same_refusal(token_store: MemoryTokenStore) -> None:
    made = issued(token_store)
    wrong = made.token.reveal()[:-1] + ("a" if made.token.reveal()[-1] != "a" else "b")
    revoke_token(token_store, made.credential.id, now=NOW)
    with pytest.raises(UnknownCallerError, match="no valid token"):
        check_token(token_store, wrong, now=NOW)


def test_a_digest_is_worth_nothing_in_another_row(token_store: MemoryTokenStore) -> None:
    mine, admin = issued(token_store), issued(token_store, Role.ADMIN, "root")
    row = {
        **token_store.rows[f"credential/{admin.credential.id}"],
        "digest": mine.credential.digest,
    }
    token_store.write(f"credential/{admin.credential.id}", row)
    secret = mine.token.reveal().rpartition("_")[2]
    with pytest.raises(UnknownCallerError):
        check_token(token_store, f"themis_{admin.credential.id}_{secret}", now=NOW)


@pytest.mark.parametrize(("later", "valid"), [(0.0, True), (99.9, True), (100.0, False)])
def test_a_token_expires(token_store: MemoryTokenStore, later: float, valid: bool) -> None:
    text = issued(token_store).token.reveal()
    if valid:
        assert check_token(token_store, text, now=NOW + later).subject == "vision"
    else:
        with pytest.raises(UnknownCallerError, match="expired"):
            check_token(token_store, text, now=NOW + later)


def test_revoked_token_is_invalid_and_stays_listed(token_store: MemoryTokenStore) -> None:
    made = issued(token_store)
    revoke_token(token_store, made.credential.id, now=NOW + 1)
    again = revoke_token(token_store, made.credential.id, now=NOW + 2)
    assert again.revoked == NOW + 1
    with pytest.raises(UnknownCallerError, match="revoked"):
        check_token(token_store, made.token.reveal(), now=NOW + 3)
    assert [item.id for item in all_credentials(token_store)] == [made.credential.id]


def test_revoking_by_the_whole_token_does_not_repeat_it(token_store: MemoryTokenStore) -> None:
    text = issued(token_store).token.reveal()
    with pytest.raises(RefusedError) as caught:
        revoke_token(token_store, text, now=NOW)
    assert text not in str(caught.value)
    assert "id" in str(caught.value)


@pytest.mark.parametrize("header", [None, "", "Basic abc", "bearer", "Bearer  x", 7])
def test_header_without_a_token_identifies_no_caller(
    token_store: MemoryTokenStore, header: object
) -> None:
    with pytest.raises(UnknownCallerError):
        check_bearer(token_store, header, now=NOW)


def test_a_proof_lasts_as_long_as_its_token(token_store: MemoryTokenStore) -> None:
    made, proof = issued(token_store), VerifiedToken()
    header = f"Bearer {made.token.reveal()}"
    who = Identity(Role.TENANT, "vision", made.credential.id)
    assert [proof.check(token_store, header, now=NOW + later) for later in (0.0, 99.0)] == [
        who,
        who,
    ]
    with pytest.raises(UnknownCallerError, match="expired"):
        proof.check(token_store, header, now=NOW + 100.0)
    assert proof.check(token_store, header, now=NOW) == who
    revoke_token(token_store, made.credential.id, now=NOW)
    with pytest.raises(UnknownCallerError, match="revoked"):
        proof.check(token_store, header, now=NOW)


def test_a_proof_says_nothing_of_another_token(token_store: MemoryTokenStore) -> None:
    made, proof = issued(token_store), VerifiedToken()
    assert proof.check(token_store, f"Bearer {made.token.reveal()}", now=NOW).subject == "vision"
    text = made.token.reveal()
    for header in (None, "", f"Bearer {text[:-1]}{'a' if text[-1] == 'b' else 'b'}"):
        with pytest.raises(UnknownCallerError):
            proof.check(token_store, header, now=NOW)
    token_store.take(f"credential/{made.credential.id}")
    with pytest.raises(UnknownCallerError):
        proof.check(token_store, f"Bearer {made.token.reveal()}", now=NOW)


def test_a_bearer_header_is_read_whatever_its_case(token_store: MemoryTokenStore) -> None:
    text = issued(token_store).token.reveal()
    assert check_bearer(token_store, f"bearer {text}", now=NOW).subject == "vision"


@pytest.mark.parametrize("subject", ["", "Vision", "a b", "a\0b", "-a", "x" * 64, "../x", "\u0430"])
def test_a_subject_is_a_name(token_store: MemoryTokenStore, subject: str) -> None:
    with pytest.raises(ConfigError, match="subject"):
        create_token(token_store, Role.TENANT, subject, now=NOW)
    assert token_store.rows == {}


@pytest.mark.parametrize("lifetime", [0.0, -1.0, float("nan"), float("inf"), True, 1e12, 10**400])
def test_a_lifetime_is_a_positive_time(token_store: MemoryTokenStore, lifetime: float) -> None:
    with pytest.raises(ConfigError, match="lifetime"):
        create_token(token_store, Role.TENANT, "vision", now=NOW, lifetime=lifetime)


@pytest.mark.parametrize("note", ["two\nlines", "\x1b[2J", "x" * 201, "a\0b"])
def test_a_note_is_one_short_line(token_store: MemoryTokenStore, note: str) -> None:
    with pytest.raises(ConfigError, match="note"):
        create_token(token_store, Role.TENANT, "vision", now=NOW, note=note)


def test_a_token_in_a_note_is_refused_without_repeating_it(token_store: MemoryTokenStore) -> None:
    text = issued(token_store).token.reveal()
    with pytest.raises(ConfigError, match="note") as caught:
        create_token(token_store, Role.TENANT, "vision", now=NOW, note=f"old: {text}")
    assert text not in str(caught.value)


def test_the_last_use_is_written_once_an_hour(token_store: MemoryTokenStore) -> None:
    made = issued(token_store)
    for later in (1.0, 2.0, 3599.0):
        note_use(token_store, made.credential.id, now=NOW + later)
    kept = find_credential(token_store, made.credential.id)
    assert kept is not None
    assert kept.used == NOW + 1.0
    note_use(token_store, made.credential.id, now=NOW + 3601.0)
    kept = find_credential(token_store, made.credential.id)
    assert kept is not None
    assert kept.used == NOW + 3601.0


def test_noting_a_use_does_not_undo_a_revocation_that_came_between(
    token_store: MemoryTokenStore,
) -> None:
    made = issued(token_store)

    class Slow(MemoryTokenStore):
        def write(self, key: str, row: TokenRow) -> None:
            revoke_token(token_store, made.credential.id, now=NOW)
            token_store.write(key, row)

    slow = Slow()
    slow.rows = token_store.rows
    note_use(slow, made.credential.id, now=NOW + 1.0)
    kept = find_credential(token_store, made.credential.id)
    assert kept is not None
    assert (kept.revoked, kept.used) == (NOW, NOW + 1.0)
    with pytest.raises(UnknownCallerError):
        check_token(token_store, made.token.reveal(), now=NOW + 2.0)


def test_a_cluster_has_an_admin_while_a_token_of_one_is_valid(
    token_store: MemoryTokenStore,
) -> None:
    issued(token_store)
    assert not has_admin(token_store, now=NOW)
    issued(token_store, Role.ADMIN, "ops")
    assert has_admin(token_store, now=NOW)
    assert not has_admin(token_store, now=NOW + 100.0)


def test_invalid_id_finds_nothing(token_store: MemoryTokenStore) -> None:
    assert find_credential(token_store, "../admin") is None
