"""What is known of the logs of jobs: which node has which part, and how long the parts are.

The logs of a job's runs, one after the other, are one log. Its bytes are counted through, so that
who has read up to a place goes on from there, in this run or in a later one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from themis.core.model import AppId, JobId

MOST_RUNS = 32
"""Runs of a job whose logs are known after its app is over; the last ones."""


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """The log of one run."""

    run: int
    node: str
    """Which has it: that of rank 0. Empty if none was told to start it."""
    size: int
    """Bytes, as far as known: a run that goes on may have more."""
    over: bool = True
    tail: str = ""
    """Its last lines."""


@dataclass(frozen=True, slots=True)
class LogsRow:
    """The log of a job whose app is over. It outlasts the app, as results do."""

    app: AppId
    job: JobId
    runs: tuple[LoggedRun, ...]
    """The first one first."""
    base: int = 0
    """Bytes of runs before them."""

    @property
    def size(self) -> int:
        """Bytes of all runs, as far as known."""
        return self.base + sum(run.size for run in self.runs)

    def begins(self) -> list[int]:
        """Where in the job's log the log of each run begins."""
        starts = [self.base]
        for run in self.runs:
            starts.append(starts[-1] + run.size)
        return starts[:-1]


def shortened(row: LogsRow) -> LogsRow:
    """What is kept of it: the last runs, and the last lines of the very last."""
    first = max(0, len(row.runs) - MOST_RUNS)
    base = row.base + sum(run.size for run in row.runs[:first])
    runs = [LoggedRun(run.run, run.node, run.size) for run in row.runs[first:-1]]
    return LogsRow(row.app, row.job, (*runs, *row.runs[-1:]), base)


def key_of(row: LogsRow) -> str:
    """Under which key a row is stored."""
    return f"logs/{row.app}/{row.job}"


class JobLogs:
    """The rows of apps that are over; `write` and `drop` make them durable."""

    def __init__(
        self,
        rows: Iterable[LogsRow],
        write: Callable[[LogsRow], None],
        drop: Callable[[str], None],
    ) -> None:
        self._write = write
        self._drop = drop
        self._rows: dict[AppId, dict[JobId, LogsRow]] = {}
        for row in rows:
            self._rows.setdefault(row.app, {})[row.job] = row

    def find(self, app: AppId, job: JobId) -> LogsRow | None:
        """The log of a job of an app that is over."""
        return self._rows.get(app, {}).get(job)

    def add(self, app: AppId, job: JobId, runs: tuple[LoggedRun, ...]) -> None:
        """An app is over, or a run that outlasted it is."""
        before = self.find(app, job) or LogsRow(app, job, ())
        known = {run.run for run in before.runs}
        more = tuple(run for run in runs if run.run not in known)
        if more:
            row = shortened(LogsRow(app, job, (*before.runs, *more), before.base))
            self._rows.setdefault(app, {})[job] = row
            self._write(row)

    def forget(self, app: AppId) -> None:
        """Nobody asks for the logs of an app any more, or its name is used anew."""
        for row in self._rows.pop(app, {}).values():
            self._drop(key_of(row))
