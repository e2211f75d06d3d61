"""A finished run from the events and commands of an arbiter.

    open_log(Path("run/events.jsonl"))

An event log has more than a run folder: owners, jobs with their progress, phases, and apps that
were still active when it ended.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.arbiter.records import AppRecord
from themis.core.fairness.ideal_time import Convention, ideal_time
from themis.core.model import AppSpec, Lease, Topology
from themis.dashboard.app_history import AppHistories
from themis.dashboard.finished_run import FinishedRun, RunApp, RunApps, RunRound
from themis.dashboard.model import DataOrigin, JobRow, PhaseRow, finite
from themis.dashboard.round_view import line_of
from themis.dashboard.sim_runs import Progress
from themis.dashboard.timeline_columns import HeldSegment, held_segment
from themis.recording.event_log import EventLogReader

_MOST_IN_MEMORY = 20_000
"""Rounds that are kept, the newest."""
_PROGRESS_EVERY = 2000
"""Entries between two calls of `Progress`."""


@dataclass(slots=True)
class _LoggedApp:
    """One app as far as the log was read."""

    spec: AppSpec
    phase: int = 0
    began: list[float] = field(default_factory=list)
    jobs: dict[str, JobRow] = field(default_factory=dict)


class RunBuilder:
    """Folds events, and the commands that each led to, into a run."""

    def __init__(self, topology: Topology, convention: Convention) -> None:
        self.topology = topology
        self.convention = convention
        self.apps = RunApps()
        self.logged: dict[str, _LoggedApp] = {}
        self.held: list[HeldSegment] = []
        self.leases: dict[int, list[Lease]] = {}
        """Leases of each GPU: the one that holds it, and those that begin after it."""
        self.histories = AppHistories()
        self.rounds: list[RunRound] = []
        self.now = 0.0

    def event(self, event: ev.Event) -> None:
        """Take in an event."""
        self.now = event.at
        match event:
            case ev.AppArrived(app=spec, at=at):
                jobs = {
                    str(job.id): JobRow(str(job.id), "waiting", iterations=0.0) for job in spec.jobs
                }
                self.logged[spec.id] = _LoggedApp(spec, 0, [at], jobs)
                self.apps.add(
                    spec.id, owner=str(spec.owner), submitted=at, ended=None, weight=spec.weight
                )
            case ev.PhaseStarted(app=app, phase=phase, at=at) if app in self.logged:
                logged = self.logged[app]
                logged.phase = phase
                logged.began.append(at)
                on = {str(job): target for job, target in event.targets}
                for name, row in logged.jobs.items():
                    state = row.state if name in on else "stopped"
                    logged.jobs[name] = replace(row, state=state, target=on.get(name, row.target))
            case ev.JobStarted(app=app, job=job, gpus=gpus) if app in self.logged:
                self._job(app, job, state="running", gpus=tuple(map(int, gpus)))
            case ev.JobStopped(app=app, job=job) if app in self.logged:
                self._job(app, job, state="waiting", gpus=())
            case ev.ProgressMeasured(app=app, samples=samples) if app in self.logged:
                for sample in samples:
                    self._job(app, sample.job, iterations=finite(sample.iterations))
            case ev.AppEnded(app=app, at=at, outcome=outcome):
                self.apps.add(app, ended=at, outcome=outcome)
            case ev.MachineJoined(machine=new) if new.name not in self.topology.number_of:
                self.topology = self.topology.joined_by(new)
            case _:
                pass

    def _job(self, app: str, job: str, **changes: object) -> None:
        jobs = self.logged[app].jobs
        if job in jobs:
            jobs[job] = replace(jobs[job], **changes)  # type: ignore[arg-type]  # fields of a row

    def command(self, command: cmd.Command, path: Path, line: int) -> None:
        """Take in a command; `path` and `line` say where its round can be read again."""
        match command:
            case cmd.Assign():
                for lease in command.granted:
                    self.leases.setdefault(lease.gpu, []).append(lease)
                for lease in command.revoked:
                    # The first lease has begun, and ends when the GPU is empty.
                    chain = self.leases.get(lease.gpu, [])
                    chain[1:] = [item for item in chain[1:] if item.token != lease.token]
            case cmd.End(leases=leases, at=at):
                for lease in leases:
                    self._end(lease, at)
            case cmd.RecordRound(record=record):
                self.histories.note_round(record)
                self.rounds.append(RunRound(line_of(record), path, line, 0, record))
                del self.rounds[:-_MOST_IN_MEMORY]
            case cmd.RecordApp(record=record):
                self._close(record)
            case _:
                pass

    def _end(self, lease: Lease, at: float) -> None:
        chain = [item for item in self.leases.get(lease.gpu, []) if item.token != lease.token]
        if chain:
            chain[0] = replace(chain[0], start=max(at, chain[0].start))
        self.leases[lease.gpu] = chain
        if lease.start < at:
            self.held.append(held_segment(lease, at))

    def _close(self, record: AppRecord) -> None:
        ideal = ideal_time(
            self.convention,
            record.phases,
            contention=max(1.0, record.mean_contention),
            capacity=record.mean_capacity,
            budget=record.budget or None,
        )
        self.apps.add(
            record.app,
            owner=str(record.owner),
            submitted=record.arrival,
            ended=record.end,
            outcome=record.outcome,
            rho=finite(record.elapsed / ideal) if ideal > 0.0 else None,
            gpu_seconds=finite(sum(record.attained.values())),
        )

    def build(self, origin: DataOrigin) -> FinishedRun:
        """The run, after the last event."""
        self._finish()
        self.held.sort(key=lambda item: (item.start, item.gpu))
        topology = self.topology if self.topology.machines else None
        return FinishedRun(
            origin, topology, self.apps, tuple(self.held), self.histories, self.rounds
        )

    def _finish(self) -> None:
        """Close the leases that were open at the end, and settle the states of jobs."""
        for lease in (chain[0] for chain in self.leases.values() if chain):
            if lease.start <= self.now:
                self.held.append(held_segment(lease, self.now))
        for name, logged in self.logged.items():
            ended = self.apps.found[name].ended is not None
            jobs = tuple(
                replace(job, state="stopped", gpus=()) if ended and job.state != "finished" else job
                for job in map(_finished, logged.jobs.values())
            )
            self.apps.add(name, jobs=jobs, phases=_phases(logged, ended=ended))


def _finished(job: JobRow) -> JobRow:
    done = job.target is not None and (job.iterations or 0.0) >= job.target - 1e-6
    return replace(job, state="finished", gpus=()) if done else job


def _phases(logged: _LoggedApp, *, ended: bool) -> tuple[PhaseRow, ...]:
    rows = []
    for number, phase in enumerate(logged.spec.phases):
        began = logged.began[number] if number < len(logged.began) else None
        state = "over" if number < logged.phase or ended else "now"
        rows.append(
            PhaseRow(
                phase.jobs,
                phase.iterations,
                state if number <= logged.phase else "to come",
                began,
            )
        )
    return tuple(rows)


def open_log(path: Path, progress: Progress | None = None) -> FinishedRun:
    """The run in an event log.

    Raises:
        ConfigError: It cannot be read.
        CorruptLogError: It is not a log, or damaged; names the line.
    """
    with EventLogReader(path, forgive_cut=True) as log:
        header = log.header
        builder = RunBuilder(header.topology, header.settings.convention)
        total = path.stat().st_size
        for entry in log:
            builder.event(entry.event)
            for command in entry.commands or ():
                builder.command(command, path, entry.line)
            if progress is not None and entry.line % _PROGRESS_EVERY == 0:
                progress(log.bytes_read, total)
    origin = DataOrigin(
        "log",
        path.resolve().parent.name if path.name == "events.jsonl" else path.name,
        header.policy,
        header.topology.name,
        header.settings.lease,
        header.seed,
    )
    return builder.build(origin)


def with_jobs(run: FinishedRun, log: FinishedRun) -> FinishedRun:
    """The run of a folder, with the owners, jobs and phases of the log beside it."""
    apps = RunApps()
    for name, app in run.apps.found.items():
        more = log.apps.found.get(name) or RunApp(name)
        apps.found[name] = replace(
            app, owner=more.owner, weight=more.weight, phases=more.phases, jobs=more.jobs
        )
    return replace(run, apps=apps)
