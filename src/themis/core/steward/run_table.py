"""The runs that agents asked for, with what must be stored about them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from themis.core.model import AppId, GpuId, JobId
from themis.core.steward.log_index import JobLogs, LogsRow
from themis.core.steward.rows import (
    AgentSession,
    Kept,
    LongestTtl,
    Release,
    RunCount,
    RunEnd,
    WantedRun,
    key_of,
)
from themis.core.steward.trials import BestRow, CurveRow, ReachedRow, TrialRow, Trials
from themis.protocol.node_messages import RunState


class Runbook:
    """Rows by key, with the indices that the steward looks things up by."""

    def __init__(self, rows: Mapping[str, Kept]) -> None:
        self.rows: dict[str, Kept] = {}
        self.runs: dict[int, WantedRun] = {}
        self.waiting: dict[int, WantedRun] = {}
        """Runs that no node has been told of."""
        self.releases: dict[GpuId, Release] = {}
        self.sessions: dict[AppId, AgentSession] = {}
        """Who speaks for each app."""
        self._changed: dict[str, Kept | None] = {}
        self._by_key: dict[tuple[AppId, str], int] = {}
        self._by_gpu: dict[GpuId, dict[int, None]] = {}
        self._by_job: dict[tuple[AppId, JobId], dict[int, None]] = {}
        self._results: dict[AppId, dict[int, None]] = {}
        self._owing: dict[str, dict[int, None]] = {}
        """By node: results whose points are not all heard."""
        self._count = 0
        self.longest_ttl = 0.0
        for row in rows.values():
            self._index(row)
            self.rows[key_of(row)] = row
        kinds = TrialRow | ReachedRow | CurveRow | BestRow
        trials = (row for row in rows.values() if isinstance(row, kinds))
        self.trials = Trials(trials, self._store, self._drop_if_there)
        logs = (row for row in rows.values() if isinstance(row, LogsRow))
        self.logs = JobLogs(logs, self._store, self._drop_if_there)

    def _drop_if_there(self, key: str) -> None:
        if key in self.rows:
            self._drop(key)

    def _index(self, row: Kept) -> None:
        match row:
            case WantedRun():
                self.runs[row.run] = row
                self._by_key[row.app, row.key] = row.run
                if row.ordered:
                    self.waiting.pop(row.run, None)
                else:
                    self.waiting[row.run] = row
                self._by_job.setdefault((row.app, row.job), {})[row.run] = None
                for gpu in row.gpus:
                    self._by_gpu.setdefault(gpu, {})[row.run] = None
            case RunEnd():
                self._by_key[row.app, row.key] = row.run
                self._results.setdefault(row.app, {})[row.run] = None
                if row.points_on:
                    self._owing.setdefault(row.points_on, {})[row.run] = None
            case RunCount():
                self._count = row.count
            case Release():
                self.releases[row.gpu] = row
            case AgentSession():
                self.sessions[row.app] = row
            case LongestTtl():
                self.longest_ttl = row.seconds
            case _:
                pass  # The trials and logs look after theirs.

    def _store(self, row: Kept) -> None:
        key = key_of(row)
        self.rows[key] = self._changed[key] = row

    def _drop(self, key: str) -> None:
        del self.rows[key]
        self._changed[key] = None

    @property
    def changed(self) -> bool:
        """Whether anything has changed since the changes were last taken."""
        return bool(self._changed)

    def take_changes(self) -> Mapping[str, Kept | None] | None:
        """What changed since this was last asked."""
        if not self._changed:
            return None
        changed, self._changed = self._changed, {}
        return changed

    # Runs

    def raise_count(self, floor: int) -> None:
        """Number runs above this from now on.

        A store that was brought back does not know of runs that began after the backup, and nodes
        may still have them. It raises its tokens above all that time allows, which runs can share.
        """
        self._count = max(self._count, floor)

    def add(self, **what: Any) -> WantedRun:
        """A new run, with a number that was never used."""
        self._count += 1
        self._store(RunCount(self._count))
        run = WantedRun(run=self._count, **what)
        self.put(run)
        return run

    def put(self, run: WantedRun) -> None:
        """A run is new or different."""
        self._index(run)
        self._store(run)

    def finish(
        self,
        run: WantedRun,
        points_on: str = "",
        log_size: int = 0,
        seconds: float = 0.0,
        *,
        early: bool = False,
    ) -> RunEnd:
        """A run is over everywhere; its agent still has to hear of points that this node has."""
        self._drop(key_of(run))
        del self.runs[run.run]
        self.waiting.pop(run.run, None)
        siblings = self._by_job[run.app, run.job]
        del siblings[run.run]
        if not siblings:
            del self._by_job[run.app, run.job]
        for gpu in run.gpus:
            del self._by_gpu[gpu][run.run]
        state = run.state if run.state.over else RunState.LOST
        result = RunEnd(
            run.run,
            run.app,
            run.job,
            run.key,
            state,
            run.code,
            run.iterations,
            run.message,
            run.log,
            run.gpus,
            points_on,
            run.program.metrics.name,
            log_size,
            seconds,
            run.told,
            early,
            run.limit,
        )
        self._index(result)
        self._store(result)
        return result

    def close(self, app: AppId) -> None:
        """An app is over and gone: its results are in its record."""
        session = self.sessions.pop(app, None)
        if session is not None:
            self._drop(key_of(session))
        for number in self._results.pop(app, {}):
            row = self.rows[f"result/{number}"]
            if isinstance(row, RunEnd):
                self._by_key.pop((app, row.key), None)
                self._owing.get(row.points_on, {}).pop(number, None)
            self._drop(f"result/{number}")

    def result(self, number: int) -> RunEnd | None:
        """How a run ended, if it did and its app is still there."""
        row = self.rows.get(f"result/{number}")
        return row if isinstance(row, RunEnd) else None

    def owed_by(self, node: str) -> list[RunEnd]:
        """Runs that are over and of which a node has points that were not heard."""
        found = [self.result(number) for number in self._owing.get(node, ())]
        return [row for row in found if row is not None]

    def settle_points(self, row: RunEnd) -> RunEnd:
        """All that a run ever reported has been heard, or is gone."""
        self._owing.get(row.points_on, {}).pop(row.run, None)
        row = replace(row, points_on="")
        self._store(row)
        return row

    def results(self, app: AppId) -> list[RunEnd]:
        """How runs of an app ended, the first one first."""
        rows = [self.rows[f"result/{number}"] for number in sorted(self._results.get(app, ()))]
        return [row for row in rows if isinstance(row, RunEnd)]

    def asked(self, app: AppId, key: str) -> int | None:
        """The run that a request with this key was given."""
        return self._by_key.get((app, key))

    def on_gpu(self, gpu: GpuId) -> list[WantedRun]:
        """Runs that are to use a GPU, in order."""
        return [self.runs[number] for number in self._by_gpu.get(gpu, ())]

    def on_lease(self, gpu: GpuId, token: int) -> WantedRun | None:
        """The run under a lease that is not told to stop, else one that is."""
        found = None
        for run in self.on_gpu(gpu):
            if run.tokens[run.gpus.index(gpu)] == token and (found is None or not run.stop):
                found = run
        return found

    def on_node(self, gpus: tuple[GpuId, ...]) -> list[WantedRun]:
        """Runs that are to use any of these GPUs, in order of their numbers."""
        numbers = {number for gpu in gpus for number in self._by_gpu.get(gpu, ())}
        return [self.runs[number] for number in sorted(numbers)]

    def has_runs(self, app: AppId) -> bool:
        """Whether a run of an app is not over."""
        return any(run.app == app for run in self.runs.values())

    def of_job(self, app: AppId, job: JobId) -> list[WantedRun]:
        """Runs of a job that are not over."""
        return [self.runs[number] for number in self._by_job.get((app, job), ())]

    def note_ttl(self, seconds: float) -> None:
        """Nodes go by this time to live, and none by a longer one."""
        if seconds != self.longest_ttl:
            row = LongestTtl(seconds)
            self._index(row)
            self._store(row)

    # Who speaks for apps

    def open_session(self, row: AgentSession) -> None:
        """From now on this one speaks for its app."""
        self._index(row)
        self._store(row)

    # GPUs given back

    def release(self, row: Release) -> None:
        """A GPU is to be free once it is empty."""
        self._index(row)
        self._store(row)

    def drop_release(self, gpu: GpuId, token: int) -> None:
        """The lease that was given back is over, or is being taken away."""
        release = self.releases.get(gpu)
        if release is not None and release.token == token:
            self._drop(key_of(self.releases.pop(gpu)))
