"""Who did what, when, and how it ended: rows that outlive the service and hold no secrets.

    row = audited(identity, Verb.CANCEL, "resnet-lr", at=now, outcome=Outcome.DONE)
    log.addFilter(Redaction())       # the same care for ordinary logs

Commands, environments and tokens of users never get here: a row has names, numbers and words of
ours. As a second line every text is searched for what looks like a secret.
"""

import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from themis.errors import ConfigError
from themis.live.access import Verb
from themis.live.credentials import Identity
from themis.live.store.base import AuditRow
from themis.records.documents import shown as brief

MAX_TEXT = 400
MOST_LOGGED = 10_000
"""Characters of a message, and of a traceback, that are logged."""
_MARGIN = 8192
"""Characters beyond those that are shown in which secrets are looked for: as long as a key is."""
_SHORT_MARGIN = 3 * MAX_TEXT

_SECRETS = (
    (re.compile(r"themis_([0-9a-f]{12})_[A-Za-z0-9]+"), r"themis_\1_***"),
    # Codes of login links and cookies.
    (re.compile(r"\b([0-9a-f]{12})-[0-9a-f]{64}\b"), r"\1-***"),
    (re.compile(r"(?i)\b(bearer|basic) +[A-Za-z0-9._~+/=-]{8,}"), r"\1 ***"),
    # Passwords in URLs of stores. From the beginning of a word: from each letter of a long one it
    # would take the square of its length.
    (re.compile(r"\b(\w{1,32}://[^\s:/@]*):[^\s/@]+@"), r"\1:***@"),
    (re.compile(r"(?i)\b(password|passwd|secret|api_?key)(['\"]?\s*[=:]\s*)\S+"), r"\1\2***"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(-----END [A-Z ]*-----|\Z)"), "***"),
)


class Outcome(StrEnum):
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
    outcome: Outcome = Outcome.DONE,
    details: Mapping[str, object] | None = None,
) -> AuditRow:
    """A row for the audit log, with everything in it made harmless.

    Raises:
        ConfigError: The time is none.
    """
    if not math.isfinite(at):
        raise ConfigError("at", at, "a time")
    told = ", ".join(f"{clean(key)}={clean(value)}" for key, value in (details or {}).items())
    return AuditRow(
        float(at), caller(identity), verb.value, clean(target), outcome.value, clean(told)
    )


def caller(identity: Identity | None) -> str:
    """Who calls, in one word: tenant/vision/3f09a1b2c3d4."""
    if identity is None:
        return "nobody"
    return f"{identity.role}/{identity.subject}/{identity.credential}"


def redact(text: str) -> str:
    """The text without what looks like a secret."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def _shortened(text: str, most: int, margin: int, *, last: bool = False) -> str:
    """The beginning of a text, or its end, without secrets; what is far away costs nothing.

    Half a secret looks like none. So what is looked at is longer than what is shown, and what
    stands where it was cut, a margin wide, is left out.
    """
    if len(text) <= most + margin:
        shown = redact(text)
        return shown[-most:] if last else shown[:most]
    if last:
        return redact(text[-most - margin :])[margin:][-most:]
    return redact(text[: most + margin])[:-margin][:most]


def clean(text: object) -> str:
    """A short text on one line that neither tells a secret nor steers a terminal."""
    # Integers of thousands of digits are no text to Python.
    given = brief(text) if isinstance(text, int) else text
    shown = _shortened(str(given), MAX_TEXT, _SHORT_MARGIN)
    return "".join(ch if ch.isprintable() else "\ufffd" for ch in shown)


@dataclass(slots=True)
class _Window:
    """What was refused again within a minute of a row that was written."""

    row: AuditRow
    more: int = 0


class Refusals:
    """Rows for what was refused: a flood of it must not fill the store.

    The first of a caller, verb and outcome is written at once; those of the next minute are
    counted, and their number written when the minute is over and somebody asks (`due`), or at the
    end (`close`).
    """

    def __init__(self, seconds: float = 60.0, most: int = 10_000) -> None:
        self._seconds = seconds
        self._most = most
        self._windows: dict[tuple[str, str, str], _Window] = {}
        """In the order in which they began."""

    def note(self, row: AuditRow) -> list[AuditRow]:
        """The rows to be written because of this one."""
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
        """The rows of minutes that are over."""
        rows: list[AuditRow] = []
        for key, window in list(self._windows.items()):
            # Over as well when the clock was set back: nothing may be counted for ever.
            if window.row.at <= now < window.row.at + self._seconds:
                break
            rows += self._ended(key, now)
        return rows

    def close(self, now: float) -> list[AuditRow]:
        """The rows of all that was counted: nobody will ask for them later."""
        return [row for key in list(self._windows) for row in self._ended(key, now)]

    def _ended(self, key: tuple[str, str, str], now: float) -> list[AuditRow]:
        window = self._windows.pop(key)
        if not window.more:
            return []
        detail = f"{window.more} more of the kind within {self._seconds:g} s"
        return [replace(window.row, at=now, target="", detail=detail)]


class Redaction(logging.Filter):
    """Takes secrets out of log records, whoever wrote them."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, cleaned; its arguments and its traceback too."""
        record.msg = _shortened(record.getMessage(), MOST_LOGGED, _MARGIN)
        record.args = None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = _shortened(record.exc_text, MOST_LOGGED, _MARGIN, last=True)
        return True
