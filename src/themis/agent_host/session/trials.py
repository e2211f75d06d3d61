"""The trials of an app: their parameters, progress, metrics, and failures with their backoff.

trials = TrialTable(app, plan.trials)
trials.measure(job, 0.3)
trials.fail(job, at)        # False once the retries are used up
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from themis.apps.app_file import AppFile, Goal
from themis.apps.plan import PlannedTrial
from themis.apps.search_space import Value
from themis.core.model import JobId
from themis.protocol.agent_messages import AgentStart, Reached
from themis.protocol.node_messages import finite

FIRST_BACKOFF = 1.0
LONGEST_BACKOFF = 60.0
"""Seconds before a failed job is started again: doubled with each failure, up to the longest."""


@dataclass(slots=True)
class TrialRecord:
    """What is known of one job."""

    params: Mapping[str, Value] | None
    open: bool = False
    """Whether its parameters are still to be chosen."""
    done: float = 0.0
    """Iterations since its start."""
    metric: float | None = None
    """As last reported, in its own direction."""
    reported: bool = False
    """Whether it ever reported anything."""
    measured: bool = False
    """Whether it ever reported its metric, finite or not."""
    failures: int = 0
    false_starts: int = 0
    """Runs in a row that ended before their process ran."""
    failed: str = ""
    """Why it was given up."""
    retry_at: float = math.inf
    """When it may run again, if it failed and waits."""


class TrialTable:
    """One record for each job of the app."""

    def __init__(
        self, app: AppFile, planned: Iterable[PlannedTrial], *, choose_all: bool = False
    ) -> None:
        """Begin with the trials as they are planned.

        Args:
            app: The app file.
            planned: Its trials.
            choose_all: Whether parameters are chosen also where the plan has some.
        """
        self._app = app
        self._planned = tuple(planned)
        self._choose_all = choose_all
        self._records = self._fresh_records()

    def _fresh_records(self) -> dict[JobId, TrialRecord]:
        return {
            trial.job: TrialRecord(trial.params, open=self._choose_all or trial.params is None)
            for trial in self._planned
        }

    def __getitem__(self, job: JobId) -> TrialRecord:
        return self._records[job]

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._records)

    def restore(self, start: AgentStart) -> None:
        """Begin again with the parameters, metrics and failures that the service has kept."""
        self._records = self._fresh_records()
        for past in start.past:
            self._records[past.job].failures = past.failures
        for chosen in start.trials:
            self.set_params(chosen.job, json.loads(chosen.params))
        for curve in start.curves:
            if curve.points:
                self.measure(curve.job, curve.points[-1][1])

    def set_params(self, job: JobId, params: Mapping[str, Value]) -> None:
        """Settle the parameters of a trial."""
        self._records[job].params, self._records[job].open = params, False

    def measure(self, job: JobId, value: float) -> float:
        """Take a reported metric; returns its cost."""
        record = self._records[job]
        record.reported = record.measured = True
        record.metric = finite(value)
        return self.cost(record.metric)

    def advance(self, job: JobId, iterations: float) -> bool:
        """Note that a job is at least this far; returns whether that is news."""
        record = self._records[job]
        if iterations <= record.done:
            return False
        record.done = iterations
        return True

    def report(self, job: JobId, iterations: float) -> None:
        """Note that a job reported this iteration."""
        self._records[job].reported = True
        self.advance(job, iterations)

    def rewind(self, job: JobId, iterations: float) -> None:
        """Note that a run starts here: later iterations are lost, as with the job's machine."""
        self._records[job].done = min(self._records[job].done, iterations)

    def counted(self, job: JobId) -> float:
        """The iterations of a job that count towards its target.

        None do where the app counts no iterations: its job is done when it exits with 0.
        """
        return self._records[job].done if self._app.counts_iterations else 0.0

    def cost(self, metric: float | None) -> float:
        """The metric turned so that less is better; infinity without one."""
        if metric is None:
            return math.inf
        return metric if self._app.metric.goal is Goal.MINIMIZE else -metric

    def reached(self, job: JobId) -> Reached:
        """The message that a job is done for now, or given up."""
        record = self._records[job]
        return Reached(job, record.done, record.metric, record.failed)

    # Failures

    def fail(self, job: JobId, at: float) -> bool:
        """Count a failure; returns whether the job is tried again, after a backoff."""
        self._records[job].failures += 1
        return self._back_off(job, at, self._records[job].failures)

    def fail_start(self, job: JobId, at: float) -> bool:
        """Count a run whose process never ran; returns whether the job is tried again."""
        self._records[job].false_starts += 1
        return self._back_off(job, at, self._records[job].false_starts)

    def _back_off(self, job: JobId, at: float, failures: int) -> bool:
        if failures > self._app.retries:
            return False
        backoff = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** (failures - 1))
        self._records[job].retry_at = at + backoff
        return True

    def give_up(self, job: JobId, why: str) -> None:
        """Mark a job as failed for good."""
        self._records[job].failed, self._records[job].metric = why, None

    @property
    def failed(self) -> tuple[JobId, ...]:
        """Jobs that were given up."""
        return tuple(job for job, record in self._records.items() if record.failed)

    @property
    def all_failed(self) -> bool:
        """Whether no job is left."""
        return len(self.failed) == len(self._records)

    def take_retry(self, job: JobId, at: float) -> bool:
        """Whether the backoff of a job has ended; asked again, it has not."""
        record = self._records[job]
        if record.retry_at > at:
            return False
        record.retry_at = math.inf
        return True

    def is_backing_off(self, job: JobId) -> bool:
        """Whether a job waits before it is tried again."""
        return math.isfinite(self._records[job].retry_at)

    @property
    def next_retry(self) -> float:
        """When the first backoff ends; infinity if no job waits."""
        return min((record.retry_at for record in self._records.values()), default=math.inf)
