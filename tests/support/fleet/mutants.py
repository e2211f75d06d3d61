"""Defences, and what they become when switched off. Each must be missed, by the checker.

run_seeds(range(50), broken=DEFENCES["leases count from when reports were sent"])
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tests.support.fleet.fault_rates import SERVICE_ONLY, STORM, Weather
from themis.core.arbiter import events as arbiter_events
from themis.core.model import AppId, GpuId, Lease
from themis.core.steward.events import ReleaseRequested, ReportCame, RunRequested
from themis.core.steward.node_table import NodeEntry
from themis.core.steward.rows import RunEnd
from themis.core.steward.steward import Steward
from themis.node.core import commands as cmd
from themis.node.core.events import FoundRun, RunExited, RunLimits
from themis.node.core.node_core import NodeCore
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
    """A cluster with parts exchanged; as it stands, one with every defence on."""

    node: type[NodeCore] = NodeCore
    steward: type[Steward] = Steward
    guard: bool = True
    stores_first: bool = True
    adoption: bool = True
    weather: Weather | None = None
    """In which it shows soon."""

    def adopts(self, found: tuple[FoundRun, ...]) -> tuple[FoundRun, ...]:
        """What a node that starts learns of what runs already."""
        return found if self.adoption else ()


class CountsFromReceipt(NodeCore):
    """Takes leases and liveness to begin when orders arrive."""

    def _anchor(self, at: float) -> float:
        return at


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

    def _launch(self, remember: cmd.Remember, start: cmd.StartRun) -> None:
        self._out.append(start)
        self._out.append(remember)


class RemembersNothing(NodeCore):
    """Writes no token down."""

    def _launch(self, remember: cmd.Remember, start: cmd.StartRun) -> None:
        self._out.append(start)


class BelievesOldEpochs(NodeCore):
    """Obeys a service that was replaced."""

    def _is_of_this_epoch(self, orders: Orders) -> bool:
        return True


class BelievesLateOrders(NodeCore):
    """Obeys answers to reports that it has sent newer ones since."""

    def _is_answer(self, orders: Orders) -> bool:
        return orders.boot >= self._boot


class RunsTwoAtOnce(NodeCore):
    """Starts a process though another is still there."""

    def _occupied(self, gpu: int) -> bool:
        return gpu in self._failed


class CallsDyingEmpty(NodeCore):
    """Reports a slot empty once its process was told to go."""

    def _slot(self, gpu: int) -> SlotReport:
        slot = super()._slot(gpu)
        if slot.state is SlotState.STOPPING:
            return SlotReport(gpu, slot.token, SlotState.EMPTY)
        return slot


class DeafToAbsence(NodeCore):
    """Takes a service that is down for one that it cannot reach."""

    def _on_absence(self, tried_at: float) -> None:
        return


class ForgetsTheEnd(NodeCore):
    """Keeps no record of runs that are over."""

    def _on_exit(self, event: RunExited) -> None:
        super()._on_exit(event)
        self._over.clear()


class _Gullible(NodeEntry):
    __slots__ = ()

    def is_newer(self, report: NodeReport) -> bool:
        return True


class _OfAnyBoot(NodeEntry):
    __slots__ = ()

    def is_newer(self, report: NodeReport) -> bool:
        return report.boot != self.boot or report.number > self.number


class TakesOldReports(Steward):
    """Believes a report whenever it comes."""

    kind: ClassVar[type[NodeEntry]] = _Gullible

    def _meet(self, name: str, heard: float) -> NodeEntry:
        node = super()._meet(name, heard)
        fields = NodeEntry.__dataclass_fields__
        self._roster.nodes[name] = node = self.kind(
            **{each: getattr(node, each) for each in fields}
        )
        for gpu in node.gpus:
            self._roster.machine_of[gpu] = node
        return node


class TakesOldBoots(TakesOldReports):
    """Believes a report of a boot that is over."""

    kind: ClassVar[type[NodeEntry]] = _OfAnyBoot


class TrustsOldEpochs(Steward):
    """Draws conclusions from reports of nodes that may still listen to its predecessor."""

    def _on_report(self, name: str, event: ReportCame) -> None:
        report = event.report
        if report.epoch:
            object.__setattr__(report, "epoch", self._epoch)
        super()._on_report(name, event)


class BelievesAnswered(Steward):
    """Draws conclusions from a report that it has answered already."""

    def _outcome(self) -> Any:
        last = {name: node.held for name, node in self._roster.nodes.items()}
        outcome = super()._outcome()
        for name, held in last.items():
            if held is not None and self._roster.nodes[name].held is None:
                self._roster.nodes[name].held = held
                self._roster.nodes[name].forget = ()
        return outcome


class HurriesAfterRestart(Steward):
    """Takes every node as silent that it has not heard since it started."""

    def _first_heard(self, at: float) -> float:
        return at - self._node_ttl - self._arbiter.settings.guard + 0.01


class GivesUpEarly(Steward):
    """Gives nodes up before they can have ended everything."""

    def _last_word(self, node: NodeEntry) -> float:
        return node.heard + self._node_ttl / 2.0


class ForgetsItsTerms(Steward):
    """Waits for nodes as long as it would tell them to live, not as long as they were told."""

    def _last_word(self, node: NodeEntry) -> float:
        return node.heard + self._node_ttl + self._arbiter.settings.guard


class GuessesTerms(NodeCore):
    """Takes the usual terms for those of its service, until it hears otherwise."""

    def _on_adoption(self, at: float, found: tuple[FoundRun, ...]) -> None:
        self._known_terms = self._terms = LeaseTerms()
        super()._on_adoption(at, found)


class BelievesAgents(Steward):
    """Frees GPUs when an agent says that it needs them no more."""

    def _on_release(self, event: ReleaseRequested) -> None:
        self._feed(arbiter_events.GpusReleased(self._now, event.app, event.gpus))


class ReleasesWhatIsHeld(Steward):
    """Takes a word about a GPU for one about whatever lease its app has there by now."""

    def _lease_meant(self, app: AppId, gpu: GpuId, token: int) -> Lease | None:
        return self._arbiter.ledger.holdings(app).get(gpu)


class HearsEverybody(Steward):
    """Takes what any agent of an app says, also one that was replaced."""

    def _is_heard(self, app: AppId, fence: int) -> bool:
        return True


class ForgetsRequests(Steward):
    """Takes a repeated request for a new one."""

    def _on_request(self, event: RunRequested) -> None:
        self._book._by_key.clear()
        super()._on_request(event)


class TakesBackTooSoon(Steward):
    """Counts a machine in while something may still run there."""

    def _take_hardware(self, node: NodeEntry) -> None:
        if not node.present and node.machine is not None and node.held is not None:
            self._join(node)
        super()._take_hardware(node)


class StartsBeforeTheEnd(Steward):
    """Starts a job anew while its last run may be alive."""

    def _may_start(self, run: Any) -> bool:
        ledger = self._arbiter.ledger
        return all(
            (lease := ledger.lease(gpu)) is not None and lease.token == token
            for gpu, token in zip(run.gpus, run.tokens, strict=True)
        )


class EndsAtOnce(Steward):
    """Takes a slot as empty as soon as its holder is told to go."""

    def _revoke(self, lease: Any, reason: str) -> None:
        super()._revoke(lease, reason)
        if self._arbiter.ledger.is_leaving(lease.gpu):
            self._feed(arbiter_events.GpusVacated(self._now, ((lease.gpu, lease.token),)))


class IgnoresUse(Steward):
    """Tells the arbiter that GPUs are in use only when something runs there."""

    def _feed(self, event: Any) -> None:
        if not isinstance(event, arbiter_events.JobStarted):
            super()._feed(event)


class DropsWhatWasTold(Steward):
    """Lets nodes drop points before agents have heard them."""

    def _heard(self, node: NodeEntry) -> tuple[tuple[int, int], ...]:
        runs = node.held.runs if node.held is not None else ()
        return tuple((run.run, run.last) for run in runs if run.points)


class TellsEndsAtOnce(Steward):
    """Tells how a run ended before all that it reported."""

    def _tell_end(self, row: RunEnd) -> None:
        stream = self._streams.get(row.run)
        if stream is not None:
            stream.more, stream.last = False, stream.told
        super()._tell_end(row)


class ForgetsPoints(Steward):
    """Lets nodes forget runs whose points were not heard."""

    def _keeps_points(self, node: NodeEntry, run: int) -> bool:
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
    "leases count from when reports were sent": Broken(node=CountsFromReceipt, weather=CUT_LATE),
    "a node ends what outlives its lease": Broken(node=IgnoresLeaseEnd, weather=LONG_OUTAGES),
    "a node that is cut off ends everything": Broken(node=IgnoresSilence, weather=CUT),
    "a guard between the end of a lease and the next": Broken(guard=False, weather=CUT),
    "tokens are kept on disk": Broken(node=RemembersNothing),
    "tokens are on disk before anything starts": Broken(node=RemembersLate),
    "nodes refuse older epochs": Broken(node=BelievesOldEpochs, weather=SHAKY),
    "only answers to the last report count": Broken(node=BelievesLateOrders, weather=LATE),
    "empty is what is dead": Broken(node=CallsDyingEmpty),
    "a service that is down is no silence": Broken(node=DeafToAbsence, weather=SERVICE_ONLY),
    "runs that are over are remembered": Broken(node=ForgetsTheEnd),
    "running processes are adopted": Broken(adoption=False),
    "old reports are ignored": Broken(steward=TakesOldReports, weather=LATE),
    "boots are counted": Broken(steward=TakesOldBoots, weather=replace(LATE, node_crashes=0.1)),
    "reports to older epochs prove nothing": Broken(steward=TrustsOldEpochs, weather=SHAKIER),
    "reports that were answered prove nothing": Broken(steward=BelievesAnswered, weather=LATE),
    "changes are stored before they are told": Broken(stores_first=False, weather=TORN),
    "a restarted service waits for its nodes": Broken(steward=HurriesAfterRestart),
    "silent nodes get time to end everything": Broken(steward=GivesUpEarly, weather=CUT),
    "nodes are waited for as long as they were told": Broken(
        steward=ForgetsItsTerms, weather=OUTAGES
    ),
    "terms are kept on disk": Broken(
        node=GuessesTerms, weather=replace(OUTAGES, outage=16.0, node_crashes=0.3)
    ),
    "agents do not say what is empty": Broken(steward=BelievesAgents),
    "releases name the leases they mean": Broken(steward=ReleasesWhatIsHeld, weather=REPEATING),
    "agents that were replaced are not heard": Broken(steward=HearsEverybody),
    "repeated requests are recognised": Broken(steward=ForgetsRequests, weather=REPEATING),
    "machines come back empty": Broken(
        steward=TakesBackTooSoon, weather=replace(CUT, undead=0.9, node_crashes=0.03)
    ),
    "a job's last run is over before the next": Broken(steward=StartsBeforeTheEnd),
    "a revoked lease fences its slot": Broken(steward=EndsAtOnce),
    "ordered GPUs are in use": Broken(steward=IgnoresUse),
    "points are kept until they are heard": Broken(steward=DropsWhatWasTold),
    "ends are told after points": Broken(steward=TellsEndsAtOnce),
    "runs are kept until their points are heard": Broken(steward=ForgetsPoints),
}

IN_DEPTH: dict[str, tuple[str, Broken, Broken]] = {
    "one process on a GPU": (
        "two processes on one GPU",
        Broken(steward=StartsBeforeTheEnd),
        Broken(steward=StartsBeforeTheEnd, node=RunsTwoAtOnce),
    ),
}
"""Second lines: what they prevent when the first is down, and the cluster without both."""
