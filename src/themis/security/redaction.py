"""Texts without secrets: for audit rows, logs and messages of errors.

log.addFilter(Redaction())
clean(text)                 # one short, printable line
"""

import logging
import re

from themis.recording.yaml_documents import shown as brief

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
