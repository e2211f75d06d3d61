"""The gRPC door: who may call what, what errors look like, and that nothing gets past it."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.support.grpc_service import WALL, World, open_world, until
from tests.support.scripted_world import simple_app
from themis.agent_host.session_client import SessionClient
from themis.config.addresses import Address, is_loopback
from themis.config.keys import CallerLimits, Tls
from themis.core.arbiter import Settings
from themis.core.model import AppId, JobId, Machine, Topology
from themis.errors import (
    ConfigError,
    DeniedError,
    LimitError,
    RefusedError,
    StaleAnswerError,
    UnavailableError,
    UnknownCallerError,
)
from themis.protocol.agent_messages import (
    AgentReport,
    AgentRequest,
    AgentStart,
    AppEndNews,
    EndApp,
    News,
    PointsNews,
    StopRequest,
    TopologyNews,
)
from themis.protocol.node_messages import (
    NodeReport,
    Point,
    RunReport,
    RunState,
    SlotReport,
    SlotState,
)
from themis.rpc.client import (
    AgentClient,
    Backoff,
    Connection,
    Credentials,
    NodeClient,
    refused,
)
from themis.rpc.methods import (
    EXCHANGE,
    HOSTED,
    REPORT,
    RPCS,
    SAID_VERBS,
    SHEET,
    Rpc,
    code_of,
    error_of,
)
from themis.rpc.stream import CallStream
from themis.rpc.wire import themis_pb2, to_bytes
from themis.rpc.wire.convert import message_class
from themis.security.certificate_authority import make_authority, make_client, make_server
from themis.security.permissions import TABLE, Access
from themis.security.token_files import write_secret
from themis.security.tokens import HOST_NOTE, Identity, Role, Secret, create_token, revoke_token
from themis.service.call_admission import GrpcSettings
from themis.service.grpc_server import GrpcServer
from themis.service.outbox import MOST_VALUES, AgentOutbox

IDLE = Settings(heartbeat=0.05)
"""Answers come at once, and nothing happens."""
SWEEP = AppId("sweep")


def report_of(name: str, number: int = 1) -> NodeReport:
    slots = (SlotReport(0, 0, SlotState.EMPTY),)
    return NodeReport(name, 1, number, 0, 0, slots, (), Machine(name, "r0", (1,)))


def says(*said: AgentRequest, number: int = 1, app: AppId = SWEEP) -> AgentReport:
    return AgentReport(app, "session", number, 0, 0, said)


def at_the_door(folder: Path, **settings: Any) -> Callable[[Any], None]:
    """Runs a test with a world around it."""
    wanted = {"settings": IDLE, **settings}

    def run(work: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        async def inside() -> None:
            async with asyncio.timeout(60), open_world(folder, **wanted) as world:
                first = await world.service.nodes.report(report_of("m9"))
                # Not waited for: it is taken in at once, and answered after a heartbeat.
                second = world.service.nodes.report(replace(report_of("m9", 2), epoch=first.epoch))
                joining = asyncio.create_task(second)
                await until(lambda: world.service.steward.arbiter.world.topology.machines)
                await world.service.submissions.submit(simple_app("sweep", owner="ann"), "key")
                await work(world)
                joining.cancel()

        asyncio.run(inside())

    return run


# The table of RPCs


def test_every_rpc_of_the_proto_names_its_verb_and_its_messages() -> None:
    named = {(rpc.service, rpc.method): rpc for rpc in RPCS}
    for service in themis_pb2.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            rpc = named.pop((service.full_name, method.name))
            assert message_class(rpc.takes).DESCRIPTOR is method.input_type
            assert message_class(rpc.gives).DESCRIPTOR is method.output_type
            assert any(TABLE[rpc.verb, role, True] is Access.ALLOW for role in Role), (
                f"nobody may call {rpc.path}"
            )
    assert not named, "these are not in the .proto"


def test_everything_that_an_agent_can_say_names_its_verb() -> None:
    assert set(SAID_VERBS) == set(get_args(AgentRequest))


def test_an_error_is_the_same_on_both_sides() -> None:
    for kind in (UnknownCallerError, DeniedError, RefusedError):
        error = kind("ann", "no: really")
        again = error_of(str(code_of(error)), str(error))
        assert (type(again), str(again)) == (kind, str(error))
    limit = error_of("RESOURCE_EXHAUSTED", "ann: slowly", (("retry-after-ms", "1500"),))
    assert isinstance(limit, LimitError)
    assert limit.retry_after == pytest.approx(1.5)
    assert isinstance(error_of("INTERNAL", "log 17"), UnavailableError)


# Who may call


def test_a_node_reports_for_itself_only(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        orders = await world.node("m0").report(report_of("m0"))
        assert orders.answers == 1
        with pytest.raises(DeniedError, match="its own node only"):
            await world.node("m0").report(report_of("m1"))
        assert "m1" not in world.service.steward.nodes

    at_the_door(tmp_path)(work)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.TENANT, Role.ADMIN])
def test_only_a_node_reports(tmp_path: Path, role: Role) -> None:
    async def work(world: World) -> None:
        with pytest.raises(DeniedError, match="node report"):
            await NodeClient(world.connection(role, "m0")).report(report_of("m0"))

    at_the_door(tmp_path)(work)


@pytest.mark.parametrize(
    ("role", "subject"),
    [(Role.TENANT, "bob"), (Role.VIEWER, "ann"), (Role.NODE, "ann"), (Role.ADMIN, "ann")],
)
def test_only_the_owner_s_agents_speak_for_an_app(tmp_path: Path, role: Role, subject: str) -> None:
    async def work(world: World) -> None:
        with pytest.raises(DeniedError, match="agent poll"):
            await AgentClient(world.connection(role, subject)).exchange(says(EndApp()))
        assert SWEEP in world.service.steward.arbiter.world.apps

    at_the_door(tmp_path)(work)


def test_a_missing_app_looks_like_one_of_another_owner(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        messages = []
        for app in ("sweep", "no-such-app"):
            with pytest.raises(DeniedError) as caught:
                await world.agent("bob").exchange(says(app=AppId(app)))
            messages.append(str(caught.value))
        assert messages[0] == messages[1]

    at_the_door(tmp_path)(work)


def test_a_caller_without_a_valid_token_is_refused(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        with pytest.raises(UnknownCallerError):
            await NodeClient(Connection(world.address)).report(report_of("m0"))
        made_up = tmp_path / "made-up.token"
        write_secret(made_up, Secret("themis_" + "0" * 12 + "_" + "a" * 43))
        with pytest.raises(UnknownCallerError, match="no valid token"):
            await NodeClient(Connection(world.address, Credentials(token_file=made_up))).report(
                report_of("m0")
            )

    at_the_door(tmp_path)(work)


def test_revoked_token_ends_the_stream_and_its_replacement_is_found(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        node = world.node("m0")
        await node.report(report_of("m0", 1))
        path = world.token_file(Role.NODE, "m0")
        number = path.read_text().split("_")[1]
        revoke_token(world.token_store, number, now=WALL)
        with pytest.raises(UnknownCallerError, match="revoked"):
            await node.report(report_of("m0", 2))
        path.unlink()
        world.token_file(Role.NODE, "m0")
        assert (await node.report(report_of("m0", 3))).answers == 3

    at_the_door(tmp_path)(work)


# Certificates


def test_with_certificates_a_token_counts_only_on_its_own_machine(tmp_path: Path) -> None:
    now = time.time()
    ca = make_authority(tmp_path, now=now)
    server = make_server(tmp_path, ["127.0.0.1"], now=now)
    ours = make_client(tmp_path, Role.NODE, "m0", now=now)
    theirs = make_client(tmp_path, Role.NODE, "m1", now=now)
    tls = Tls(server.cert, server.key, ca.cert, require_client=True)

    async def work(world: World) -> None:
        token = world.token_file(Role.NODE, "m0")

        def client(pair: Any, token_file: Path | None) -> NodeClient:
            shown = Credentials(token_file, ca.cert, pair and pair.cert, pair and pair.key)
            return NodeClient(Connection(world.address, shown))

        assert (await client(ours, token).report(report_of("m0", 1))).answers == 1
        with pytest.raises(DeniedError, match="certificate"):
            await client(theirs, token).report(report_of("m0", 2))
        with pytest.raises(UnavailableError):
            await client(None, token).report(report_of("m0", 3))
        # A certificate alone would outlive the token: it is not enough, now or later.
        for number in (4, 5):
            with pytest.raises(UnknownCallerError):
                await client(ours, None).report(report_of("m0", number))
            revoke_token(world.token_store, token.read_text().split("_")[1], now=WALL)
        # A new token is good with the same certificate, and not with another.
        token.unlink()
        world.token_file(Role.NODE, "m0")
        assert (await client(ours, token).report(report_of("m0", 6))).answers == 6
        with pytest.raises(DeniedError, match="certificate"):
            await client(theirs, token).report(report_of("m0", 7))

    at_the_door(tmp_path, door=GrpcSettings(tls=tls))(work)


def test_a_refused_caller_is_audited_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = time.time()
    ca = make_authority(tmp_path, now=now)
    server = make_server(tmp_path, ["127.0.0.1"], now=now)
    theirs = make_client(tmp_path, Role.NODE, "m1", now=now)
    tls = Tls(server.cert, server.key, ca.cert, require_client=True)

    async def work(world: World) -> None:
        copied = world.token_file(Role.NODE, "m0")
        made_up = tmp_path / "made-up.token"
        write_secret(made_up, Secret("themis_0123456789ab_" + "x" * 43))
        for token, error in ((copied, DeniedError), (made_up, UnknownCallerError)):
            shown = Credentials(token, ca.cert, theirs.cert, theirs.key)
            node = NodeClient(Connection(world.address, shown))
            for _ in range(3):
                with pytest.raises(error):
                    await node.report(report_of("m0"))
        await world.service.queue.settled()
        number = copied.read_text().split("_")[1]
        rows = [row for _, row in world.service.store.audit() if row.outcome == "denied"]
        assert [(row.who, row.verb, row.target) for row in rows] == [
            (f"node/m0/{number}", "node report", "127.0.0.1"),
            ("nobody", "node report", "127.0.0.1"),
        ]
        assert "the certificate is that of node m1" in rows[0].detail
        told = [line.getMessage() for line in caplog.records if "refused" in line.getMessage()]
        assert len(told) == 2
        assert told[0].startswith("node report from 127.0.0.1 is refused: node m0: the certificate")
        assert "x" * 43 not in "".join(told) + str(rows)
        await world.server.close(0.0)
        await world.service.queue.settled()
        rows = [row for _, row in world.service.store.audit() if "2 more" in row.detail]
        assert len(rows) == 2

    at_the_door(tmp_path, door=GrpcSettings(tls=tls))(work)


def test_only_agents_of_the_service_itself_come_without_certificates(tmp_path: Path) -> None:
    now = time.time()
    ca = make_authority(tmp_path, now=now)
    server = make_server(tmp_path, ["themis.lab"], now=now)  # Not what the machine calls itself.
    tls = Tls(server.cert, server.key, ca.cert, require_client=True)

    async def work(world: World) -> None:
        door = world.server.own
        assert door is not None
        assert door != world.address
        assert is_loopback(door.host)
        host = create_token(world.token_store, Role.TENANT, "ann", now=WALL, note=HOST_NOTE)
        ours = AgentClient(Connection(door, Credentials(token=host.token)))
        assert (await ours.exchange(says())).answers == 1
        theirs = Credentials(world.token_file(Role.TENANT, "ann"))
        with pytest.raises(DeniedError, match="only agents that the service started"):
            await AgentClient(Connection(door, theirs)).exchange(says(number=2))
        node = Credentials(world.token_file(Role.NODE, "m0"))
        with pytest.raises(DeniedError, match="only agents that the service started"):
            await NodeClient(Connection(door, node)).report(report_of("m0"))
        with pytest.raises(UnknownCallerError):
            await AgentClient(Connection(door, Credentials())).exchange(says(number=3))

    at_the_door(tmp_path, door=GrpcSettings(tls=tls))(work)


def test_public_addresses_need_tls(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        with pytest.raises(ConfigError, match="TLS"):
            await world.server.start(Address("0.0.0.0", 0))

    at_the_door(tmp_path)(work)
    with pytest.raises(ConfigError, match="--ca"):
        Connection(Address("192.0.2.1", 7420))


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        with pytest.raises(ConfigError, match="something listens"):
            await world.server.start(world.address)

    at_the_door(tmp_path)(work)


# Too much


def test_flood_is_throttled_with_a_retry_time(tmp_path: Path) -> None:
    now = 100.0
    limits = CallerLimits(requests=1.0, burst=3.0)
    door = GrpcSettings(limits=limits, monotonic=lambda: now)

    async def work(world: World) -> None:
        agent = world.agent("ann")
        for number in (1, 2, 3):
            await agent.exchange(says(number=number))
        with pytest.raises(LimitError) as caught:
            await agent.exchange(says(number=4))
        assert caught.value.retry_after == pytest.approx(1.0)
        # Others are not held up.
        assert (await world.node("m0").report(report_of("m0"))).answers == 1

    at_the_door(tmp_path, door=door)(work)


def test_unknown_callers_are_limited_too(tmp_path: Path) -> None:
    door = GrpcSettings(limits=CallerLimits(requests=1.0, burst=2.0), monotonic=lambda: 100.0)

    async def work(world: World) -> None:
        for _ in range(2):
            with pytest.raises(UnknownCallerError):
                await NodeClient(Connection(world.address)).report(report_of("m0"))
        with pytest.raises(LimitError):
            await NodeClient(Connection(world.address)).report(report_of("m0"))

    at_the_door(tmp_path, door=door)(work)


def test_guessed_tokens_do_not_lock_out_valid_ones(tmp_path: Path) -> None:
    door = GrpcSettings(limits=CallerLimits(requests=1.0, burst=2.0), monotonic=lambda: 100.0)

    async def work(world: World) -> None:
        for _ in range(2):
            with pytest.raises(UnknownCallerError):
                await NodeClient(Connection(world.address)).report(report_of("m0"))
        with pytest.raises(LimitError, match="wrong credentials"):
            await NodeClient(Connection(world.address)).report(report_of("m0"))
        # From the same address, and never seen before.
        assert (await world.node("m1").report(report_of("m1"))).answers == 1

    at_the_door(tmp_path, door=door)(work)


def test_calls_under_way_are_counted(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        news = await world.agent("ann").exchange(says(number=1))
        heard = replace(says(number=2), epoch=news.epoch, heard=news.first + len(news.items) - 1)
        waits = asyncio.create_task(world.agent("ann").exchange(heard))
        await until(lambda: world.service.agents._waiting)
        with pytest.raises(LimitError, match="1 streams are open"):
            await world.agent("ann").exchange(replace(heard, number=3))
        waits.cancel()
        await until(lambda: not world.service.agents._waiting)
        await world.agent("ann").exchange(says(number=4))

    door = GrpcSettings(limits=CallerLimits(streams=1))
    at_the_door(tmp_path, door=door, settings=Settings(heartbeat=60.0), node_ttl=300.0)(work)


def test_tenants_leave_places_for_nodes(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        news = await world.agent("ann").exchange(says(number=1))
        heard = replace(says(number=2), epoch=news.epoch, heard=news.first + len(news.items) - 1)
        waits = asyncio.create_task(world.agent("ann").exchange(heard))
        await until(lambda: world.service.agents._waiting)
        with pytest.raises(LimitError, match="tenants have 1 streams open"):
            await world.agent("ann").exchange(replace(heard, number=3))
        assert (await world.node("m0").report(report_of("m0"))).answers == 1
        waits.cancel()
        await until(lambda: not world.service.agents._waiting)
        await world.agent("ann").exchange(says(number=4))

    door = GrpcSettings(for_tenants=1)
    at_the_door(tmp_path, door=door, settings=Settings(heartbeat=60.0), node_ttl=300.0)(work)


def test_tenants_leave_places_for_each_other() -> None:
    nothing: Any = None  # Only places are counted here.
    server = GrpcServer(nothing, nothing, GrpcSettings(for_tenants=16))
    with ExitStack() as streams:

        def opened(who: str) -> int:
            """How many streams somebody gets."""
            identity = Identity(Role.TENANT, who, "0" * 12)
            for count in range(20):
                try:
                    streams.enter_context(server.admission._tenant_stream(identity))
                except LimitError:
                    return count
            return 20

        # The first takes what is there, but not the last places; others find some of them.
        assert opened("ann") == 12
        assert 0 < opened("bob") < 16 - 12
        assert opened("ann") == 0
        assert opened("cat") > 0
    assert not server.admission._tenants  # All of it is given back.
    with ExitStack() as streams:
        assert (opened("ann"), opened("ann")) == (12, 0)


def test_a_message_of_an_agent_has_a_limit_of_its_own(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        with pytest.raises(RefusedError, match="allowed: at most 262144"):
            await world.agent("ann").exchange(says(*[EndApp("x" * 10_000)] * 30))
        # Reports of large nodes are longer than that.
        long = replace(report_of("m0"), version="v" * 16_000, control="c" * 16_000)
        raw = to_bytes(long) * 10  # fields again: the last one counts
        connection = world.connection(Role.NODE, "m0")
        assert len(raw) > 262144
        with pytest.raises(RefusedError, match="slots"):
            await connection.call(REPORT, raw + _many_slots())

    at_the_door(tmp_path)(work)


def _many_slots() -> bytes:
    empty = themis_pb2.SlotReport(state="empty")
    return bytes(themis_pb2.NodeReport(slots=[empty] * 5000).SerializeToString())


def test_messages_have_a_limited_number_of_items(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        with pytest.raises(RefusedError, match=r"requests: 257 entries, allowed: at most 256"):
            await world.agent("ann").exchange(says(*[StopRequest(1)] * 257))
        opened = await world.agent("ann").exchange(says())
        much = says(*[StopRequest(1)] * 256, number=2)
        await world.agent("ann").exchange(replace(much, fence=opened.fence))
        run = RunReport(7, SWEEP, JobId("j0"), RunState.RUNNING)
        with pytest.raises(RefusedError, match=r"runs: 259 entries, allowed: at most 258"):
            await world.node("m0").report(replace(report_of("m0"), runs=(run,) * 259))
        await world.node("m0").report(replace(report_of("m0"), runs=(run,) * 258))

    at_the_door(tmp_path)(work)


def test_a_report_has_so_many_points_of_all_runs_at_most(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        full = RunReport(7, SWEEP, JobId("j0"), RunState.RUNNING, points=(Point(1.0),) * 256)
        values = tuple((f"v{n}", 0.5) for n in range(8))
        heavy = replace(full, points=(Point(1.0, None, values),) * 32)
        for run in (full, heavy):
            with pytest.raises(RefusedError, match="allowed: at most 2048 in one message"):
                await world.node("m0").report(replace(report_of("m0"), runs=(run,) * 9))
        await world.node("m0").report(replace(report_of("m0"), runs=(full,) * 4 + (heavy,) * 4))

    at_the_door(tmp_path)(work)


def test_a_long_message_counts_for_more_calls(tmp_path: Path) -> None:
    door = GrpcSettings(limits=CallerLimits(requests=1.0, burst=10.0), monotonic=lambda: 100.0)

    async def work(world: World) -> None:
        agent = world.agent("ann")
        fence = (await agent.exchange(says())).fence
        await agent.exchange(replace(says(*[StopRequest(1)] * 32, number=2), fence=fence))
        with pytest.raises(LimitError) as caught:
            await agent.exchange(replace(says(*[StopRequest(1)] * 8, number=3), fence=fence))
        assert caught.value.retry_after == pytest.approx(1.0)
        await agent.exchange(replace(says(number=4), fence=fence))

    at_the_door(tmp_path, door=door)(work)


def test_a_crowd_that_calls_at_once_waits_its_turn(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        # Sent before the service, in the same loop, takes the first of them.
        lines = [world.connection(Role.TENANT, "ann") for _ in range(3)]
        calls = [line.call(EXCHANGE, b"\xff") for _ in range(800) for line in lines]
        ends = Counter(type(end) for end in await asyncio.gather(*calls, return_exceptions=True))
        assert ends == {RefusedError: len(calls)}
        for line in lines:
            await line.close()

    door = GrpcSettings(limits=CallerLimits(requests=1e6, burst=1e6))
    at_the_door(tmp_path, door=door)(work)


def test_silent_or_broken_connections_leave_room_for_others(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        host, port = world.address.host, world.address.port
        strangers = [await asyncio.open_connection(host, port) for _ in range(100)]
        for index, (_, writer) in enumerate(strangers):
            if index % 2:
                writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[: index % 25])
                await writer.drain()
        assert (await world.node("m0").report(report_of("m0"))).answers == 1
        for _, writer in strangers:
            writer.close()

    at_the_door(tmp_path)(work)


# What agents are told


def test_agent_receives_only_the_latest_topology(tmp_path: Path) -> None:
    outbox = AgentOutbox(SWEEP, 1, 0.0)
    outbox.receive(says(), 0.0, 1)
    outbox.start(AgentStart(simple_app("sweep"), Topology(()), (), (), 0, ()))
    outbox.put(AppEndNews("no"))
    for count in range(3):
        outbox.put(TopologyNews(Topology((Machine(f"m{count}", "r0", (1,)),))))
    news = outbox.news(1.0)
    assert len(news.items) == 5
    told = [item.topology for item in news.items if isinstance(item, TopologyNews)]
    assert told == [Topology((Machine("m2", "r0", (1,)),))]
    assert isinstance(news.items[-1], TopologyNews)


def test_agent_receives_its_standing_and_then_the_end(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        link = SessionClient(world.agent("ann"), SWEEP, random.Random(1))
        items = []
        async for item in link.news():
            items.append(item)
            if isinstance(item, AgentStart):
                link.say(StopRequest(77))
                link.say(EndApp("finished"))
        assert isinstance(items[0], AgentStart)
        assert items[-1] == AppEndNews("finished")
        assert SWEEP not in world.service.steward.arbiter.world.apps

    at_the_door(tmp_path)(work)


def test_an_agent_goes_on_after_a_restart_of_the_service(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        link = SessionClient(world.agent("ann"), SWEEP, random.Random(1))
        standings = 0
        async for item in link.news():
            if isinstance(item, AgentStart):
                standings += 1
                if standings == 1:
                    await world.stop()
                    await world.start()
                else:
                    link.say(EndApp("finished"))
        assert standings == 2

    at_the_door(tmp_path)(work)


def test_refused_message_is_not_sent_again(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        link = SessionClient(world.agent("ann"), SWEEP, random.Random(1))
        link.say(EndApp("x" * 20_000))
        assert isinstance(await anext(aiter(link.news())), AgentStart)
        with pytest.raises(RefusedError, match="at most 16384"):
            await anext(aiter(link.news()))
        link.say(EndApp("finished"))
        assert [item async for item in link.news()] == [AppEndNews("finished")]

    at_the_door(tmp_path)(work)


def test_replaced_agent_is_notified_and_can_take_over_again(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        links = [SessionClient(world.agent("ann"), SWEEP, random.Random(1)) for _ in range(2)]
        for link in links:
            assert isinstance(await anext(aiter(link.news())), AgentStart)
        links[0].say(EndApp("finished"))
        with pytest.raises(StaleAnswerError, match="another agent"):
            await anext(aiter(links[0].news()))
        assert SWEEP in world.service.steward.arbiter.world.apps
        assert isinstance(await anext(aiter(links[0].news())), AgentStart)
        with pytest.raises(StaleAnswerError, match="another agent"):
            await anext(aiter(links[1].news()))

    at_the_door(tmp_path)(work)


# When nobody is there


def test_a_service_that_is_down_is_unavailable_and_a_refusal_is_not(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        node = world.node("m0")
        assert not await refused(world.address)
        await world.stop()
        with pytest.raises(UnavailableError):
            await node.report(report_of("m0", 1))
        assert await refused(world.address)
        await world.start()
        async with asyncio.timeout(30):
            while True:
                try:
                    assert (await node.report(report_of("m0", 2))).answers == 2
                    break
                except UnavailableError:
                    await asyncio.sleep(0.05)

    at_the_door(tmp_path)(work)


def test_waits_grow_and_are_spread(tmp_path: Path) -> None:
    backoff = Backoff(random.Random(1), first=1.0, most=8.0)
    waits = [backoff.failed() for _ in range(200)]
    assert max(waits[10:]) <= 8.0
    assert min(waits[10:]) < 1.0 < max(waits[10:])
    assert waits[0] <= 1.0
    backoff.succeeded()
    assert backoff.failed() <= 1.0


# Fuzzing


def _random_message(cls: type[Message], rng: random.Random, depth: int = 0) -> Message:
    """A well-typed message with anything in it."""
    message = cls()
    for field in cls.DESCRIPTOR.fields:
        if rng.random() < 0.3:
            continue
        count = rng.choice((0, 1, 1, 2, 5)) if _is_list(message, field) else 1
        for _ in range(count):
            _set(message, field, rng, depth)
    return message


def _is_list(message: Message, field: FieldDescriptor) -> bool:
    value = getattr(message, field.name)
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | Message)


def _set(message: Message, field: FieldDescriptor, rng: random.Random, depth: int) -> None:
    if field.message_type is not None:
        inner = _random_message(_class_of(field.message_type.name), rng, depth + 1)
        held = getattr(message, field.name)
        (held.append if _is_list(message, field) else held.CopyFrom)(inner)
        return
    likely = _STATES if field.name in {"state", "source"} else _LIKELY[field.type]
    value = rng.choice(likely if rng.random() < 0.97 else _UNLIKELY[field.type])
    if _is_list(message, field):
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


def _class_of(name: str) -> type[Message]:
    found: type[Message] = getattr(themis_pb2, name)
    return found


_STATES = ("empty", "running", "stopping", "quarantined", "exited", "lost")
_LIKELY: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.TYPE_STRING: ("sweep", "m0", "m9", "j0", "ann", "a", "r0"),
    FieldDescriptor.TYPE_INT64: (0, 1, 2, 3, 17),
    FieldDescriptor.TYPE_DOUBLE: (0.0, 1.0, 2.5, 1000.0),
    FieldDescriptor.TYPE_BOOL: (True, False),
}
_UNLIKELY: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.TYPE_STRING: ("", "\0", "é" * 300, "x" * 20_000),
    FieldDescriptor.TYPE_INT64: (-1, 2**31, 2**62, 2**63 - 1, -(2**63)),
    FieldDescriptor.TYPE_DOUBLE: (-1.0, 1e308, 5e-324, float("nan"), float("inf")),
    FieldDescriptor.TYPE_BOOL: (True,),
}


def _fuzz_raw(rpc: Rpc, rng: random.Random) -> bytes:
    if rng.random() < 0.25:
        return rng.randbytes(rng.randrange(300))
    message = _random_message(message_class(rpc.takes), rng)
    # Past the first door, so that what is behind it is reached too.
    if rpc.takes is NodeReport:
        message.node = "m0"
    elif rpc is not HOSTED:
        message.app = "sweep"
    if rpc.takes is AgentReport and rng.random() < 0.8:
        message.session, message.number = "s", rng.randrange(10**6)
    if rpc.takes is NodeReport and rng.random() < 0.8:
        message.boot, message.number, message.epoch = 1, rng.randrange(10**6), 1
    return bytes(message.SerializeToString())


_EXPECTED = ("deadline exceeded", "unavailable: a later report")


@pytest.mark.parametrize("rpc", RPCS, ids=lambda rpc: rpc.path)
def test_no_message_causes_an_internal_error(
    tmp_path: Path, rpc: Rpc, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(world: World) -> None:
        rng = random.Random(7)
        who = (Role.NODE, "m0") if rpc.takes is NodeReport else (Role.TENANT, "ann")
        connection = world.connection(*who)
        talk = CallStream(connection, rpc)
        await world.node("m0").report(report_of("m0"))
        taken, weather = 0, []
        for _ in range(150):
            try:
                # Not waited for: most answers come only after a heartbeat.
                raw = _fuzz_raw(rpc, rng)
                await (talk.ask(raw, 0.2) if rpc.streams else connection.call(rpc, raw, 0.2))
                taken += 1
            except RefusedError:
                pass
            except UnavailableError as error:
                weather.append(str(error))
        assert not [text for text in weather if not text.startswith(_EXPECTED)]
        # Only apps that were submitted as files have a sheet, and there is none here.
        assert taken or rpc is SHEET, "nothing got past the first door"
        assert not world.service.queue.failed.done()

    door = GrpcSettings(limits=CallerLimits(requests=1e6, burst=1e6))
    at_the_door(tmp_path, door=door)(work)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_points_repeated_after_a_restart_count_once() -> None:
    def points(first: int, last: int) -> PointsNews:
        numbers = range(first, last + 1)
        return PointsNews(4, JobId("j0"), first, tuple(Point(float(n)) for n in numbers))

    answers = [
        News(1, 1, 0.0, 1, (points(1, 2), points(3, 4))),
        News(2, 2, 0.0, 1, (points(3, 4), points(3, 6))),
        News(2, 3, 0.0, 3, (AppEndNews("finished"),)),
    ]

    class Scripted:
        async def exchange(self, report: AgentReport) -> News:
            return answers[report.number - 1]

    async def listen() -> list[float]:
        link = SessionClient(Scripted(), SWEEP, random.Random(1))
        return [
            point.iteration
            async for item in link.news()
            if isinstance(item, PointsNews)
            for point in item.points
        ]

    assert asyncio.run(listen()) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_an_answer_has_a_bounded_number_of_points() -> None:
    outbox = AgentOutbox(SWEEP, 1, 0.0)
    outbox.receive(AgentReport(SWEEP, "s", 1, 0, 0), 0.0, 1)
    spec = simple_app("sweep", gpus=1, jobs=1)
    outbox.start(AgentStart(spec, Topology(()), (), (), 0, ()))
    values = tuple((f"v{n}", 0.0) for n in range(8))
    for run in range(600):
        outbox.put(PointsNews(run, JobId("j0"), 1, (Point(1.0, None, values),) * 32))
    heard, number = 0, 1
    while heard < 601:
        news = outbox.news(0.0)
        assert len(news.items) <= 1 + MOST_VALUES // 256
        heard = news.first + len(news.items) - 1
        number += 1
        outbox.receive(AgentReport(SWEEP, "s", number, 1, heard), 0.0, 1)
    assert len(outbox.acknowledged_points()) == 600
