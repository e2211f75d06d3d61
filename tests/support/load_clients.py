"""Many made-up agents and nodes in one process, each with its own connection to a real service.

    python -m tests.support.load_clients plan.json

For benchmarks and faults: agents bid from a table without thinking, nodes run nothing but say that
they do. They are as cheap as can be, so that what is measured is the service. Ends with standard
input, and then prints what it saw as one JSON line.
"""

import asyncio
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from themis.config.addresses import Address
from themis.core.auction.problem import MAX_ROWS
from themis.core.model import Machine
from themis.errors import LimitError, ThemisError, UnavailableError
from themis.node.core import commands as cmd
from themis.node.core import events as nev
from themis.node.core.node_core import NodeCore
from themis.protocol.node_messages import NodeReport
from themis.rpc.client import CALL_SECONDS, Connection, Credentials, NodeClient
from themis.rpc.methods import EXCHANGE, EXCHANGES
from themis.rpc.stream import CallStream
from themis.rpc.wire import themis_pb2

KINDS = ("honest", "dead", "slow", "hostile")
"""Dead ones listen and never say a word; slow ones bid at the last moment or after it."""
RESUMABLE = 75
_STAGGER = 2.0
"""Seconds over which the agents make their first calls."""
_AGAIN = 0.5


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """One app's agent. The app is taken to have jobs j0, j1, ... of one GPU each."""

    app: str
    token_file: str
    kind: str = "honest"
    jobs: int = 1
    work: float = 3600.0
    """Seconds that all of it takes on one GPU."""
    runs: bool = False
    """Whether it starts jobs on what it is granted."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One machine."""

    name: str
    token_file: str
    slots: tuple[int, ...] = (4,)
    rack: str = "r0"


@dataclass(frozen=True, slots=True)
class Plan:
    """Who there is, and where the service is."""

    host: str
    port: int
    agents: tuple[AgentPlan, ...] = ()
    nodes: tuple[NodePlan, ...] = ()

    def text(self) -> str:
        """As `main` reads it."""
        return json.dumps(
            {
                "host": self.host,
                "port": self.port,
                "agents": [
                    [a.app, a.token_file, a.kind, a.jobs, a.work, a.runs] for a in self.agents
                ],
                "nodes": [[n.name, n.token_file, list(n.slots), n.rack] for n in self.nodes],
            }
        )


def plan_from(text: str) -> Plan:
    """The plan that `text` wrote."""
    data = json.loads(text)
    return Plan(
        data["host"],
        data["port"],
        tuple(AgentPlan(*item) for item in data["agents"]),
        tuple(
            NodePlan(name, file, tuple(slots), rack) for name, file, slots, rack in data["nodes"]
        ),
    )


@dataclass
class Sights:
    """What the crowd saw. Times are the wall clock's."""

    counts: Counter[str] = field(default_factory=Counter)
    offered: dict[int, list[float]] = field(default_factory=dict)
    """By round: the first and the last offer that came."""
    bid: dict[int, float] = field(default_factory=dict)
    """By round: when the last bid was sent."""
    leases: list[float] = field(default_factory=list)
    """When news of leases came."""

    def note_offer(self, number: int) -> None:
        """An offer came."""
        now = time.time()
        self.counts["offers"] += 1
        self.offered.setdefault(number, [now, now])[1] = now

    def line(self) -> str:
        """All of it."""
        return json.dumps(
            {
                "counts": dict(sorted(self.counts.items())),
                "offered": self.offered,
                "bid": self.bid,
                "leases": self.leases,
            }
        )


# Agents


class Agent:
    """Speaks for one app, in bare messages."""

    def __init__(self, plan: AgentPlan, address: Address, sights: Sights) -> None:
        self.plan = plan
        self.connection = Connection(address, Credentials(Path(plan.token_file)))
        self.talk = CallStream(self.connection, EXCHANGES)
        self.sights = sights
        self.report = themis_pb2.AgentReport(app=plan.app, session="crowd")
        self.rng = random.Random(plan.app)
        self.rows = _rows(plan.work)
        self.jobs: dict[int, int] = {}
        """The job on each GPU."""

    async def run(self) -> None:
        """Talk until cancelled."""
        await asyncio.sleep(self.rng.uniform(0.0, _STAGGER))
        said: list[Any] = []
        while True:
            for item in said:
                if item.WhichOneof("kind") == "bid":
                    self.sights.bid[item.bid.round] = time.time()
            news = await self._exchange(said)
            said = []
            if news is None:
                await asyncio.sleep(self.rng.uniform(0.0, _AGAIN))
                continue
            for item in self._new(news):
                said += await self._hear(item)

    async def _exchange(self, said: list[Any]) -> Any:
        self.report.number += 1
        del self.report.requests[:]
        if self.report.fence:  # Nothing is said before the session has its number.
            self.report.requests.extend(said)
        self.sights.counts["calls"] += 1
        try:
            raw = await self.talk.ask(self.report.SerializeToString(), CALL_SECONDS)
        except LimitError as error:
            self.sights.counts["LimitError"] += 1
            await asyncio.sleep(error.retry_after or 0.0)
            return None
        except ThemisError as error:
            self.sights.counts[_ending(error)] += 1
            return None
        return themis_pb2.News.FromString(raw)

    def _new(self, news: Any) -> list[Any]:
        self.report.fence = news.fence
        if news.epoch != self.report.epoch:
            self.report.epoch, self.report.heard = news.epoch, news.first - 1
        skip = max(0, self.report.heard + 1 - news.first)
        self.report.heard = max(self.report.heard, news.first + len(news.items) - 1)
        return list(news.items)[skip:]

    async def _hear(self, item: Any) -> list[Any]:
        kind = item.WhichOneof("kind")
        if kind == "offer":
            self.sights.note_offer(item.offer.offer.round)
            return await self._answer(item.offer.offer.round)
        if kind == "lease":
            self.sights.leases.append(time.time())
            return self._place(item.lease.granted, item.lease.revoked)
        if kind == "standing":
            return self._place(item.standing.leases, ())
        if kind == "refusal":
            self.sights.counts["refusals"] += 1
        return []

    async def _answer(self, number: int) -> list[Any]:
        return [self._bid(number)]

    def _bid(self, number: int) -> Any:
        bid = themis_pb2.Bid(app=self.plan.app, rows=self.rows[0], table=self.rows[1])
        return themis_pb2.AgentRequest(bid=themis_pb2.BidReply(round=number, bid=bid))

    def _place(self, granted: Iterable[Any], revoked: Iterable[Any]) -> list[Any]:
        """Start a job on each GPU that was granted."""
        if not self.plan.runs:
            return []
        for lease in revoked:
            self.jobs.pop(lease.gpu, None)
        said = []
        for lease in granted:
            free = [job for job in range(self.plan.jobs) if job not in self.jobs.values()]
            if free and lease.gpu not in self.jobs:
                self.jobs[lease.gpu] = free[0]
                run = themis_pb2.RunRequest(
                    job=f"j{free[0]}",
                    gpus=[lease.gpu],
                    program=themis_pb2.Program(argv=["train"]),
                    key=f"{lease.token}",
                )
                said.append(themis_pb2.AgentRequest(run=run))
        return said


class DeadAgent(Agent):
    """Hears, and never answers."""

    async def _answer(self, number: int) -> list[Any]:
        return []


class SlowAgent(Agent):
    """Bids at the last moment, or after it."""

    async def _answer(self, number: int) -> list[Any]:
        await asyncio.sleep(self.rng.uniform(1.5, 2.5))
        return [self._bid(number)]


class HostileAgent(Agent):
    """Says what nobody should say, in every way that there is, and too often."""

    async def run(self) -> None:
        """Poll like others, and make other calls besides."""
        other = asyncio.create_task(self._flood())
        try:
            await super().run()
        finally:
            other.cancel()

    async def _flood(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(0.5, 1.5))
            junk = self.rng.choice(
                (b"\xff" * 100, b"", self.rng.randbytes(2000), b"\n" * 300_000, b"\x0a\x05")
            )
            other = CallStream(self.connection, EXCHANGES)
            calls = [self.connection.call(EXCHANGE, junk, timeout=2.0) for _ in range(2)]
            calls.append(other.ask(junk, 2.0))
            for answer in await asyncio.gather(*calls, return_exceptions=True):
                self.sights.counts[f"flood {_ending(answer)}"] += 1

    async def _answer(self, number: int) -> list[Any]:
        bid = self._bid(number)
        match self.rng.randrange(9):
            case 0:
                bid.bid.bid.rows[0].seconds = float("nan")
            case 1:
                bid.bid.bid.rows[0].seconds = -1.0
            case 2:
                bid.bid.bid.rows[0].seconds = 1e308
            case 3:
                bid.bid.bid.app = "somebody-else"
            case 4:
                bid.bid.round = number - 1
            case 5:
                return [bid] * 50
            case 6:
                bid.bid.bid.rows.extend([bid.bid.bid.rows[0]] * 4000)
            case 7:
                # As many as are taken: each is looked at in the auction.
                first = bid.bid.bid.rows[0]
                bid.bid.bid.rows.extend([first] * (MAX_ROWS - len(bid.bid.bid.rows)))
            case _:
                bid.bid.bid.rows[0].chunks[0].count = 2**40
        return [bid]


_AGENTS: dict[str, type[Agent]] = {
    "honest": Agent,
    "dead": DeadAgent,
    "slow": SlowAgent,
    "hostile": HostileAgent,
}


def _ending(answer: object) -> str:
    """How a call ended, in few words: of what is weather also which."""
    if not isinstance(answer, BaseException):
        return "answered"
    if isinstance(answer, UnavailableError):
        return f"{type(answer).__name__}: {str(answer)[:60]}"
    return type(answer).__name__


def _rows(work: float) -> tuple[list[Any], list[Any]]:
    """What an app bids, far from each other and close together."""
    rows, table = [], []
    for level, slower in ((0, 1.0), (1, 1.1), (3, 1.5)):
        for count in (1, 2, 4):
            seconds = work * slower / count
            chunk = themis_pb2.Chunk(level=level, count=count)
            rows.append(themis_pb2.Row(chunks=[chunk], seconds=seconds))
            table.append(themis_pb2.TableRow(level=level, count=count, seconds=seconds))
    return rows, table


# Nodes


class FakeNode:
    """A node core whose processes are made up."""

    def __init__(self, plan: NodePlan, address: Address, sights: Sights) -> None:
        self.machine = Machine(plan.name, plan.rack, plan.slots, "pretend")
        self.client = NodeClient(Connection(address, Credentials(Path(plan.token_file))))
        self.sights = sights
        self.core = NodeCore(self.machine, cmd.NodeMemory(), shared_dir="/shared")
        self.inbox: asyncio.Queue[Callable[[float], nev.NodeEvent]] = asyncio.Queue()
        self.running: dict[int, float] = {}
        self._sending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Report until cancelled."""
        self.inbox.put_nowait(nev.Adopted)
        measuring = asyncio.create_task(self._measure())
        try:
            while True:
                happened = await self.inbox.get()
                for command in self.core.handle(happened(time.monotonic())):
                    self._do(command)
        finally:
            measuring.cancel()

    def _do(self, command: cmd.NodeCommand) -> None:
        match command:
            case cmd.Send(report=report):
                if self._sending is not None:
                    self._sending.cancel()
                self._sending = asyncio.create_task(self._send(report))
            case cmd.StartRun(order=order):
                self.running[order.run] = time.monotonic()
                self.sights.counts["starts"] += 1
                self.inbox.put_nowait(lambda at: nev.RunStarted(at, order.run))
            case cmd.Checkpoint(run=run) | cmd.Kill(run=run):
                if self.running.pop(run, None) is not None:
                    self.inbox.put_nowait(lambda at: nev.RunExited(at, run, RESUMABLE))
            case cmd.TickMe(at=at):
                if self._timer is not None:
                    self._timer.cancel()
                wait = max(0.0, at - time.monotonic())
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(wait, self.inbox.put_nowait, nev.Ticked)
            case cmd.Remember() | cmd.Renew() | cmd.Forget() | cmd.Advance():
                pass
            case cmd.ReadLogs() | cmd.LookAtStorage():
                pass

    async def _send(self, report: NodeReport) -> None:
        self.sights.counts["reports"] += 1
        try:
            orders = await self.client.report(report)
        except ThemisError as error:
            self.sights.counts[f"node {_ending(error)}"] += 1
        else:
            self.inbox.put_nowait(lambda at: nev.OrdersCame(at, orders))

    async def _measure(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for run, began in list(self.running.items()):
                seconds = time.monotonic() - began
                self.inbox.put_nowait(
                    partial(nev.RunMeasured, run=run, iterations=seconds, seconds=seconds)
                )


# The process


async def crowd(plan: Plan, over: asyncio.Event) -> Sights:
    """Run all of them until it is over; the nodes first, so that there is something to share."""
    address, sights = Address(plan.host, plan.port), Sights()
    tasks = [asyncio.create_task(work) for work in _members(plan, address, sights)]
    await over.wait()
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            sights.counts[f"failed {type(result).__name__}: {result}"] += 1
    return sights


def _members(plan: Plan, address: Address, sights: Sights) -> Iterator[Any]:
    for node in plan.nodes:
        yield FakeNode(node, address, sights).run()
    for agent in plan.agents:
        yield _AGENTS[agent.kind](agent, address, sights).run()


async def _main(plan: Plan) -> None:
    over, loop = asyncio.Event(), asyncio.get_running_loop()

    def watch() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=watch, daemon=True).start()
    sights = await crowd(plan, over)
    sys.stdout.write(sights.line() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(plan_from(Path(sys.argv[1]).read_text(encoding="utf-8"))))
