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
from dataclasses import replace

from themis.arbiter import Arbiter
from themis.arbiter import commands as cmd
from themis.arbiter import events as ev
from themis.errors import ConfigError
from themis.fleet.commands import (
    AcceptRun,
    AcceptSession,
    Answer,
    Changes,
    Outcome,
    RefuseRun,
    RefuseSession,
    StewardCommand,
    TellPoints,
    TellRun,
)
from themis.fleet.events import (
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
from themis.fleet.joblogs import LoggedRun, LogsRow
from themis.fleet.kept import AgentSession, Kept, Release, RunResult, WantedRun
from themis.fleet.messages import Orders, RunReport, RunState, SlotState, Terms
from themis.fleet.orders import orders_for
from themis.fleet.points import Streams
from themis.fleet.requests import objection
from themis.fleet.roster import Node, Roster
from themis.fleet.runbook import Runbook
from themis.fleet.storage import Sharing, sharing_of, storage_objection
from themis.fleet.trials import Trials
from themis.model import AppId, GpuId, JobId, Lease

NODE_TTL = 20.0
HEARTBEATS = 5
"""How many a node must live for: one that is answered late, and asks again, is not cut off."""
DISPLACED = "another agent speaks for this app since"
"""What an agent is told whose session is over."""
_SESSIONS = 8
"""How many sessions of an app are known by name."""
FROM_NODE = "node: "
"""How reasons of quarantine begin that a node gave and may take back."""


class Steward:
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
        """Begin, with what an earlier one kept.

        Args:
            arbiter: With its whole state.
            epoch: Of this start of the service; higher than all before.
            at: When it begins.
            node_ttl: For how long a node that hears nothing goes on.
            saved: Rows of an earlier steward.
            nonce: For marks in shared folders; one that was never used before.
        """
        _check_ttl(node_ttl, arbiter.settings.heartbeat)
        self._arbiter = arbiter
        self._epoch = epoch
        self._nonce = nonce or f"e{epoch}"
        self._node_ttl = node_ttl
        self._now = at
        self._book = Runbook(saved or {})
        self._book.note_ttl(max(self._book.longest_ttl, node_ttl))
        self._roster = Roster()
        self._streams = Streams()
        self._wake = math.inf
        self._sessions = 0
        """How many were opened in this epoch."""
        self._events: list[ev.Event] = []
        self._commands: list[StewardCommand] = []
        self._answers: list[Answer] = []
        self._touched: dict[str, None] = {}
        self._ready: dict[str, None] = {}
        """Nodes whose kept report may have to be answered."""
        self._iterations: dict[int, tuple[float, float]] = {}
        """Iterations and seconds of runs as last reported; stored when a round needs them."""
        self._log_sizes: dict[int, int] = {}
        """Bytes that runs have printed, as last reported."""
        for machine in arbiter.world.topology.machines:
            self._meet(machine.name, self._first_heard(at))

    def _first_heard(self, at: float) -> float:
        """Since when nodes count as silent: a service that just began has heard nobody yet."""
        return at

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
    def runs(self) -> Mapping[int, WantedRun]:
        """Runs that are not over, by number."""
        return self._book.runs

    @property
    def sessions(self) -> Mapping[AppId, AgentSession]:
        """Who speaks for each app."""
        return self._book.sessions

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name; read only."""
        return self._roster.nodes

    @property
    def trials(self) -> Trials:
        """What is kept of the trials of apps; read only."""
        return self._book.trials

    @property
    def kept(self) -> Mapping[str, Kept]:
        """Everything that must outlast this object, beside the arbiter."""
        return self._book.rows

    def last_runs(self, app: AppId) -> tuple[WantedRun | RunResult, ...]:
        """The runs of an app that are not over, and the last one of each job that has none."""
        last: dict[JobId, RunResult] = {row.job: row for row in self._book.results(app)}
        alive = [run for run in self._book.runs.values() if run.app == app]
        for run in alive:
            last.pop(run.job, None)
        return *alive, *last.values()

    def progress(self, run: int) -> tuple[float, float]:
        """Iterations and seconds of training of a run, as last reported."""
        return self._iterations.get(run, (0.0, 0.0))

    def listen(self, at: float) -> None:
        """Nodes can be heard from now on: silence before this proves nothing."""
        for node in self.nodes.values():
            node.heard = max(node.heard, at)

    # The door

    def handle(self, event: StewardEvent) -> Outcome:
        """Take one event; returns what is to be stored, then done."""
        self._events, self._commands, self._answers = [], [], []
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
            case StopRequested(run=number, key=key):
                run = self._book.runs.get(number or self._book.asked(event.app, key) or 0)
                if run is not None and run.app == event.app:
                    self._stop(run, "its agent stopped it")
            case PointsHeard():
                self._on_heard(event)
            case TrialChosen() | JobNoted():
                self._on_trial(event)
            case AppWon(app=app, outcome=outcome, best=best):
                if best:
                    self._book.trials.win(app, best)
                self._feed(ev.AppEnded(event.at, app, outcome))
            case LogsWanted():
                self._on_logs_wanted(event)
            case AppForgotten(app=app):
                self._book.trials.forget(app)
                self._book.logs.forget(app)
            case ev.AppArrived(app=spec):
                known = spec.id in self._arbiter.world.apps
                self._feed(event)
                if not known and spec.id in self._arbiter.world.apps:
                    # An app of the same name was another one, perhaps of another owner.
                    self._book.trials.forget(spec.id)
                    self._book.logs.forget(spec.id)
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
                self._commands.append(cmd.Refuse(name, "only reports of nodes say this"))
            case ev.SettingsChanged(settings=settings) if (
                settings.heartbeat * HEARTBEATS > self._node_ttl
            ):
                reason = f"node_ttl ({self._node_ttl:g} s) must be {HEARTBEATS} heartbeats or more"
                self._commands.append(cmd.Refuse("heartbeat", reason))
            case ev.ServiceRestarted(token_floor=floor):
                self._book.raise_count(floor)
                self._feed(event)
            case ev.Woken():
                pass
            case _:
                self._feed(event)

    def _notice_stall(self, at: float) -> None:
        """If this service itself was held up, silence of the nodes proves nothing."""
        if at > self._wake + self._arbiter.settings.guard / 2.0:
            for node in self._roster.nodes.values():
                node.heard = max(node.heard, at)

    # The arbiter

    def _feed(self, event: ev.Event) -> None:
        """Hand an event to the arbiter, and carry its changes of leases to nodes and runs."""
        self._events.append(event)
        for command in self._arbiter.handle(event):
            match command:
                case cmd.WakeMe():
                    continue
                case cmd.Assign():
                    for lease in (*command.granted, *command.renewed):
                        self._touch(lease.gpu)
                    for lease in command.revoked:
                        self._revoke(lease, command.reason)
                case cmd.End(leases=leases):
                    for lease in leases:
                        self._revoke(lease, "its lease is over")
                case cmd.Close(record=record):
                    self._keep_logs(record.app)
                    self._book.close(record.app)
                    self._streams.close(record.app)
                case _:
                    pass
            self._commands.append(command)

    def _touch(self, gpu: GpuId) -> None:
        node = self._roster.machine_of.get(gpu)
        if node is not None:
            node.revision += 1
            self._touched[node.name] = None

    def _revoke(self, lease: Lease, reason: str) -> None:
        self._touch(lease.gpu)
        self._book.drop_release(lease.gpu, lease.token)
        run = self._book.on_lease(lease.gpu, lease.token)
        if run is not None:
            self._stop(run, reason)

    # Reports

    def _on_report(self, name: str, event: ReportCame) -> None:
        report, at = event.report, self._now
        node = self._roster.nodes.get(name) or self._meet(name, at)
        if not node.is_newer(report):
            if (report.boot, report.number) != (node.boot, node.number):
                self._call_outdated(node, report.number)
            return
        node.keep(report, at, self._epoch)
        if self._book.longest_ttl > self._node_ttl and self._all_informed():
            self._book.note_ttl(self._node_ttl)
        self._ready[name] = None
        self._roster.hold(node, at + self._arbiter.settings.heartbeat)
        if not node.fresh:
            return
        self._take_logs(node)
        for run in report.runs:
            self._take_points(node, run)
        node.forget = tuple(
            [run.run for run in report.runs if run.state.over and self._take_end(node, run)]
        )
        told = {run.run for run in report.runs}
        for row in self._book.owed_by(name):
            if row.run not in told:
                self._settle_points(row)
        for run in report.runs:
            if not run.state.over:
                self._take_progress(node, run)
        self._take_hardware(node)
        self._touched[name] = None

    def _call_outdated(self, node: Node, number: int) -> None:
        """A late message, whose sender ignores this; or a node that lost its disk and counts on."""
        terms = self._terms()
        orders = Orders(self._epoch, node.boot, number, 0, (), (), terms, outdated=True)
        self._answers.append(Answer(node.name, orders))

    def _meet(self, name: str, heard: float) -> Node:
        node = self._roster.nodes[name] = Node(name, heard)
        world = self._arbiter.world
        number = world.topology.number_of.get(name)
        if number is not None:
            self._seat(node, number)
            node.present = not world.is_gone(number)
        if node.present:
            self._watch_silence(node)
        return node

    def _seat(self, node: Node, number: int) -> None:
        topology = self._arbiter.world.topology
        self._roster.seat(node, topology.gpus_of[number], topology.machines[number])

    def _take_end(self, node: Node, report: RunReport) -> bool:
        """Note that a run is over on a node; returns whether the node may forget it."""
        run = self._book.runs.get(report.run)
        if run is not None and node.name not in run.over and self._runs_on(run, node):
            self._take_progress(node, report)
            if report.code != 0 and not run.stop:
                run = replace(run, stop=True)
            # Of several machines the first trouble counts: the others end because of it.
            if run.code is None or (run.code == 0 and report.code):
                state, code = report.state, report.code
                run = replace(run, state=state, code=code, message=report.message, log=report.log)
            self._over(run, node.name)
        return not self._keeps_points(node, report.run)

    def _runs_on(self, run: WantedRun, node: Node) -> bool:
        """Whether a part of a run is on a node; what others say of it counts for nothing."""
        return any(self._roster.machine_of[gpu] is node for gpu in run.gpus)

    def _take_progress(self, node: Node, report: RunReport) -> None:
        run = self._book.runs.get(report.run)
        if run is None or self._roster.machine_of[run.gpus[0]] is not node:
            return
        self._iterations[run.run] = (report.iterations, report.seconds)
        if report.state is RunState.RUNNING and run.state is RunState.STARTING:
            self._book.put(replace(run, state=RunState.RUNNING))
            self._commands.append(TellRun(run.app, run.job, run.run, RunState.RUNNING))

    def _take_hardware(self, node: Node) -> None:
        """Let quarantine follow what the node says, and take the machine in when it is clear."""
        report = node.held
        if report is None or (node.gpus and len(report.slots) != len(node.gpus)):
            return
        ledger = self._arbiter.ledger
        for gpu, slot in zip(node.gpus, report.slots, strict=False):
            reason = ledger.quarantine_reason(gpu)
            if slot.state is SlotState.QUARANTINED:
                if reason is None or (not node.present and not reason.startswith(FROM_NODE)):
                    self._feed(ev.GpuQuarantined(self._now, gpu, FROM_NODE + slot.reason))
            elif slot.state is SlotState.EMPTY and reason and reason.startswith(FROM_NODE):
                self._feed(ev.GpuRestored(self._now, gpu))
        if not node.present and node.clear and node.machine is not None:
            self._join(node)

    def _join(self, node: Node) -> None:
        world = self._arbiter.world
        known = world.topology.number_of.get(node.name)
        if node.machine is None or node.held is None:
            return
        if known is not None and world.topology.machines[known] != node.machine:
            return  # It says so in status; its operator must give it another name.
        if node.machine.gpus != len(node.held.slots):
            return
        self._feed(ev.MachineJoined(self._now, node.machine))
        node.present = True
        self._seat(node, world.topology.number_of[node.name])
        self._watch_silence(node)
        if known is None:
            self._take_hardware(node)

    # Points

    def _source(self, run: int) -> tuple[WantedRun | RunResult, str] | None:
        """A run whose agent wants its points, and the node that has them: that of rank 0."""
        wanted = self._book.runs.get(run)
        if wanted is not None:
            known = wanted.app in self._arbiter.world.apps
            return (wanted, self._roster.machine_of[wanted.gpus[0]].name) if known else None
        result = self._book.result(run)
        return (result, result.points_on) if result is not None else None

    def _take_points(self, node: Node, report: RunReport) -> None:
        """Tell an agent what its run has reported since, and then how it ended."""
        source = self._source(report.run)
        if source is None or source[1] != node.name:
            return
        run = source[0]
        first, points = self._streams.take(run.app, report)
        if points or report.state.over:
            over = report.state.over
            metric = run.metric if isinstance(run, RunResult) else run.program.metrics.name
            self._book.trials.grow(run.app, run.job, metric, points, self._now, over=over)
        if points:
            self._commands.append(TellPoints(run.app, run.job, run.run, first, points))
        if isinstance(run, RunResult):
            self._tell_end(run)

    def _keeps_points(self, node: Node, run: int) -> bool:
        """Whether a node must keep a run that is over, because of its points."""
        source, stream = self._source(run), self._streams.get(run)
        if source is None or source[1] != node.name:
            return False
        return stream is not None and not stream.all_heard

    def _on_heard(self, event: PointsHeard) -> None:
        stream, source = self._streams.hear(event.app, event.run, event.number), None
        if stream is not None:
            source = self._source(event.run)
        if stream is None or source is None:
            return
        run, name = source
        if stream.all_heard and isinstance(run, RunResult) and run.points_on:
            self._settle_points(run)
            self._forget_too(name, run.run)
        elif stream.more and name in self._roster.nodes:
            held = self._roster.nodes[name].held
            if held is not None and any(told.run == run.run and told.more for told in held.runs):
                self._answer_soon(name)

    def _settle_points(self, row: RunResult) -> None:
        """Nothing more of a run's points will come."""
        stream = self._streams.get(row.run)
        told = stream is not None and stream.end_told
        self._streams.drop(row.run)
        row = self._book.settle_points(row)
        if not told:
            self._tell_end(row)

    def _tell_end(self, row: RunResult) -> None:
        """Tell an agent how a run ended, once it was told all that the run reported."""
        stream = self._streams.get(row.run)
        if stream is not None:
            if stream.end_told or not stream.all_told:
                return
            stream.end_told = True
        elif row.points_on:
            return
        self._commands.append(
            TellRun(
                row.app,
                row.job,
                row.run,
                row.state,
                row.code,
                row.iterations,
                row.message,
                row.log,
            )
        )

    def _forget_too(self, name: str, run: int) -> None:
        """Let a node forget a run that is in its kept report."""
        node = self._roster.nodes.get(name)
        if node is not None and node.held is not None and node.fresh:
            node.forget = (*node.forget, run)
            self._ready[name] = None

    def _answer_soon(self, name: str) -> None:
        self._roster.nodes[name].due = True
        self._ready[name] = None

    def _tell_again(self, app: AppId) -> None:
        """Tell again what may be lost, as far as the last reports have it; later ones have all."""
        for run in list(self._streams.begin_again(app)):
            source = self._source(run)
            node = self._roster.nodes.get(source[1]) if source is not None else None
            if node is None or node.held is None or not node.fresh:
                continue
            for report in node.held.runs:
                if report.run == run:
                    self._take_points(node, report)

    def _heard(self, node: Node) -> tuple[tuple[int, int], ...]:
        """What a node may drop of the points in its kept report."""
        heard = []
        for report in node.held.runs if node.held is not None and node.fresh else ():
            if report.points:
                source, stream = self._source(report.run), self._streams.get(report.run)
                wanted = source is not None and source[1] == node.name and stream is not None
                number = stream.heard if wanted and stream is not None else report.last
                if number >= report.first:
                    heard.append((report.run, number))
        return tuple(heard)

    # Logs

    def logged(self, app: AppId, job: JobId) -> LogsRow | None:
        """What is known of the log of a job; None if it never ran."""
        if app not in self._arbiter.world.apps:
            return self._book.logs.find(app, job)
        runs = [self._logged(row) for row in self._book.results(app) if row.job == job]
        for run in self._book.of_job(app, job):
            size = self._log_sizes.get(run.run, 0)
            runs.append(LoggedRun(run.run, self._log_node(run), size, over=False))
        return LogsRow(app, job, tuple(runs)) if runs else None

    def _logged(self, row: RunResult) -> LoggedRun:
        # What is known of its end is all there is if its node was never heard of its size.
        size = max(row.log_size, len(row.log.encode()))
        return LoggedRun(row.run, self._log_node(row), size, tail=row.log)

    def _log_node(self, run: WantedRun | RunResult) -> str:
        return self._roster.machine_of[run.gpus[0]].name if run.gpus else ""

    def _keep_logs(self, app: AppId) -> None:
        """An app is gone; its logs are on the nodes for some time yet."""
        by_job: dict[JobId, list[LoggedRun]] = {}
        for row in self._book.results(app):
            by_job.setdefault(row.job, []).append(self._logged(row))
        for job, runs in by_job.items():
            self._book.logs.add(app, job, tuple(runs))

    def _take_logs(self, node: Node) -> None:
        """Note how much runs have printed."""
        report = node.held
        if report is None:
            return
        told = [(run.run, run.log_size) for run in report.runs]
        told += [(part.run, part.size) for part in report.logs]
        for number, size in told:
            run = self._book.runs.get(number)
            if run is not None and self._log_node(run) == node.name:
                self._log_sizes[number] = max(size, self._log_sizes.get(number, 0))

    def _on_logs_wanted(self, event: LogsWanted) -> None:
        """People wait for other parts of logs of a node. Nothing of this is kept."""
        node = self._roster.nodes.get(event.node)
        if node is None or event.wanted == node.logs:
            return
        more = set(event.wanted) - set(node.logs)
        node.logs = event.wanted
        if more:
            node.revision += 1
            self._ready[node.name] = None

    # Agents

    def fence_of(self, app: AppId) -> int:
        """The number of the session that is heard for an app; 0 if there is none."""
        session = self._book.sessions.get(app)
        return session.fence if session is not None else 0

    def session_of(self, app: AppId) -> str:
        """The session that is heard for an app; empty if there is none."""
        session = self._book.sessions.get(app)
        return session.session if session is not None else ""

    def _is_heard(self, app: AppId, fence: int) -> bool:
        """Whether a session is the one that speaks for its app."""
        return fence == self.fence_of(app)

    def _on_session(self, event: SessionOpened) -> None:
        """An agent begins. Its messages may be late, so that one from before must not begin."""
        known = self._book.sessions.get(event.app)
        if event.app not in self._arbiter.world.apps:
            self._commands.append(RefuseSession(event.app, "there is no such app"))
            return
        if known is None or known.session != event.session:
            if known is not None and event.session in known.before:
                self._commands.append(RefuseSession(event.app, DISPLACED))
                return
            before = (known.session, *known.before)[:_SESSIONS] if known is not None else ()
            self._sessions += 1
            # Above all others, also of an app of the same name, and also of what a store that was
            # brought back has forgotten: epochs rise.
            fence = (self._epoch << 32) + self._sessions
            known = AgentSession(event.app, fence, event.session, before)
            self._book.open_session(known)
        self._commands.append(AcceptSession(event.app, event.session, known.fence))
        self._tell_again(event.app)

    def _on_trial(self, event: TrialChosen | JobNoted) -> None:
        """Keep what an agent says of a job, for whoever speaks for the app next, and for people."""
        state = self._arbiter.world.apps.get(event.app)
        job = event.job if isinstance(event, TrialChosen) else event.reached.job
        if state is None or all(job != known.id for known in state.spec.jobs):
            self._commands.append(cmd.Refuse(event.app, f"it has no job {job!r}"))
        elif isinstance(event, TrialChosen):
            self._book.trials.choose(event.app, job, event.params)
        else:
            self._book.trials.reach(event.app, event.reached)

    def _on_request(self, event: RunRequested) -> None:
        known = self._book.asked(event.app, event.key)
        if known is not None:
            self._commands.append(AcceptRun(event.app, event.key, known))
            return
        reason = objection(event, self._arbiter, self._book) or self._storage_objection(event)
        if reason:
            self._commands.append(RefuseRun(event.app, event.key, reason))
            return
        world = self._arbiter.world
        held = world.ledger.holdings(event.app)
        gpus = tuple(sorted(set(event.gpus)))
        run = self._book.add(
            app=event.app,
            owner=world.apps[event.app].spec.owner,
            job=event.job,
            key=event.key,
            gpus=gpus,
            tokens=tuple(held[gpu].token for gpu in gpus),
            program=event.program,
            limit=event.limit,
        )
        self._commands.append(AcceptRun(event.app, event.key, run.run))

    def _storage_objection(self, event: RunRequested) -> str:
        """Why a job would not find its checkpoints where it is to run."""
        ended = [row for row in self._book.results(event.app) if row.job == event.job]
        home = None
        if ended and ended[-1].gpus and ended[-1].iterations > 0.0:
            last = self._roster.machine_of[ended[-1].gpus[0]]
            home = last if last.present else None  # What is gone has nothing to go on with.
        machines = [self._roster.machine_of[gpu] for gpu in sorted(set(event.gpus))]
        return storage_objection(machines, home, self._nonce)

    def sharing(self, node: Node) -> Sharing:
        """How a node is with shared storage."""
        return sharing_of(node, self._roster.nodes.values(), self._nonce)

    def _on_release(self, event: ReleaseRequested) -> None:
        """An agent says that it needs GPUs no more. Whether they are empty, nodes say."""
        if len(event.gpus) != len(event.tokens):
            self._commands.append(cmd.Refuse(event.app, "a release names a token for each GPU"))
            return
        queued = []
        for gpu, token in sorted(set(zip(event.gpus, event.tokens, strict=True))):
            lease = self._lease_meant(event.app, gpu, token)
            if lease is None:
                continue
            run = self._book.on_lease(gpu, lease.token)
            if run is not None:
                self._stop(run, "its agent gave the GPU back")
            if self._arbiter.ledger.lease(gpu) is lease:
                self._book.release(Release(event.app, gpu, lease.token))
                self._touch(gpu)
            else:
                queued.append(gpu)
        if queued:
            self._feed(ev.GpusReleased(self._now, event.app, tuple(queued)))

    def _lease_meant(self, app: AppId, gpu: GpuId, token: int) -> Lease | None:
        """The lease that an agent speaks of: a late word must not touch what was given since."""
        lease = self._arbiter.ledger.holdings(app).get(gpu)
        return lease if lease is not None and lease.token == token else None

    def _on_restored(self, event: ev.GpuRestored) -> None:
        """An operator says that a GPU is well."""
        reason = self._arbiter.ledger.quarantine_reason(event.gpu) if self._knows(event.gpu) else ""
        node = self._roster.machine_of.get(event.gpu)
        empty = node is None or not node.present or event.gpu in node.empty()
        if not empty or self._book.on_gpu(event.gpu) or (reason or "").startswith(FROM_NODE):
            why = "its node does not say that it is empty and well; try again in a moment"
            self._commands.append(cmd.Refuse(f"GPU {event.gpu}", why))
        else:
            self._feed(event)

    def _knows(self, gpu: GpuId) -> bool:
        return 0 <= gpu < len(self._arbiter.ledger)

    # Runs

    def _stop(self, run: WantedRun, reason: str) -> None:
        run = self._book.runs.get(run.run, run)
        if run.stop:
            return
        run = replace(run, stop=True, message=run.message or reason)
        self._book.put(run)
        for gpu in run.gpus:
            self._touch(gpu)
        if not run.ordered:
            self._finish(run)

    def _over(self, run: WantedRun, node: str) -> None:
        """Nothing of a run is alive on a node."""
        run = replace(run, over=(*run.over, node))
        self._book.put(run)
        for gpu in run.gpus:
            self._touch(gpu)
        if {self._roster.machine_of[gpu].name for gpu in run.gpus} <= set(run.over):
            self._finish(run)

    def _finish(self, run: WantedRun) -> None:
        self._store_progress(run)
        run = self._book.runs[run.run]
        if run.ordered:
            self._feed(ev.JobStopped(self._now, run.app, run.job, run.gpus))
        source = self._source(run.run)
        owed = source is not None and self._has_points(run, self._roster.nodes[source[1]])
        points_on = source[1] if owed and source is not None else ""
        result = self._book.finish(run, points_on, self._log_sizes.pop(run.run, 0))
        if not result.points_on:
            self._streams.drop(run.run)
        if run.app not in self._arbiter.world.apps:
            self._keep_logs(run.app)  # It outlasted its app.
            self._book.close(run.app)
        self._iterations.pop(run.run, None)
        self._tell_end(result)

    def _has_points(self, run: WantedRun, node: Node) -> bool:
        """Whether the node of rank 0 has points of a run that is over, or may have."""
        if not node.present or not run.ordered:
            return False
        stream = self._streams.get(run.run)
        if stream is not None:
            return not stream.all_heard
        if node.proves and node.held is not None:
            return any(told.run == run.run for told in node.held.runs)
        return True  # It was not heard since this service began.

    def _place_waiting(self) -> None:
        """Order the runs whose leases have begun and whose GPUs and job are free."""
        for run in list(self._book.waiting.values()):
            if self._may_start(run):
                self._book.put(replace(run, ordered=True))
                # From now on the GPUs are in use, though nothing runs there yet: orders are under
                # way, and the arbiter must not take the GPUs for idle.
                self._feed(ev.JobStarted(self._now, run.app, run.job, run.gpus))
                for gpu in run.gpus:
                    self._touch(gpu)

    def _may_start(self, run: WantedRun) -> bool:
        ledger = self._arbiter.ledger
        for gpu, token in zip(run.gpus, run.tokens, strict=True):
            lease = ledger.lease(gpu)
            if lease is None or lease.token != token or ledger.is_leaving(gpu):
                return False
            if any(other.ordered for other in self._book.on_gpu(gpu)):
                return False
        return all(not other.ordered for other in self._book.of_job(run.app, run.job))

    def _store_progress(self, run: WantedRun) -> None:
        """Tell the arbiter how far a run is, if it does not know."""
        iterations, seconds = self._iterations.get(run.run, (0.0, 0.0))
        state = self._arbiter.world.apps.get(run.app)
        if seconds <= run.seconds or state is None or run.job not in state.jobs:
            return
        # A run that began again further back lost work: what it takes to get there says nothing.
        lost = iterations < state.jobs[run.job].done
        sample = ev.Sample(run.job, iterations, 0.0 if lost else seconds - run.seconds)
        self._book.put(replace(run, iterations=iterations, seconds=seconds))
        self._feed(ev.ProgressMeasured(self._now, run.app, (sample,)))

    # Time

    def _watch_time(self) -> None:
        at = self._now
        for node in self._roster.held_long_enough(at):
            node.due = True
            self._ready[node.name] = None
        for node in self._roster.silent(at, self._last_word):
            self._give_up(node)
        alarm = self._arbiter.next_alarm
        if alarm is not None and alarm <= at:
            if self._arbiter.round_due(at):
                for run in list(self._book.runs.values()):
                    self._store_progress(run)
            self._feed(ev.Woken(at))

    def _last_word(self, node: Node) -> float:
        """When a node must be taken as gone unless it is heard: it has ended everything by then."""
        ttl = self._node_ttl if node.informed else self._book.longest_ttl
        return node.heard + ttl + self._arbiter.settings.guard

    def _all_informed(self) -> bool:
        """Whether no node goes by the terms of an earlier service; one that left runs nothing."""
        return all(node.informed or not node.present for node in self._roster.nodes.values())

    def _watch_silence(self, node: Node) -> None:
        self._roster.watch(node, self._last_word(node))

    def _give_up(self, node: Node) -> None:
        node.present = False
        node.held = None
        self._feed(ev.MachineLeft(self._now, node.name))
        for row in self._book.owed_by(node.name):
            self._settle_points(row)
        for run in self._book.on_node(node.gpus):
            if run.ordered and node.name not in run.over:
                lost = replace(run, stop=True, state=RunState.LOST, message="its machine is gone")
                self._over(lost, node.name)

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

    def _conclude(self, node: Node) -> None:
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
                self._answers.append(Answer(name, self._orders(node)))
                node.held = None
        self._ready = {}
        self._wake = self._next_wake()
        changes = Changes(tuple(self._events), self._book.take_changes())
        wake = self._wake if self._wake < math.inf else None
        return Outcome(changes, tuple(self._commands), tuple(self._answers), wake)

    def _next_wake(self) -> float:
        alarm = self._arbiter.next_alarm
        return min(self._roster.next_time, math.inf if alarm is None else alarm)

    def _terms(self) -> Terms:
        settings = self._arbiter.settings
        return Terms(settings.heartbeat, self._node_ttl, settings.grace)

    def _orders(self, node: Node) -> Orders:
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


def _check_ttl(node_ttl: float, heartbeat: float) -> None:
    if node_ttl < HEARTBEATS * heartbeat:
        allowed = f"{HEARTBEATS} heartbeats ({HEARTBEATS * heartbeat:g} s) or more"
        raise ConfigError("node_ttl", node_ttl, allowed)
