"""Rows of the audit log: the caller, the verb, the target and the outcome, without secrets.

    row = audited(identity, Verb.CANCEL, "resnet-lr", at=now, outcome=CallOutcome.DONE)

Commands, environments and tokens of users never get here: a row has names, numbers and texts of the
service. As a second defence, whatever looks like a secret is removed from every text.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from themis.errors import ConfigError
from themis.security.permissions import Verb
from themis.security.redaction import clean
from themis.security.tokens import Identity


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One call, and how it ended."""

    at: float
    """Seconds since 1970."""
    who: str
    """Role, subject and id of the credential (no secret); `nobody` without one."""
    verb: str
    target: str
    outcome: str
    detail: str = ""


class CallOutcome(StrEnum):
    """How a call ended."""

    DONE = "done"
    DENIED = "denied"
    REFUSED = "refused"
    FAILED = "failed"


def audited(
    identity: Identity | None,
    verb: Verb,
    target: str = "",
    *,
    at: float,
    outcome: CallOutcome = CallOutcome.DONE,
    details: Mapping[str, object] | None = None,
) -> AuditRow:
    """A row for the audit log, with all texts cleaned.

    Raises:
        ConfigError: The time is not finite.
    """
    if not math.isfinite(at):
        raise ConfigError("at", at, "a time")
    detail = ", ".join(f"{clean(key)}={clean(value)}" for key, value in (details or {}).items())
    return AuditRow(
        float(at), caller(identity), verb.value, clean(target), outcome.value, clean(detail)
    )


def caller(identity: Identity | None) -> str:
    """The caller in one word: tenant/vision/3f09a1b2c3d4."""
    if identity is None:
        return "nobody"
    return f"{identity.role}/{identity.subject}/{identity.credential}"


@dataclass(slots=True)
class _Window:
    """Refusals that repeat a written row within a minute."""

    row: AuditRow
    more: int = 0


class RefusalCounter:
    """Rows for refused calls, few enough that a flood of them cannot fill the store.

    The first refusal of a caller, verb and outcome is written at once. Those of the next minute are
    counted; their number is written by a later call of `note` or `due`, or by `close`.
    """

    def __init__(self, seconds: float = 60.0, most: int = 10_000) -> None:
        self._seconds = seconds
        self._most = most
        self._windows: dict[tuple[str, str, str], _Window] = {}
        """The oldest first."""

    def note(self, row: AuditRow) -> list[AuditRow]:
        """The rows to write because of this refusal."""
        rows = self.due(row.at)
        key = (row.who, row.verb, row.outcome)
        known = self._windows.get(key)
        if known is not None:
            known.more += 1
            return rows
        self._windows[key] = _Window(row)
        if len(self._windows) > self._most:
            rows += self._ended(next(iter(self._windows)), row.at)
        return [*rows, row]

    def due(self, now: float) -> list[AuditRow]:
        """The rows of minutes that have passed."""
        rows: list[AuditRow] = []
        for key, window in list(self._windows.items()):
            # A clock that was set back also ends a minute: nothing may be counted for ever.
            if window.row.at <= now < window.row.at + self._seconds:
                break
            rows += self._ended(key, now)
        return rows

    def close(self, now: float) -> list[AuditRow]:
        """The rows of everything that was counted, at the end of the service."""
        return [row for key in list(self._windows) for row in self._ended(key, now)]

    def _ended(self, key: tuple[str, str, str], now: float) -> list[AuditRow]:
        window = self._windows.pop(key)
        if not window.more:
            return []
        detail = f"{window.more} more of the kind within {self._seconds:g} s"
        return [replace(window.row, at=now, target="", detail=detail)]
