"""A second driver, with tasks and queues, takes the same decisions as the simulator.

Every agent is a task that answers when the dice let it, the solver is one too, time is virtual.
Only the cores and the modelled processes are shared with the simulator: that the decisions agree
shows that they hang neither on the order of answers nor on who drives.
"""

import asyncio
import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import pytest

from tests.support.small_sims import sim_app, simulate, workload_of
from themis.core.agent import Agent
from themis.core.agent import commands as agent_cmd
from themis.core.agent import events as agent_ev
from themis.core.arbiter import Arbiter, Settings
from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.auction.solvers.registry import solver
from themis.core.model import AppId, GpuId, JobId, Machine, Phase, Slowdown, Topology
from themis.core.policies import policy
from themis.core.tuners import tuner_for
from themis.sim.modelled_jobs import JobCosts, Nodes
from themis.sim.workloads import SimApp, Workload

TOPOLOGY = Topology(
    (Machine("m0", "r0", (2, 2)), Machine("m1", "r0", (2,)), Machine("m2", "r1", (1, 1)))
)
VGG = Slowdown((1.0, 1.05, 1.29, 1.44))
BELIEVED = (7.5, 35.0)


def _script() -> Workload:
    halving = (Phase(4, 900), Phase(2, 700), Phase(1, 2000))
    return workload_of(
        sim_app("a", jobs=4, max_gpus=2, phases=halving, slowdown=VGG, costs=BELIEVED),
        sim_app("b", arrival=40.0, work=4000.0, max_gpus=4, slowdown=VGG, costs=BELIEVED),
        sim_app("c", arrival=40.0, work=900.0, jobs=3, costs=BELIEVED),
        sim_app("d", arrival=1500.0, work=3000.0, max_gpus=8, min_gpus=2, costs=BELIEVED),
        sim_app("e", arrival=1500.0, work=500.0, jobs=2, max_gpus=2, slowdown=VGG, costs=BELIEVED),
    )


@dataclass
class Decisions:
    """What the arbiter decided, and what it was told in which order."""

    taken: list[cmd.Assign | cmd.RecordRound | cmd.RecordApp] = field(default_factory=list)
    order: list[tuple[str, str]] = field(default_factory=list)

    def handled(self, event: ev.Event, commands: Sequence[cmd.Command]) -> None:
        if isinstance(event, ev.BidReceived | ev.JobStarted | ev.JobStopped):
            self.order.append((type(event).__name__, event.app))
        self.taken += [
            c for c in commands if isinstance(c, cmd.Assign | cmd.RecordRound | cmd.RecordApp)
        ]


class AsyncDriver:
    """One mailbox for the arbiter, one for each agent."""

    def __init__(self, script: Workload, rule: str, *, seed: int, dice: random.Random) -> None:
        self.decisions = Decisions()
        self._script = script
        self._rule = policy(rule)
        self._arbiter = Arbiter(TOPOLOGY, self._rule, Settings(), seed=seed)
        self._dice = dice
        self._now = 0.0
        self._agenda: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = 0
        self._events: asyncio.Queue[ev.Event] = asyncio.Queue()
        self._letters: dict[AppId, asyncio.Queue[agent_ev.AgentEvent]] = {}
        self._apps: dict[AppId, SimApp] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._solving: set[asyncio.Task[None]] = set()
        self._leaving: dict[GpuId, list[int]] = {}
        self._releasing: dict[GpuId, AppId] = {}
        self._nodes = Nodes(
            topology=lambda: TOPOLOGY,
            costs=JobCosts(),
            seed=seed,
            at=self._at,
            started=lambda at, app, job, gpus: self._say(ev.JobStarted(at, app, job, gpus)),
            stopped=self._stopped,
            reached=self._reached,
        )

    async def run(self) -> Decisions:
        for app in self._script.apps:
            self._at(app.arrival, lambda now, app=app: self._arrive(app, now))  # type: ignore[misc]
        while len(self._letters) < len(self._script.apps) or self._apps:
            self._now, _, action = heapq.heappop(self._agenda)
            action(self._now)
            await self._work_off()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return self.decisions

    def _at(self, time: float, action: Callable[[float], None]) -> None:
        self._numbers += 1
        heapq.heappush(self._agenda, (max(time, self._now), self._numbers, action))

    def _say(self, event: ev.Event) -> None:
        self._events.put_nowait(event)

    async def _work_off(self) -> None:
        """The arbiter empties its mailbox, the others theirs, until nobody has anything to say."""
        while True:
            while not self._events.empty():
                event = self._events.get_nowait()
                commands = self._arbiter.handle(event)
                self.decisions.handled(event, commands)
                for command in commands:
                    self._carry_out(command)
            await asyncio.gather(*self._solving, *(q.join() for q in self._letters.values()))
            if self._events.empty():
                return

    async def _dawdle(self) -> None:
        for _ in range(self._dice.randrange(8)):
            await asyncio.sleep(0)

    # Agents and solver

    def _arrive(self, app: SimApp, now: float) -> None:
        self._measure(now)
        name = app.spec.id
        self._apps[name] = app
        self._letters[name] = asyncio.Queue()
        self._nodes.add(name, app.spec.jobs)
        self._tasks.add(asyncio.create_task(self._be_agent(app)))
        self._say(ev.AppArrived(now, app.spec))

    async def _be_agent(self, app: SimApp) -> None:
        agent = Agent(
            app.spec,
            tuner_for(app.spec),
            sticky=self._rule.sticky_agents,
            restart_in_bids=self._rule.restart_in_bids,
        )
        letters = self._letters[app.spec.id]
        while True:
            letter = await letters.get()
            await self._dawdle()
            runs = self._nodes.running.get(app.spec.id, {})
            seen = tuple((job, self._nodes.progress(run, self._now)) for job, run in runs.items())
            agent.handle(agent_ev.Progressed(self._now, seen))
            for command in agent.handle(letter):
                self._carry_out_for(app.spec.id, command)
            letters.task_done()

    async def _be_solver(self, command: cmd.Solve) -> None:
        await self._dawdle()
        solution = solver("default").solve(command.problem, command.work)
        self._say(ev.Solved(self._now, command.round, solution))

    def _carry_out_for(self, app: AppId, command: agent_cmd.AgentCommand) -> None:
        match command:
            case agent_cmd.SendBid(round=number, bid=bid):
                self._say(ev.BidReceived(self._now, app, number, bid))
            case agent_cmd.StartJob(job=job, gpus=gpus, until=until):
                self._nodes.start(app, job, gpus, until, self._now)
            case agent_cmd.StopJob(job=job):
                self._nodes.stop(app, job, self._now)
            case agent_cmd.ReleaseGpus(gpus=gpus):
                mine = [gpu for gpu in gpus if self._nodes.occupant(gpu) == app]
                self._releasing |= dict.fromkeys(mine, app)
                if len(mine) < len(gpus):
                    rest = tuple(gpu for gpu in gpus if gpu not in mine)
                    self._say(ev.GpusReleased(self._now, app, rest))
            case agent_cmd.AnnouncePhase(phase=phase, targets=targets):
                self._say(ev.PhaseStarted(self._now, app, phase, targets))
            case agent_cmd.ReviseTargets(targets=targets):
                self._say(ev.TargetsRevised(self._now, app, targets))
            case agent_cmd.FinishApp():
                self._say(ev.AppEnded(self._now, app))
            case _:
                assert_never(command)

    # The arbiter's commands

    def _carry_out(self, command: cmd.Command) -> None:
        match command:
            case cmd.Ask(app=app, offer=offer):
                self._letters[app].put_nowait(agent_ev.Asked(self._now, offer, TOPOLOGY))
            case cmd.Solve():
                task = asyncio.create_task(self._be_solver(command))
                self._solving.add(task)
                task.add_done_callback(self._solving.discard)
            case cmd.Assign():
                self._assign(command)
            case cmd.WakeMe(at=at):
                self._at(at, self._wake)
            case cmd.RecordApp(record=record):
                del self._apps[record.app]
            case cmd.End() | cmd.RecordRound() | cmd.Refuse():
                pass
            case _:
                assert_never(command)

    def _assign(self, command: cmd.Assign) -> None:
        if command.app in self._apps and (command.granted or command.revoked):
            self._letters[command.app].put_nowait(
                agent_ev.LeasesChanged(
                    self._now, TOPOLOGY, command.granted, command.renewed, command.revoked
                )
            )
        for lease in command.revoked:
            self._releasing.pop(lease.gpu, None)
            if self._nodes.occupant(lease.gpu) == command.app:
                self._leaving.setdefault(lease.gpu, []).append(lease.token)
            else:
                self._say(ev.GpusVacated(self._now, ((lease.gpu, lease.token),)))

    # Nodes

    def _wake(self, now: float) -> None:
        if self._arbiter.round_due(now):
            self._measure(now)
        self._say(ev.Woken(now))

    def _measure(self, now: float) -> None:
        at = self._arbiter.before_alarm(now)
        for app, runs in sorted(self._nodes.running.items()):
            samples = tuple(
                ev.ProgressSample(job, *self._nodes.sample(run, now))
                for job, run in sorted(runs.items())
            )
            self._say(ev.ProgressMeasured(at, app, samples))

    def _vacated(self, gpu: GpuId) -> None:
        tokens = self._leaving.pop(gpu, [])
        if tokens:
            self._say(ev.GpusVacated(self._now, tuple((gpu, token) for token in tokens)))

    def _stopped(self, at: float, app: AppId, job: JobId, gpus: tuple[GpuId, ...]) -> None:
        self._say(ev.JobStopped(at, app, job, gpus))
        for gpu in gpus:
            self._vacated(gpu)
        released = tuple(gpu for gpu in gpus if self._releasing.pop(gpu, None) == app)
        if released:
            self._say(ev.GpusReleased(at, app, released))

    def _reached(self, at: float, app: AppId, job: JobId) -> None:
        sample = ev.ProgressSample(job, *self._nodes.last_sample(app, job))
        self._say(ev.ProgressMeasured(at, app, (sample,)))
        quality = {item.spec.id: item.quality for item in self._apps[app].jobs}
        self._letters[app].put_nowait(agent_ev.JobReached(at, job, quality[job]))


def _simulated(rule: str) -> Decisions:
    decisions = Decisions()
    simulate(TOPOLOGY, _script(), rule, Settings(), costs=JobCosts(), observers=[decisions])
    return decisions


def _async(rule: str, dice: int) -> Decisions:
    driver = AsyncDriver(_script(), rule, seed=1, dice=random.Random(dice))
    return asyncio.run(asyncio.wait_for(driver.run(), 60.0))


@pytest.mark.parametrize("rule", ["themis", "equal-share"])
def test_tasks_that_answer_in_any_order_decide_what_the_simulator_decides(rule: str) -> None:
    simulated = _simulated(rule)
    assert sum(isinstance(command, cmd.RecordApp) for command in simulated.taken) == 5
    orders = set()
    for dice in range(4):
        driven = _async(rule, dice)
        for mine, theirs in zip(driven.taken, simulated.taken, strict=False):
            assert mine == theirs
        assert len(driven.taken) == len(simulated.taken)
        orders.add(tuple(driven.order))
    # The dice fell differently, or this would show nothing.
    assert len(orders) > 1


def test_another_seed_decides_differently() -> None:
    # So that equal decisions are no accident of a script in which there is nothing to decide.
    other = Decisions()
    simulate(TOPOLOGY, _script(), "themis", Settings(), seed=2, costs=JobCosts(), observers=[other])
    assert other.taken != _simulated("themis").taken
