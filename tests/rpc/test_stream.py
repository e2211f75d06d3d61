"""Streams of the gRPC door: one for many messages, each of which is a call of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.grpc_service import WALL, World, open_world, until
from tests.support.scripted_world import simple_app
from themis.config.keys import CallerLimits
from themis.core.arbiter import Settings
from themis.core.model import AppId, Machine
from themis.errors import LimitError, RefusedError, UnavailableError, UnknownCallerError
from themis.protocol.agent_messages import AgentReport
from themis.protocol.node_messages import NodeReport, Orders, SlotReport, SlotState
from themis.rpc.client import Connection, NodeClient
from themis.rpc.methods import EXCHANGES, REPORTS, RPCS, Rpc
from themis.rpc.stream import CallStream
from themis.rpc.wire import to_bytes
from themis.security.tokens import Role, revoke_token
from themis.service import grpc_server
from themis.service.call_admission import GrpcSettings
from themis.service.loop_throttle import LoopThrottle
from themis.service.service import Service

SWEEP = AppId("sweep")


def report_of(number: int) -> NodeReport:
    slots = (SlotReport(0, 0, SlotState.EMPTY),)
    return NodeReport("m0", 1, number, 0, 0, slots, (), Machine("m0", "r0", (1,)))


def at_the_door(folder: Path, **settings: Any) -> Callable[[Any], None]:
    """Runs a test with a world around it that has one app, of Ann."""
    wanted = {"settings": Settings(heartbeat=0.05), **settings}

    def run(work: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        async def inside() -> None:
            async with asyncio.timeout(60), open_world(folder, **wanted) as world:
                await _join(world.service)
                await world.service.submissions.submit(simple_app("sweep", owner="ann"), "key")
                await work(world)

        asyncio.run(inside())

    return run


async def _join(service: Service) -> None:
    """Have a machine."""
    here = replace(report_of(1), node="m9", machine=Machine("m9", "r0", (1,)))
    first = await service.nodes.report(here)
    await service.nodes.report(replace(here, number=2, epoch=first.epoch))


def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which streams and calls are made from now on, by their paths."""
    made: list[str] = []
    stream, call = Connection.stream, Connection.call

    def note_stream(self: Connection, rpc: Any) -> Any:
        made.append(rpc.path)
        return stream(self, rpc)

    async def note_call(self: Connection, rpc: Any, *rest: Any) -> bytes:
        made.append(rpc.path)
        return await call(self, rpc, *rest)

    monkeypatch.setattr(Connection, "stream", note_stream)
    monkeypatch.setattr(Connection, "call", note_call)
    return made


def test_reports_and_exchanges_go_over_one_stream_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = opened(monkeypatch)

    async def work(world: World) -> None:
        node, agent = world.node("m0"), world.agent("ann")
        for number in (1, 2, 3):
            assert (await node.report(report_of(number))).answers == number
            news = await agent.exchange(AgentReport(SWEEP, "s", number, 0, 0))
            assert news.answers == number
        assert sorted(made) == sorted([REPORTS.path, EXCHANGES.path])

    at_the_door(tmp_path)(work)


def test_a_stream_that_the_service_ended_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, passed = opened(monkeypatch), [0.0]

    async def work(world: World) -> None:
        node = world.node("m0")
        for number in (1, 2, 3):
            assert (await node.report(report_of(number))).answers == number
            passed[0] += 150.0
        await node.report(report_of(4))
        assert made == [REPORTS.path] * 2
        # However late it learns of the end.
        for number in range(5, 50):
            passed[0] += 300.0
            assert (await node.report(report_of(number))).answers == number

    door = GrpcSettings(monotonic=lambda: passed[0])
    at_the_door(tmp_path, door=door)(work)


def test_a_message_that_is_too_long_is_refused_for_good(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        talk = CallStream(world.connection(Role.NODE, "m0"), REPORTS)
        with pytest.raises(RefusedError, match="at most 4194304"):
            await talk.ask(bytes(5 << 20), 5.0)
        await talk.ask(to_bytes(report_of(1)), 5.0)

    at_the_door(tmp_path)(work)


def test_a_service_that_ends_every_stream_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "_STREAM_LASTS", 0.0)

    async def work(world: World) -> None:
        with pytest.raises(UnavailableError, match="ended the stream"):
            await world.node("m0").report(report_of(1))

    at_the_door(tmp_path)(work)


def test_a_silent_caller_loses_its_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_server, "_SILENCE", 0.05)

    async def work(world: World) -> None:
        stream = world.connection(Role.TENANT, "ann").stream(EXCHANGES)
        assert await stream.read() is grpc.aio.EOF
        assert not world.server.admission._streams._open

    at_the_door(tmp_path)(work)


def test_streams_are_counted_and_silent_streams_count_as_calls(tmp_path: Path) -> None:
    limits = CallerLimits(streams=3, requests=1.0, burst=9.0)
    door = GrpcSettings(limits=limits, monotonic=lambda: 100.0)

    async def work(world: World) -> None:
        connection = world.connection(Role.TENANT, "ann")
        # Those that everybody may have, and four for an app of her own.
        streams = [connection.stream(EXCHANGES) for _ in range(3 + 4)]
        await until(lambda: sum(world.server.admission._streams._open.values()) == 7)
        with pytest.raises(LimitError, match="7 streams are open"):
            await CallStream(connection, EXCHANGES).ask(b"", 5.0)
        for stream in streams:
            stream.cancel()
        await until(lambda: not world.server.admission._streams._open)
        for _ in range(2):
            with pytest.raises(RefusedError, match="not such a message"):
                await CallStream(connection, EXCHANGES).ask(b"\xff", 5.0)
        with pytest.raises(LimitError, match="again in 1"):
            await CallStream(connection, EXCHANGES).ask(b"\xff", 5.0)

    at_the_door(tmp_path, door=door)(work)


def test_all_apps_of_an_owner_fit_on_one_connection(tmp_path: Path) -> None:
    limits = CallerLimits(streams=1100, apps=1100)
    door = GrpcSettings(limits=limits, monotonic=lambda: 100.0)

    async def work(world: World) -> None:
        connection = world.connection(Role.TENANT, "ann")
        streams = [connection.stream(EXCHANGES) for _ in range(limits.apps)]
        await asyncio.gather(*(stream.initial_metadata() for stream in streams))
        assert sum(world.server.admission._streams._open.values()) == limits.apps
        for stream in streams:
            stream.cancel()

    at_the_door(tmp_path, door=door)(work)


def test_an_unknown_caller_is_refused_before_its_first_message(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        stream = Connection(world.address).stream(REPORTS)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    at_the_door(tmp_path)(work)


@pytest.mark.parametrize("rpc", RPCS, ids=lambda rpc: rpc.path)
def test_a_call_without_a_message_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rpc: Rpc
) -> None:
    monkeypatch.setattr(grpc_server, "_SILENCE", 0.05)

    async def work(world: World) -> None:
        stranger = Connection(world.address).stream(rpc)
        assert await stranger.code() is grpc.StatusCode.UNAUTHENTICATED
        silent = world.connection(Role.TENANT, "ann").stream(rpc)
        ended = grpc.StatusCode.OK if rpc.streams else grpc.StatusCode.UNAVAILABLE
        assert await silent.code() is ended

    at_the_door(tmp_path)(work)


def test_a_refusal_does_not_get_lost(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        for _ in range(50):
            with pytest.raises(UnknownCallerError):
                await CallStream(Connection(world.address), REPORTS).ask(b"", 5.0)

    at_the_door(tmp_path)(work)


def test_every_message_on_a_stream_needs_a_token_that_is_valid_then(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        talk = CallStream(world.connection(Role.NODE, "m0"), REPORTS)
        await talk.ask(to_bytes(report_of(1)), 5.0)
        number = world.token_file(Role.NODE, "m0").read_text().split("_")[1]
        revoke_token(world.token_store, number, now=WALL)
        with pytest.raises(UnknownCallerError, match="revoked"):
            await talk.ask(to_bytes(report_of(2)), 5.0)

    at_the_door(tmp_path)(work)


def test_another_token_is_shown_on_another_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = opened(monkeypatch)

    async def work(world: World) -> None:
        path = world.token_file(Role.NODE, "m0")
        connection = world.connection(Role.NODE, "m0")
        node = NodeClient(connection)
        await node.report(report_of(1))
        path.unlink()
        world.token_file(Role.NODE, "m0")
        connection.renew_token()
        await node.report(report_of(2))
        assert made == [REPORTS.path] * 2

    at_the_door(tmp_path)(work)


def test_a_node_does_not_queue_behind_a_crowd_of_agents(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.server._pace = LoopThrottle(0)  # It is nobody's turn.
        agent = asyncio.create_task(world.agent("ann").exchange(AgentReport(SWEEP, "s", 1, 0, 0)))
        assert (await world.node("m0").report(report_of(1))).answers == 1
        assert not agent.done()
        agent.cancel()

    at_the_door(tmp_path)(work)


def test_abandoned_call_is_not_awaited(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        agent = world.agent("ann")
        first = await agent.exchange(AgentReport(SWEEP, "s", 1, 0, 0))
        heard = first.first + len(first.items) - 1
        second = AgentReport(SWEEP, "s", 2, first.epoch, heard, (), first.fence)
        waits = asyncio.create_task(agent.exchange(second))
        await until(lambda: world.service.agents._waiting)
        waits.cancel()
        await until(lambda: not world.service.agents._waiting)
        again = asyncio.create_task(agent.exchange(replace(second, number=3)))
        await until(lambda: world.service.agents._waiting)
        again.cancel()

    at_the_door(tmp_path)(work)


def test_a_closing_server_does_not_wait_for_silent_streams(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        node = world.node("m0")
        await node.report(report_of(1))
        async with asyncio.timeout(30):
            await world.server.close(grace=600.0)

    at_the_door(tmp_path)(work)


def test_a_closing_server_finishes_the_answer_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(world: World) -> None:
        node, report = world.node("m0"), world.service.nodes.report
        closing: list[asyncio.Task[None]] = []

        async def meanwhile(said: NodeReport) -> Orders:
            answer = await report(said)
            closing.append(asyncio.create_task(world.server.close(grace=600.0)))
            for _ in range(10):  # All streams that are silent now are told.
                await asyncio.sleep(0)
            return answer

        monkeypatch.setattr(world.service.nodes, "report", meanwhile)
        async with asyncio.timeout(30):
            assert (await node.report(report_of(1))).epoch
            await closing[0]

    at_the_door(tmp_path)(work)


def test_a_server_closes_while_a_silence_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(world: World) -> None:
        node = world.node("m0")  # Kept: a stream ends with who opened it.
        await node.report(report_of(1))
        stop = asyncio.sleep

        async def expires(seconds: float) -> None:
            """Its time is up, and nobody has taken notice yet."""
            for patience in world.server._silent:
                patience._on_timeout()  # type: ignore[attr-defined] # as the loop does
            monkeypatch.setattr(asyncio, "sleep", stop)

        await until(lambda: world.server._silent)
        monkeypatch.setattr(asyncio, "sleep", expires)
        async with asyncio.timeout(30):
            await world.server.close(grace=600.0)

    at_the_door(tmp_path)(work)
