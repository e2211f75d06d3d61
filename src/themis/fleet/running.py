"""The runs that the service wants, and the leases that they go by.

The lowest part of the steward: what it knows, how it hands events to the arbiter, and how runs
begin and end by what comes of them.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from themis.arbiter import Arbiter
from themis.arbiter import commands as cmd
from themis.arbiter import events as ev
from themis.errors import ConfigError
from themis.fleet.commands import Answer, StewardCommand, TellRun
from themis.fleet.kept import AgentSession, Kept, RunResult, WantedRun
from themis.fleet.roster import Node, Roster
from themis.fleet.runbook import Runbook
from themis.model import AppId, GpuId, JobId, Lease

NODE_TTL = 20.0
HEARTBEATS = 5
"""How many a node must live for: one that is answered late, and asks again, is not cut off."""


class Running:
    """What the steward knows; runs begin and end here."""

    def __init__(
        self,
        arbiter: Arbiter,
        *,
        epoch: int,
        at: float,
        node_ttl: float = NODE_TTL,
        saved: Mapping[str, Kept] | None = None,
    ) -> None:
        _check_ttl(node_ttl, arbiter.settings.heartbeat)
        self._arbiter = arbiter
        self._epoch = epoch
        self._node_ttl = node_ttl
        self._now = at
        self._book = Runbook(saved or {})
        self._book.note_ttl(max(self._book.longest_ttl, node_ttl))
        self._roster = Roster()
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
                    self._book.close(record.app)
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
        result = self._book.finish(run)
        if run.app not in self._arbiter.world.apps:
            self._book.close(run.app)  # It outlasted its app.
        self._iterations.pop(run.run, None)
        self._commands.append(
            TellRun(
                run.app,
                run.job,
                run.run,
                result.state,
                result.code,
                result.iterations,
                result.message,
                result.log,
            )
        )

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


def _check_ttl(node_ttl: float, heartbeat: float) -> None:
    if node_ttl < HEARTBEATS * heartbeat:
        allowed = f"{HEARTBEATS} heartbeats ({HEARTBEATS * heartbeat:g} s) or more"
        raise ConfigError("node_ttl", node_ttl, allowed)
