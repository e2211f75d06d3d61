"""The runs that agents requested: those that go on, how others ended, and GPUs given back."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from themis.core.model import AppId, GpuId, JobId, Lease
from themis.core.steward.rows import (
    ActiveRun,
    Release,
    RowChanges,
    RunCount,
    RunEnd,
    StewardRow,
    deleted,
    stored,
)
from themis.protocol.agent_messages import JobPast


class RunTable:
    """Runs by number, with indices by request, GPU, job, app and node."""

    def __init__(self, rows: Iterable[StewardRow] = ()) -> None:
        self._active: dict[int, ActiveRun] = {}
        self._waiting: dict[int, ActiveRun] = {}
        self._ended: dict[int, RunEnd] = {}
        self._releases: dict[GpuId, Release] = {}
        self._by_key: dict[tuple[AppId, str], int] = {}
        self._by_gpu: dict[GpuId, dict[int, None]] = {}
        self._by_job: dict[tuple[AppId, JobId], dict[int, None]] = {}
        self._ended_by_app: dict[AppId, dict[int, None]] = {}
        self._unread_on: dict[str, dict[int, None]] = {}
        """By node: ended runs with points that the agent has not acknowledged."""
        self._count = 0
        for row in rows:
            self._index(row)

    def _index(self, row: StewardRow) -> None:
        match row:
            case ActiveRun():
                self._active[row.run] = row
                self._by_key[row.app, row.key] = row.run
                if row.dispatched:
                    self._waiting.pop(row.run, None)
                else:
                    self._waiting[row.run] = row
                self._by_job.setdefault((row.app, row.job), {})[row.run] = None
                for gpu in row.gpus:
                    self._by_gpu.setdefault(gpu, {})[row.run] = None
            case RunEnd():
                self._ended[row.run] = row
                self._by_key[row.app, row.key] = row.run
                self._ended_by_app.setdefault(row.app, {})[row.run] = None
                if row.points_on:
                    self._unread_on.setdefault(row.points_on, {})[row.run] = None
            case RunCount():
                self._count = row.count
            case Release():
                self._releases[row.gpu] = row
            case _:
                pass

    def _put(self, row: StewardRow) -> RowChanges:
        self._index(row)
        return stored(row)

    # Active runs

    @property
    def active(self) -> Mapping[int, ActiveRun]:
        """Runs that have not ended, by number; read only."""
        return self._active

    @property
    def waiting(self) -> Mapping[int, ActiveRun]:
        """Those that no node was told to start; read only."""
        return self._waiting

    def raise_count(self, floor: int) -> None:
        """Number runs above this from now on.

        A restored store does not know of runs that began after the backup, and nodes may still
        have them. It raises its tokens above all that time allows, which runs can share.
        """
        self._count = max(self._count, floor)

    def add(self, **fields: Any) -> tuple[ActiveRun, RowChanges]:
        """A new run, under a number that was never used."""
        self._count += 1
        run = ActiveRun(run=self._count, **fields)
        return run, self._put(RunCount(self._count)) | self._put(run)

    def put(self, run: ActiveRun) -> RowChanges:
        """A run has changed."""
        return self._put(run)

    def finish(self, end: RunEnd) -> RowChanges:
        """A run has ended on all of its nodes."""
        run = self._active.pop(end.run)
        self._waiting.pop(run.run, None)
        siblings = self._by_job[run.app, run.job]
        del siblings[run.run]
        if not siblings:
            del self._by_job[run.app, run.job]
        for gpu in run.gpus:
            del self._by_gpu[gpu][run.run]
        return deleted(run) | self._put(end)

    def requested(self, app: AppId, key: str) -> int | None:
        """The run that a request with this key was given."""
        return self._by_key.get((app, key))

    def on_gpu(self, gpu: GpuId) -> list[ActiveRun]:
        """Runs that are to use a GPU, the oldest first."""
        return [self._active[number] for number in self._by_gpu.get(gpu, ())]

    def on_gpus(self, gpus: Iterable[GpuId]) -> list[ActiveRun]:
        """Runs that are to use any of these GPUs, by number."""
        numbers = {number for gpu in gpus for number in self._by_gpu.get(gpu, ())}
        return [self._active[number] for number in sorted(numbers)]

    def under_lease(self, gpu: GpuId, token: int) -> ActiveRun | None:
        """The run that uses a lease: one that goes on, else one that is told to stop."""
        found = None
        for run in self.on_gpu(gpu):
            if run.tokens[run.gpus.index(gpu)] == token and (found is None or not run.stop):
                found = run
        return found

    def of_job(self, app: AppId, job: JobId) -> list[ActiveRun]:
        """Active runs of a job."""
        return [self._active[number] for number in self._by_job.get((app, job), ())]

    def of_app(self, app: AppId) -> list[ActiveRun]:
        """Active runs of an app."""
        return [run for run in self._active.values() if run.app == app]

    def must_wait(self, run: ActiveRun) -> bool:
        """Whether another run was dispatched to one of its GPUs, or for its job."""
        others = [other for gpu in run.gpus for other in self.on_gpu(gpu)]
        return any(other.dispatched for other in (*others, *self.of_job(run.app, run.job)))

    # Runs that have ended

    def end(self, number: int) -> RunEnd | None:
        """How a run ended, if it did and its app is still there."""
        return self._ended.get(number)

    def ends(self, app: AppId) -> list[RunEnd]:
        """How the runs of an app ended, the oldest first."""
        return [self._ended[number] for number in sorted(self._ended_by_app.get(app, ()))]

    def unread_on(self, node: str) -> list[RunEnd]:
        """Ended runs with points on a node that their agents have not acknowledged."""
        return [self._ended[number] for number in self._unread_on.get(node, ())]

    def points_done(self, end: RunEnd) -> tuple[RunEnd, RowChanges]:
        """All points of a run were acknowledged, or are lost."""
        self._unread_on.get(end.points_on, {}).pop(end.run, None)
        end = replace(end, points_on="")
        return end, self._put(end)

    def last_of_jobs(self, app: AppId) -> tuple[ActiveRun | RunEnd, ...]:
        """The active runs of an app, and the last end of every other job."""
        active = self.of_app(app)
        last = {end.job: end for end in self.ends(app)}
        for run in active:
            last.pop(run.job, None)
        return *active, *last.values()

    def job_pasts(self, app: AppId, now: float) -> tuple[JobPast, ...]:
        """How long the jobs of an app have run, and how often they failed."""
        seconds: dict[JobId, float] = {}
        failures: dict[JobId, int] = {}
        for end in self.ends(app):
            seconds[end.job] = seconds.get(end.job, 0.0) + end.seconds
            failures[end.job] = failures.get(end.job, 0) + end.failed
        for run in self.of_app(app):
            if run.dispatched:
                lasted = max(0.0, now - run.dispatched_at)
                seconds[run.job] = seconds.get(run.job, 0.0) + lasted
        return tuple(JobPast(job, seconds[job], failures.get(job, 0)) for job in sorted(seconds))

    def close(self, app: AppId) -> RowChanges:
        """The app is gone, and how its runs ended is in its record."""
        ends = [self._ended.pop(number) for number in self._ended_by_app.pop(app, {})]
        for end in ends:
            self._by_key.pop((app, end.key), None)
            self._unread_on.get(end.points_on, {}).pop(end.run, None)
        return deleted(*ends)

    # GPUs given back

    def release(self, lease: Lease) -> RowChanges:
        """The app gave a lease back; the GPU is free once it is empty."""
        return self._put(Release(lease.app, lease.gpu, lease.token))

    def is_released(self, lease: Lease) -> bool:
        """Whether the app has given this lease back."""
        release = self._releases.get(lease.gpu)
        return release is not None and release.token == lease.token

    def drop_release(self, lease: Lease) -> RowChanges:
        """The lease is over, or is being revoked."""
        return deleted(self._releases.pop(lease.gpu)) if self.is_released(lease) else {}
