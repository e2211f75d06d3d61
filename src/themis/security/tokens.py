"""Tokens: made, checked, revoked.

    issued = create_token(token_store, Role.TENANT, "vision", now=now, lifetime=90 * 86400)
    print(issued.token.reveal())                     # themis_3f09..._..., shown once
    check_token(token_store, text, now=now)          # Identity(role=TENANT, subject="vision")

A token is `themis_<id>_<secret>`: the id finds the row, the secret (256 random bits) proves it. The
store has only a hash, bound to the id. The identity of a caller follows from the credential alone,
never from other fields of a message.
"""

import hmac
import math
import re
import secrets
import string
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from themis.config.secret import TOKEN, Secret
from themis.core.model.ids import check_name, check_number
from themis.errors import ConfigError, DeniedError, MissingError, UnknownCallerError
from themis.security.token_store import TokenRow, TokenStore

_PREFIX = "credential/"
_USED = "used/"
"""Rows of their own: noting a use must not undo a revocation at the same time."""
_LETTERS = string.ascii_letters + string.digits
_MAX_TEXT = 256
MAX_LIFETIME = 10 * 366 * 86400.0
HOST_NOTE = "agents of the service"
"""The note of tokens that the service gives to agents that it starts."""
USE_NOTED_EVERY = 3600.0
"""How often a use is written to the store, in seconds."""


class Role(StrEnum):
    """What a credential is for; each has one role."""

    VIEWER = "viewer"
    """Sees what its subject sees, and changes nothing."""
    TENANT = "tenant"
    """Submits apps and speaks for them; its subject is their owner."""
    NODE = "node"
    """Speaks for one machine, its subject."""
    ADMIN = "admin"
    """Runs the cluster."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller, as its credential says."""

    role: Role
    subject: str
    credential: str
    """The id of the token (no secret), for the audit log."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What the store has of a token. Times are seconds since 1970."""

    id: str
    role: Role
    subject: str
    digest: str = field(repr=False)
    created: float
    expires: float | None = None
    revoked: float | None = None
    used: float | None = None
    """The time of its last use, to the hour."""
    note: str = ""

    @property
    def identity(self) -> Identity:
        """The identity of callers with this token."""
        return Identity(self.role, self.subject, self.id)

    def fault(self, now: float) -> str:
        """Why it is not valid at this time; empty if it is valid."""
        if self.revoked is not None:
            return "this token was revoked"
        if self.expires is not None and now >= self.expires:
            return "this token has expired"
        return ""


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token, and what the store keeps of it."""

    token: Secret
    credential: Credential


def check_host(token_store: TokenStore, identity: Identity) -> None:
    """Refuse all but agents that the service itself has started.

    Raises:
        DeniedError: The token is another one.
    """
    credential = find_credential(token_store, identity.credential)
    if credential is None or credential.role is not Role.TENANT or credential.note != HOST_NOTE:
        reason = "only agents that the service started may call here"
        raise DeniedError(f"{identity.role} {identity.subject}", reason)


def create_token(
    token_store: TokenStore,
    role: Role,
    subject: str,
    *,
    now: float,
    lifetime: float | None = None,
    note: str = "",
) -> IssuedToken:
    """A new token for a role and its subject: an owner, a node, or a person.

    Raises:
        ConfigError: The name, the lifetime or the note is not allowed.
    """
    issued = draft_token(role, subject, now=now, lifetime=lifetime, note=note)
    keep_token(token_store, issued.credential)
    return issued


def draft_token(
    role: Role, subject: str, *, now: float, lifetime: float | None = None, note: str = ""
) -> IssuedToken:
    """A token that is not valid before `keep_token`.

    Raises:
        ConfigError: The name, the lifetime or the note is not allowed.
    """
    check_name("subject", subject)
    if lifetime is not None:
        check_number("lifetime", lifetime, above=True, high=MAX_LIFETIME)
    number, secret = secrets.token_hex(6), _random_text()
    credential = Credential(
        number,
        Role(role),
        subject,
        _digest(number, secret),
        _instant(now),
        None if lifetime is None else now + lifetime,
        note=check_note(note),
    )
    return IssuedToken(Secret(f"themis_{number}_{secret}"), credential)


def keep_token(token_store: TokenStore, credential: Credential) -> None:
    """Make a drafted token valid."""
    token_store.write(_PREFIX + credential.id, _row(credential))


def check_token(token_store: TokenStore, text: object, *, now: float) -> Identity:
    """The identity of a token.

    Raises:
        UnknownCallerError: It is not valid. Only a caller that knows the secret learns why.
    """
    found = TOKEN.fullmatch(text) if isinstance(text, str) and len(text) <= _MAX_TEXT else None
    if found is None:
        raise UnknownCallerError("caller", "no valid token")
    credential = find_credential(token_store, found[1])
    # Hashed and compared even if there is none, so that the time taken reveals no ids.
    kept = credential.digest if credential else "0" * 64
    same = hmac.compare_digest(kept, _digest(found[1], found[2]))
    if credential is None or not same:
        raise UnknownCallerError("caller", "no valid token")
    fault = credential.fault(now)
    if fault:
        raise UnknownCallerError(f"{credential.role} {credential.subject}", fault)
    return credential.identity


def check_bearer(token_store: TokenStore, header: object, *, now: float) -> Identity:
    """The identity in an `Authorization` header.

    Raises:
        UnknownCallerError: There is no valid token in it.
    """
    text = header if isinstance(header, str) else ""
    scheme, _, token = text.partition(" ")
    return check_token(token_store, token if scheme.lower() == "bearer" else None, now=now)


class VerifiedToken:
    """A token that was checked on this stream: later messages need no hash.

    It counts as checked while its row in the store is unchanged.
    """

    __slots__ = ("_credential", "_header", "_row")

    def __init__(self) -> None:
        self._header: object = None
        self._row: TokenRow | None = None
        self._credential: Credential | None = None

    def check(self, token_store: TokenStore, header: object, *, now: float) -> Identity:
        """The identity in an `Authorization` header, which is the same object every time.

        Raises:
            UnknownCallerError: There is no valid token in it, or none any more.
        """
        known = self._credential
        if known is not None and header is self._header:
            same = token_store.read(_PREFIX + known.id) is self._row
            if same and not known.fault(now):
                return known.identity
        self._credential = None
        identity = check_bearer(token_store, header, now=now)
        self._header, self._row = header, token_store.read(_PREFIX + identity.credential)
        self._credential = find_credential(token_store, identity.credential)
        return identity


def note_use(token_store: TokenStore, number: str, *, now: float) -> None:
    """Note that a token was used, at most once an hour."""
    used: Any = token_store.read(_USED + number)
    if used is not None and now - used["at"] < USE_NOTED_EVERY:
        return
    if find_credential(token_store, number) is None:
        return
    token_store.write(_USED + number, {"at": _instant(now)})


def revoke_token(token_store: TokenStore, number: str, *, now: float) -> Credential:
    """Revoke a token; a second time changes nothing.

    Raises:
        MissingError: There is no such token.
    """
    credential = find_credential(token_store, number)
    if credential is None:
        # If the caller gave the whole token for its id, it must not come back in a message.
        name = number if _is_id(number) else "token"
        raise MissingError(name, "no token has this id (the 12 characters after themis_)")
    if credential.revoked is None:
        credential = replace(credential, revoked=_instant(now))
        token_store.write(_PREFIX + credential.id, _row(credential))
    return credential


def forget_token(token_store: TokenStore, number: str) -> None:
    """Delete a token that no person has ever seen."""
    token_store.take(_PREFIX + number)
    token_store.take(_USED + number)


def find_credential(token_store: TokenStore, number: str) -> Credential | None:
    """The credential with this id, valid or not."""
    row = token_store.read(_PREFIX + number) if _is_id(number) else None
    return None if row is None else _credential(row, token_store.read(_USED + number))


def all_credentials(token_store: TokenStore) -> tuple[Credential, ...]:
    """All credentials, the oldest first."""
    found = [
        find_credential(token_store, key.removeprefix(_PREFIX)) for key in token_store.keys(_PREFIX)
    ]
    there = [item for item in found if item is not None]
    return tuple(sorted(there, key=lambda item: (item.created, item.id)))


def has_admin(token_store: TokenStore, *, now: float) -> bool:
    """Whether there is a valid admin token; if not, the service makes one at its start."""
    return any(
        item.role is Role.ADMIN and not item.fault(now) for item in all_credentials(token_store)
    )


def check_note(note: object) -> str:
    """A note on a credential: one line of at most 200 printable characters.

    Raises:
        ConfigError: It is something else, or has a token in it.
    """
    allowed = "one line of at most 200 printable characters"
    if not isinstance(note, str) or len(note) > 200 or not note.isprintable():
        raise ConfigError("note", "something else", allowed)
    if TOKEN.search(note):
        raise ConfigError("note", "a token", "words: notes are shown and logged")
    return note


def digest_of(purpose: str, secret: str) -> str:
    """The hash of a secret of 256 random bits, which needs neither salt nor a slow hash."""
    return hmac.digest(f"themis/{purpose}".encode(), secret.encode(), "sha256").hex()


def _digest(number: str, secret: str) -> str:
    # Bound to the id, so that a digest copied to another row proves nothing there.
    return digest_of(f"token/{number}", secret)


def _random_text() -> str:
    """43 letters and digits: 256 bits."""
    return "".join(secrets.choice(_LETTERS) for _ in range(43))


def _is_id(number: object) -> bool:
    return isinstance(number, str) and re.fullmatch(r"[0-9a-f]{12}", number) is not None


def _instant(now: float) -> float:
    if not math.isfinite(now):
        raise ConfigError("now", now, "a time")
    return float(now)


def _row(credential: Credential) -> TokenRow:
    return {
        "id": credential.id,
        "role": credential.role.value,
        "subject": credential.subject,
        "digest": credential.digest,
        "created": credential.created,
        "expires": credential.expires,
        "revoked": credential.revoked,
        "note": credential.note,
    }


def _credential(row: TokenRow, used: TokenRow | None) -> Credential:
    values: dict[str, Any] = dict(row)
    last: Any = used["at"] if used else None
    return Credential(**{**values, "role": Role(values["role"]), "used": last})


__all__ = [
    "HOST_NOTE",
    "MAX_LIFETIME",
    "TOKEN",
    "USE_NOTED_EVERY",
    "Credential",
    "Identity",
    "IssuedToken",
    "Role",
    "Secret",
    "TokenRow",
    "TokenStore",
    "VerifiedToken",
    "all_credentials",
    "check_bearer",
    "check_host",
    "check_note",
    "check_token",
    "create_token",
    "digest_of",
    "draft_token",
    "find_credential",
    "forget_token",
    "has_admin",
    "keep_token",
    "note_use",
    "revoke_token",
]
