"""Dead, slow and hostile agents: rounds end by their deadline, and the others get their GPUs."""

import asyncio
import math
import random
import struct
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.grpc_service import Inline, open_world, until
from tests.support.scripted_world import simple_app
from tests.support.virtual import AtOnce, run_virtually
from themis.config.keys import CallerLimits
from themis.core.arbiter import Settings
from themis.core.arbiter.records import RoundRecord
from themis.core.model import (
    MACHINE,
    SLOT,
    AppId,
    Bid,
    Chunk,
    GpuId,
    JobId,
    Machine,
    Offer,
    Row,
    TableRow,
)
from themis.errors import RefusedError, ThemisError
from themis.protocol.agent_messages import (
    AgentReport,
    AgentRequest,
    AgentStart,
    BidReply,
    LeaseNews,
    News,
    OfferNews,
    PhaseStart,
    ReleaseRequest,
    StopRequest,
    TargetChange,
)
from themis.protocol.node_messages import NodeReport, SlotReport, SlotState
from themis.rpc.methods import EXCHANGE, REPORT
from themis.rpc.wire import Bounds, from_bytes, to_bytes
from themis.security.tokens import Role
from themis.service.call_admission import GrpcSettings
from themis.service.persistence.recovery import TimeSources, recover
from themis.service.persistence.start_parameters import StartParameters
from themis.service.persistence.store import open_store
from themis.service.service import Service

SETTINGS = Settings(
    lease=10.0, grace=1.0, heartbeat=0.5, bid_deadline=1.0, solve_budget=1.0, guard=0.5, pooling=1.0
)
GPUS, MACHINES = 4, 5
CROWD = 60
DEAD, SLOW, HOSTILE = (round(share * CROWD) for share in (0.3, 0.1, 0.1))


def honest(app: AppId, offer: Offer) -> Bid:
    rows = [
        Row((Chunk(SLOT, 1),) * count, 1e4 / (count + len(offer.kept)))
        for count in range(1, min(2, len(offer.gpus)) + 1)
    ]
    return Bid(app, tuple(rows), (TableRow(SLOT, 1, 1e4), TableRow(SLOT, 2, 5e3)))


def nonsense(app: AppId, offer: Offer) -> Iterator[BidReply]:
    """Every bid that should not be, and a sound one more than once."""
    now = offer.round
    one = (Chunk(SLOT, 1),)
    for seconds in (-1.0, 0.0, 1e308, 1e-308, 5e-324):
        yield BidReply(now, Bid(app, (Row(one, seconds),)))
        yield BidReply(now, Bid(app, (), (TableRow(SLOT, 1, seconds),)))
    for chunk in (
        Chunk(SLOT, 0),
        Chunk(SLOT, -1),
        Chunk(SLOT, 10**15),
        Chunk(-1, 1),
        Chunk(99, 1),
        Chunk(MACHINE, 1, machine=10**9),
        Chunk(MACHINE, 1, machine=-1),
    ):
        yield BidReply(now, Bid(app, (Row((chunk,), 10.0),)))
    yield BidReply(now, Bid(app, (Row((), 10.0),)))
    yield BidReply(now, Bid(app, (Row(one, 10.0),) * 4096))
    yield BidReply(now, Bid(app, (Row(one * 4096, 10.0),)))
    yield BidReply(now, Bid(AppId("a0"), (Row(one, 1e-3),)))
    yield BidReply(now, Bid(AppId("nobody"), (Row(one, 1e-3),)))
    for other in (now - 1, now + 1, -1, 10**12):
        yield BidReply(other, honest(app, offer))
    yield BidReply(now, honest(app, offer))
    yield BidReply(now, honest(app, offer))


ODD = 1.2345678e17
"""Stands for a number that our own clients would not send."""


def smuggled(report: AgentReport, seconds: float) -> bytes:
    """A report whose odd number is another one, as only somebody else's client would send it."""
    raw = to_bytes(report)
    assert struct.pack("<d", ODD) in raw
    return raw.replace(struct.pack("<d", ODD), struct.pack("<d", seconds))


def not_numbers(report: AgentReport) -> list[bytes]:
    """Bids of what is no number, and phases without an end."""
    row, entry = Row((Chunk(SLOT, 1),), ODD), TableRow(SLOT, 1, ODD)
    said: list[AgentRequest] = [
        BidReply(1, Bid(report.app, (row,))),
        BidReply(1, Bid(report.app, (), (entry,))),
    ]
    said += [PhaseStart(1, ((JobId("j0"), ODD),)), TargetChange(((JobId("j0"), ODD),), added=True)]
    return [
        smuggled(replace(report, requests=(each,)), value)
        for each in said
        for value in (math.nan, math.inf, -math.inf)
    ]


MEDDLING: tuple[AgentRequest, ...] = (
    ReleaseRequest((GpuId(0), GpuId(-1), GpuId(10**9)), (1, 2, 3)),
    StopRequest(1),
    StopRequest(-1),
    PhaseStart(7, ((JobId("j0"), 1e308),)),
    PhaseStart(-1, ()),
    TargetChange(((JobId("nobody"), 1.0), (JobId("j0"), -5.0))),
    TargetChange(((JobId("j0"), 1e308),), added=True),
)
"""What else an agent may say that it should not."""


BOUNDS = Bounds(CallerLimits().message_bytes, CallerLimits().rows)


def gets_in(said: AgentRequest) -> bool:
    """Whether the door lets it through."""
    try:
        from_bytes(AgentReport, to_bytes(AgentReport(AppId("a"), "s", 1, 0, 0, (said,))), BOUNDS)
    except RefusedError:
        return False
    return True


@dataclass
class Somebody:
    """An agent in the crowd."""

    app: AppId
    kind: str
    held: set[GpuId] = field(default_factory=set)
    ever: bool = False
    """Whether it has ever held a GPU."""

    async def talk(self, exchange: Callable[[AgentReport], Coroutine[Any, Any, Any]]) -> None:
        number = epoch = heard = fence = 0
        said: tuple[AgentRequest, ...] = ()
        if self.kind == "dead":
            return
        while True:
            number += 1
            try:
                report = AgentReport(self.app, "s", number, epoch, heard, said, fence)
                news = await exchange(report)
            except RefusedError:
                said = ()
                await asyncio.sleep(0.2)
                continue
            epoch, heard = news.epoch, news.first + len(news.items) - 1
            fence = news.fence
            said = ()
            for item in news.items:
                said += tuple(await self._answers(item, news.at))

    async def _answers(self, item: object, at: float) -> list[AgentRequest]:
        match item:
            case AgentStart(leases=leases):
                self.held = {lease.gpu for lease in leases}
            case LeaseNews():
                self.held |= {lease.gpu for lease in (*item.granted, *item.renewed)}
                self.held -= {lease.gpu for lease in item.revoked}
            case OfferNews(offer=offer):
                if self.kind == "mute":
                    return []
                if self.kind == "hostile":
                    # What the door refuses would take the rest with it.
                    every = [*nonsense(self.app, offer), *MEDDLING]
                    return [said for said in every if gets_in(said)]
                if self.kind == "slow":
                    await asyncio.sleep(max(0.0, item.deadline - at) + 0.1)
                return [BidReply(offer.round, honest(self.app, offer))]
            case _:
                pass
        self.ever = self.ever or bool(self.held)
        return []


def crowd() -> list[Somebody]:
    # Half of the dead still hold the line: of those that do not, the service hears after a while.
    kinds = ["dead", "mute"] * (DEAD // 2) + ["slow"] * SLOW + ["hostile"] * HOSTILE
    kinds += ["good"] * (CROWD - len(kinds))
    random.Random(3).shuffle(kinds)
    return [Somebody(AppId(f"a{number}"), kind) for number, kind in enumerate(kinds)]


async def be_a_node(report: Callable[[NodeReport], Coroutine[Any, Any, Any]], name: str) -> None:
    """A machine on which nothing ever runs."""
    slots = tuple(SlotReport(gpu, 0, SlotState.EMPTY) for gpu in range(GPUS))
    machine = Machine(name, "r0", (GPUS,))
    number = epoch = revision = 0
    while True:
        number += 1
        orders = await report(NodeReport(name, 1, number, epoch, revision, slots, (), machine))
        epoch, revision = orders.epoch, orders.revision


def rounds_of(service: Service) -> list[RoundRecord]:
    return [service.rounds.round(number)[0] for number in service.rounds.numbers()]


async def stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert result is None or isinstance(result, asyncio.CancelledError), result


@pytest.mark.slow
def test_rounds_end_by_their_deadline_for_any_agents(tmp_path: Path) -> None:
    people = crowd()

    async def scene() -> list[RoundRecord]:
        loop = asyncio.get_running_loop()
        store = open_store(f"sqlite:///{tmp_path / 'store.db'}", reserve_bytes=0)
        sources = TimeSources(loop.time, lambda: 1e9 + loop.time())
        parameters = StartParameters("themis", settings=SETTINGS)
        state = recover(store, parameters, "test", seed=3, sources=sources)
        service = Service(state, store, Inline(), AtOnce())
        await service.start()

        async def exchange(report: AgentReport) -> News:
            """Through the same check as at the door."""
            return await service.agents.exchange(from_bytes(AgentReport, to_bytes(report), BOUNDS))

        tasks = [
            asyncio.create_task(be_a_node(service.nodes.report, f"m{number}"))
            for number in range(MACHINES)
        ]
        await asyncio.sleep(2.0)
        for person in people:
            spec = simple_app(person.app, jobs=2, iterations=10**4, seconds=1.0)
            await service.submissions.submit(spec, str(person.app))
            tasks.append(asyncio.create_task(person.talk(exchange)))
        for raw in not_numbers(AgentReport(people[0].app, "s", 1, 0, 0)):
            with pytest.raises(RefusedError, match="a finite number"):
                from_bytes(AgentReport, raw, BOUNDS)
        await asyncio.sleep(60.0)
        await stop(tasks)
        await service.close()
        store.close()
        return rounds_of(service)

    rounds = run_virtually(scene())
    most = SETTINGS.bid_deadline + SETTINGS.solve_budget
    assert len(rounds) >= 6
    assert not [record.failed for record in rounds if record.failed]
    assert max(record.settled - record.opened for record in rounds) <= most + 1e-6
    # Somebody always kept the service waiting, or this would prove nothing.
    waited = [
        record for record in rounds if record.settled - record.opened >= SETTINGS.bid_deadline
    ]
    assert len(waited) >= 3
    assert any(record.refused for record in rounds), "no bid was ever refused"
    hostile = {person.app for person in people if person.kind == "hostile"}
    assert {app for record in rounds for app in record.refused} <= hostile
    good = [person for person in people if person.kind == "good"]
    assert sum(person.ever for person in good) >= len(good) // 2


@pytest.mark.chaos
@pytest.mark.slow
def test_floods_and_broken_messages_delay_no_other_agent(tmp_path: Path) -> None:
    async def scene() -> None:
        # So few that the flood is one on a slow machine too.
        door = GrpcSettings(limits=CallerLimits(requests=8.0, burst=80.0))
        often = replace(SETTINGS, lease=5.0)
        async with open_world(tmp_path, rule="themis", settings=often, door=door) as world:
            node = world.node("m0")
            tasks = [asyncio.create_task(be_a_node(node.report, "m0"))]
            await until(lambda: world.service.steward.arbiter.world.topology.gpus)
            people = [Somebody(AppId(f"a{number}"), "good") for number in range(6)]
            people.append(Somebody(AppId("bad"), "hostile"))
            for person in people:
                spec = simple_app(person.app, jobs=2, iterations=10**4, seconds=1.0)
                await world.service.submissions.submit(spec, str(person.app))
                agent = world.agent(str(person.app))
                tasks.append(asyncio.create_task(person.talk(agent.exchange)))
            told, idle = await besiege(world)
            good = people[:6]
            await until(lambda: any(person.ever for person in good), 120.0)
            await until(lambda: len(rounds_of(world.service)) >= 4, 120.0)
            await stop(tasks)
            for writer in idle:
                writer.close()
            rounds = rounds_of(world.service)
            assert not [record.failed for record in rounds if record.failed]
            assert told["LimitError"], "nobody stopped the flood"
            assert told["RefusedError"], "broken messages were taken"
            longest = max(record.settled - record.opened for record in rounds)
            print(
                f"{len(rounds)} rounds, the longest {longest:.2f} s; answers to the siege: {told}"
            )

    asyncio.run(asyncio.wait_for(scene(), 400.0))


async def besiege(world: Any) -> tuple[dict[str, int], list[asyncio.StreamWriter]]:
    """Flood the door, send rubbish, and open connections that say nothing more."""
    told: dict[str, int] = {"LimitError": 0, "RefusedError": 0}
    connection = world.connection(Role.TENANT, "bad")
    rng = random.Random(5)
    flood = to_bytes(AgentReport(AppId("bad"), "flood", 1, 0, 0))
    messages = [flood] * 300 + [rng.randbytes(200) for _ in range(20)]
    messages += [bytes(300 * 1024), b"\xff" * 1000, b""]
    messages += not_numbers(AgentReport(AppId("bad"), "odd", 1, 0, 0))

    async def send(rpc: Any, message: bytes) -> None:
        with suppress(TimeoutError):
            try:
                await connection.call(rpc, message, timeout=5.0)
            except ThemisError as error:
                told[type(error).__name__] = told.get(type(error).__name__, 0) + 1

    for message in messages[300:]:
        await send(EXCHANGE, message)
    await send(REPORT, flood)
    await asyncio.gather(*(send(EXCHANGE, message) for message in messages[:300]))
    idle = []
    for number in range(20):
        _, writer = await asyncio.open_connection(world.address.host, world.address.port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[: number + 1])
        await writer.drain()
        idle.append(writer)
    await connection.close()
    return told, idle
