"""Audit rows and logs: who did what, and never a secret."""

import io
import logging
from dataclasses import replace

import pytest

from tests.support.memory_token_store import MemoryTokenStore
from themis.errors import ConfigError
from themis.security.audit import AuditRow, CallOutcome, RefusalCounter, audited
from themis.security.browser_sessions import make_link
from themis.security.permissions import Verb
from themis.security.redaction import MAX_TEXT, MOST_LOGGED, RedactionFilter, clean, redact
from themis.security.tokens import Identity, Role, create_token

TOKEN = create_token(MemoryTokenStore(), Role.TENANT, "vision", now=1.0).token.reveal()
WHO = Identity(Role.TENANT, "vision", "0123456789ab")
OTHER = Identity(Role.TENANT, "speech", "ba9876543210")
LINK = make_link(MemoryTokenStore(), WHO, now=1.0).reveal()


def test_audit_row_names_caller_action_object_and_outcome() -> None:
    row = audited(WHO, Verb.CANCEL, "resnet", at=5, outcome=CallOutcome.DENIED, details={"by": "x"})
    assert row.who == "tenant/vision/0123456789ab"
    assert (row.verb, row.target, row.outcome, row.detail) == ("cancel", "resnet", "denied", "by=x")
    assert audited(None, Verb.STATUS, at=5).who == "nobody"


@pytest.mark.parametrize(
    "text",
    [
        TOKEN,
        f"Authorization: Bearer {TOKEN}",
        "authorization: bearer abcdef0123456789",
        f"GET /login/{LINK} HTTP/1.1",
        "postgresql://themis:abcdef0123456789@db/themis",
        "postgresql://db/themis?password=abcdef0123456789",
        "{'password': 'abcdef0123456789'}",
        "API_KEY=abcdef0123456789",
        "-----BEGIN PRIVATE KEY-----\nabcdef0123456789\n-----END PRIVATE KEY-----",
        "-----BEGIN EC PRIVATE KEY-----\nabcdef0123456789",
    ],
    ids=range(10),  # secrets are made anew for every run, and no name should hold one
)
def test_secrets_are_taken_out(text: str) -> None:
    row = audited(WHO, Verb.SUBMIT, text, at=1.0, details={"why": text, text: 1})
    for shown in (redact(text), repr(row)):
        assert TOKEN not in shown
        assert LINK not in shown
        assert "abcdef0123456789" not in shown


def test_the_id_of_a_token_stays_so_that_it_can_be_revoked() -> None:
    assert redact(TOKEN) == TOKEN.rpartition("_")[0] + "_***"


def test_a_text_that_is_cut_does_not_lose_its_disguise() -> None:
    for before in range(MAX_TEXT - 70, MAX_TEXT + 1):
        assert TOKEN[20:26] not in clean("." * before + TOKEN)


def test_rows_are_short_and_do_not_steer_terminals() -> None:
    row = audited(WHO, Verb.SUBMIT, "a\x1b[2Jb\n\0" + "x" * 10**6, at=1.0)
    assert row.target.isprintable()
    assert len(row.target) <= MAX_TEXT


def test_code_is_never_shown_in_part() -> None:
    for before in range(MAX_TEXT - 80, MAX_TEXT + 1):
        assert LINK[13:21] not in clean("." * before + " " + LINK)


def test_huge_numbers_are_described_in_words() -> None:
    row = audited(WHO, Verb.QUOTA_SET, at=1.0, details={"gpus": 10**5000})
    assert row.detail == "gpus=an integer of more than 18 digits"


@pytest.mark.parametrize("at", [float("nan"), float("inf")])
def test_a_row_has_a_time(at: float) -> None:
    with pytest.raises(ConfigError):
        audited(WHO, Verb.SUBMIT, at=at)


def test_logs_hold_no_secrets_in_messages_arguments_or_tracebacks() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(RedactionFilter())
    logger = logging.getLogger("themis.test.redaction")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    logger.info("from %s with %d", TOKEN, 7)
    try:
        raise ValueError(TOKEN)
    except ValueError:
        logger.exception("failed")
    text = stream.getvalue()
    assert TOKEN not in text
    assert "with 7" in text
    assert "ValueError" in text


KEY = "-----BEGIN PRIVATE KEY-----\n" + "abcdef0123\n" * 300 + "-----END PRIVATE KEY-----"


@pytest.mark.parametrize("secret", [TOKEN, KEY], ids=["token", "key"])
@pytest.mark.parametrize(
    "around", ["", f"bearer {'y' * 1500} " * 20], ids=["alone", "among others"]
)
def test_logs_are_cut_where_no_secret_is(secret: str, around: str) -> None:
    part = secret[-36:-30]
    for more in range(0, len(secret), 1 + len(secret) // 20):
        for plain in (MOST_LOGGED - more, MOST_LOGGED + 8192 - len(around) - more):
            record = logging.LogRecord("x", 20, "x", 1, around + "." * plain + secret, (), None)
            record.exc_text = secret + "." * plain + around
            assert RedactionFilter().filter(record)
            for shown in (record.getMessage(), record.exc_text):
                assert part not in shown
                assert len(shown) <= MOST_LOGGED


def test_long_message_is_logged_at_its_head_and_traceback_at_its_tail() -> None:
    record = logging.LogRecord("x", 20, "x", 1, "a" + "." * 10**6 + "b", (), None)
    record.exc_text = "a" + "." * 10**6 + "b"
    RedactionFilter().filter(record)
    message, traceback = record.getMessage(), record.exc_text
    assert (message[0], len(message)) == ("a", MOST_LOGGED)
    assert (traceback[-1], len(traceback)) == ("b", MOST_LOGGED)


def refused(who: Identity, at: float, verb: Verb = Verb.CANCEL) -> AuditRow:
    return audited(who, verb, "resnet", at=at, outcome=CallOutcome.REFUSED)


def test_repeated_refusals_are_counted() -> None:
    refusals = RefusalCounter()
    assert refusals.note(refused(WHO, 0.0)) == [refused(WHO, 0.0)]
    assert [refusals.note(refused(WHO, at)) for at in (1.0, 59.0)] == [[], []]
    # Another verb, and another caller, are others.
    for row in (refused(WHO, 59.0, Verb.SUBMIT), refused(OTHER, 59.0)):
        assert refusals.note(row) == [row]
    assert refusals.due(59.9) == []
    (told,) = refusals.due(60.0)
    assert (told.at, told.who, told.verb) == (60.0, refused(WHO, 0.0).who, "cancel")
    assert told.detail == "2 more of the kind within 60 s"
    assert refusals.due(1000.0) == []


def test_counted_refusals_are_written_at_the_end() -> None:
    refusals = RefusalCounter()
    for row in (refused(WHO, 0.0), refused(WHO, 1.0), refused(OTHER, 2.0)):
        refusals.note(row)
    (told,) = refusals.close(3.0)
    assert (told.at, told.who, told.detail) == (
        3.0, refused(WHO, 0.0).who, "1 more of the kind within 60 s"
    )  # fmt: skip
    assert refusals.close(100.0) == []


def test_invented_callers_use_bounded_memory_and_clock_steps_end_a_minute() -> None:
    refusals = RefusalCounter(most=2)
    rows = [refused(replace(WHO, credential=f"{number:012}"), 5.0) for number in range(4)]
    assert [refusals.note(row) for row in rows] == [[row] for row in rows]
    assert len(refusals._windows) == 2
    refusals.note(rows[-1])
    assert [row.detail for row in refusals.due(1.0)] == ["1 more of the kind within 60 s"]
