"""The service in virtual time: nodes and agents talk to its doors, and it is killed in between."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from themis.arbiter import Settings
from themis.arbiter import events as ev
from themis.auction import Problem, Solution, solver
from themis.errors import RefusedError, UnavailableError, UnknownAppError
from themis.fleet import NodeCore
from themis.fleet import commands as cmd
from themis.fleet import events as nev
from themis.fleet.events import StopRequested
from themis.fleet.messages import Program, RunOrder, RunState
from themis.fleet.talk import (
    AgentReport,
    BidSaid,
    EndSaid,
    LeaseNews,
    News,
    NewsItem,
    OfferNews,
    OverNews,
    RunNews,
    RunSaid,
    Said,
    Standing,
)
from themis.live.clock import Sources
from themis.live.memory import recall
from themis.live.service import AGENT_TTL, Service
from themis.live.store import open_store
from themis.live.store.base import Batch, Store
from themis.model import AppId, Bid, GpuId, JobId, Lease, Machine
from themis.model.reasons import Reason
from themis.policies import policy
from themis.testing.virtual import AtOnce, run_virtually
from themis.testing.world import simple_app

SETTINGS = Settings(
    lease=60.0, grace=5.0, heartbeat=1.0, bid_deadline=1.0, solve_budget=1.0, guard=2.0
)
TRAIN = Program(("train",))


class Inline:
    """Solves in the loop: no time passes."""

    async def start(self) -> None:
        pass

    async def solve(self, problem: Problem, seconds: float) -> Solution:
        assert seconds >= 0.0
        return solver("default").solve(problem)

    async def close(self) -> None:
        pass


@dataclass
class Cluster:
    """A store on disk, and a service on it that can be killed."""

    path: Path
    rule: str = "equal-share"
    service: Service | None = None
    store: Store | None = None
    wrap: Callable[[Store], Store] = lambda store: store

    async def start(self) -> Service:
        loop = asyncio.get_running_loop()
        # Virtual time begins at 0 in each test; a restart finds the wall clock further on.
        self.store = self.wrap(open_store(f"sqlite:///{self.path}", reserve_bytes=0))
        sources = Sources(loop.time, lambda: 1e9 + loop.time())
        memory = recall(self.store, policy(self.rule), SETTINGS, "test", seed=3, sources=sources)
        self.service = Service(memory, self.store, Inline(), AtOnce())
        await self.service.start()
        return self.service

    def kill(self) -> None:
        """As kill -9 does: nothing more is written, nothing more is said."""
        assert self.service is not None
        assert self.store is not None
        self.service._closing = True
        if self.service._timer is not None:
            self.service._timer.cancel()
        for task in self.service._tasks:
            task.cancel()
        self.service.writer._busy = None
        self.store.close()
        self.service = None


@dataclass
class FakeNode:
    """A node core with made-up processes."""

    cluster: Cluster
    machine: Machine
    memory: cmd.Memory = field(default_factory=cmd.Memory)
    running: dict[int, RunOrder] = field(default_factory=dict)
    started: list[tuple[int, str]] = field(default_factory=list)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        core = NodeCore(self.machine, self.memory)
        inbox: asyncio.Queue[nev.NodeEvent] = asyncio.Queue()
        sending: asyncio.Task[None] | None = None
        timer: asyncio.TimerHandle | None = None
        inbox.put_nowait(nev.Adopted(loop.time()))

        async def send(report: Any) -> None:
            service = self.cluster.service
            if service is None:
                return
            try:
                orders = await service.report(report)
            except UnavailableError:
                return
            inbox.put_nowait(nev.OrdersCame(loop.time(), orders))

        while True:
            event = await inbox.get()
            for command in core.handle(event):
                match command:
                    case cmd.Remember():
                        self.memory = command.memory
                    case cmd.Send():
                        if sending is not None:
                            sending.cancel()
                        sending = asyncio.create_task(send(command.report))
                    case cmd.Start():
                        self.running[command.order.run] = command.order
                        self.started.append((command.order.run, command.order.job))
                        inbox.put_nowait(nev.Started(loop.time(), command.order.run))
                    case cmd.Checkpoint() | cmd.Kill():
                        if self.running.pop(command.run, None) is not None:
                            inbox.put_nowait(nev.Exited(loop.time(), command.run, 75))
                    case cmd.TickMe():
                        if timer is not None:
                            timer.cancel()
                        at = command.at
                        timer = loop.call_at(at, lambda: inbox.put_nowait(nev.Ticked(loop.time())))
                    case _:
                        pass


@dataclass
class Talker:
    """An agent that does as the test says."""

    cluster: Cluster
    app: AppId
    session: str = "s1"
    number: int = 0
    epoch: int = 0
    heard: int = 0
    held: dict[GpuId, Lease] = field(default_factory=dict)
    items: list[NewsItem] = field(default_factory=list)

    async def talk(self, *said: Said) -> News:
        assert self.cluster.service is not None
        self.number += 1
        report = AgentReport(self.app, self.session, self.number, self.epoch, self.heard, said)
        news = await self.cluster.service.exchange(report)
        self.epoch = news.epoch
        for number, item in enumerate(news.items, news.first):
            self.heard = number
            self.items.append(item)
            if isinstance(item, Standing):
                self.held = {lease.gpu: lease for lease in item.leases}
            if isinstance(item, LeaseNews):
                self.held.update((lease.gpu, lease) for lease in (*item.granted, *item.renewed))
                for lease in item.revoked:
                    self.held.pop(lease.gpu, None)
        return news

    async def until(self, done: Callable[[], bool], *said: Said) -> None:
        await self.talk(*said)
        for _ in range(500):
            if done():
                return
            await self.talk()
        pytest.fail("it never came to that")


@asynccontextmanager
async def cluster_of(
    path: Path, machines: int = 1, rule: str = "equal-share"
) -> AsyncIterator[tuple[Cluster, list[FakeNode]]]:
    cluster = Cluster(path / "store.sqlite", rule)
    await cluster.start()
    nodes = [FakeNode(cluster, Machine(f"m{n}", "r0", (2,))) for n in range(machines)]
    tasks = [asyncio.create_task(node.run()) for node in nodes]
    await asyncio.sleep(5.0)
    try:
        yield cluster, nodes
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if cluster.service is not None:
            await cluster.service.close()
            assert cluster.store is not None
            cluster.store.close()


def virtually(work: Callable[[Path], Coroutine[Any, Any, None]], path: Path) -> None:
    run_virtually(work(path))


def app(name: str = "sweep", jobs: int = 2) -> Any:
    return simple_app(name, gpus=1, jobs=jobs, iterations=10**6, seconds=1.0, owner="ann")


def test_an_app_gets_gpus_and_its_jobs_run(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, nodes):
            assert cluster.service is not None
            await asyncio.sleep(5.0)
            await cluster.service.submit(app(), "k1")
            agent = Talker(cluster, AppId("sweep"))
            await agent.until(lambda: len(agent.held) == 2)
            assert isinstance(agent.items[0], Standing)
            gpus = sorted(agent.held)
            await agent.talk(
                *(
                    RunSaid(JobId(job.id), (gpu,), TRAIN, f"run-{gpu}")
                    for job, gpu in zip(app().jobs, gpus, strict=True)
                )
            )
            await agent.until(lambda: len(nodes[0].running) == 2)
            await agent.until(
                lambda: (
                    len({
                        item.run for item in agent.items
                        if isinstance(item, RunNews) and item.state is RunState.RUNNING
                    }) == 2
                )
            )  # fmt: skip
            # Leases are renewed, and training goes on.
            for _ in range(300):
                await agent.talk()
            assert len(nodes[0].started) == 2
            over = lambda: any(isinstance(item, OverNews) for item in agent.items)  # noqa: E731
            await agent.until(over, EndSaid())
            assert not nodes[0].running
            with pytest.raises(UnknownAppError):
                await agent.talk()

    virtually(work, tmp_path)


def test_a_killed_service_goes_on_where_it_was(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, nodes):
            assert cluster.service is not None
            await cluster.service.submit(app(jobs=1), "k1")
            agent = Talker(cluster, AppId("sweep"))
            await agent.until(lambda: len(agent.held) == 1)
            before = dict(agent.held)
            (gpu,) = before
            await agent.until(
                lambda: bool(nodes[0].running),
                RunSaid(JobId(app().jobs[0].id), (gpu,), TRAIN, "r"),
            )
            for _ in range(4):
                cluster.kill()
                await asyncio.sleep(8.0)
                service = await cluster.start()
                assert {gpu: lease.token for gpu, lease in agent.held.items()} == {
                    gpu: lease.token for gpu, lease in before.items()
                }
                await agent.talk()
                await asyncio.sleep(10.0)
                assert service.steward.arbiter.ledger.holdings(AppId("sweep"))
            assert len(nodes[0].started) == 1
            assert len(nodes[0].running) == 1

    virtually(work, tmp_path)


def test_how_a_run_ended_is_told_also_by_the_next_service(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, nodes):
            assert cluster.service is not None
            await cluster.service.submit(app(jobs=1), "k1")
            agent = Talker(cluster, AppId("sweep"))
            await agent.until(lambda: len(agent.held) == 1)
            (gpu,) = agent.held
            job = JobId(app().jobs[0].id)
            await agent.until(lambda: bool(nodes[0].running), RunSaid(job, (gpu,), TRAIN, "r"))
            # It ends, that is stored, and the service is gone before its agent has heard of it.
            (run,) = nodes[0].running
            cluster.service.apply(StopRequested(cluster.service.now(), agent.app, run))
            await asyncio.sleep(5.0)
            assert not cluster.service.steward.runs
            cluster.kill()
            await cluster.start()
            agent.items.clear()
            await agent.talk()
            (standing,) = [item for item in agent.items if isinstance(item, Standing)]
            told = [(news.run, news.job, news.state, news.code) for news in standing.runs]
            assert told == [(run, job, RunState.EXITED, 75)]
            # Only until the job runs again.
            await agent.until(lambda: bool(nodes[0].running), RunSaid(job, (gpu,), TRAIN, "r2"))
            cluster.kill()
            await cluster.start()
            agent.items.clear()
            await agent.talk()
            (standing,) = [item for item in agent.items if isinstance(item, Standing)]
            assert [news.key for news in standing.runs] == ["r2"]

    virtually(work, tmp_path)


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path, machines=2) as (cluster, _):
            accepted = []
            for number in range(12):
                assert cluster.service is not None
                spec = app(f"app-{number}", jobs=1)
                await cluster.service.submit(spec, f"key-{number}")
                accepted.append(spec.id)
                if number % 3 == 2:
                    cluster.kill()
                    await cluster.start()
                assert cluster.service is not None
                known = set(cluster.service.steward.arbiter.world.apps)
                assert known == set(accepted)
                # The same key again is the same app, also after a restart.
                assert await cluster.service.submit(spec, f"key-{number}") == spec.id
            assert cluster.service is not None
            with pytest.raises(RefusedError):
                await cluster.service.submit(app("other"), "key-3")
            with pytest.raises(RefusedError):
                await cluster.service.submit(app("app-3", jobs=1), "another-key")

    virtually(work, tmp_path)


def test_an_auction_is_held_among_agents(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path, rule="themis") as (cluster, _):
            assert cluster.service is not None
            agents = [Talker(cluster, AppId(name)) for name in ("one", "two")]
            await asyncio.sleep(5.0)
            for agent in agents:
                await cluster.service.submit(app(agent.app), agent.app)

            async def live(agent: Talker) -> None:
                answered: set[int] = set()
                for _ in range(400):
                    await agent.talk(
                        *(
                            BidSaid(item.offer.round, Bid(agent.app))
                            for item in agent.items
                            if isinstance(item, OfferNews) and item.offer.round not in answered
                        )
                    )
                    answered |= {
                        item.offer.round for item in agent.items if isinstance(item, OfferNews)
                    }

            await asyncio.gather(*(live(agent) for agent in agents))
            assert cluster.service.steward.arbiter.rounds > 0

    virtually(work, tmp_path)


def test_a_silent_agent_suspends_its_app_until_it_is_heard(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, _):
            assert cluster.service is not None
            await cluster.service.submit(app(), "k")
            agent = Talker(cluster, AppId("sweep"))
            await agent.talk()
            state = cluster.service.steward.arbiter.world.apps[AppId("sweep")]
            await asyncio.sleep(AGENT_TTL + 5.0)
            assert Reason.AGENT_UNREACHABLE in state.suspended
            await agent.talk()
            assert Reason.AGENT_UNREACHABLE not in state.suspended

    virtually(work, tmp_path)


def test_an_app_that_was_only_intended_can_be_submitted_again(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, _):
            service = cluster.service
            assert service is not None
            # Killed between the two: there was room for it, but it did not arrive.
            await service.writer.apart(Batch(kept={"intent/ann/k": "sweep"}))
            cluster.kill()
            service = await cluster.start()
            assert not [key for key in service.kept if key.startswith("intent/")]
            assert await service.submit(app(), "k") == "sweep"
            assert AppId("sweep") in service.steward.arbiter.world.apps

    virtually(work, tmp_path)


class Failing:
    """A store whose disk fails from some commit on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.broken = False

    def commit(self, batch: Batch) -> int:
        if self.broken:
            raise OSError("the disk is gone")
        return self._store.commit(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_nothing_is_said_when_nothing_can_be_stored(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        failing: list[Failing] = []

        def wrap(store: Store) -> Store:
            failing.append(Failing(store))
            return failing[-1]

        cluster = Cluster(path / "store.sqlite", wrap=wrap)
        service = await cluster.start()
        failing[0].broken = True
        with pytest.raises(OSError, match="disk is gone"):
            await service.submit(app(), "k")
        with pytest.raises(OSError, match="disk is gone"):
            await service.carry_out(ev.QuotaChanged(service.now(), app().owner, 3))
        assert str(await service.failed()) == "the disk is gone"
        with pytest.raises(UnavailableError):
            await service.submit(replace(app(), weight=2.0), "k2")
        await service.close()
        failing[0]._store.close()

    virtually(work, tmp_path)
