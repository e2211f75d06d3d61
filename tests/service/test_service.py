"""The service in virtual time: nodes and agents talk to its doors, and it is killed in between."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.scripted_world import simple_app
from tests.support.subscribers import rows_in_memory
from tests.support.virtual import AtOnce, run_virtually
from themis.core.agent import Agent
from themis.core.agent.commands import SendBid
from themis.core.agent.events import Asked
from themis.core.arbiter import Settings
from themis.core.arbiter import events as ev
from themis.core.arbiter.records import RoundRecord
from themis.core.auction import Problem, Solution, solver
from themis.core.fairness.ideal_time import Convention
from themis.core.model import AppId, Bid, GpuId, JobId, Lease, Machine, OwnerId
from themis.core.model.reasons import Reason
from themis.core.steward.events import AgentSpoke
from themis.core.steward.rows import RunEnd
from themis.core.tuners import tuner_for
from themis.errors import (
    ConfigError,
    CorruptLogError,
    RefusedError,
    StaleAnswerError,
    UnavailableError,
    UnknownAppError,
)
from themis.node.core import commands as cmd
from themis.node.core import events as nev
from themis.node.core.node_core import NodeCore
from themis.protocol.agent_messages import (
    AgentReport,
    AgentRequest,
    AgentStart,
    AppEndNews,
    BidReply,
    EndApp,
    LeaseNews,
    News,
    NewsItem,
    OfferNews,
    PointsNews,
    RefusalNews,
    ReleaseRequest,
    RunNews,
    RunRequest,
    StopRequest,
    TrialParams,
)
from themis.protocol.node_messages import MetricsSource, Point, Program, RunOrder, RunState
from themis.service.agent_delivery import AGENT_TTL
from themis.service.dashboard.page_history import PageHistory
from themis.service.persistence.log_replay import PrunedLogError, replay_store
from themis.service.persistence.recovery import TimeSources, longest_hold, recover
from themis.service.persistence.round_history import Arrival, RoundHistory, read_rounds
from themis.service.persistence.start_parameters import (
    StartParameters,
    parameters_of,
    parameters_row,
)
from themis.service.persistence.store import open_store
from themis.service.persistence.store.base import Batch, LogEntry
from themis.service.persistence.store.sql import Store
from themis.service.retained_rows import EndedApps
from themis.service.service import Service

SETTINGS = Settings(
    lease=60.0, grace=5.0, heartbeat=1.0, bid_deadline=1.0, solve_budget=1.0, guard=2.0
)
TRAIN = Program(("train",))


class Inline:
    """Solves in the loop: no time passes."""

    def __init__(self) -> None:
        self.asked: list[Problem] = []

    async def start(self) -> None:
        pass

    async def solve(self, problem: Problem, seconds: float, slack: float = 0.0) -> Solution:
        assert seconds >= 0.0
        self.asked.append(problem)
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
    solving: Inline = field(default_factory=Inline)

    async def start(self) -> Service:
        loop = asyncio.get_running_loop()
        # Virtual time begins at 0 in each test; a restart finds the wall clock further on.
        self.store = self.wrap(open_store(f"sqlite:///{self.path}", reserve_bytes=0))
        sources = TimeSources(loop.time, lambda: 1e9 + loop.time())
        parameters = StartParameters(self.rule, settings=SETTINGS)
        state = recover(self.store, parameters, "test", seed=3, sources=sources)
        self.solving = Inline()
        self.service = Service(state, self.store, self.solving, AtOnce())
        await self.service.start()
        return self.service

    def kill(self) -> None:
        """As kill -9 does: nothing more is written, nothing more is said."""
        assert self.service is not None
        assert self.store is not None
        loop = self.service.loop
        loop.stop()
        if loop._timer is not None:
            loop._timer.cancel()
        for task in loop._tasks:
            task.cancel()
        self.service.queue._busy = None
        self.store.close()
        self.service = None


@dataclass
class FakeNode:
    """A node core with made-up processes."""

    cluster: Cluster
    machine: Machine
    memory: cmd.NodeMemory = field(default_factory=cmd.NodeMemory)
    running: dict[int, RunOrder] = field(default_factory=dict)
    started: list[tuple[int, str]] = field(default_factory=list)
    dropped: list[tuple[int, int]] = field(default_factory=list)
    """Runs and points that need not be told again."""
    inbox: asyncio.Queue[nev.NodeEvent] = field(default_factory=asyncio.Queue)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        core = NodeCore(self.machine, self.memory)
        inbox = self.inbox
        sending: asyncio.Task[None] | None = None
        timer: asyncio.TimerHandle | None = None
        inbox.put_nowait(nev.Adopted(loop.time()))

        async def send(report: Any) -> None:
            service = self.cluster.service
            if service is None:
                return
            try:
                orders = await service.nodes.report(report)
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
                    case cmd.StartRun():
                        self.running[command.order.run] = command.order
                        self.started.append((command.order.run, command.order.job))
                        inbox.put_nowait(nev.RunStarted(loop.time(), command.order.run))
                    case cmd.Checkpoint() | cmd.Kill():
                        if self.running.pop(command.run, None) is not None:
                            inbox.put_nowait(nev.RunExited(loop.time(), command.run, 75))
                    case cmd.Advance():
                        self.dropped.append((command.run, command.heard))
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
    fence: int = 0
    held: dict[GpuId, Lease] = field(default_factory=dict)
    items: list[NewsItem] = field(default_factory=list)

    async def talk(self, *said: AgentRequest) -> News:
        assert self.cluster.service is not None
        if said and not self.fence:
            await self.talk()
        self.number += 1
        report = AgentReport(
            self.app, self.session, self.number, self.epoch, self.heard, said, self.fence
        )
        news = await self.cluster.service.agents.exchange(report)
        self.epoch, self.fence = news.epoch, news.fence
        for number, item in enumerate(news.items, news.first):
            self.heard = number
            self.items.append(item)
            if isinstance(item, AgentStart):
                self.held = {lease.gpu: lease for lease in item.leases}
            if isinstance(item, LeaseNews):
                self.held.update((lease.gpu, lease) for lease in (*item.granted, *item.renewed))
                for lease in item.revoked:
                    self.held.pop(lease.gpu, None)
        return news

    async def until(self, done: Callable[[], bool], *said: AgentRequest) -> None:
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
        # Whatever happened, kills included: the log says all that the arbiter was told.
        with open_store(f"sqlite:///{cluster.path}", read_only=True) as store:
            result = replay_store(store, resolve=True)
            assert result.first_difference is None, result.first_difference.text
            assert result.events > 0


def virtually(work: Callable[[Path], Coroutine[Any, Any, None]], path: Path) -> None:
    run_virtually(work(path))


def app(name: str = "sweep", jobs: int = 2) -> Any:
    return simple_app(name, gpus=1, jobs=jobs, iterations=10**6, seconds=1.0, owner="ann")


def test_an_app_gets_gpus_and_its_jobs_run(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, nodes):
            assert cluster.service is not None
            await asyncio.sleep(5.0)
            await cluster.service.submissions.submit(app(), "k1")
            agent = Talker(cluster, AppId("sweep"))
            await agent.until(lambda: len(agent.held) == 2)
            assert isinstance(agent.items[0], AgentStart)
            gpus = sorted(agent.held)
            await agent.talk(
                *(
                    RunRequest(JobId(job.id), (gpu,), TRAIN, f"run-{gpu}")
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
            over = lambda: any(isinstance(item, AppEndNews) for item in agent.items)  # noqa: E731
            await agent.until(over, EndApp())
            assert not nodes[0].running
            with pytest.raises(UnknownAppError):
                await agent.talk()

    virtually(work, tmp_path)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        pytest.param(
            replace(TRAIN, metrics=MetricsSource(kind="regex", pattern="step (")),
            "metric.pattern",
            id="half a pattern",
        ),
        pytest.param(replace(TRAIN, grace=-1.0), "checkpoint.grace", id="less than no time"),
        pytest.param(replace(TRAIN, env=(("THEMIS_GPUS", "0"),)), "THEMIS_GPUS", id="a variable"),
    ],
)
def test_program_that_could_run_nowhere_is_refused_on_request(
    tmp_path: Path, program: Program, said: str
) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, nodes):
            assert cluster.service is not None
            await cluster.service.submissions.submit(app(jobs=1), "k1")
            agent = Talker(cluster, AppId("sweep"))
            await agent.until(lambda: len(agent.held) == 1)
            (gpu,) = agent.held
            await agent.talk(RunRequest(JobId(app().jobs[0].id), (gpu,), program, "r"))
            await agent.until(lambda: isinstance(agent.items[-1], RefusalNews))
            refusal = agent.items[-1]
            assert isinstance(refusal, RefusalNews)
            assert (refusal.what, refusal.final) == ("r", True)
            assert said in refusal.reason
            assert not nodes[0].started
            assert not cluster.service.steward.runs

    virtually(work, tmp_path)


@pytest.mark.parametrize("params", ["", "7", '{"q": NaN}', '{"q":' * 50_000, '{"q": 1}'])
def test_parameters_that_are_no_json_object_are_refused(tmp_path: Path, params: str) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, _):
            assert cluster.service is not None
            await cluster.service.submissions.submit(app(jobs=1), "k1")
            agent, job = Talker(cluster, AppId("sweep")), JobId(app().jobs[0].id)
            await agent.until(lambda: len(agent.held) == 1)
            await agent.talk(TrialParams(job, params))
            kept = cluster.service.steward.trials.params(AppId("sweep"))
            assert kept == ({job: params} if params == '{"q": 1}' else {})

    virtually(work, tmp_path)


def test_a_killed_service_goes_on_where_it_was(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, nodes):
            assert cluster.service is not None
            await cluster.service.submissions.submit(app(jobs=1), "k1")
            agent = Talker(cluster, AppId("sweep"))
            await agent.until(lambda: len(agent.held) == 1)
            before = dict(agent.held)
            (gpu,) = before
            await agent.until(
                lambda: bool(nodes[0].running),
                RunRequest(JobId(app().jobs[0].id), (gpu,), TRAIN, "r"),
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


def test_next_service_also_reports_how_a_run_ended(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, nodes):
            assert cluster.service is not None
            await cluster.service.submissions.submit(app(jobs=1), "k1")
            agent = Talker(cluster, AppId("sweep"))
            await agent.until(lambda: len(agent.held) == 1)
            (gpu,) = agent.held
            job = JobId(app().jobs[0].id)
            await agent.until(lambda: bool(nodes[0].running), RunRequest(job, (gpu,), TRAIN, "r"))
            # It ends, that is stored, and the service is gone before its agent has heard of it.
            (run,) = nodes[0].running
            service = cluster.service
            fence = service.steward.fence_of(agent.app)
            service.loop.apply(AgentSpoke(service.now(), agent.app, fence, StopRequest(run)))
            await asyncio.sleep(5.0)
            assert not cluster.service.steward.runs
            cluster.kill()
            await cluster.start()
            agent.items.clear()
            await agent.talk()
            (standing,) = [item for item in agent.items if isinstance(item, AgentStart)]
            told = [(news.run, news.job, news.state, news.code) for news in standing.runs]
            assert told == [(run, job, RunState.EXITED, 75)]
            # Only until the job runs again.
            await agent.until(lambda: bool(nodes[0].running), RunRequest(job, (gpu,), TRAIN, "r2"))
            cluster.kill()
            await cluster.start()
            agent.items.clear()
            await agent.talk()
            (standing,) = [item for item in agent.items if isinstance(item, AgentStart)]
            assert [news.key for news in standing.runs] == ["r2"]

    virtually(work, tmp_path)


def test_acknowledged_changes_survive_a_kill(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path, machines=2) as (cluster, _):
            accepted = []
            for number in range(12):
                assert cluster.service is not None
                spec = app(f"app-{number}", jobs=1)
                await cluster.service.submissions.submit(spec, f"key-{number}")
                accepted.append(spec.id)
                if number % 3 == 2:
                    cluster.kill()
                    await cluster.start()
                assert cluster.service is not None
                known = set(cluster.service.steward.arbiter.world.apps)
                assert known == set(accepted)
                # The same key again is the same app, also after a restart.
                assert await cluster.service.submissions.submit(spec, f"key-{number}") == spec.id
            assert cluster.service is not None
            with pytest.raises(RefusedError):
                await cluster.service.submissions.submit(app("other"), "key-3")
            with pytest.raises(RefusedError):
                await cluster.service.submissions.submit(app("app-3", jobs=1), "another-key")

    virtually(work, tmp_path)


def test_an_auction_is_held_among_agents(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path, rule="themis") as (cluster, _):
            assert cluster.service is not None
            agents = [Talker(cluster, AppId(name)) for name in ("one", "two")]
            await asyncio.sleep(5.0)
            for agent in agents:
                await cluster.service.submissions.submit(app(agent.app), agent.app)

            async def live(agent: Talker) -> None:
                answered: set[int] = set()
                for _ in range(400):
                    await agent.talk(
                        *(
                            BidReply(item.offer.round, Bid(agent.app))
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


def test_an_auction_is_solved_while_the_disk_is_busy(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path, rule="themis") as (cluster, _):
            service = cluster.service
            assert service is not None
            talkers = [Talker(cluster, AppId(name)) for name in ("one", "two")]
            cores = {name: Agent(app(name), tuner_for(app(name))) for name in ("one", "two")}

            def bids(talker: Talker) -> list[BidReply]:
                offers = [item.offer for item in talker.items if isinstance(item, OfferNews)]
                topology = service.steward.arbiter.world.topology
                answers = cores[talker.app].handle(Asked(service.now(), offers[-1], topology))
                return [BidReply(item.round, item.bid) for item in answers
                        if isinstance(item, SendBid)]  # fmt: skip

            def asked(talker: Talker, number: int = 0) -> bool:
                offers = [item.offer for item in talker.items if isinstance(item, OfferNews)]
                return any(offer.round > number for offer in offers)

            for talker in talkers:
                await service.submissions.submit(app(talker.app, jobs=4), talker.app)
            one, two = talkers
            await asyncio.gather(*(each.until(partial(asked, each)) for each in talkers))
            # Only one of two answers, so that the round waits for its deadline; meanwhile the disk
            # is busy.
            await service.queue.settled()
            before = len(cluster.solving.asked)
            service.queue._busy = asyncio.create_task(asyncio.sleep(0.0))
            bid = asyncio.create_task(one.talk(*bids(one)))
            await asyncio.sleep(1.5)
            solved = len(cluster.solving.asked) - before
            service.queue._busy = asyncio.create_task(service.queue._write())
            await bid
            assert solved == 1
            await two.until(lambda: bool(one.held or two.held))

    virtually(work, tmp_path)


def test_late_message_of_a_replaced_agent_is_ignored(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, nodes):
            assert cluster.service is not None
            await cluster.service.submissions.submit(app(jobs=1), "k1")
            old = Talker(cluster, AppId("sweep"), "old")
            await old.until(lambda: len(old.held) == 1)
            (gpu,) = old.held
            job = JobId(app().jobs[0].id)
            await old.until(lambda: bool(nodes[0].running), RunRequest(job, (gpu,), TRAIN, "r"))
            new = Talker(cluster, AppId("sweep"), "new")
            await new.talk()
            assert new.fence > old.fence
            (run,) = nodes[0].running
            words: tuple[AgentRequest, ...] = (
                EndApp(),
                StopRequest(run),
                ReleaseRequest((gpu,), (old.held[gpu].token,)),
            )
            for restarts in (False, True):
                if restarts:
                    cluster.kill()
                    await cluster.start()
                for said in words:
                    with pytest.raises(StaleAnswerError, match="another agent"):
                        await old.talk(said)
                # Neither can it begin again, as if it were the newer one.
                with pytest.raises(StaleAnswerError, match="another agent"):
                    await Talker(cluster, AppId("sweep"), "old").talk()
                fence = new.fence
                await new.talk()
                assert new.fence == fence
            assert list(nodes[0].running) == [run]
            assert cluster.service is not None
            assert not cluster.service.steward.arbiter.world.apps[AppId("sweep")].outcome

    virtually(work, tmp_path)


def test_replaced_agent_receives_nothing_more(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, _):
            assert cluster.service is not None
            await cluster.service.submissions.submit(app(jobs=1), "k1")
            old = Talker(cluster, AppId("sweep"), "old")
            await old.until(lambda: len(old.held) == 1)
            waiting = asyncio.create_task(old.talk())
            await asyncio.sleep(0.0)
            await Talker(cluster, AppId("sweep"), "new").talk()
            await Talker(cluster, AppId("sweep"), "newer").talk()
            with pytest.raises(StaleAnswerError):
                await waiting

    virtually(work, tmp_path)


def test_a_session_begins_with_its_number_before_anything_counts(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, _):
            assert cluster.service is not None
            await cluster.service.submissions.submit(app(), "k1")
            agent = Talker(cluster, AppId("sweep"))
            await agent.talk()
            late = AgentReport(AppId("sweep"), "never-heard-of", 1, 0, 0, (EndApp(),))
            with pytest.raises(RefusedError, match="says nothing"):
                await cluster.service.agents.exchange(late)
            assert not cluster.service.steward.arbiter.world.apps[AppId("sweep")].outcome
            await agent.talk()
            # The same first report, sent again, is the same session.
            first = AgentReport(AppId("sweep"), agent.session, 1, 0, 0)
            assert (await cluster.service.agents.exchange(first)).fence == agent.fence

    virtually(work, tmp_path)


def test_app_end_is_sent_to_its_agent_until_acknowledged(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, _):
            assert cluster.service is not None
            await cluster.service.submissions.submit(app(), "k1")
            agent = Talker(cluster, AppId("sweep"))
            await agent.until(lambda: len(agent.held) == 2)
            before = (agent.epoch, agent.heard)
            await agent.until(lambda: AppEndNews("finished") in agent.items, EndApp())
            again = agent
            for restarts in (False, True):
                if restarts:
                    cluster.kill()
                    await cluster.start()
                # The answer was lost, or another agent takes its place and knows nothing.
                agent.epoch, agent.heard = before
                for again in (agent, Talker(cluster, AppId("sweep"), "s2")):
                    again.items.clear()
                    await again.talk()
                    assert again.items[-1] == AppEndNews("finished")
            assert cluster.service is not None
            assert before[0] < agent.epoch
            with pytest.raises(UnknownAppError):
                await again.talk()
            assert not cluster.service.agents.outboxes

    virtually(work, tmp_path)


def test_ended_apps_outbox_is_dropped_after_sending_its_end(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, _):
            service = cluster.service
            assert service is not None
            for name in ("dead", "away"):
                await service.submissions.submit(app(name), name)
            agent = Talker(cluster, AppId("away"))
            await agent.talk()
            await service.submissions.submit(app("never-seen"), "k")
            for name in ("dead", "away", "never-seen"):
                await service.loop.carry_out(ev.AppEnded(service.now(), AppId(name), "cancelled"))
            await asyncio.sleep(AGENT_TTL + 5.0)
            assert not service.agents.outboxes
            await agent.talk()
            assert agent.items[-1] == AppEndNews("cancelled")
            # And it is no news for an app of the same name.
            await service.submissions.submit(app("away"), "another")
            fresh = Talker(cluster, AppId("away"), "fresh")
            await fresh.talk()
            assert [type(item) for item in fresh.items[:1]] == [AgentStart]

    virtually(work, tmp_path)


def test_nothing_remains_of_an_app_that_ends_without_its_agent(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path, rule="themis") as (cluster, _):
            service = cluster.service
            assert service is not None
            await service.submissions.submit(app(), "k")
            await asyncio.sleep(AGENT_TTL + 5.0)
            assert service.agents.outboxes[AppId("sweep")].unreachable
            await service.submissions.submit(app("hasty"), "another")
            assert service.agents.outboxes[AppId("hasty")].offer is not None
            for name in ("sweep", "hasty"):
                await service.loop.carry_out(ev.AppEnded(service.now(), AppId(name), "cancelled"))
            assert all(box.offer is None for box in service.agents.outboxes.values())
            await asyncio.sleep(AGENT_TTL + 5.0)
            assert not service.agents.outboxes

    virtually(work, tmp_path)


def test_owner_of_an_app_is_known_after_a_restart(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, _):
            assert cluster.service is not None
            await cluster.service.submissions.submit(app(), "k1")
            service = cluster.service
            await service.loop.carry_out(ev.AppEnded(service.now(), AppId("sweep"), "finished"))
            cluster.kill()
            service = await cluster.start()
            assert service.owner_of(AppId("sweep")) == "ann"
            assert service.owner_of(AppId("another")) is None
            # A name that is used anew is whose it is now.
            await service.submissions.submit(replace(app(), owner=OwnerId("bob")), "k2")
            assert service.owner_of(AppId("sweep")) == "bob"

    virtually(work, tmp_path)


def test_agent_joining_during_a_round_can_bid_in_it(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path, rule="themis") as (cluster, _):
            service = cluster.service
            assert service is not None
            await service.submissions.submit(app(), "k")
            agent = Talker(cluster, AppId("sweep"))
            await agent.talk()
            arbiter = service.steward.arbiter
            for _ in range(2000):
                await asyncio.sleep(0.1)
                if arbiter.round_open:
                    break
            await service.queue.settled()
            # Its agent is started again just now.
            fresh = Talker(cluster, AppId("sweep"), "s2")
            await fresh.talk()
            standing, offer = fresh.items
            assert isinstance(standing, AgentStart)
            assert isinstance(offer, OfferNews)
            assert offer.offer.round == arbiter.rounds
            still = arbiter.round_open
            assert still
            await fresh.talk(BidReply(offer.offer.round - 1, Bid(fresh.app)))
            assert service.agents.outboxes[fresh.app].offer is offer, "that was for another round"
            await fresh.talk(BidReply(offer.offer.round, Bid(fresh.app)))
            assert not arbiter.round_open
            # What was answered, or is over, is not asked again.
            late = Talker(cluster, AppId("sweep"), "s3")
            await late.talk()
            assert not [item for item in late.items if isinstance(item, OfferNews)]

    virtually(work, tmp_path)


@pytest.mark.parametrize("comes", [True, False], ids=["it is back", "it stays away"])
def test_after_a_restart_a_round_waits_for_agents_to_come_back(tmp_path: Path, comes: bool) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path, rule="themis") as (cluster, _):
            service = cluster.service
            assert service is not None
            await service.submissions.submit(app(), "k")
            agent = Talker(cluster, AppId("sweep"))
            await agent.until(lambda: any(isinstance(item, OfferNews) for item in agent.items))
            cluster.kill()
            await asyncio.sleep(SETTINGS.lease + 10.0)  # A round is long due.
            service = await cluster.start()
            arbiter = service.steward.arbiter
            before = arbiter.rounds
            wait = longest_hold(SETTINGS)
            assert 1.0 < wait <= 5.0
            await asyncio.sleep(wait / 2.0)  # The doors open only now.
            service.listening()
            await asyncio.sleep(wait / 2.0)
            assert arbiter.rounds == before
            if not comes:
                await asyncio.sleep(wait / 2.0 + 0.1)
                assert arbiter.rounds == before + 1
                return
            agent.items.clear()
            await agent.until(lambda: any(isinstance(item, OfferNews) for item in agent.items))
            offers = [item.offer for item in agent.items if isinstance(item, OfferNews)]
            assert before + 1 in {offer.round for offer in offers}
            assert arbiter.rounds == before + 1
            still = arbiter.round_open
            assert still
            await agent.talk(BidReply(before + 1, Bid(agent.app)))
            assert not arbiter.round_open

    virtually(work, tmp_path)


def test_a_service_without_earlier_agents_does_not_wait(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path, rule="themis") as (cluster, _):
            assert cluster.service is not None
            await cluster.service.submissions.submit(app(), "k")
            await asyncio.sleep(3.0)
            cluster.kill()
            await asyncio.sleep(SETTINGS.lease + 10.0)
            service = await cluster.start()
            assert service.steward.arbiter.rounds > 1
            assert service.steward.arbiter.round_open

    virtually(work, tmp_path)


def test_silent_agent_suspends_its_app_until_it_reports(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, _):
            assert cluster.service is not None
            await cluster.service.submissions.submit(app(), "k")
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
            await service.queue.apart(Batch(kept={"intent/ann/k": "sweep"}))
            cluster.kill()
            service = await cluster.start()
            assert not [key for key in service.rows if key.startswith("intent/")]
            assert await service.submissions.submit(app(), "k") == "sweep"
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


def test_nothing_is_sent_when_nothing_can_be_stored(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        failing: list[Failing] = []

        def wrap(store: Store) -> Store:
            failing.append(Failing(store))
            return cast("Store", failing[-1])

        cluster = Cluster(path / "store.sqlite", wrap=wrap)
        service = await cluster.start()
        failing[0].broken = True
        with pytest.raises(OSError, match="disk is gone"):
            await service.submissions.submit(app(), "k")
        with pytest.raises(OSError, match="disk is gone"):
            await service.loop.carry_out(ev.QuotaChanged(service.now(), app().owner, 3))
        assert str(await service.queue.failed) == "the disk is gone"
        with pytest.raises(UnavailableError):
            await service.submissions.submit(replace(app(), weight=2.0), "k2")
        await service.close()
        failing[0]._store.close()

    virtually(work, tmp_path)


def test_a_service_that_came_back_with_another_policy_replays_with_both(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path, rule="fifo") as (cluster, _):
            for number, rule in enumerate(("equal-share", "equal-share", "themis")):
                assert cluster.service is not None
                await cluster.service.submissions.submit(app(f"app-{number}"), f"key-{number}")
                await asyncio.sleep(70.0)
                cluster.kill()
                cluster.rule = rule
                await cluster.start()
                await asyncio.sleep(70.0)
            assert cluster.service is not None
            found = parameters_of(cluster.service.rows, "store")
            # One row for each change, and none for a start that changed nothing.
            told = {epoch: terms.policy for epoch, terms in found.items()}
            assert told == {1: "fifo", 2: "equal-share", 4: "themis"}

    virtually(work, tmp_path)


def _log_of_two_apps(tmp_path: Path) -> str:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, _):
            assert cluster.service is not None
            agents = [Talker(cluster, AppId(name)) for name in ("one", "two")]
            for agent in agents:
                await cluster.service.submissions.submit(app(agent.app), agent.app)
                await agent.until(lambda: bool(agents[0].held))
            for _ in range(100):
                await asyncio.gather(*(agent.talk() for agent in agents))
            assert any(isinstance(item, LeaseNews) and item.granted for item in agents[1].items)

    virtually(work, tmp_path)
    return f"sqlite:///{tmp_path / 'store.sqlite'}"


def test_a_replay_names_the_first_entry_that_went_another_way(tmp_path: Path) -> None:
    url = _log_of_two_apps(tmp_path)
    with open_store(url, read_only=True) as store:
        told = replay_store(store, policy="fifo")
        assert told.first_difference is not None
        assert told.first_difference.line > 1
        assert "command" in told.first_difference.text


def test_a_log_without_its_beginning_is_not_replayed(tmp_path: Path) -> None:
    url = _log_of_two_apps(tmp_path)
    with open_store(url, reserve_bytes=0) as store:
        store.begin_epoch("test", 0)
        while store.prune(older_than=60.0).more:
            pass
    with open_store(url, read_only=True) as store:
        with pytest.raises(PrunedLogError, match="pruned") as caught:
            replay_store(store)
        assert caught.value.first > 1


def test_a_replay_imports_no_code_that_only_the_store_names(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    body = '{"events":[{"type":"woken","at":1.0}],"commands":[]}'
    entry = LogEntry(1.0, body)
    with open_store(url, reserve_bytes=0) as store:
        store.begin_epoch("test", 0)
        store.commit(Batch(entries=(entry,)))
        with pytest.raises(CorruptLogError, match="no parameters"):
            replay_store(store)
        store.commit(Batch(kept=parameters_row({}, 1, StartParameters("mine:Policy"))))
        with pytest.raises(ConfigError, match="--policy mine:Policy, if you trust that code"):
            replay_store(store)
        assert replay_store(store, policy="fifo").same
        store.commit(Batch(entries=(replace(entry, body='{"events":[{"type":"No"}]}'),)))
        with pytest.raises(CorruptLogError, match=":2:"):
            replay_store(store, policy="fifo")


def test_rounds_from_before_a_restart_are_still_there(tmp_path: Path) -> None:
    with open_store(_log_of_two_apps(tmp_path), read_only=True) as store:
        end = store.usage().next_entry
        steps = read_rounds(store, 1, end - 1)
        records = [step for step in steps if isinstance(step, RoundRecord)]
        numbers = [record.round for record in records]
        assert len(numbers) > 1
        book = RoundHistory()
        book.add(replace(records[-1], failed="as it is now"), {})
        # Read backwards and in parts, and still in order; what is there is not replaced.
        for begin in range(end - 5, -5, -5):
            book.remember(read_rounds(store, max(1, begin), begin + 4))
        book.conclude({})
        assert book.numbers() == numbers
        assert book.round(numbers[-1])[0].failed == "as it is now"
        assert book.round(numbers[-1])[1] == records[-2]
        assert book.owners(numbers[-2]) == {"one": "ann", "two": "ann"}
        few = RoundHistory(most=1)
        few.remember(steps)
        assert few.numbers() == numbers[-1:]
        ended = EndedApps(rows_in_memory(), Convention.FAIR_SHARE)
        past = PageHistory(ended, lambda _: None)
        past.remember(steps, {})
        assert {(item.held.app, item.owner) for item in past.segments()} >= {("one", "ann")}
        assert past.histories.of("one").rho or past.histories.of("one").reasons


def test_a_refused_name_stays_its_owner_s(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, _):
            assert cluster.service is not None
            await cluster.service.submissions.submit(app("one"), "k")
            theirs = replace(app("one"), owner=OwnerId("bob"))
            with pytest.raises(RefusedError, match="of this name"):
                await cluster.service.submissions.submit(theirs, "k")

    virtually(work, tmp_path)
    with open_store(f"sqlite:///{tmp_path / 'store.sqlite'}", read_only=True) as store:
        steps = read_rounds(store, 1, store.usage().next_entry - 1)
    arrivals = [step for step in steps if isinstance(step, Arrival)]
    assert arrivals == [Arrival(AppId("one"), OwnerId("ann"))]


def test_a_round_keeps_the_owners_of_its_time(tmp_path: Path) -> None:
    with open_store(_log_of_two_apps(tmp_path), read_only=True) as store:
        steps = read_rounds(store, 1, store.usage().next_entry - 1)
    record = next(step for step in reversed(steps) if isinstance(step, RoundRecord))
    one, two = (replace(record, round=number) for number in (1, 2))
    arrivals = [Arrival(AppId("one"), OwnerId(who)) for who in ("ann", "bob")]
    book = RoundHistory()
    book.remember((arrivals[0], one, arrivals[1], two))
    # "two" arrived before all that is remembered, and is still there.
    book.conclude({AppId("one"): OwnerId("cat"), AppId("two"): OwnerId("dan")})
    assert book.owners(1) == {"one": "ann", "two": "dan"}
    assert book.owners(2) == {"one": "bob", "two": "dan"}
    book.add(replace(record, round=3), {AppId("one"): OwnerId("cat")})
    assert book.owners(1)[AppId("one")] == "ann"
    # Nobody's where nobody knows: who is there now need not have been there then.
    lost = RoundHistory()
    lost.remember((one, arrivals[1], two))
    lost.conclude({AppId("one"): OwnerId("bob")})
    assert lost.owners(1) == {}
    assert lost.owners(2) == {"one": "bob"}


def test_round_added_while_others_are_loaded_keeps_its_names(tmp_path: Path) -> None:
    with open_store(_log_of_two_apps(tmp_path), read_only=True) as store:
        steps = read_rounds(store, 1, store.usage().next_entry - 1)
    record = next(step for step in reversed(steps) if isinstance(step, RoundRecord))
    book = RoundHistory()
    book.remember((Arrival(AppId("one"), OwnerId("ann")), record))
    new = record.round + 1
    book.add(replace(record, round=new), {AppId("one"): OwnerId("ann")})
    book.conclude({AppId("two"): OwnerId("dan")})
    assert book.owners(record.round) == {"one": "ann", "two": "dan"}
    assert book.owners(new) == {"one": "ann"}


def heard(agent: Talker) -> list[object]:
    """Iterations by their numbers, and ends of runs."""
    found: dict[int, float] = {}
    for item in agent.items:
        if isinstance(item, PointsNews):
            assert item.first <= len(found) + 1, "points are missing"
            found.update(enumerate((point.iteration for point in item.points), item.first))
    ends = [item.state for item in agent.items if isinstance(item, RunNews) and item.state.over]
    return [*found.values(), *ends]


def test_agent_receives_every_point_in_order_and_then_the_end(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, nodes):
            assert cluster.service is not None
            (node,) = nodes
            await cluster.service.submissions.submit(app(jobs=1), "k1")
            agent = Talker(cluster, AppId("sweep"))
            await agent.until(lambda: len(agent.held) == 1)
            (gpu,) = agent.held
            job = JobId(app().jobs[0].id)
            await agent.until(lambda: bool(node.running), RunRequest(job, (gpu,), TRAIN, "r"))
            (run,) = node.running
            now = asyncio.get_running_loop().time
            several = tuple(Point(float(n), None, (("loss", 0.5),)) for n in range(1, 6))
            node.inbox.put_nowait(nev.PointsRead(now(), run, several[:3]))
            await agent.until(lambda: heard(agent) == [1.0, 2.0, 3.0])
            await agent.talk()
            assert node.dropped == [(run, 3)]
            # The next ones are told, but the service dies before it knows that they were heard.
            node.inbox.put_nowait(nev.PointsRead(now(), run, several[3:]))
            node.running.clear()
            node.inbox.put_nowait(nev.RunExited(now(), run, 0))
            await agent.until(lambda: heard(agent) == [1.0, 2.0, 3.0, 4.0, 5.0, RunState.EXITED])
            cluster.kill()
            service = await cluster.start()
            first = next(item for item in agent.items if isinstance(item, PointsNews))
            agent.items = [first]
            agent.session, agent.fence = "s2", 0
            await agent.talk()
            (standing,) = [item for item in agent.items if isinstance(item, AgentStart)]
            assert [news.state for news in standing.runs] == [RunState.STOPPING]
            await agent.until(lambda: heard(agent) == [1.0, 2.0, 3.0, 4.0, 5.0, RunState.EXITED])
            await agent.talk()
            kept = service.steward.rows[f"result/{run}"]
            assert isinstance(kept, RunEnd)
            assert kept.points_on == ""

    virtually(work, tmp_path)


def test_restarted_agent_learns_run_ends_without_their_logs(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, nodes):
            assert cluster.service is not None
            (node,) = nodes
            await cluster.service.submissions.submit(app(jobs=1), "k1")
            agent = Talker(cluster, AppId("sweep"))
            await agent.until(lambda: bool(agent.held))
            (gpu, *_), job = agent.held, JobId("j0")
            await agent.until(lambda: bool(node.running), RunRequest(job, (gpu,), TRAIN, "r"))
            (run,) = node.running
            node.running.clear()
            now = asyncio.get_running_loop().time()
            node.inbox.put_nowait(nev.RunExited(now, run, 3, log="out of memory"))
            told: list[str] = []

            def is_over() -> bool:
                runs = [item for item in agent.items if isinstance(item, RunNews)]
                told[:] = [item.log for item in runs if item.state.over]
                return bool(told)

            await agent.until(is_over)
            assert told == ["out of memory"]
            fresh = Talker(cluster, AppId("sweep"), "s2")
            await fresh.talk()
            (standing,) = [item for item in fresh.items if isinstance(item, AgentStart)]
            assert [(news.code, news.log) for news in standing.runs] == [(3, "")]

    virtually(work, tmp_path)


def test_delayed_points_do_not_overtake_repeated_ones(tmp_path: Path) -> None:
    async def work(path: Path) -> None:
        async with cluster_of(path) as (cluster, nodes):
            assert cluster.service is not None
            (node,), writer = nodes, cluster.service.queue
            await cluster.service.submissions.submit(app(jobs=1), "k1")
            agent = Talker(cluster, AppId("sweep"))
            await agent.until(lambda: len(agent.held) == 1)
            (gpu,) = agent.held
            job = JobId(app().jobs[0].id)
            await agent.until(lambda: bool(node.running), RunRequest(job, (gpu,), TRAIN, "r"))
            (run,) = node.running
            now = asyncio.get_running_loop().time
            node.inbox.put_nowait(nev.PointsRead(now(), run, (Point(1.0), Point(2.0))))
            await asyncio.sleep(3.0)
            # The disk is busy from here on, and the agent that was told of these is replaced.
            await cluster.service.queue.settled()
            writer._busy = asyncio.create_task(asyncio.sleep(0.0))
            node.inbox.put_nowait(nev.PointsRead(now(), run, (Point(3.0),)))
            node.running.clear()
            node.inbox.put_nowait(nev.RunExited(now(), run, 0))
            await asyncio.sleep(3.0)
            other = Talker(cluster, AppId("sweep"), "s2")
            talk = asyncio.create_task(other.talk())
            await asyncio.sleep(3.0)
            writer._busy = asyncio.create_task(writer._write())
            await talk
            await other.until(lambda: heard(other) == [1.0, 2.0, 3.0, RunState.EXITED])

    virtually(work, tmp_path)
