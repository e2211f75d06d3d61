"""Where the logs of jobs are: which node has which run's log, and how long it is.

The log of a job is the logs of its runs, one after the other. Offsets count through all of them, so
a reader that stopped at an offset goes on from there, in this run or in a later one. The text
itself never passes through here.
"""

from collections.abc import Iterable

from themis.core.model import AppId, JobId
from themis.core.steward.rows import (
    ActiveRun,
    LoggedRun,
    LogsRow,
    RowChanges,
    RunEnd,
    deleted,
    stored,
)

MOST_RUNS = 32
"""Runs of a job whose logs are listed after its app has ended: the last ones."""

RunOnNode = tuple[ActiveRun | RunEnd, str]
"""A run, and the node that has its log."""


class JobLogs:
    """Sizes of the logs of active runs, and the rows of apps that have ended."""

    def __init__(self, rows: Iterable[LogsRow] = ()) -> None:
        self._sizes: dict[int, int] = {}
        self._rows: dict[AppId, dict[JobId, LogsRow]] = {}
        for row in rows:
            self._rows.setdefault(row.app, {})[row.job] = row

    def note_size(self, run: int, size: int) -> None:
        """A node says how many bytes the log of an active run has."""
        self._sizes[run] = max(size, self._sizes.get(run, 0))

    def final_size(self, run: int) -> int:
        """The bytes of a run that has ended; asked for once."""
        return self._sizes.pop(run, 0)

    def of_active_app(self, app: AppId, job: JobId, runs: Iterable[RunOnNode]) -> LogsRow | None:
        """The log of a job with these runs; None if there are none."""
        logged = tuple(self._logged(run, node) for run, node in runs)
        return LogsRow(app, job, logged) if logged else None

    def of_ended_app(self, app: AppId, job: JobId) -> LogsRow | None:
        """The log of a job of an app that has ended, if it is still listed."""
        return self._rows.get(app, {}).get(job)

    def _logged(self, run: ActiveRun | RunEnd, node: str) -> LoggedRun:
        if isinstance(run, ActiveRun):
            return LoggedRun(run.run, node, self._sizes.get(run.run, 0), over=False)
        # A run whose node never reported a size has only the last lines.
        return LoggedRun(run.run, node, max(run.log_size, len(run.log.encode())), tail=run.log)

    def keep(self, app: AppId, ended: Iterable[RunOnNode]) -> RowChanges:
        """List the runs of an app that has ended; the nodes have their logs for some time yet."""
        by_job: dict[JobId, list[LoggedRun]] = {}
        for run, node in ended:
            by_job.setdefault(run.job, []).append(self._logged(run, node))
        changes: RowChanges = {}
        for job, runs in by_job.items():
            before = self.of_ended_app(app, job) or LogsRow(app, job, ())
            known = {run.run for run in before.runs}
            new = tuple(run for run in runs if run.run not in known)
            if new:
                row = shortened(LogsRow(app, job, (*before.runs, *new), before.base))
                self._rows.setdefault(app, {})[job] = row
                changes |= stored(row)
        return changes

    def forget(self, app: AppId) -> RowChanges:
        """Drop the logs of an app that has expired, or whose name is used again."""
        return deleted(*self._rows.pop(app, {}).values())


def shortened(row: LogsRow) -> LogsRow:
    """The last runs of a log, and the last lines of the very last one."""
    first = max(0, len(row.runs) - MOST_RUNS)
    base = row.base + sum(run.size for run in row.runs[:first])
    runs = [LoggedRun(run.run, run.node, run.size) for run in row.runs[first:-1]]
    return LogsRow(row.app, row.job, (*runs, *row.runs[-1:]), base)
