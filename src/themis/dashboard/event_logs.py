"""Event logs for the pages: everything that an arbiter was told and wanted done.

    open_log(Path("run/events.jsonl"))

A log knows more than a run folder: owners, jobs and how far they came, phases, and apps that were
not over when it ended.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.arbiter.records import AppRecord
from themis.core.fairness.ideal_time import Convention, ideal_time
from themis.core.model import AppSpec, Lease, Topology
from themis.dashboard.app_history import Histories
from themis.dashboard.finished import AppIndex, FoundRound, KnownApp, Recording
from themis.dashboard.model import DataOrigin, JobRow, PhaseRow, finite
from themis.dashboard.round_view import line_of
from themis.dashboard.segment_columns import HeldSegment
from themis.recording.event_log import EventLogReader

Progress = Callable[[int, int], None]

_MOST_IN_MEMORY = 20_000
"""Rounds of a log that can be looked at: the newest."""
_EVERY = 2000


@dataclass(slots=True)
class _Told:
    """One app on the way through a log."""

    spec: AppSpec
    phase: int = 0
    began: list[float] = field(default_factory=list)
    jobs: dict[str, JobRow] = field(default_factory=dict)


class Reading:
    """What a log has said so far: told event by event, with the commands that came of each."""

    def __init__(self, topology: Topology, convention: Convention) -> None:
        self.topology = topology
        self.convention = convention
        self.apps = AppIndex()
        self.told: dict[str, _Told] = {}
        self.held: list[HeldSegment] = []
        self.promised: dict[int, list[Lease]] = {}
        """Leases of each GPU: the one that holds it, and those that wait behind it."""
        self.histories = Histories()
        self.rounds: list[FoundRound] = []
        self.now = 0.0

    def event(self, event: ev.Event) -> None:
        """What the arbiter was told."""
        self.now = event.at
        match event:
            case ev.AppArrived(app=spec, at=at):
                jobs = {
                    str(job.id): JobRow(str(job.id), "waiting", iterations=0.0) for job in spec.jobs
                }
                self.told[spec.id] = _Told(spec, 0, [at], jobs)
                self.apps.add(
                    spec.id, owner=str(spec.owner), submitted=at, ended=None, weight=spec.weight
                )
            case ev.PhaseStarted(app=app, phase=phase, at=at) if app in self.told:
                told = self.told[app]
                told.phase = phase
                told.began.append(at)
                on = {str(job): target for job, target in event.targets}
                for name, row in told.jobs.items():
                    state = row.state if name in on else "stopped"
                    told.jobs[name] = replace(row, state=state, target=on.get(name, row.target))
            case ev.JobStarted(app=app, job=job, gpus=gpus) if app in self.told:
                self._job(app, job, state="running", gpus=tuple(map(int, gpus)))
            case ev.JobStopped(app=app, job=job) if app in self.told:
                self._job(app, job, state="waiting", gpus=())
            case ev.ProgressMeasured(app=app, samples=samples) if app in self.told:
                for sample in samples:
                    self._job(app, sample.job, iterations=finite(sample.iterations))
            case ev.AppEnded(app=app, at=at, outcome=outcome):
                self.apps.add(app, ended=at, outcome=outcome)
            case ev.MachineJoined(machine=new) if new.name not in self.topology.number_of:
                self.topology = self.topology.joined_by(new)
            case _:
                pass

    def _job(self, app: str, job: str, **changes: object) -> None:
        jobs = self.told[app].jobs
        if job in jobs:
            jobs[job] = replace(jobs[job], **changes)  # type: ignore[arg-type]  # fields of a row

    def command(self, command: cmd.Command, path: Path, line: int) -> None:
        """What it wanted done."""
        match command:
            case cmd.Assign():
                for lease in command.granted:
                    self.promised.setdefault(lease.gpu, []).append(lease)
                for lease in command.revoked:
                    # Whoever has begun goes on until the slot is empty.
                    chain = self.promised.get(lease.gpu, [])
                    chain[1:] = [item for item in chain[1:] if item.token != lease.token]
            case cmd.End(leases=leases, at=at):
                for lease in leases:
                    self._end(lease, at)
            case cmd.RecordRound(record=record):
                self.histories.note(record.opened, record.apps)
                self.rounds.append(FoundRound(line_of(record), path, line, 0, record))
                del self.rounds[:-_MOST_IN_MEMORY]
            case cmd.RecordApp(record=record):
                self._close(record)
            case _:
                pass

    def _end(self, lease: Lease, at: float) -> None:
        chain = [item for item in self.promised.get(lease.gpu, []) if item.token != lease.token]
        if chain:
            chain[0] = replace(chain[0], start=max(at, chain[0].start))
        self.promised[lease.gpu] = chain
        if lease.start < at:
            item = HeldSegment(lease.gpu, lease.app, lease.start, at, str(lease.source))
            self.held.append(item)

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

    def recording(self, origin: DataOrigin) -> Recording:
        """All of it, when nothing more comes."""
        self._finish()
        self.held.sort(key=lambda item: (item.start, item.gpu))
        topology = self.topology if self.topology.machines else None
        return Recording(origin, topology, self.apps, tuple(self.held), self.histories, self.rounds)

    def _finish(self) -> None:
        """What is open at the end lasted until then, and jobs are what they are."""
        for lease in (chain[0] for chain in self.promised.values() if chain):
            if lease.start <= self.now:  # Of some nothing is known but that they have begun.
                source = str(lease.source)
                self.held.append(HeldSegment(lease.gpu, lease.app, lease.start, self.now, source))
        for name, told in self.told.items():
            over = self.apps.found[name].ended is not None
            jobs = tuple(
                replace(job, state="stopped", gpus=()) if over and job.state != "finished" else job
                for job in map(_finished, told.jobs.values())
            )
            self.apps.add(name, jobs=jobs, phases=_phases(told, over=over))


def _finished(job: JobRow) -> JobRow:
    done = job.target is not None and (job.iterations or 0.0) >= job.target - 1e-6
    return replace(job, state="finished", gpus=()) if done else job


def _phases(told: _Told, *, over: bool) -> tuple[PhaseRow, ...]:
    rows = []
    for number, phase in enumerate(told.spec.phases):
        began = told.began[number] if number < len(told.began) else None
        state = "over" if number < told.phase or over else "now"
        rows.append(
            PhaseRow(
                phase.jobs,
                phase.iterations,
                state if number <= told.phase else "to come",
                began,
            )
        )
    return tuple(rows)


def open_log(path: Path, progress: Progress | None = None) -> Recording:
    """An event log.

    Raises:
        ConfigError: It cannot be read.
        CorruptLogError: It is not a log, or damaged; names the line.
    """
    with EventLogReader(path, forgive_cut=True) as log:
        header = log.header
        reading = Reading(header.topology, header.settings.convention)
        total = path.stat().st_size
        for entry in log:
            reading.event(entry.event)
            for command in entry.commands or ():
                reading.command(command, path, entry.line)
            if progress is not None and entry.line % _EVERY == 0:
                progress(log.bytes_read, total)
    origin = DataOrigin(
        "log",
        path.resolve().parent.name if path.name == "events.jsonl" else path.name,
        header.policy,
        header.topology.name,
        header.settings.lease,
        header.seed,
    )
    return reading.recording(origin)


def with_jobs(recording: Recording, log: Recording) -> Recording:
    """A run folder with what the log beside it knows of owners, jobs and phases."""
    apps = AppIndex()
    for name, app in recording.apps.found.items():
        more = log.apps.found.get(name) or KnownApp(name)
        apps.found[name] = replace(
            app, owner=more.owner, weight=more.weight, phases=more.phases, jobs=more.jobs
        )
    return replace(recording, apps=apps)
