"""Who calls: tokens, and what is kept of them.

    issued = create_token(vault, Role.TENANT, "vision", now=now, lifetime=90 * 86400)
    print(issued.token.reveal())                     # themis_3f09..._..., shown once
    check_token(vault, text_from_the_caller, now=now)    # Identity(role=TENANT, subject="vision")

A token is `themis_<id>_<secret>`: the id finds the row, the secret (256 random bits) proves it. At
rest there is only a hash, bound to the id. Who somebody is follows from the credential and from
nothing else in a message.
"""

import hmac
import math
import re
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from themis.config.secret import TOKEN, Secret
from themis.core.model.ids import check_name, check_number
from themis.errors import ConfigError, DeniedError, MissingError, UnknownCallerError

Row = Mapping[str, str | float | None]
"""What is kept under one key: plain JSON."""

_PREFIX = "credential/"
_USED = "used/"
"""In rows of their own: noting a use must not undo a revocation that happens meanwhile."""
_LETTERS = string.ascii_letters + string.digits
_MAX_TEXT = 256
MAX_LIFETIME = 10 * 366 * 86400.0
HOST_NOTE = "agents of the service"
"""Of the tokens that the service gives to agents that it starts."""
USE_NOTED_EVERY = 3600.0
"""Not every use is worth a write to the store; the hour of the last one is."""


class Role(StrEnum):
    """What a credential is for. Each credential has one."""

    VIEWER = "viewer"
    """Looks, with the eyes of its subject."""
    TENANT = "tenant"
    """Submits apps and speaks for them; its subject is their owner."""
    NODE = "node"
    """Speaks for the one machine that is its subject."""
    ADMIN = "admin"
    """Runs the cluster."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls, as the credential says."""

    role: Role
    subject: str
    credential: str
    """The id of the token, which is no secret: for the audit log."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What is kept of a token. Times are seconds since 1970."""

    id: str
    role: Role
    subject: str
    digest: str = field(repr=False)
    created: float
    expires: float | None = None
    revoked: float | None = None
    used: float | None = None
    """About when it was last used."""
    note: str = ""

    @property
    def identity(self) -> Identity:
        """Whom it stands for."""
        return Identity(self.role, self.subject, self.id)

    def fault(self, now: float) -> str:
        """Why it is not valid at this time; empty if it is."""
        if self.revoked is not None:
            return "this token was revoked"
        if self.expires is not None and now >= self.expires:
            return "this token has expired"
        return ""


@dataclass(frozen=True, slots=True)
class Issued:
    """A new token, this once, and what is kept of it."""

    token: Secret
    credential: Credential


class TokenStore(Protocol):
    """Rows that outlive the service. Each call is whole and durable when it returns."""

    def read(self, key: str) -> Row | None:
        """The row under this key."""

    def keys(self, prefix: str) -> Sequence[str]:
        """All keys that begin so, sorted."""

    def write(self, key: str, row: Row) -> None:
        """Put a row, or another in its place."""

    def take(self, key: str) -> Row | None:
        """Remove a row and return it. Of several callers at most one gets it."""


def check_host(vault: TokenStore, identity: Identity) -> None:
    """Let pass only agents that the service itself has started.

    Raises:
        DeniedError: Somebody else's token.
    """
    credential = find(vault, identity.credential)
    if credential is None or credential.role is not Role.TENANT or credential.note != HOST_NOTE:
        reason = "only agents that the service started may call here"
        raise DeniedError(f"{identity.role} {identity.subject}", reason)


def create_token(
    vault: TokenStore,
    role: Role,
    subject: str,
    *,
    now: float,
    lifetime: float | None = None,
    note: str = "",
) -> Issued:
    """A new token for a role and its subject: an owner, a node, or a person.

    Raises:
        ConfigError: A name, a lifetime or a note that cannot be.
    """
    issued = draft_token(role, subject, now=now, lifetime=lifetime, note=note)
    keep_token(vault, issued.credential)
    return issued


def draft_token(
    role: Role, subject: str, *, now: float, lifetime: float | None = None, note: str = ""
) -> Issued:
    """A token that nobody knows of yet: worth something from `keep_token` on.

    Raises:
        ConfigError: A name, a lifetime or a note that cannot be.
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
    return Issued(Secret(f"themis_{number}_{secret}"), credential)


def keep_token(vault: TokenStore, credential: Credential) -> None:
    """Make a drafted token valid."""
    vault.write(_PREFIX + credential.id, _row(credential))


def check_token(vault: TokenStore, text: object, *, now: float) -> Identity:
    """Who presents this token.

    Raises:
        UnknownCallerError: It is none, or not valid. Only who knows the secret is told why.
    """
    found = TOKEN.fullmatch(text) if isinstance(text, str) and len(text) <= _MAX_TEXT else None
    if found is None:
        raise UnknownCallerError("caller", "no valid token")
    credential = find(vault, found[1])
    # Hashed and compared even if there is none, so that the time taken tells nothing of ids.
    kept = credential.digest if credential else "0" * 64
    same = hmac.compare_digest(kept, _digest(found[1], found[2]))
    if credential is None or not same:
        raise UnknownCallerError("caller", "no valid token")
    fault = credential.fault(now)
    if fault:
        raise UnknownCallerError(f"{credential.role} {credential.subject}", fault)
    return credential.identity


def check_bearer(vault: TokenStore, header: object, *, now: float) -> Identity:
    """Who sends this `Authorization` header.

    Raises:
        UnknownCallerError: There is no valid token in it.
    """
    text = header if isinstance(header, str) else ""
    scheme, _, token = text.partition(" ")
    return check_token(vault, token if scheme.lower() == "bearer" else None, now=now)


class VerifiedToken:
    """That somebody on a stream has shown a token: the next message need not be hashed again.

    It holds while nothing at all has changed in what is kept of the token.
    """

    __slots__ = ("_credential", "_header", "_row")

    def __init__(self) -> None:
        self._header: object = None
        self._row: Row | None = None
        self._credential: Credential | None = None

    def check(self, vault: TokenStore, header: object, *, now: float) -> Identity:
        """Who sends this `Authorization` header, which is the same object every time.

        Raises:
            UnknownCallerError: There is no valid token in it, or none any more.
        """
        known = self._credential
        if known is not None and header is self._header:
            same = vault.read(_PREFIX + known.id) is self._row
            if same and not known.fault(now):
                return known.identity
        self._credential = None
        identity = check_bearer(vault, header, now=now)
        self._header, self._row = header, vault.read(_PREFIX + identity.credential)
        self._credential = find(vault, identity.credential)
        return identity


def note_use(vault: TokenStore, number: str, *, now: float) -> None:
    """Keep that a token was used, if that is news by an hour."""
    used: Any = vault.read(_USED + number)
    if used is not None and now - used["at"] < USE_NOTED_EVERY:
        return
    if find(vault, number) is None:
        return
    vault.write(_USED + number, {"at": _instant(now)})


def revoke_token(vault: TokenStore, number: str, *, now: float) -> Credential:
    """End a token for good; a second time changes nothing.

    Raises:
        MissingError: There is no such token.
    """
    credential = find(vault, number)
    if credential is None:
        # A whole token given in place of its id must not come back in a message.
        name = number if _is_id(number) else "token"
        raise MissingError(name, "no token has this id (the 12 characters after themis_)")
    if credential.revoked is None:
        credential = replace(credential, revoked=_instant(now))
        vault.write(_PREFIX + credential.id, _row(credential))
    return credential


def forget_token(vault: TokenStore, number: str) -> None:
    """Remove a token altogether: for those that people never saw."""
    vault.take(_PREFIX + number)
    vault.take(_USED + number)


def find(vault: TokenStore, number: str) -> Credential | None:
    """The credential with this id, valid or not."""
    row = vault.read(_PREFIX + number) if _is_id(number) else None
    return None if row is None else _credential(row, vault.read(_USED + number))


def tokens(vault: TokenStore) -> tuple[Credential, ...]:
    """All credentials, the oldest first."""
    found = [find(vault, key.removeprefix(_PREFIX)) for key in vault.keys(_PREFIX)]
    there = [item for item in found if item is not None]
    return tuple(sorted(there, key=lambda item: (item.created, item.id)))


def has_admin(vault: TokenStore, *, now: float) -> bool:
    """Whether anybody can run the cluster; if not, the service makes a token at its start."""
    return any(item.role is Role.ADMIN and not item.fault(now) for item in tokens(vault))


def check_note(note: object) -> str:
    """A remark on a credential: one line of at most 200 printable characters.

    Raises:
        ConfigError: It is not, or a token is in it.
    """
    allowed = "one line of at most 200 printable characters"
    if not isinstance(note, str) or len(note) > 200 or not note.isprintable():
        raise ConfigError("note", "something else", allowed)
    if TOKEN.search(note):
        raise ConfigError("note", "a token", "words: notes are shown and logged")
    return note


def digest_of(purpose: str, secret: str) -> str:
    """What is kept of a secret of 256 random bits; no salt or slow hash would add anything."""
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


def _row(credential: Credential) -> Row:
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


def _credential(row: Row, used: Row | None) -> Credential:
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
    "Issued",
    "Role",
    "Row",
    "Secret",
    "TokenStore",
    "VerifiedToken",
    "check_bearer",
    "check_host",
    "check_note",
    "check_token",
    "create_token",
    "digest_of",
    "draft_token",
    "find",
    "forget_token",
    "has_admin",
    "keep_token",
    "note_use",
    "revoke_token",
    "tokens",
]
