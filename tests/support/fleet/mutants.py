"""Defences, each with the mutant that lacks it. The checker must notice every one of them.

run_seeds(range(50), broken=DEFENCES["leases count from when reports were sent"])
"""

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

from tests.support.fleet.fault_rates import SERVICE_ONLY, STORM, Weather
from themis.core.arbiter import Arbiter
from themis.core.arbiter import events as arbiter_events
from themis.core.model import AppId, GpuId, Topology
from themis.core.steward.agent_sessions import AgentSessions
from themis.core.steward.commands import TellRun
from themis.core.steward.components import ComponentTypes
from themis.core.steward.metric_relay import MetricRelay
from themis.core.steward.node_table import NodeEntry, NodeTable
from themis.core.steward.rows import ActiveRun, RowChanges, RunEnd
from themis.core.steward.run_lifecycle import RunLifecycle
from themis.core.steward.run_table import RunTable
from themis.core.steward.steward import Steward
from themis.node.core import commands as cmd
from themis.node.core.events import FoundRun, NodeEvent, OrdersCame, RunExited, RunLimits
from themis.node.core.node_core import NodeCore
from themis.node.core.report_schedule import ReportSchedule
from themis.protocol.agent_messages import ReleaseRequest
from themis.protocol.node_messages import (
    LeaseTerms,
    NodeReport,
    Orders,
    RunOrder,
    SlotReport,
    SlotState,
)


@dataclass(frozen=True, slots=True)
class Broken:
    """A cluster with some components replaced; by default, with every defence on."""

    node: type[NodeCore] = NodeCore
    schedule: type[ReportSchedule] = ReportSchedule
    steward: type[Steward] = Steward
    node_table: type[NodeTable] = NodeTable
    run_table: type[RunTable] = RunTable
    sessions: type[AgentSessions] = AgentSessions
    relay: type[MetricRelay] = MetricRelay
    guard: bool = True
    stores_first: bool = True
    adoption: bool = True
    weather: Weather | None = None
    """Faults in which it shows soon."""

    def make_steward(self, arbiter: Arbiter, **options: Any) -> Steward:
        """The steward of this cluster."""
        types = ComponentTypes(self.node_table, self.run_table, self.sessions, self.relay)
        return self.steward(arbiter, **options, types=types)

    def adopts(self, found: tuple[FoundRun, ...]) -> tuple[FoundRun, ...]:
        """The runs that a node finds when it starts."""
        return found if self.adoption else ()


class CountsFromReceipt(ReportSchedule):
    """Counts leases and liveness from when orders arrive."""

    def answer(self, at: float) -> None:
        super().answer(at)
        self.sent_at = at


class IgnoresLeaseEnd(NodeCore):
    """Ends nothing at the end of leases."""

    def _limits(self, order: RunOrder, lease_end: float) -> RunLimits:
        limits = super()._limits(order, math.inf)
        return RunLimits(lease_end, limits.checkpoint_at, limits.until)


class IgnoresSilence(NodeCore):
    """Ends nothing when it is cut off."""

    def _limits(self, order: RunOrder, lease_end: float) -> RunLimits:
        self._alive_until = math.inf
        return super()._limits(order, lease_end)


class RemembersLate(NodeCore):
    """Starts first, then writes the token down."""

    def handle(self, event: NodeEvent) -> list[cmd.NodeCommand]:
        commands = super().handle(event)
        for index, (first, second) in enumerate(itertools.pairwise(commands)):
            if isinstance(first, cmd.Remember) and isinstance(second, cmd.StartRun):
                commands[index : index + 2] = [second, first]
        return commands


class RemembersNothing(NodeCore):
    """Writes no token down."""

    def handle(self, event: NodeEvent) -> list[cmd.NodeCommand]:
        commands = super().handle(event)
        starts = any(isinstance(command, cmd.StartRun) for command in commands)
        return [each for each in commands if not (starts and isinstance(each, cmd.Remember))]


class BelievesOldEpochs(NodeCore):
    """Obeys a service that was replaced."""

    def handle(self, event: NodeEvent) -> list[cmd.NodeCommand]:
        if isinstance(event, OrdersCame):
            self._epoch = min(self._epoch, event.orders.epoch)
        return super().handle(event)


class BelievesLateOrders(ReportSchedule):
    """Obeys answers to reports that are not its last."""

    def is_answer(self, orders: Orders) -> bool:
        return True


class RunsTwoAtOnce(NodeCore):
    """Starts a process though another is still there."""

    def _occupied(self, gpu: int) -> bool:
        return gpu in self._failed


class CallsDyingEmpty(NodeCore):
    """Reports a slot empty once its process was told to stop."""

    def _slot(self, gpu: int) -> SlotReport:
        slot = super()._slot(gpu)
        if slot.state is SlotState.STOPPING:
            return SlotReport(gpu, slot.token, SlotState.EMPTY)
        return slot


class DeafToAbsence(NodeCore):
    """Mistakes a service that is down for one that it cannot reach."""

    def _on_absence(self, tried_at: float) -> None:
        return


class ForgetsTheEnd(NodeCore):
    """Keeps no record of runs that have ended."""

    def _on_exit(self, event: RunExited) -> None:
        super()._on_exit(event)
        self._over.clear()


class TakesOldReports(NodeTable):
    """Believes a report whenever it arrives."""

    def is_newer(self, node: NodeEntry, report: NodeReport) -> bool:
        return True


class TakesOldBoots(NodeTable):
    """Believes a report of a boot that is over."""

    def is_newer(self, node: NodeEntry, report: NodeReport) -> bool:
        return report.boot != node.boot or report.number > node.number


class TrustsOldEpochs(NodeTable):
    """Draws conclusions from reports of nodes that may still obey an earlier service."""

    def take(self, node: NodeEntry, report: NodeReport, at: float, heartbeat: float) -> RowChanges:
        changes = super().take(node, report, at, heartbeat)
        node.fresh = report.epoch > 0
        return changes


class BelievesAnswered(NodeTable):
    """Draws conclusions from a report that it has answered already."""

    def answered(self, node: NodeEntry) -> None:
        node.forget = ()


class HurriesAfterRestart(NodeTable):
    """Gives every node up that has not reported as soon as the service runs."""

    def silent_at(self, node: NodeEntry, guard: float) -> float:
        return node.heard + 0.01 if node.last is None else super().silent_at(node, guard)


class GivesUpEarly(NodeTable):
    """Gives nodes up before they can have ended their runs."""

    def silent_at(self, node: NodeEntry, guard: float) -> float:
        return node.heard + self.node_ttl / 2.0


class ForgetsItsTerms(NodeTable):
    """Waits for nodes as long as it would tell them to live, not as long as they were told."""

    def silent_at(self, node: NodeEntry, guard: float) -> float:
        return node.heard + self.node_ttl + guard


class TakesBackTooSoon(NodeTable):
    """Counts a machine in while something may still run there."""

    def may_join(self, node: NodeEntry, topology: Topology) -> bool:
        return not node.present and node.held is not None


class EndsAtOnce(NodeTable):
    """Takes every slot as empty, also those whose process was only told to stop."""

    def empty(self, node: NodeEntry) -> list[GpuId]:
        return list(node.gpus)


class GuessesTerms(NodeCore):
    """Takes the default terms for those of its service, until it hears otherwise."""

    def _on_adoption(self, at: float, found: tuple[FoundRun, ...]) -> None:
        self._known_terms = self._terms = LeaseTerms()
        super()._on_adoption(at, found)


class BelievesAgents(Steward):
    """Frees GPUs when an agent says that it needs them no more."""

    def _on_release(self, app: AppId, request: ReleaseRequest) -> None:
        now = self._out.now
        self._lifecycle.feed(arbiter_events.GpusReleased(now, app, request.gpus))


class ReleasesWhatIsHeld(Steward):
    """Releases whatever lease the app has on a GPU by now."""

    def _on_release(self, app: AppId, request: ReleaseRequest) -> None:
        held = self.arbiter.ledger.holdings(app)
        gpus = tuple(gpu for gpu in request.gpus if gpu in held)
        tokens = tuple(held[gpu].token for gpu in gpus)
        super()._on_release(app, ReleaseRequest(gpus, tokens))


class HearsEverybody(AgentSessions):
    """Takes requests of every agent of an app, also of one that was replaced."""

    def is_current(self, app: AppId, fence: int) -> bool:
        return True


class ForgetsRequests(RunTable):
    """Takes a repeated request for a new one."""

    def requested(self, app: AppId, key: str) -> int | None:
        return None


class StartsBeforeTheEnd(RunTable):
    """Starts a job anew while its last run may be alive."""

    def must_wait(self, run: ActiveRun) -> bool:
        return False


class IgnoresUse(Steward):
    """Tells the arbiter that GPUs are in use only when something runs there."""

    def __init__(self, arbiter: Arbiter, **options: Any) -> None:
        super().__init__(arbiter, **options)
        self._lifecycle = _TellsNoStart(arbiter, self._parts, self._out)


class _TellsNoStart(RunLifecycle):
    def feed(self, event: arbiter_events.Event) -> None:
        if not isinstance(event, arbiter_events.JobStarted):
            super().feed(event)


class DropsWhatWasTold(MetricRelay):
    """Lets nodes drop points before agents have acknowledged them."""

    def acknowledged(self, node: NodeEntry) -> tuple[tuple[int, int], ...]:
        runs = node.held.runs if node.held is not None else ()
        return tuple((run.run, run.last) for run in runs if run.points)


class TellsEndsAtOnce(MetricRelay):
    """Tells how a run ended before all that it reported."""

    def end(self, end: RunEnd) -> TellRun | None:
        cursor = self._cursors.get(end.run)
        if cursor is not None:
            cursor.more, cursor.last = False, cursor.sent
        return super().end(end)


class ForgetsPoints(MetricRelay):
    """Lets nodes forget runs whose points were not acknowledged."""

    def keeps(self, node: NodeEntry, number: int) -> bool:
        return False


LATE = replace(STORM, slow=0.25, very_late=0.05, doubled=0.25, pauses=0.05, malice=0.5, deaf=0.6)
SHAKY = replace(
    STORM, service_crashes=0.3, outage=1.0, zombies=0.4, doubled=0.25, slow=0.2, malice=0.8
)
TORN = replace(STORM, torn=0.03)
CUT = Weather(partitions=0.1, deaf=0.9)
CUT_LATE = Weather(slow=0.3, malice=0.8, partitions=0.05, pauses=0.03, deaf=0.9)
REPEATING = Weather(doubled=0.5, loss=0.05, node_crashes=0.05)
OUTAGES = Weather(service_crashes=0.06, outage=8.0, malice=1.0, deaf=0.9)
LONG_OUTAGES = Weather(service_crashes=0.15, outage=60.0, deaf=0.9)
SHAKIER = replace(SHAKY, service_crashes=0.5, outage=0.5, zombies=0.0, doubled=0.5, malice=1.0)

DEFENCES: dict[str, Broken] = {
    "leases count from when reports were sent": Broken(
        schedule=CountsFromReceipt, weather=CUT_LATE
    ),
    "a node ends what outlives its lease": Broken(node=IgnoresLeaseEnd, weather=LONG_OUTAGES),
    "a node that is cut off ends everything": Broken(node=IgnoresSilence, weather=CUT),
    "a guard between the end of a lease and the next": Broken(guard=False, weather=CUT),
    "tokens are kept on disk": Broken(node=RemembersNothing),
    "tokens are on disk before anything starts": Broken(node=RemembersLate),
    "nodes refuse older epochs": Broken(node=BelievesOldEpochs, weather=SHAKY),
    "only answers to the last report count": Broken(schedule=BelievesLateOrders, weather=LATE),
    "empty is what is dead": Broken(node=CallsDyingEmpty),
    "a service that is down is no silence": Broken(node=DeafToAbsence, weather=SERVICE_ONLY),
    "runs that are over are remembered": Broken(node=ForgetsTheEnd),
    "running processes are adopted": Broken(adoption=False),
    "old reports are ignored": Broken(node_table=TakesOldReports, weather=LATE),
    "boots are counted": Broken(node_table=TakesOldBoots, weather=replace(LATE, node_crashes=0.1)),
    "reports to older epochs prove nothing": Broken(node_table=TrustsOldEpochs, weather=SHAKIER),
    "reports that were answered prove nothing": Broken(node_table=BelievesAnswered, weather=LATE),
    "changes are stored before they are told": Broken(stores_first=False, weather=TORN),
    "a restarted service waits for its nodes": Broken(node_table=HurriesAfterRestart),
    "silent nodes get time to end everything": Broken(node_table=GivesUpEarly, weather=CUT),
    "nodes are waited for as long as they were told": Broken(
        node_table=ForgetsItsTerms, weather=OUTAGES
    ),
    "terms are kept on disk": Broken(
        node=GuessesTerms, weather=replace(OUTAGES, outage=16.0, node_crashes=0.3)
    ),
    "agents do not say what is empty": Broken(steward=BelievesAgents),
    "releases name the leases they mean": Broken(steward=ReleasesWhatIsHeld, weather=REPEATING),
    "agents that were replaced are not heard": Broken(sessions=HearsEverybody),
    "repeated requests are recognised": Broken(run_table=ForgetsRequests, weather=REPEATING),
    "machines come back empty": Broken(
        node_table=TakesBackTooSoon,
        weather=replace(CUT, undead=0.9, node_crashes=0.03),
    ),
    "a job's last run is over before the next": Broken(run_table=StartsBeforeTheEnd),
    "a revoked lease fences its slot": Broken(node_table=EndsAtOnce),
    "ordered GPUs are in use": Broken(steward=IgnoresUse),
    "points are kept until they are heard": Broken(relay=DropsWhatWasTold),
    "ends are told after points": Broken(relay=TellsEndsAtOnce),
    "runs are kept until their points are heard": Broken(relay=ForgetsPoints),
}

IN_DEPTH: dict[str, tuple[str, Broken, Broken]] = {
    "one process on a GPU": (
        "two processes on one GPU",
        Broken(run_table=StartsBeforeTheEnd),
        Broken(run_table=StartsBeforeTheEnd, node=RunsTwoAtOnce),
    ),
}
"""Second lines of defence: what they prevent without the first, and the cluster without both."""
