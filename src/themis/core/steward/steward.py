"""The service's side of leases: the arbiter's ledger on one side, nodes and agents on the other.

An event goes in; out come changes that must be stored first, then commands and answers to nodes.

    outcome = steward.handle(ReportCame(at, report))
    store(outcome.changes)      # durable before anything is sent
    send(outcome.answers)

What keeps GPUs exclusive on this side:

- A slot is empty when a held report says so: one that is not answered yet, newer than all before it
  and of this epoch. No orders can put anything there before the answer. Agents are not believed.
- A node is given up when it has been silent for its time to live plus guard; it has ended all of
  its runs by then. It counts again when it reports that nothing is left.
- A run goes to its nodes when its leases have begun and the job's last run has ended everywhere.
"""

import math
from collections.abc import Mapping
from typing import assert_never

from themis.core.arbiter import Arbiter
from themis.core.arbiter import events as ev
from themis.core.model import AppId, JobId
from themis.core.steward.agent_requests import request_run
from themis.core.steward.commands import (
    AcceptRun,
    AcceptSession,
    AnswerReport,
    Outcome,
    RefuseRun,
    RefuseSession,
)
from themis.core.steward.components import STANDARD, Components, ComponentTypes
from themis.core.steward.events import (
    AgentSpoke,
    AppForgotten,
    LogsWanted,
    PointsAcknowledged,
    ReportCame,
    SessionOpened,
    StewardEvent,
)
from themis.core.steward.node_reports import NodeReports
from themis.core.steward.node_table import (
    FROM_NODE,
    HEARTBEATS,
    NODE_TTL,
    NodeEntry,
    check_ttl,
)
from themis.core.steward.orders import orders_for
from themis.core.steward.outcome import OutcomeBuilder
from themis.core.steward.rows import ActiveRun, LogsRow, RunEnd, SessionRow, StewardRow
from themis.core.steward.run_lifecycle import RunLifecycle
from themis.core.steward.run_progress import RunHealth, restored
from themis.core.steward.shared_storage import NodeStorage, PlacementRefusal
from themis.core.steward.trials import Trials
from themis.protocol.agent_messages import (
    AgentRequest,
    BidReply,
    EndApp,
    JobPast,
    PhaseStart,
    Reached,
    ReleaseRequest,
    RunRequest,
    StopRequest,
    TargetChange,
    TrialParams,
)

DISPLACED = "another agent speaks for this app since"
"""What an agent is told whose session was replaced."""


class Steward:
    """The state machine: events go into `handle`; everything else is for reading."""

    def __init__(
        self,
        arbiter: Arbiter,
        *,
        epoch: int,
        at: float,
        node_ttl: float = NODE_TTL,
        saved: Mapping[str, StewardRow] | None = None,
        nonce: str = "",
        types: ComponentTypes = STANDARD,
    ) -> None:
        """Begin, or go on from what an earlier steward stored.

        Args:
            arbiter: With its whole state.
            epoch: Of this start of the service; higher than all before.
            at: When it begins.
            node_ttl: Seconds after which a node that hears nothing ends its runs.
            saved: Rows of an earlier steward.
            nonce: For marks in shared folders; one that was never used before.
            types: The classes of its components.
        """
        check_ttl(node_ttl, arbiter.settings.heartbeat)
        self._arbiter = arbiter
        self._epoch = epoch
        self._wake = math.inf
        self._out = OutcomeBuilder(saved or {}, at)
        self._parts = Components.restore(
            saved or {},
            arbiter.world.apps,
            epoch=epoch,
            node_ttl=node_ttl,
            nonce=nonce or f"e{epoch}",
            types=types,
        )
        self._lifecycle = RunLifecycle(arbiter, self._parts, self._out)
        self._reports = NodeReports(arbiter, self._parts, self._out, self._lifecycle, epoch=epoch)
        self._out.store(self._parts.nodes.changes_at_start)
        for machine in arbiter.world.topology.machines:
            self._reports.add_node(machine.name, at)

    # What a driver may read

    @property
    def arbiter(self) -> Arbiter:
        """The arbiter; read only."""
        return self._arbiter

    @property
    def epoch(self) -> int:
        """Of this start of the service."""
        return self._epoch

    @property
    def runs(self) -> Mapping[int, ActiveRun]:
        """Runs that have not ended, by number."""
        return self._parts.runs.active

    @property
    def sessions(self) -> Mapping[AppId, SessionRow]:
        """The session that may speak for each app."""
        return self._parts.sessions.by_app

    @property
    def nodes(self) -> Mapping[str, NodeEntry]:
        """The nodes by name; read only."""
        return self._parts.nodes.by_name

    @property
    def trials(self) -> Trials:
        """The trials of apps; read only."""
        return self._parts.trials

    @property
    def rows(self) -> Mapping[str, StewardRow]:
        """All rows as stored."""
        return self._out.rows

    def last_runs(self, app: AppId) -> tuple[ActiveRun | RunEnd, ...]:
        """The active runs of an app, and how the last run of every other job ended."""
        return self._parts.runs.last_of_jobs(app)

    def ended_runs(self, app: AppId) -> list[RunEnd]:
        """How the runs of an active app ended, the oldest first."""
        return self._parts.runs.ends(app)

    def job_pasts(self, app: AppId, now: float) -> tuple[JobPast, ...]:
        """How long the jobs of an app have run, and how often they failed."""
        return self._parts.runs.job_pasts(app, now)

    def progress(self, run: int) -> tuple[float, float]:
        """Iterations and seconds of training of a run, as last reported."""
        return self._parts.progress.reported(run)

    def health(self, run: int) -> RunHealth | None:
        """The health of a run, if its node has reported it in this epoch."""
        return self._parts.progress.health(run)

    def waits_for_machine(self, app: AppId, job: JobId) -> str:
        """Why a job waits for the machine with its checkpoints; empty if it does not."""
        refusal, state = self._parts.storage.waits_for(app, job), self._arbiter.world.apps.get(app)
        node = self.nodes.get(refusal.home) if refusal is not None else None
        if refusal is None or node is None or not node.present:
            return ""
        if node.last is not None and node.last.shared_dir:
            return ""  # Others may see them since.
        progress = state.jobs.get(job) if state is not None else None
        if progress is None or progress.done >= progress.target:
            return ""
        return "" if self.trials.gave_up(app, job) else refusal.reason

    def fence_of(self, app: AppId) -> int:
        """The number of the session that may speak for an app; 0 if there is none."""
        session = self.sessions.get(app)
        return session.fence if session is not None else 0

    def storage_of(self, node: NodeEntry) -> NodeStorage:
        """The shared storage of a node."""
        return self._parts.storage.of_node(node, self.nodes.values())

    def log_of(self, app: AppId, job: JobId) -> LogsRow | None:
        """Where the log of a job is; None if it never ran."""
        parts = self._parts
        if app not in self._arbiter.world.apps:
            return parts.logs.of_ended_app(app, job)
        runs: list[ActiveRun | RunEnd] = [end for end in parts.runs.ends(app) if end.job == job]
        runs += parts.runs.of_job(app, job)
        return parts.logs.of_active_app(app, job, map(self._lifecycle.on_node, runs))

    # Events

    def listen(self, at: float) -> None:
        """Nodes can be heard from now on: silence before this proves nothing."""
        self._parts.nodes.excuse_silence(at)

    def handle(self, event: StewardEvent) -> Outcome:
        """Take one event; returns what is to be stored, then done."""
        if event.at > self._wake + self._arbiter.settings.guard / 2.0:
            # The service itself was held up, so the silence of nodes proves nothing.
            self._parts.nodes.excuse_silence(event.at)
        self._out.begin(event)
        self._take(event)
        self._act_on_time()
        self._settle()
        return self._outcome()

    def _take(self, event: StewardEvent) -> None:
        parts, out = self._parts, self._out
        match event:
            case AgentSpoke(app=app, fence=fence) | PointsAcknowledged(app=app, fence=fence) if (
                not parts.sessions.is_current(app, fence)
            ):
                out.tell(RefuseSession(app, DISPLACED))
            case AgentSpoke(request=request):
                self._on_request(event.at, event.app, request)
            case PointsAcknowledged(app=app):
                for number, last in event.points:
                    self._reports.acknowledge(app, number, last)
            case SessionOpened():
                self._on_session(event)
            case ReportCame(report=report):
                self._reports.take(report)
            case LogsWanted():
                parts.nodes.want_logs(event.node, event.wanted)
            case AppForgotten(app=app):
                self._forget(app)
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
                out.refuse(type(event).__name__, "only reports of nodes say this")
            case ev.SettingsChanged(settings=settings) if (
                settings.heartbeat * HEARTBEATS > parts.nodes.node_ttl
            ):
                allowed = f"must be {HEARTBEATS} heartbeats or more"
                out.refuse("heartbeat", f"node_ttl ({parts.nodes.node_ttl:g} s) {allowed}")
            case ev.AppArrived():
                self._on_arrival(event)
            case ev.ServiceRestarted(token_floor=floor):
                parts.runs.raise_count(floor)
                self._lifecycle.feed(event)
            case ev.Woken():
                pass
            case _:
                self._lifecycle.feed(event)

    # Agents and operators

    def _on_request(self, at: float, app: AppId, request: AgentRequest) -> None:
        match request:
            case BidReply():
                self._feed_request(ev.BidReceived(at, app, request.round, request.bid))
            case PhaseStart():
                self._feed_request(ev.PhaseStarted(at, app, request.phase, request.targets))
            case TargetChange(added=True):
                self._feed_request(ev.WorkAdded(at, app, request.targets))
            case TargetChange():
                self._feed_request(ev.TargetsRevised(at, app, request.targets))
            case RunRequest():
                self._on_run_request(app, request)
            case StopRequest():
                number = request.run or self._parts.runs.requested(app, request.key)
                run = self.runs.get(number or 0)
                if run is not None and run.app == app:
                    self._lifecycle.stop(run, "its agent stopped it")
            case ReleaseRequest():
                self._on_release(app, request)
            case TrialParams() | Reached():
                self._on_trial(app, request)
            case EndApp(best=best):
                if best:
                    self._out.store(self._parts.trials.set_best(app, best))
                self._lifecycle.feed(ev.AppEnded(at, app, request.outcome))
            case _:
                assert_never(request)

    def _feed_request(self, event: ev.Event) -> None:
        """Hand a request to the arbiter, which may refuse it."""
        self._out.event = event
        self._lifecycle.feed(event)

    def _on_session(self, event: SessionOpened) -> None:
        app = event.app
        if app not in self._arbiter.world.apps:
            self._out.tell(RefuseSession(app, "there is no such app"))
            return
        session, changes = self._parts.sessions.open(app, event.session)
        if session is None:
            self._out.tell(RefuseSession(app, DISPLACED))
            return
        self._out.store(changes)
        self._out.tell(AcceptSession(app, event.session, session.fence))
        for node, report in self._parts.metrics.repeat(app):
            self._reports.relay_points(node, report)

    def _on_arrival(self, event: ev.AppArrived) -> None:
        app, known = event.app.id, event.app.id in self._arbiter.world.apps
        if not known and self._parts.runs.of_app(app):
            # A process that does not die keeps its GPU out of use, and its app has ended all the
            # same. The next owner of the name would be told of its runs.
            reason = "something of an app of this name is still alive; take another name"
            self._out.refuse(app, reason)
            return
        self._lifecycle.feed(event)
        if not known and app in self._arbiter.world.apps:
            self._forget(app)  # An earlier app of this name may have had another owner.

    def _forget(self, app: AppId) -> None:
        self._out.store(self._parts.trials.forget(app))
        self._out.store(self._parts.logs.forget(app))

    def _on_trial(self, app: AppId, request: TrialParams | Reached) -> None:
        job, trials, state = request.job, self._parts.trials, self._arbiter.world.apps.get(app)
        if state is None or all(job != known.id for known in state.spec.jobs):
            self._out.refuse(app, f"it has no job {job!r}")
            return
        if isinstance(request, TrialParams):
            self._out.store(trials.add_params(app, job, request.params))
            return
        changes = trials.add_reached(app, request, len(state.spec.phases))
        if changes is None:
            self._out.refuse(app, f"enough was said of job {job!r}")
            return
        self._out.store(changes)
        counted = restored(job, request.iterations, state)
        if counted is not None and not request.failed:
            self._lifecycle.count_iterations(app, job, counted)

    def _on_run_request(self, app: AppId, request: RunRequest) -> None:
        granted, changes = request_run(app, request, self._arbiter, self._parts)
        self._out.store(changes)
        match granted:
            case PlacementRefusal(reason=reason, home=home):
                self._out.tell(RefuseRun(app, request.key, reason, home))
            case number:
                self._out.tell(AcceptRun(app, request.key, number))

    def _on_release(self, app: AppId, request: ReleaseRequest) -> None:
        """An agent gives leases back. Whether the GPUs are empty, only their nodes can say."""
        if len(request.gpus) != len(request.tokens):
            self._out.refuse(app, "a release names a token for each GPU")
            return
        queued = []
        for gpu, token in sorted(set(zip(request.gpus, request.tokens, strict=True))):
            lease = self._arbiter.ledger.holdings(app).get(gpu)
            if lease is None or lease.token != token:
                continue  # A late message must not give back what was granted since.
            run = self._parts.runs.under_lease(gpu, token)
            if run is not None:
                self._lifecycle.stop(run, "its agent gave the GPU back")
            if self._arbiter.ledger.lease(gpu) is lease:
                self._out.store(self._parts.runs.release(lease))
                self._parts.nodes.touch(gpu)
            else:
                queued.append(gpu)
        if queued:
            self._lifecycle.feed(ev.GpusReleased(self._out.now, app, tuple(queued)))

    def _on_restored(self, event: ev.GpuRestored) -> None:
        """An operator says that a GPU works again."""
        gpu, ledger, nodes = event.gpu, self._arbiter.ledger, self._parts.nodes
        reason = ledger.quarantine_reason(gpu) if 0 <= gpu < len(ledger) else None
        node = nodes.machine_of.get(gpu)
        empty = node is None or not node.present or gpu in nodes.empty(node)
        if not empty or self._parts.runs.on_gpu(gpu) or (reason or "").startswith(FROM_NODE):
            why = "its node does not say that it is empty and well; try again in a moment"
            self._out.refuse(f"GPU {gpu}", why)
        else:
            self._lifecycle.feed(event)

    # What follows

    def _act_on_time(self) -> None:
        now, nodes = self._out.now, self._parts.nodes
        nodes.end_holds(now)
        for node in nodes.silent(now, self._arbiter.settings.guard):
            self._reports.give_up(node)
        alarm = self._arbiter.next_alarm
        if alarm is not None and alarm <= now:
            self._lifecycle.feed(ev.Woken(now))

    def _settle(self) -> None:
        """Draw conclusions until there are none left to draw."""
        while True:
            if self._parts.runs.waiting and self._out.changes_anything:
                self._lifecycle.start_waiting()
            touched = self._parts.nodes.take_touched()
            if not touched:
                return
            for node in touched:
                if node.proof is not None:
                    self._reports.conclude(node)

    def _outcome(self) -> Outcome:
        for node in self._parts.nodes.take_answerable():
            orders = orders_for(
                node,
                self._arbiter,
                self._parts.runs,
                self._parts.nodes,
                epoch=self._epoch,
                acknowledged=self._parts.metrics.acknowledged(node),
                nonce=self._parts.storage.nonce,
            )
            self._out.answer([AnswerReport(node.name, orders)])
            self._parts.nodes.answered(node)
        alarm = self._arbiter.next_alarm
        self._wake = min(self._parts.nodes.next_time, math.inf if alarm is None else alarm)
        return self._out.build(self._wake if self._wake < math.inf else None)
