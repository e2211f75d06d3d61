"""Texts without secrets: for audit rows, logs and messages of errors.

log.addFilter(RedactionFilter())
clean(text)                 # one short, printable line
"""

import logging
import re

from themis.recording.yaml_documents import shown as brief

MAX_TEXT = 400
MOST_LOGGED = 10_000
"""Characters of a message, and of a traceback, that are logged."""
_MARGIN = 8192
"""Characters beyond the shown ones that are searched for secrets: as long as a key is."""
_SHORT_MARGIN = 3 * MAX_TEXT

_SECRETS = (
    (re.compile(r"themis_([0-9a-f]{12})_[A-Za-z0-9]+"), r"themis_\1_***"),
    # Codes of login links and cookies.
    (re.compile(r"\b([0-9a-f]{12})-[0-9a-f]{64}\b"), r"\1-***"),
    (re.compile(r"(?i)\b(bearer|basic) +[A-Za-z0-9._~+/=-]{8,}"), r"\1 ***"),
    # Passwords in URLs of stores. From the start of a word: trying each letter of a long one would
    # take time quadratic in its length.
    (re.compile(r"\b(\w{1,32}://[^\s:/@]*):[^\s/@]+@"), r"\1:***@"),
    (re.compile(r"(?i)\b(password|passwd|secret|api_?key)(['\"]?\s*[=:]\s*)\S+"), r"\1\2***"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(-----END [A-Z ]*-----|\Z)"), "***"),
)


def redact(text: str) -> str:
    """The text without what looks like a secret."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def _shortened(text: str, most: int, margin: int, *, last: bool = False) -> str:
    """The beginning of a text, or its end, without secrets; the rest costs no time.

    A secret that was cut in half is not recognised. So a margin beyond the shown part is searched
    too, and then left out.
    """
    if len(text) <= most + margin:
        shown = redact(text)
        return shown[-most:] if last else shown[:most]
    if last:
        return redact(text[-most - margin :])[margin:][-most:]
    return redact(text[: most + margin])[:-margin][:most]


def clean(text: object) -> str:
    """A short text on one line, without secrets and without control characters."""
    # Python does not convert integers of thousands of digits.
    given = brief(text) if isinstance(text, int) else text
    shown = _shortened(str(given), MAX_TEXT, _SHORT_MARGIN)
    return "".join(ch if ch.isprintable() else "\ufffd" for ch in shown)


class RedactionFilter(logging.Filter):
    """Removes secrets from log records of all libraries."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Clean the message, arguments and traceback of a record; every record passes."""
        record.msg = _shortened(record.getMessage(), MOST_LOGGED, _MARGIN)
        record.args = None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = _shortened(record.exc_text, MOST_LOGGED, _MARGIN, last=True)
        return True
