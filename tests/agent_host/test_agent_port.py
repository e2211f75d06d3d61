"""Both ways from an arbiter to its agents: the same commands lead to the same replies."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import pytest

from tests.support.grpc_service import Inline
from tests.support.small_sims import sim_app
from tests.support.virtual import AtOnce, run_virtually
from themis.agent_host.host import AgentRunner
from themis.apps.app_file import AppFile, StopConditions, StopRule
from themis.apps.plan import PlannedTrial, SweepPlan
from themis.core.arbiter import Settings
from themis.core.arbiter import events as ev
from themis.core.arbiter.agent_port import AgentPort
from themis.core.arbiter.commands import Ask, Assign
from themis.core.model import AppId, Bid, GpuId, JobId, Lease, LeaseSource, Machine, Offer, Phase
from themis.core.model.presets import preset
from themis.core.policies import policy
from themis.core.steward.commands import DurableChanges, Outcome
from themis.core.steward.events import AgentSpoke, StewardEvent
from themis.protocol.agent_messages import (
    AgentReport,
    BidReply,
    HostedApps,
    News,
    ReleaseRequest,
    RunRequest,
    StopRequest,
    SubmittedApp,
)
from themis.protocol.node_messages import NodeReport, SlotReport, SlotState
from themis.rpc.wire.convert import from_bytes, to_bytes
from themis.service.persistence.recovery import TimeSources, recover
from themis.service.persistence.start_parameters import StartParameters
from themis.service.persistence.store import open_store
from themis.service.service import Service
from themis.sim.direct_agents import DirectAgents
from themis.sim.modelled_jobs import Nodes
from themis.sim.slot_handover import SlotHandover

TOPOLOGY = preset("demo16")
SWEEP = sim_app("sweep", jobs=3, phases=[Phase(3, 100), Phase(1, 50)], qualities=[1.0, 2.0, 3.0])
ROUND = 1000
"""The first round of the tests; the service's arbiter has rounds of its own meanwhile."""
_Kind = TypeVar("_Kind")


class Ends(Protocol):
    """A port, and what its agent has replied or done."""

    @property
    def port(self) -> AgentPort:
        """Under test."""

    @property
    def seen(self) -> list[tuple[Any, ...]]:
        """Bids, starts, stops and releases, in order."""

    async def settle(self) -> None:
        """Wait until the agent has replied."""


class Direct:
    """An agent of the simulator; in place of nodes and slots there is this."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.running: dict[AppId, Any] = {}
        self.port = DirectAgents(
            cast("Nodes", self),
            cast("SlotHandover", self),
            topology=lambda: TOPOLOGY,
            post=self._post,
            now=lambda: 0.0,
        )
        self.port.add(SWEEP, policy("themis"), learns=True)

    def _post(self, event: ev.Event) -> None:
        assert isinstance(event, ev.BidReceived)
        self.seen.append(("bid", event.round, event.bid))

    def start(self, app: AppId, job: JobId, gpus: Any, until: float, now: float) -> None:
        self.seen.append(("start", job, gpus, until))

    def stop(self, app: AppId, job: JobId, now: float) -> None:
        self.seen.append(("stop", job))

    def release(self, now: float, app: AppId, gpus: Any) -> None:
        self.seen.append(("release", gpus))

    async def settle(self) -> None:
        """It has replied."""


@asynccontextmanager
async def direct(folder: Path) -> AsyncIterator[Ends]:
    yield Direct()


@dataclass
class Live:
    """A service and an agent that exchange bytes; what the agent asks for is noted, not done."""

    service: Service
    seen: list[tuple[Any, ...]] = field(default_factory=list)
    jobs: dict[str, JobId] = field(default_factory=dict)
    """By the key of its run."""

    @property
    def port(self) -> AgentPort:
        return self.service.agents

    async def settle(self) -> None:
        await asyncio.sleep(0.5)

    def apply(self, event: StewardEvent) -> Outcome:
        """As the loop does, but for what an agent says."""
        if not isinstance(event, AgentSpoke):
            return self._apply(event)
        match event.request:
            case BidReply(round=number, bid=bid) if number >= ROUND:
                self.seen.append(("bid", number, bid))
            case RunRequest(job=job, gpus=gpus, limit=limit, key=key):
                self.jobs[key] = job
                self.seen.append(("start", job, gpus, limit))
            case StopRequest(key=key):
                self.seen.append(("stop", self.jobs[key]))
            case ReleaseRequest(gpus=gpus):
                self.seen.append(("release", gpus))
            case _:
                pass
        return Outcome(DurableChanges(()))

    def __post_init__(self) -> None:
        self._apply = self.service.loop.apply
        self.service.loop.apply = self.apply  # type: ignore[method-assign]

    async def exchange(self, report: AgentReport) -> News:
        news = await self.service.agents.exchange(_carried(AgentReport, report))
        return _carried(News, news)

    async def hosted(self, revision: int) -> HostedApps:
        raise NotImplementedError

    async def sheet(self, app: AppId) -> SubmittedApp:
        raise NotImplementedError


def _carried(kind: type[_Kind], value: _Kind) -> _Kind:
    return from_bytes(kind, to_bytes(value))


@asynccontextmanager
async def live(folder: Path) -> AsyncIterator[Ends]:
    store = open_store(f"sqlite:///{folder / 'store.db'}", reserve_bytes=0)
    parameters = StartParameters("themis", settings=Settings())
    clock = asyncio.get_running_loop().time
    sources = TimeSources(clock, clock)
    state = recover(store, parameters, "test", seed=3, node_ttl=1e5, sources=sources)
    service = Service(state, store, Inline(), AtOnce())
    await service.start()
    nodes = [await _join(service, machine) for machine in TOPOLOGY.machines]
    await service.submissions.submit(SWEEP.spec, key="sweep")
    ends = Live(service)
    file = AppFile(SWEEP.spec.id, ("train",), stop=StopConditions(StopRule.HALVING, 150))
    trials = tuple(PlannedTrial(job.id, {}) for job in SWEEP.spec.jobs)
    plan = SweepPlan(file, 0, SWEEP.spec, trials, SWEEP.tuner)
    agent = AgentRunner(ends, plan, random.Random(1), monotonic=clock, wall=clock)
    running = asyncio.create_task(agent.run())
    await ends.settle()
    try:
        yield ends
    finally:
        for task in (running, *nodes):
            task.cancel()
        await asyncio.gather(running, *nodes, return_exceptions=True)
        await service.close()
        store.close()


async def _join(service: Service, machine: Machine) -> asyncio.Task[Any]:
    """A node reports twice; the second report waits for orders."""
    slots = tuple(SlotReport(gpu, 0, SlotState.EMPTY) for gpu in range(machine.gpus))
    report = NodeReport(machine.name, 1, 1, 0, 0, slots, (), machine)
    orders = await service.nodes.report(report)
    again = replace(report, number=2, epoch=orders.epoch, revision=orders.revision)
    waiting = asyncio.create_task(service.nodes.report(again))
    while machine not in service.steward.arbiter.world.topology.machines:
        await asyncio.sleep(0.1)
    return waiting


Open = Callable[[Path], AbstractAsyncContextManager[Ends]]
both = pytest.mark.parametrize("port", [direct, live])


def drive(port: Open, folder: Path, *commands: Ask | Assign) -> list[tuple[Any, ...]]:
    """Send commands one by one; returns what the agent replied and did."""

    async def work() -> list[tuple[Any, ...]]:
        async with port(folder) as ends:
            for command in commands:
                ends.port.send(command)
                await ends.settle()
            return ends.seen

    return run_virtually(work())


def ask(number: int, gpus: tuple[int, ...], kept: tuple[int, ...] = ()) -> Ask:
    offer = Offer(number, tuple(map(GpuId, gpus)), tuple(map(GpuId, kept)))
    return Ask(SWEEP.spec.id, offer, deadline=1e5)


def lease(gpu: int, token: int) -> Lease:
    return Lease(GpuId(gpu), SWEEP.spec.id, token, 0.0, 1e5, LeaseSource.AUCTION)


def assign(granted: tuple[Lease, ...] = (), revoked: tuple[Lease, ...] = ()) -> Assign:
    return Assign(SWEEP.spec.id, granted=granted, revoked=revoked)


@both
def test_an_offer_is_answered_with_a_bid_of_its_round(port: Open, tmp_path: Path) -> None:
    [(kind, number, bid)] = drive(port, tmp_path, ask(ROUND, (0, 1, 4)))
    assert (kind, number) == ("bid", ROUND)
    assert isinstance(bid, Bid)
    assert bid.rows


@both
def test_granted_gpus_are_used_for_jobs_and_the_rest_is_given_back(
    port: Open, tmp_path: Path
) -> None:
    seen = drive(port, tmp_path, assign(tuple(lease(gpu, 10 + gpu) for gpu in range(4))))
    starts = [(job, gpus, until) for kind, job, gpus, until in seen[:3]]
    assert sorted(job for job, _, _ in starts) == ["j0", "j1", "j2"]
    assert all(len(gpus) == 1 and until == 100.0 for _, gpus, until in starts)
    [(kind, given_back)] = seen[3:]
    assert kind == "release"
    assert {*given_back, *(gpu for _, gpus, _ in starts for gpu in gpus)} == {0, 1, 2, 3}


@both
def test_the_job_on_a_revoked_gpu_stops(port: Open, tmp_path: Path) -> None:
    leases = tuple(lease(gpu, 10 + gpu) for gpu in range(3))
    seen = drive(port, tmp_path, assign(leases), assign(revoked=leases[1:2]))
    on_it = next(job for _, job, gpus, _ in seen[:3] if gpus == (1,))
    assert seen[3:] == [("stop", on_it)]


def test_both_ways_lead_to_the_same_replies(tmp_path: Path) -> None:
    leases = tuple(lease(gpu, 10 + gpu) for gpu in range(3))
    commands = (
        ask(ROUND, tuple(range(16))),
        assign(leases[:2]),
        ask(ROUND + 1, (2, 4, 5, 9), (0, 1)),
        assign(leases[2:], leases[:1]),
        ask(ROUND + 2, (0, 4, 5), (1, 2)),
    )
    replies = drive(direct, tmp_path, *commands)
    assert len(replies) > len(commands)
    assert drive(live, tmp_path, *commands) == replies
