"""Lines of logs: ids of requests and rounds on them, and nothing that somebody else could forge."""

import asyncio
import io
import json
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.grpc_service import open_world
from tests.support.http_service import http_service
from themis.core.arbiter import Settings
from themis.core.model import Machine
from themis.errors import DeniedError
from themis.node.reporter import ServiceReporter
from themis.ops.log_format import JsonLines, Marks, TextLines, marked, request_id
from themis.protocol.node_messages import NodeReport, SlotReport, SlotState
from themis.rpc.client import Connection
from themis.rpc.methods import REPORT, REPORTS, REQUEST_ID
from themis.rpc.wire import to_bytes
from themis.security.redaction import RedactionFilter
from themis.security.tokens import Role
from themis.service.http.request_ids import HEADER

TOKEN = "themis_0123456789ab_" + "a" * 32
HOSTILE = [
    pytest.param("x\n2026-01-01 00:00:00 INFO themis: root logged in", id="a line of its own"),
    pytest.param("\x1b[2J\x1b]0;title\x07", id="escapes"),
    pytest.param("\u202eevil\u2066", id="from right to left"),
    pytest.param("\r\x00\x85\u2028", id="other ends of lines"),
    pytest.param("\ud800", id="half a character"),
]


@contextmanager
def logged(formatter: logging.Formatter, level: int = logging.DEBUG) -> Iterator[io.StringIO]:
    """What the service would write to standard error meanwhile."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(Marks())
    handler.addFilter(RedactionFilter())
    handler.setFormatter(formatter)
    root = logging.getLogger("themis")
    before, passed_on = root.level, root.propagate
    root.addHandler(handler)
    root.setLevel(level)
    # Not for pytest too: a worker cannot tell half a character to who gathers the reports.
    root.propagate = False
    try:
        yield out
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        root.propagate = passed_on


def objects(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


# Form


@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_text_is_one_harmless_line_in_both_forms(evil: str) -> None:
    log = logging.getLogger("themis.test")
    with logged(TextLines()) as text, logged(JsonLines()) as data, marked(request="r", round=3):
        log.warning("app %s failed", evil)
    [line] = text.getvalue().removesuffix("\n").split("\n")
    assert line.isprintable()
    assert line.endswith(" [request=r round=3]")
    [told] = objects(data)
    assert data.getvalue().isascii()
    assert (told["what"], told["request"], told["round"]) == (f"app {evil} failed", "r", 3)


def test_a_traceback_cannot_pass_for_lines_of_the_log() -> None:
    with logged(TextLines()) as text, logged(JsonLines()) as data:
        try:
            raise ValueError("x\n2026-01-01 00:00:00 INFO themis: all is well\x1b[2J " + TOKEN)
        except ValueError:
            logging.getLogger("themis.test").exception("it failed")
    first, *others = text.getvalue().removesuffix("\n").split("\n")
    assert first.endswith("themis.test: it failed")
    assert others
    assert all(line.startswith("    ") and line.isprintable() for line in others)
    [told] = objects(data)
    assert "ValueError" in told["trace"]
    assert "a" * 32 not in text.getvalue() + data.getvalue()


def test_a_message_of_megabytes_is_cut() -> None:
    with logged(JsonLines()) as data, logged(TextLines()) as text:
        logging.getLogger("themis.test").warning("%s", "y" * 10_000_000)
    assert max(len(data.getvalue()), len(text.getvalue())) < 11_000


def test_lines_outside_of_requests_and_rounds_say_nothing_of_them() -> None:
    with logged(TextLines()) as text, logged(JsonLines()) as data:
        logging.getLogger("themis.test").warning("round %d", 3)
    assert text.getvalue().endswith("round 3\n")
    assert objects(data)[0].keys() == {"at", "level", "from", "what"}


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("ci-run_17.a:b", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("", False),
        ("-x", False),
        ("a b", False),
        ("a\n", False),
        ("é", False),
        (b"bytes", False),
        (TOKEN[:60], False),
        ("0123456789ab-" + "0" * 51, True),
    ],
)
def test_only_a_harmless_id_of_the_caller_is_taken(given: Any, *, taken: bool) -> None:
    assert (request_id(given) == given) is taken
    assert request_id(given).isprintable()


# HTTP


def test_every_answer_has_an_id_and_the_log_has_it_too(tmp_path: Path) -> None:
    async def work() -> list[str]:
        async with http_service(tmp_path) as http:
            submitted = await http.submit("ann", "sweep", "ann")
            missing = await http.call("ann", "GET", "/v1/nothing")
            stranger = await http.call("", "GET", "/v1/apps")
            own = await http.client.get("/v1/health", headers={HEADER: "mine-1"})
            evil = await http.client.get("/v1/health", headers={HEADER: TOKEN})
            answers = (submitted, missing, stranger, own, evil)
            assert [answer.status_code for answer in answers[1:3]] == [404, 401]
            return [answer.headers[HEADER] for answer in answers]

    with logged(JsonLines(), logging.INFO) as data:
        ids = asyncio.run(work())
    assert len(set(ids)) == 5
    assert ids[3] == "mine-1"
    assert "themis_" not in ids[4]
    mine = [line["what"] for line in objects(data) if line.get("request") == ids[0]]
    assert "app sweep of ann is submitted: 2 jobs" in mine
    assert any(text.startswith("POST /v1/apps: 20") for text in mine), mine
    # Anybody can read as often as they like: that is no line unless somebody looks closely.
    assert not [line for line in objects(data) if line.get("request") in ids[1:]]


def test_unexpected_error_is_reported_under_a_generated_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> Any:
        async with http_service(tmp_path) as http:
            monkeypatch.setattr(http.service, "now", lambda: 1 / 0)
            token = http.tokens["ann"]
            headers = {HEADER: "mine-1", "authorization": f"Bearer {token}"}
            answer = await http.client.get("/v1/apps", headers=headers)
            monkeypatch.undo()
            return answer

    with logged(JsonLines(), logging.INFO) as data:
        answer = asyncio.run(work())
    reference = answer.json()["reference"]
    assert "mine-1" not in reference
    [line] = [line for line in objects(data) if line.get("trace")]
    assert reference in line["what"]
    assert line["request"] == answer.headers[HEADER] == "mine-1"
    assert "ZeroDivisionError" in line["trace"]


# Rounds


def test_round_log_lines_have_a_number_and_timers_no_request_id(tmp_path: Path) -> None:
    async def work() -> str:
        async with http_service(tmp_path) as http:
            answer = await http.submit("ann", "sweep", "ann")
            async with asyncio.timeout(30):
                while not http.service.rounds.numbers():
                    await asyncio.sleep(0.01)
            return str(answer.headers[HEADER])

    with logged(JsonLines()) as data:
        submitted = asyncio.run(work())
    rounds = [line for line in objects(data) if " ended (" in line["what"]]
    assert [line["round"] for line in rounds[:1]] == [1]
    assert "request" not in rounds[0], (rounds[0], submitted)


# gRPC, and nodes


def report_of(number: int) -> NodeReport:
    slots = (SlotReport(0, 0, SlotState.EMPTY),)
    return NodeReport("m0", 7, number, 0, 0, slots, (), Machine("m0", "r0", (1,)))


def test_calls_and_streams_return_their_request_ids_and_reports_use_the_nodes(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with (
            asyncio.timeout(60),
            open_world(tmp_path, settings=Settings(heartbeat=0.05)) as world,
        ):
            connection = world.connection(Role.NODE, "m0")
            shown = (*connection.metadata(), (REQUEST_ID, "mine-2"))
            await _call(connection, shown)
            await _stream(connection, shown)
            await _stranger(connection)

    async def _call(connection: Connection, shown: Any) -> None:
        call = connection._open().unary_unary(REPORT.path)(to_bytes(report_of(1)), metadata=shown)
        await call
        assert dict(await call.trailing_metadata())[REQUEST_ID] == "mine-2"

    async def _stream(connection: Connection, shown: Any) -> None:
        stream = connection._open().stream_stream(REPORTS.path)(metadata=shown)
        assert dict(await stream.initial_metadata())[REQUEST_ID] == "mine-2"
        await stream.write(to_bytes(report_of(2)))
        await stream.read()
        stream.cancel()

    async def _stranger(connection: Connection) -> None:
        call = connection._open().unary_unary(REPORT.path)(b"")
        with pytest.raises(grpc.aio.AioRpcError):
            await call
        assert len(dict(await call.trailing_metadata())[REQUEST_ID]) == 12

    with logged(JsonLines()) as data:
        asyncio.run(work())
    told = [(line["what"], line.get("request")) for line in objects(data)]
    calls = [request for what, request in told if what.startswith("/themis.v1.Nodes/")]
    assert calls == ["mine-2", "mine-2.1"]


def test_a_node_names_its_reports_as_the_service_does() -> None:
    class Refusing:
        async def report(self, report: NodeReport) -> Any:
            raise DeniedError(report.node, "no")

    async def work() -> None:
        talk = ServiceReporter(Refusing(), lambda _: None, None, random.Random(1))
        talk.send(report_of(4))
        for _ in range(3):
            await asyncio.sleep(0)

    with logged(JsonLines()) as data:
        asyncio.run(work())
    [line] = objects(data)
    assert (line["request"], "refused by the service" in line["what"]) == ("m0.7.4", True)
