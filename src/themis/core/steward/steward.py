"""The service's side of leases: the arbiter's ledger on one side, nodes and agents on the other.

An event goes in; out come changes that must be stored first, then commands and answers to nodes.

    outcome = steward.handle(ReportCame(at, report))
    store(outcome.changes)      # durable before anything is told
    send(outcome.answers)

What keeps GPUs exclusive on this side:

- A slot is empty when a report says so that is not answered yet, newer than all before it and of
  this epoch: nobody's orders can put anything there before the answer. Agents are not believed.
- A node is given up when it has been silent for its time to live plus guard; it has ended
  everything by then. It counts again when it reports that nothing is left.
- A run goes to its nodes when its leases have begun and the job's last run is over everywhere.
"""

import math
from collections.abc import Mapping

from themis.core.arbiter import Arbiter
from themis.core.arbiter import events as ev
from themis.core.model import AppId, GpuId
from themis.core.steward.agent_requests import DISPLACED
from themis.core.steward.commands import AnswerReport, DurableChanges, Outcome, RefuseSession
from themis.core.steward.events import (
    AgentSpoke,
    AppForgotten,
    AppWon,
    JobNoted,
    LogsWanted,
    PointsHeard,
    ReleaseRequested,
    ReportCame,
    RunRequested,
    SessionOpened,
    StewardEvent,
    StopRequested,
    TrialChosen,
)
from themis.core.steward.node_reports import Reception
from themis.core.steward.node_table import NodeEntry
from themis.core.steward.orders import orders_for
from themis.core.steward.rows import Kept
from themis.core.steward.state import HEARTBEATS, NODE_TTL
from themis.protocol.node_messages import Orders


class Steward(Reception):
    """The state machine. `handle` is its only door."""

    def __init__(
        self,
        arbiter: Arbiter,
        *,
        epoch: int,
        at: float,
        node_ttl: float = NODE_TTL,
        saved: Mapping[str, Kept] | None = None,
        nonce: str = "",
    ) -> None:
        """Begin, with what an earlier one kept; see `Knowing`."""
        super().__init__(arbiter, epoch=epoch, at=at, node_ttl=node_ttl, saved=saved, nonce=nonce)
        for machine in arbiter.world.topology.machines:
            self._meet(machine.name, self._first_heard(at))

    def handle(self, event: StewardEvent) -> Outcome:
        """Take one event; returns what is to be stored, then done."""
        self._events, self._commands, self._answers = [], [], []
        self._asked = event.event if isinstance(event, AgentSpoke) else event
        self._refusal = None
        self._notice_stall(event.at)
        self._now = max(self._now, event.at)
        self._take(event)
        self._watch_time()
        self._settle()
        return self._outcome()

    def _take(self, event: StewardEvent) -> None:
        match event:
            case AgentSpoke(event=said):
                if self._is_heard(event.app, event.fence):
                    self._take(said)
                else:
                    self._commands.append(RefuseSession(event.app, DISPLACED))
            case SessionOpened():
                self._on_session(event)
            case ReportCame(report=report):
                self._on_report(report.node, event)
            case RunRequested():
                self._on_request(event)
            case StopRequested():
                self._on_stop(event)
            case PointsHeard():
                self._on_heard(event)
            case TrialChosen() | JobNoted():
                self._on_trial(event)
            case AppWon():
                self._on_won(event)
            case LogsWanted():
                self._on_logs_wanted(event)
            case AppForgotten(app=app):
                self._book.trials.forget(app)
                self._book.logs.forget(app)
            case ReleaseRequested():
                self._on_release(event)
            case ev.GpuRestored():
                self._on_restored(event)
            case (
                ev.GpusVacated()
                | ev.GpusReleased()
                | ev.JobStarted()
                | ev.JobStopped()
                | ev.ProgressMeasured()
                | ev.MachineJoined()
                | ev.MachineLeft()
            ):
                name = type(event).__name__
                self._refuse(name, "only reports of nodes say this")
            case ev.SettingsChanged(settings=settings) if (
                settings.heartbeat * HEARTBEATS > self._node_ttl
            ):
                reason = f"node_ttl ({self._node_ttl:g} s) must be {HEARTBEATS} heartbeats or more"
                self._refuse("heartbeat", reason)
            case ev.AppArrived():
                self._on_arrival(event)
            case ev.ServiceRestarted(token_floor=floor):
                self._book.raise_count(floor)
                self._feed(event)
            case ev.Woken():
                pass
            case _:
                self._feed(event)

    def _watch_time(self) -> None:
        at = self._now
        for node in self._roster.held_long_enough(at):
            node.due = True
            self._ready[node.name] = None
        for node in self._roster.silent(at, self._last_word):
            self._give_up(node)
        alarm = self._arbiter.next_alarm
        if alarm is not None and alarm <= at:
            self._feed(ev.Woken(at))

    # Settling

    def _settle(self) -> None:
        """Draw conclusions until there are none left to draw."""
        while True:
            if self._book.waiting and (self._events or self._book.changed):
                self._place_waiting()
            if not self._touched:
                return
            touched, self._touched = sorted(self._touched), {}
            for name in touched:
                node = self._roster.nodes[name]
                self._ready[name] = None
                if node.proves:
                    self._conclude(node)

    def _conclude(self, node: NodeEntry) -> None:
        """What follows from a node's kept report now."""
        for run in self._book.on_node(node.gpus):
            if run.stop and run.ordered and run.run not in node.live and node.name not in run.over:
                self._over(run, node.name)  # The order to start it never arrived, and is void now.
        ledger = self._arbiter.ledger
        vacated: list[tuple[GpuId, int]] = []
        released: dict[AppId, list[GpuId]] = {}
        for gpu in node.empty():
            lease = ledger.lease(gpu)
            release = self._book.releases.get(gpu)
            if lease is not None and ledger.is_leaving(gpu):
                vacated.append((gpu, lease.token))
            elif lease is not None and release is not None and release.token == lease.token:
                released.setdefault(lease.app, []).append(gpu)
        if vacated:
            self._feed(ev.GpusVacated(self._now, tuple(vacated)))
        for app, gpus in sorted(released.items()):
            self._feed(ev.GpusReleased(self._now, app, tuple(gpus)))

    # What comes out

    def _outcome(self) -> Outcome:
        for name in sorted(self._ready):
            node = self._roster.nodes[name]
            if node.has_news:
                self._answers.append(AnswerReport(name, self._orders(node)))
                node.held = None
        self._ready = {}
        self._wake = self._next_wake()
        changes = DurableChanges(tuple(self._events), self._book.take_changes())
        wake = self._wake if self._wake < math.inf else None
        commands, answers = tuple(self._commands), tuple(self._answers)
        return Outcome(changes, commands, answers, wake, self._refusal)

    def _next_wake(self) -> float:
        alarm = self._arbiter.next_alarm
        return min(self._roster.next_time, math.inf if alarm is None else alarm)

    def _orders(self, node: NodeEntry) -> Orders:
        return orders_for(
            node,
            self._arbiter,
            self._book,
            self._roster.machine_of,
            epoch=self._epoch,
            terms=self._terms(),
            heard=self._heard(node),
            nonce=self._nonce,
        )
