"""The service of a simulated cluster: a steward, its disk, and its crashes."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from themis.core.arbiter import Arbiter, Settings
from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.model import Topology
from themis.core.policies.base import Policy
from themis.core.steward.commands import AcceptSession, DurableChanges, Outcome, TellPoints, TellRun
from themis.core.steward.events import ReportCame, StewardEvent
from themis.core.steward.rows import StewardRow
from themis.core.steward.steward import Steward
from themis.protocol.node_messages import NodeReport

if TYPE_CHECKING:
    from tests.support.fleet.simulation import FleetSim


@dataclass(slots=True)
class Saved:
    """The service's disk: all events that the arbiter took, and the steward's rows.

    The arbiter is recovered by replay of its events.
    """

    policy: Policy
    settings: Settings
    seed: int
    epoch: int = 0
    log: list[ev.Event] = field(default_factory=list)
    rows: dict[str, StewardRow] = field(default_factory=dict)

    def commit(self, changes: DurableChanges) -> None:
        """All or nothing."""
        self.log.extend(changes.events)
        _apply(self.rows, changes.rows or {})

    def arbiter(self) -> Arbiter:
        """The arbiter as of the last commit."""
        arbiter = Arbiter(Topology(()), self.policy, self.settings, seed=self.seed)
        for event in self.log:
            arbiter.handle(event)
        return arbiter


def _apply(rows: dict[str, StewardRow], changes: Mapping[str, StewardRow | None]) -> None:
    for key, row in changes.items():
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row


class SimService:
    """Carries out the outcomes of the steward, and may crash between any two steps."""

    def __init__(
        self,
        sim: "FleetSim",
        saved: Saved,
        rng: random.Random,
        make: Callable[..., Steward],
        node_ttl: float,
    ) -> None:
        self._sim = sim
        self._rng = rng
        self._make = make
        self._node_ttl = node_ttl
        self.saved = saved
        self._steward: Steward | None = None
        self._lives: dict[str, int] = {}
        """The daemon that sent the held report of each node."""
        self._wakes = 0
        self.stalled = False
        self._backlog: list[Callable[[], None]] = []
        self.durable = saved.arbiter()
        """The arbiter that a restart would recover."""

    @property
    def up(self) -> bool:
        """Whether it listens."""
        return self._steward is not None

    @property
    def steward(self) -> Steward:
        """The steward of a service that is up."""
        assert self._steward is not None
        return self._steward

    @property
    def epoch(self) -> int:
        """Of the present or last start."""
        return self.saved.epoch

    def start(self) -> None:
        """Start with what is durable."""
        if self._steward is not None:
            return
        sim = self._sim
        self.saved.epoch += 1
        sim.checker.recovered(self.durable, self.saved.rows)
        self._steward = self._make(
            self.durable,
            epoch=self.saved.epoch,
            at=sim.now,
            node_ttl=self._node_ttl * self._rng.choice((1.0, 1.0, 1.0, 1.5, 2.0)),
            saved=self.saved.rows,
        )
        self.handle(ev.Woken(sim.now))
        sim.network.welcome()

    def crash(self, *, torn: bool = False) -> Steward | None:
        """Crash; `torn` if the last event was handled and not made durable."""
        steward, self._steward = self._steward, None
        self.stalled = False
        self._backlog = []
        self._wakes += 1
        if torn:
            # Otherwise memory equals what is durable, and no replay is needed.
            self.durable = self.saved.arbiter()
        return steward

    def stall(self) -> None:
        """Hang for a while; messages wait."""
        self.stalled = self.up

    def resume(self) -> None:
        """Go on."""
        self.stalled = False
        waiting, self._backlog = self._backlog, []
        for each in waiting:
            each()

    def receive(self, node: str, life: int, report: NodeReport) -> None:
        """A report arrives."""
        if self.stalled:
            self._backlog.append(lambda: self.receive(node, life, report))
        elif self.up:
            self._lives[node] = life
            self.handle(ReportCame(self._sim.now, report))
            if self._steward is not None and node in self._steward.nodes:
                known = self._steward.nodes[node]
                self._sim.checker.heard(node, known.boot, known.number)

    def take(self, event: Callable[[float], StewardEvent]) -> None:
        """Another event reaches it."""
        if self.stalled:
            self._backlog.append(lambda: self.take(event))
        elif self.up:
            self.handle(event(self._sim.now))

    def _wake(self, number: int) -> None:
        if number == self._wakes:
            self.take(ev.Woken)

    def handle(self, event: StewardEvent) -> Outcome | None:
        """Handle an event: store, then send."""
        outcome = self.steward.handle(event)
        first, second = self._store, self._tell
        if not self._sim.broken.stores_first:
            first, second = second, first
        torn = self._sim.weather.torn
        for step in (first, second):
            if outcome.changes.any and torn and self._rng.random() < torn:
                self.crash(torn=True)
                self._sim.later(self._rng.uniform(0.1, 8.0), self.start)
                return None
            step(event, outcome)
        return outcome

    def _store(self, event: StewardEvent, outcome: Outcome) -> None:
        if outcome.changes.any:
            self.saved.commit(outcome.changes)
            self._sim.checker.released(outcome.changes.events, outcome.commands)
            if outcome.changes.events:
                self._sim.checker.stored(self.durable, outcome.changes.events)

    def _tell(self, event: StewardEvent, outcome: Outcome) -> None:
        sim = self._sim
        for command in outcome.commands:
            sim.checker.told(command)
            if isinstance(command, cmd.Ask | cmd.Solve):
                sim.agents.asked(command)
            elif isinstance(command, AcceptSession):
                sim.agents.opened(command.app, command.session, command.fence)
            elif isinstance(command, TellPoints | TellRun):
                sim.mailboxes.put(command)
        for answer in outcome.answers:
            sim.checker.answered(answer)
            sim.network.answer(sim.nodes[answer.node], self._lives[answer.node], answer)
        if outcome.wake is not None:
            self._wakes += 1
            sim.at(max(outcome.wake, sim.now), self._wake, self._wakes)


class Zombie:
    """An old service that lost its store to a new one and does not know it yet.

    It cannot commit any more, so it can send only what needs no commit.
    """

    def __init__(self, sim: "FleetSim", steward: Steward) -> None:
        self._sim = sim
        self._steward = steward

    def receive(self, node: str, life: int, report: NodeReport) -> None:
        """A report arrives at the wrong service."""
        outcome = self._steward.handle(ReportCame(self._sim.now, report))
        if outcome.changes.any:
            self._sim.zombie = None
            return
        for answer in outcome.answers:
            self._sim.network.answer(self._sim.nodes[answer.node], life, answer)
