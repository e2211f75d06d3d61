"""Log lines for people or for programs, with the request and the round that they belong to.

    start_logging("info", "json")
    with marked(request=request_id(given)):
        log.info("quota of %s is %d", owner, quota)     # {..., "request": "3f09a1b2c3d4"}

A message cannot end its line, steer a terminal or imitate another line: such characters are
written as escapes. That is the second line of defence; the caller limits the length of a message
and cleans names in it.
"""

import json
import logging
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from themis.security.redaction import RedactionFilter, redact

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_HARMLESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")

_request: ContextVar[str] = ContextVar("request", default="")
_round: ContextVar[int | None] = ContextVar("round", default=None)


def request_id(given: object = None) -> str:
    """The id of a request: the caller's own, if it is harmless, else a new one.

    One that looks like a secret is not taken: others read the log.
    """
    if isinstance(given, str) and _HARMLESS.fullmatch(given) and redact(given) == given:
        return given
    return secrets.token_hex(6)


def report_id(node: str, boot: int, number: int) -> str:
    """The id of a node's report, which node and service make alike."""
    return f"{node}.{boot}.{number}"


def current_request() -> str:
    """The id of the request in progress, or an empty text."""
    return _request.get()


@contextmanager
def marked(*, request: str | None = None, round: int | None = None) -> Iterator[None]:  # noqa: A002 - as the field is called
    """Mark all lines written inside with a request and a round.

    Args:
        request: Its id; None leaves it as it is, empty is no request.
        round: Its number; None for no round.
    """
    before = _request.set(_request.get() if request is None else request)
    outer = _round.set(round)
    try:
        yield
    finally:
        _round.reset(outer)
        _request.reset(before)


class Marks(logging.Filter):
    """Puts request and round on every record, where it is written."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass."""
        record.request = _request.get()
        record.round = _round.get()
        return True


class TextLines(logging.Formatter):
    """Lines for people; those of a traceback are indented."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        """The line, with request and round at its end."""
        message = escaped(record.getMessage())
        told = [f"{name}={value}" for name, value in _marks_of(record).items()]
        marks = f" [{escaped(' '.join(told))}]" if told else ""
        stamp = self.formatTime(record)
        lines = [f"{stamp} {record.levelname} {record.name}: {message}{marks}"]
        lines += [f"    {escaped(line)}" for line in _trace_of(self, record).splitlines()]
        return "\n".join(lines)


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The object, in ASCII: no character in it can steer a terminal."""
        told: dict[str, object] = {
            "at": record.created,
            "level": record.levelname.lower(),
            "from": record.name,
            "what": record.getMessage(),
            **_marks_of(record),
        }
        trace = _trace_of(self, record)
        if trace:
            told["trace"] = trace
        return json.dumps(told)


def escaped(text: str) -> str:
    r"""A text on one line: what does not print is written as \n, \x1b or \u202e."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else ascii(ch)[1:-1] for ch in text)


def start_logging(log_level: str, log_format: str) -> None:
    """Log to standard error, without secrets.

    Args:
        log_level: The least level of lines of Themis; libraries only warn.
        log_format: `text` for people or `json` for programs.
    """
    # gRPC writes to standard error by itself, also when nothing is wrong.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    handler = logging.StreamHandler()
    handler.addFilter(Marks())
    handler.addFilter(RedactionFilter())
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("themis").setLevel(log_level.upper())


def _marks_of(record: logging.LogRecord) -> dict[str, object]:
    marks = {name: getattr(record, name, None) for name in ("request", "round")}
    return {name: value for name, value in marks.items() if value not in (None, "")}


def _trace_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    text = record.exc_text or ""
    if not text and record.exc_info:
        text = formatter.formatException(record.exc_info)
    return text
