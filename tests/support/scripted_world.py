"""A small world around an arbiter: virtual time, agents that answer at once, slots that drain.

Everything happens in the calling thread, in the order of virtual time, so a test reads like a
story. Agents bid by a linear model: GPUs at a level divide the work by their slowdown there.

    world = ScriptedWorld(topology, policy("themis"), Settings(), seed=1)
    world.submit(simple_app("a", gpus=4))
    world.advance(600.0)
    world.arbiter.ledger.holdings(AppId("a"))
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from themis.core.arbiter import Arbiter, Settings, events
from themis.core.arbiter.commands import (
    Ask,
    Assign,
    Command,
    End,
    RecordApp,
    RecordRound,
    Refuse,
    Solve,
    WakeMe,
)
from themis.core.arbiter.records import RoundRecord
from themis.core.auction.solvers.registry import solver
from themis.core.model import (
    AppId,
    AppSpec,
    Bid,
    Chunk,
    Constraint,
    GpuId,
    JobId,
    JobSpec,
    Lease,
    Offer,
    OwnerId,
    Phase,
    Row,
    TableRow,
    Topology,
    level_of,
)
from themis.core.model.reasons import Reason
from themis.core.policies.base import DirectPolicy, Plan, Policy, View
from themis.errors import InvariantError

Hook = Callable[[Arbiter, events.Event, Sequence[Command]], None]
"""Called after every event, with what came out."""

SolverMood = Literal["answers", "fails", "silent"]


@dataclass(frozen=True, slots=True)
class Step:
    """One event and what the arbiter made of it."""

    event: events.Event
    commands: tuple[Command, ...]


def simple_app(
    name: str,
    *,
    gpus: int = 1,
    jobs: int = 1,
    min_gpus: int = 1,
    iterations: int = 1000,
    seconds: float = 10.0,
    phases: Sequence[Phase] = (),
    owner: str = "",
    weight: float = 1.0,
    constraint: Constraint | None = None,
) -> AppSpec:
    """An app of equal jobs, each on up to `gpus` GPUs; its owner is itself unless named."""
    specs = tuple(JobSpec(JobId(f"j{i}"), seconds, gpus, min_gpus) for i in range(jobs))
    return AppSpec(
        AppId(name),
        OwnerId(owner or name),
        specs,
        tuple(phases) or (Phase(jobs, iterations),),
        weight=weight,
        constraint=constraint or Constraint(),
    )


class Puppet(DirectPolicy):
    """A policy whose plans a test writes itself."""

    name: ClassVar[str] = "puppet"

    def __init__(self, decide: Callable[[View], Plan]) -> None:
        self.decide = decide

    def plan(self, view: View, rng: random.Random) -> Plan:
        """What the test said."""
        return self.decide(view)


class ScriptedWorld:
    """Carries out an arbiter's commands in virtual time and remembers everything."""

    def __init__(
        self,
        topology: Topology,
        policy: Policy,
        settings: Settings | None = None,
        *,
        seed: int = 0,
        solve_with: str = "default",
        slowdown: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0),
        drain: float = 5.0,
        on_event: Iterable[Hook] = (),
    ) -> None:
        self.arbiter = Arbiter(topology, policy, settings, seed=seed)
        self.now = 0.0
        self.drain = drain
        """Seconds from being told to go to an empty slot."""
        self.silent: set[AppId] = set()
        """Apps whose agents do not answer."""
        self.unanswered: dict[AppId, Offer] = {}
        """The last question to each silent agent."""
        self.lazy: set[AppId] = set()
        """Apps that start no process on what they are given."""
        self.stuck: set[GpuId] = set()
        """Slots that are never reported empty."""
        self.solver_mood: SolverMood = "answers"
        self.unsolved: Solve | None = None
        """The last question that the solver left open."""
        self.history: list[Step] = []
        self.hooks = list(on_event)
        self._solver = solver(solve_with)
        self._slowdown = slowdown
        self._agenda: list[tuple[float, int, events.Event]] = []
        self._numbers = itertools.count()
        self._running: dict[GpuId, Lease] = {}
        self._waiting: dict[GpuId, list[Lease]] = {}

    # Making things happen

    def send(self, event: events.Event) -> list[Command]:
        """Hand over an event; returns all that followed from it at the same instant."""
        before = len(self.history)
        self.deliver(event)
        self._run(self.now)
        return self.commands_since(before)

    def deliver(self, event: events.Event) -> list[Command]:
        """Hand over one event and carry out what comes of it, answering nothing yet."""
        self.now = max(self.now, event.at)
        commands = self.arbiter.handle(event)
        self.history.append(Step(event, tuple(commands)))
        for command in commands:
            self._carry_out(command)
        self._start_processes()
        for hook in self.hooks:
            hook(self.arbiter, event, commands)
        return commands

    def advance(self, to: float) -> list[Command]:
        """Let time pass, with everything that was to happen until then."""
        before = len(self.history)
        self._run(to)
        self.now = max(self.now, to)
        return self.commands_since(before)

    def submit(self, app: AppSpec) -> list[Command]:
        """An app arrives now."""
        return self.send(events.AppArrived(self.now, app))

    def finish(self, app: str, outcome: str = "finished") -> list[Command]:
        """An app is over now."""
        return self.send(events.AppEnded(self.now, AppId(app), outcome))

    def suspend(self, app: str, reason: Reason = Reason.PAUSED_BY_USER) -> list[Command]:
        """An app is paused or held now."""
        return self.send(events.AppSuspended(self.now, AppId(app), reason))

    def resume(self, app: str, reason: Reason = Reason.PAUSED_BY_USER) -> list[Command]:
        """A reason to suspend an app is gone."""
        return self.send(events.AppResumed(self.now, AppId(app), reason))

    def progress(self, app: str, iterations: float) -> list[Command]:
        """Every job of an app's phase has come so far."""
        jobs = self.arbiter.world.apps[AppId(app)].jobs
        samples = tuple(events.ProgressSample(job, iterations, 1.0) for job in jobs)
        return self.send(events.ProgressMeasured(self.now, AppId(app), samples))

    def speak(self, app: str, bid: Bid | None = None) -> list[Command]:
        """A silent agent answers its last question after all."""
        name = AppId(app)
        offer = self.unanswered.pop(name)
        answer = self.bid(name, offer) if bid is None else bid
        return self.send(events.BidReceived(self.now, name, offer.round, answer))

    def solve(self) -> list[Command]:
        """A silent solver answers its last question after all."""
        if self.unsolved is None:
            raise InvariantError("the solver left no question open")
        solution = self._solver.solve(self.unsolved.problem, self.unsolved.work)
        return self.send(events.Solved(self.now, self.unsolved.round, solution))

    # Looking back

    def commands_since(self, step: int) -> list[Command]:
        """Every command from a step of the history on."""
        return [command for item in self.history[step:] for command in item.commands]

    @property
    def commands(self) -> list[Command]:
        """Every command so far."""
        return self.commands_since(0)

    @property
    def records(self) -> list[RoundRecord]:
        """The records of all rounds so far."""
        return [command.record for command in self.commands if isinstance(command, RecordRound)]

    @property
    def refusals(self) -> list[Refuse]:
        """All that was refused so far."""
        return [command for command in self.commands if isinstance(command, Refuse)]

    def held(self, app: str) -> tuple[GpuId, ...]:
        """GPUs an app holds or is promised, sorted."""
        return tuple(sorted(self.arbiter.ledger.holdings(AppId(app))))

    def running(self, app: str) -> tuple[GpuId, ...]:
        """GPUs on which processes of an app are."""
        return tuple(sorted(gpu for gpu, lease in self._running.items() if lease.app == app))

    # Carrying out

    def _run(self, to: float) -> None:
        while self._agenda and self._agenda[0][0] <= to:
            at, _, event = heapq.heappop(self._agenda)
            self.now = max(self.now, at)
            self.deliver(event)

    def later(self, event: events.Event) -> None:
        """Let an event happen at its time."""
        heapq.heappush(self._agenda, (event.at, next(self._numbers), event))

    def _carry_out(self, command: Command) -> None:
        match command:
            case Ask(app=app, offer=offer):
                if app in self.silent:
                    self.unanswered[app] = offer
                else:
                    bid = self.bid(app, offer)
                    self.later(events.BidReceived(self.now, app, offer.round, bid))
            case Solve():
                self._solve(command)
            case Assign():
                self._assign(command)
            case End(leases=leases):
                for lease in leases:
                    self._end(lease)
            case WakeMe(at=at):
                self.later(events.Woken(max(at, self.now)))
            case Refuse() | RecordRound() | RecordApp():
                pass

    def _solve(self, command: Solve) -> None:
        if self.solver_mood == "answers":
            solution = self._solver.solve(command.problem, command.work)
            self.later(events.Solved(self.now, command.round, solution))
        elif self.solver_mood == "fails":
            self.later(events.SolveFailed(self.now, command.round, "the worker died"))
        else:
            self.unsolved = command

    def _assign(self, command: Assign) -> None:
        for lease in command.granted:
            self._waiting.setdefault(lease.gpu, []).append(lease)
        for lease in command.revoked:
            present = self._running.get(lease.gpu)
            if present is None or present.token != lease.token:
                self._drop(lease)
            elif lease.gpu not in self.stuck:
                gone = min(self.now + self.drain, max(lease.end, self.now))
                self.later(events.GpusVacated(gone, ((lease.gpu, lease.token),)))

    def _end(self, lease: Lease) -> None:
        present = self._running.get(lease.gpu)
        if present is not None and present.token == lease.token:
            del self._running[lease.gpu]
        else:
            self._drop(lease)

    def _drop(self, lease: Lease) -> None:
        queue = self._waiting.get(lease.gpu, [])
        self._waiting[lease.gpu] = [other for other in queue if other.token != lease.token]

    def _start_processes(self) -> None:
        started: dict[AppId, list[GpuId]] = {}
        for gpu in sorted(self._waiting):
            queue = self._waiting[gpu]
            if queue and gpu not in self._running:
                lease = min(queue, key=lambda lease: lease.token)
                queue.remove(lease)
                self._running[gpu] = lease
                started.setdefault(lease.app, []).append(gpu)
        self._waiting = {gpu: queue for gpu, queue in self._waiting.items() if queue}
        for app, gpus in sorted(started.items()):
            if app not in self.lazy:
                self.later(events.JobStarted(self.now, app, JobId("j0"), tuple(gpus)))

    # Agents

    def bid(self, app: AppId, offer: Offer) -> Bid:
        """What the app's agent answers to an offer."""
        state = self.arbiter.world.apps[app]
        work = max(state.work_left, 1e-3)
        table = tuple(
            TableRow(level, count, work * self._slowness(level, count) / count)
            for level in range(4)
            for count in range(state.min_gang, state.demand + 1)
        )
        seats = self.arbiter.world.topology.seats
        kept = [seats[gpu] for gpu in offer.kept]
        speed = len(kept) / self._slowness(level_of(kept), len(kept)) if kept else 0.0
        rows = []
        most = min(len(offer.gpus), state.demand - len(kept))
        for level in (1, 3):
            for count in range(1 if kept else state.min_gang, most + 1):
                chunks = _chunks(level, count, state.gang)
                rate = speed + sum(c.count / self._slowness(level, c.count) for c in chunks)
                rows.append(Row(chunks, work / rate))
        return Bid(app, tuple(rows), table)

    def _slowness(self, level: int, count: int) -> float:
        return self._slowdown[level] if count > 1 else 1.0


def _chunks(level: int, count: int, gang: int) -> tuple[Chunk, ...]:
    whole, rest = divmod(count, gang)
    chunk = Chunk(level, gang)
    return (chunk,) * whole + ((replace(chunk, count=rest),) if rest else ())


def replay(
    history: Iterable[Step], topology: Topology, policy: Policy, settings: Settings, seed: int
) -> list[tuple[Command, ...]]:
    """Feed recorded events to a fresh arbiter; returns its commands, step by step."""
    arbiter = Arbiter(topology, policy, settings, seed=seed)
    return [tuple(arbiter.handle(step.event)) for step in history]
