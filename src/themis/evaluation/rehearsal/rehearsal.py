"""A whole cluster in one process and in virtual time: the live system with pretend jobs.

    played = rehearse(prepare(config), folder)
    played.apps["w2-0001"].end, played.store        # and a log as every service has one

Service, store, nodes and agents are those that run in production. Three things are pretended: time,
which passes as soon as nothing is left to do; the network, which is a call; and training, which is
a timer (`pretend`).
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from themis import __version__
from themis.agent_host.host import AgentRunner
from themis.apps.app_file import AppFile, CheckpointRules, StopConditions, StopRule
from themis.apps.plan import PlannedTrial, SweepPlan
from themis.core.agent.agent import Agent
from themis.core.arbiter import AppRecord
from themis.core.arbiter.commands import RecordApp
from themis.core.auction import Problem, Solution, solver
from themis.core.model import AppId, Machine
from themis.errors import InvariantError
from themis.evaluation.rehearsal.pretend_engine import PretendEngine, ProcessOverhead, Truth
from themis.evaluation.rehearsal.virtual_loop import AtOnce, run_virtually
from themis.node.disk import NodeDisk
from themis.node.node import Node, NodeSettings
from themis.node.shared_folder import SharedFolder
from themis.protocol.agent_messages import AgentReport, HostedApps, News, SubmittedApp
from themis.protocol.node_messages import NodeReport, Orders
from themis.recording.agent_log import AgentEntry, AgentLog
from themis.recording.codec import loads
from themis.rpc.wire.convert import from_bytes, to_bytes
from themis.service.persistence.log_entries import commands_in
from themis.service.persistence.recovery import TimeSources, recover
from themis.service.persistence.start_parameters import StartParameters
from themis.service.persistence.store import open_store
from themis.service.service import Service
from themis.sim.config import PreparedRun
from themis.sim.workloads import SimApp

STORE = "store.sqlite"
NODE_TTL = 180.0
LOOK_EVERY = 2.0
"""Seconds between a node's looks at its jobs."""
_WALL = 1e9
_GRACE = 30.0

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The result of a rehearsal."""

    apps: dict[AppId, AppRecord]
    store: Path
    """The service's, with its log."""
    agents: tuple[AgentEntry, ...]
    """The events and commands of agents, if a book was given."""
    changes: tuple[ProcessOverhead, ...]
    """Every process of every job."""
    killed: int
    """Processes that had to be killed: none, if all is well."""
    end: float


def rehearse(
    prepared: PreparedRun,
    folder: Path,
    *,
    progress: Callable[[int], None] = lambda done: None,
    patience: float | None = None,
    wire: bool = False,
    book: AgentLog | None = None,
    looks: Mapping[float, Callable[[Service], None]] | None = None,
) -> Rehearsed:
    """Run a workload to its end on the live system.

    Args:
        prepared: As for the simulator. Lies and errors of apps are ignored.
        folder: Where service and nodes keep their files; empty at first.
        progress: Called with the number of apps that have ended.
        patience: Virtual seconds after the last arrival in which all must end.
        wire: Whether messages are encoded and decoded as on the wire, which takes longer.
        book: Records the events and commands of agents.
        looks: Called with the service at these times; they must not change it.

    Raises:
        InvariantError: An app did not end well, or not in time.
    """
    rehearsal = _Rehearsal(prepared, folder, progress, wire, book, looks or {})
    return run_virtually(rehearsal.run(patience))


class _Inline:
    """Solves in the loop, with a budget of work as the simulator does: no time passes."""

    def __init__(self, name: str, work: int) -> None:
        self._solver = solver(name)
        self._work = work

    async def start(self) -> None:
        """There is nothing to do."""

    async def solve(self, problem: Problem, seconds: float, slack: float = 0.0) -> Solution:
        """At once."""
        return self._solver.solve(problem, self._work)

    async def close(self) -> None:
        """There is nothing to do."""


class _Door:
    """The service's doors for nodes and agents, with or without the wire's bytes in between."""

    def __init__(self, service: Service, *, wire: bool) -> None:
        self._service = service
        self._wire = wire

    def _carried(self, kind: type[_Kind], value: _Kind) -> _Kind:
        return from_bytes(kind, to_bytes(value)) if self._wire else value

    async def report(self, report: NodeReport) -> Orders:
        """As `NodeClient`."""
        orders = await self._service.nodes.report(self._carried(NodeReport, report))
        return self._carried(Orders, orders)

    async def exchange(self, report: AgentReport) -> News:
        """As `AgentClient`."""
        news = await self._service.agents.exchange(self._carried(AgentReport, report))
        return self._carried(News, news)

    async def hosted(self, revision: int) -> HostedApps:
        """Nobody hosts these agents."""
        raise NotImplementedError

    async def sheet(self, app: AppId) -> SubmittedApp:
        """There is no file of them."""
        raise NotImplementedError


@dataclass
class _Rehearsal:
    prepared: PreparedRun
    folder: Path
    progress: Callable[[int], None]
    wire: bool
    book: AgentLog | None
    looks: Mapping[float, Callable[[Service], None]]
    done: int = 0

    async def run(self, patience: float | None) -> Rehearsed:
        prepared = self.prepared
        loop = asyncio.get_running_loop()
        truth = Truth(prepared.workload, prepared.costs, prepared.config.seed)
        async with self._service() as service:
            door = _Door(service, wire=self.wire)
            async with AsyncExitStack() as stack:
                for machine in prepared.topology.machines:
                    await self._join(stack, service, door, machine, truth)
                await self._play(service, door, patience)
            end = loop.time()
        with open_store(self._url, read_only=True) as store:
            records = {
                command.record.app: command.record
                for stored in store.entries()
                for command in commands_in(loads(stored.entry.body))
                if isinstance(command, RecordApp)
            }
        path = self.folder / STORE
        return Rehearsed(
            records,
            path,
            tuple(self.book.entries if self.book else ()),
            tuple(truth.changes),
            truth.killed,
            end,
        )

    @property
    def _url(self) -> str:
        return f"sqlite:///{self.folder / STORE}"

    @asynccontextmanager
    async def _service(self) -> AsyncIterator[Service]:
        prepared, loop = self.prepared, asyncio.get_running_loop()
        store = open_store(self._url, reserve_bytes=0)
        try:
            parameters = StartParameters(
                prepared.config.policy, prepared.policy_options, prepared.settings
            )
            state = recover(
                store,
                parameters,
                __version__,
                policy=prepared.policy,
                seed=prepared.config.seed,
                node_ttl=NODE_TTL,
                sources=TimeSources(loop.time, lambda: _WALL + loop.time()),
            )
            solving = _Inline(prepared.solver, prepared.settings.solve_work)
            service = Service(state, store, solving, AtOnce())
            await service.start()
            service.listening()
            try:
                yield service
            finally:
                await service.close()
        finally:
            store.close()

    async def _join(
        self,
        stack: AsyncExitStack,
        service: Service,
        door: _Door,
        machine: Machine,
        truth: Truth,
    ) -> None:
        """Start a node and wait until the cluster has it: GPUs are numbered as they come."""
        disk = stack.enter_context(NodeDisk.open(self.folder / machine.name, machine.name))
        # Where jobs move as they do in the simulator, every machine sees their checkpoints.
        shared = self.folder / "shared"
        shared.mkdir(exist_ok=True)
        node = Node(
            machine,
            PretendEngine(machine, truth),
            door,
            disk,
            storage=SharedFolder(shared, machine.name),
            trust_tenants=True,
            settings=NodeSettings(measure_every=LOOK_EVERY, health_every=86400.0),
            rng=random.Random(machine.name),
            now=asyncio.get_running_loop().time,
        )
        task = asyncio.create_task(node.run())
        stack.push_async_callback(_ended, task)
        while machine not in service.steward.arbiter.world.topology.machines:
            if task.done():
                await task
            await asyncio.sleep(0)

    async def _play(self, service: Service, door: _Door, patience: float | None) -> None:
        apps = self.prepared.workload.apps
        limit = None if patience is None else apps[-1].arrival + patience
        loop = asyncio.get_running_loop()
        for at, look in self.looks.items():
            loop.call_at(at, look, service)
        try:
            async with asyncio.timeout(limit), asyncio.TaskGroup() as group:
                for app in apps:
                    group.create_task(self._live(service, door, app))
        except TimeoutError:
            left = len(apps) - self.done
            raise InvariantError(f"{left} of {len(apps)} apps are not over in time") from None

    async def _live(self, service: Service, door: _Door, app: SimApp) -> None:
        """One app, from its arrival to its end."""
        name = app.spec.id
        await asyncio.sleep(app.arrival - asyncio.get_running_loop().time())
        await service.submissions.submit(app.spec, key=name)

        runner = AgentRunner(
            door,
            _plan(app),
            random.Random(name),
            monotonic=asyncio.get_running_loop().time,
            wall=asyncio.get_running_loop().time,
            session=name,
            make_agent=Agent if self.book is None else self.book.make_agent,
        )
        outcome = await runner.run()
        if outcome != "finished":
            raise InvariantError(f"{name} ended with {outcome!r}")
        self.done += 1
        self.progress(self.done)


def _written(app: SimApp) -> AppFile:
    """What somebody would have written to submit such an app."""
    most = sum(phase.iterations for phase in app.spec.phases)
    return AppFile(
        app.spec.id,
        ("pretend", app.model),
        stop=StopConditions(StopRule.HALVING, most),
        model=app.model,
        checkpoint=CheckpointRules(
            grace=_GRACE,
            save=app.spec.checkpoint_seconds,
            restart=app.spec.restart_seconds,
        ),
    )


def _plan(app: SimApp) -> SweepPlan:
    # Not laid out from the file: jobs of a workload differ more than a file can say.
    trials = tuple(PlannedTrial(job.id, {}) for job in app.spec.jobs)
    return SweepPlan(_written(app), 0, app.spec, trials, app.tuner)


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
