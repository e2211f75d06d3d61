"""How runs begin and end with their leases: between the arbiter, the runs and their nodes.

Every event for the arbiter goes through `RunLifecycle.feed`, which applies its commands: a revoked
lease stops the run under it, and touches the orders of its node.
"""

from dataclasses import replace

from themis.core.arbiter import Arbiter
from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.model import AppId, JobId, Lease
from themis.core.steward.components import Components
from themis.core.steward.job_logs import RunOnNode
from themis.core.steward.outcome import OutcomeBuilder
from themis.core.steward.rows import ActiveRun, RunEnd
from themis.core.steward.run_progress import is_early, withheld
from themis.protocol.node_messages import RunState


class RunLifecycle:
    """Starts, stops and finishes runs, and tells the arbiter."""

    def __init__(self, arbiter: Arbiter, parts: Components, out: OutcomeBuilder) -> None:
        self._arbiter = arbiter
        self._parts = parts
        self._out = out

    # The arbiter

    def feed(self, event: ev.Event) -> None:
        """Hand an event to the arbiter, and apply its commands to runs and nodes."""
        if not isinstance(event, ev.ProgressMeasured) and self._arbiter.may_open_round(event):
            for run in list(self._parts.runs.active.values()):
                self._report_progress(run)
        self._out.record(event)
        for command in self._arbiter.handle(event):
            match command:
                case cmd.WakeMe():
                    continue
                case cmd.Assign():
                    for lease in (*command.granted, *command.renewed):
                        self._parts.nodes.touch(lease.gpu)
                    for lease in command.revoked:
                        self._revoke(lease, command.reason)
                case cmd.End(leases=leases):
                    for lease in leases:
                        self._revoke(lease, "its lease is over")
                case cmd.RecordApp(record=record):
                    self._close(record.app)
                case cmd.Refuse() if event is self._out.event:
                    self._out.refusal = command
                case _:
                    pass
            self._out.tell(command)

    def _revoke(self, lease: Lease, reason: str) -> None:
        self._parts.nodes.touch(lease.gpu)
        self._out.store(self._parts.runs.drop_release(lease))
        run = self._parts.runs.under_lease(lease.gpu, lease.token)
        if run is not None:
            self.stop(run, reason)

    def _close(self, app: AppId) -> None:
        """The arbiter has let an app go."""
        self._close_runs(app)
        self._parts.metrics.close(app)
        self._parts.progress.close(app)
        self._parts.storage.close(app)

    def _close_runs(self, app: AppId) -> None:
        parts, out = self._parts, self._out
        out.store(parts.logs.keep(app, [self.on_node(end) for end in parts.runs.ends(app)]))
        out.store(parts.sessions.close(app))
        out.store(parts.runs.close(app))

    def on_node(self, run: ActiveRun | RunEnd) -> RunOnNode:
        """A run with the node that has its log."""
        return run, self._parts.nodes.name_of_leader(run.gpus)

    # Progress

    def _report_progress(self, run: ActiveRun) -> None:
        """Tell the arbiter how far a run is, if it does not know."""
        state = self._arbiter.world.apps.get(run.app)
        samples = self._parts.progress.samples(run, state) if state is not None else ()
        if state is None or not samples:
            return
        iterations, seconds = self._parts.progress.reported(run.run)
        run = replace(run, iterations=iterations, seconds=seconds)
        self._out.store(self._parts.runs.put(run))
        if not state.outcome:  # An app that is about to leave takes no more.
            at = self._arbiter.before_alarm(self._out.now)
            self.feed(ev.ProgressMeasured(at, run.app, samples))

    def count_iterations(self, app: AppId, job: JobId, iterations: float) -> None:
        """Tell the arbiter how far a job is, and nothing about how long it took."""
        sample = ev.ProgressSample(job, iterations, 0.0)
        at = self._arbiter.before_alarm(self._out.now)
        self.feed(ev.ProgressMeasured(at, app, (sample,)))

    # Runs

    def start_waiting(self) -> None:
        """Dispatch the runs whose leases have begun and whose GPUs and job are free."""
        for run in list(self._parts.runs.waiting.values()):
            if self._leases_hold(run) and not self._parts.runs.must_wait(run):
                started = replace(run, dispatched=True, dispatched_at=self._out.now)
                self._out.store(self._parts.runs.put(started))
                # The GPUs are in use from now on, though nothing runs there yet: orders are on
                # their way, and the arbiter must not take the GPUs for idle.
                self.feed(ev.JobStarted(self._out.now, run.app, run.job, run.gpus))
                self._touch(run)

    def _leases_hold(self, run: ActiveRun) -> bool:
        ledger = self._arbiter.ledger
        leases = [
            (ledger.lease(gpu), token) for gpu, token in zip(run.gpus, run.tokens, strict=True)
        ]
        return all(
            lease is not None and lease.token == token and not ledger.is_leaving(lease.gpu)
            for lease, token in leases
        )

    def _touch(self, run: ActiveRun) -> None:
        for gpu in run.gpus:
            self._parts.nodes.touch(gpu)

    def stop(self, run: ActiveRun, reason: str) -> None:
        """Tell a run to save and exit."""
        run = self._parts.runs.active.get(run.run, run)
        if run.stop:
            return
        run = replace(run, stop=True, interrupted=True, message=run.message or reason)
        self._out.store(self._parts.runs.put(run))
        self._touch(run)
        if not run.dispatched:
            self._finish(run)

    def end_on(self, run: ActiveRun, node: str) -> None:
        """None of a run's processes is left on a node."""
        run = replace(run, ended_on=(*run.ended_on, node))
        self._out.store(self._parts.runs.put(run))
        self._touch(run)
        if set(self._parts.nodes.names_of(run.gpus)) <= set(run.ended_on):
            self._finish(run)

    def _finish(self, run: ActiveRun) -> None:
        parts, out, apps = self._parts, self._out, self._arbiter.world.apps
        self._report_progress(run)
        run = parts.runs.active[run.run]
        if run.dispatched:
            counted = withheld(run, apps.get(run.app))
            if counted is not None:  # Before `JobStopped`, which may open a round.
                self.count_iterations(run.app, run.job, counted)
            self.feed(ev.JobStopped(out.now, run.app, run.job, run.gpus))
        end = self._end_of(run)
        out.store(parts.runs.finish(end))
        if not end.points_on:
            parts.metrics.drop(run.run)
        if run.app not in apps:
            self._close_runs(run.app)  # The run outlasted its app.
        parts.progress.end(run, out.now, of_known_app=run.app in apps)
        out.tell(parts.metrics.end(end))

    def _end_of(self, run: ActiveRun) -> RunEnd:
        lasted = max(0.0, self._out.now - run.dispatched_at) if run.dispatched else 0.0
        return RunEnd(
            run.run,
            run.app,
            run.job,
            run.key,
            run.state if run.state.over else RunState.LOST,
            run.code,
            run.iterations,
            run.message,
            run.log,
            run.gpus,
            points_on=self._parts.metrics.node_with_points(run),
            metric=run.metric,
            log_size=self._parts.logs.final_size(run.run),
            seconds=lasted,
            interrupted=run.interrupted,
            early=is_early(run, self._arbiter.world.apps.get(run.app)),
            limit=run.limit,
        )
