"""How far runs are, as their nodes report it, and what the arbiter is told of that.

Progress is told to the arbiter when a round needs it, not with every report. What is known here is
lost with a restart, and reported again.
"""

from dataclasses import dataclass

from themis.core.arbiter import events as ev
from themis.core.arbiter.app_state import AppState
from themis.core.model import AppId, JobId
from themis.core.steward.rows import DONE, ActiveRun
from themis.protocol.node_messages import RunReport, RunState

_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class RunHealth:
    """Whether a run makes progress, as far as its node reports."""

    since: float
    """When it last made progress: it began to run, or did another iteration."""
    trouble: str = ""
    """Why some of its metrics could not be read."""
    before: float = 0.0
    """Seconds without progress of earlier runs of its job, if this one has made none yet."""


class RunProgress:
    """Iterations, seconds and health of active runs."""

    def __init__(self) -> None:
        self._reported: dict[int, tuple[float, float]] = {}
        """Iterations and seconds of training, as last reported."""
        self._first: dict[int, tuple[float, float]] = {}
        """The same when the run first reported any training."""
        self._health: dict[int, RunHealth] = {}
        self._stalled: dict[tuple[AppId, JobId], float] = {}
        """Seconds without progress of a job's ended runs, up to its next iteration."""

    def reported(self, run: int) -> tuple[float, float]:
        """Iterations and seconds of training of a run, as last reported."""
        return self._reported.get(run, (0.0, 0.0))

    def health(self, run: int) -> RunHealth | None:
        """The health of a run, if its node has reported it in this epoch."""
        return self._health.get(run)

    def take(self, run: ActiveRun, report: RunReport, at: float) -> None:
        """The node of rank 0 reports a run."""
        before, job = self.reported(run.run), (run.app, run.job)
        known = self._health.get(run.run)
        begins = report.state is RunState.RUNNING and run.state is RunState.STARTING
        advances = report.iterations != before[0]
        if advances:
            self._stalled.pop(job, None)
        since = at if known is None or begins or advances else known.since
        self._health[run.run] = RunHealth(since, report.trouble, self._stalled.get(job, 0.0))
        self._reported[run.run] = (report.iterations, report.seconds)
        if report.seconds > 0.0:
            self._first.setdefault(run.run, (report.iterations, report.seconds))

    def samples(self, run: ActiveRun, state: AppState) -> tuple[ev.ProgressSample, ...]:
        """What the arbiter does not know yet of a run."""
        iterations, seconds = self.reported(run.run)
        job = state.jobs.get(run.job)
        if job is None or seconds <= run.seconds:
            return ()
        samples, since = [], run.seconds
        if not since:
            # The time to start is no training, and says nothing about iterations.
            first, since = self._first.get(run.run, (iterations, seconds))
            samples.append(ev.ProgressSample(run.job, first, 0.0))
        # A run that resumed from further back lost work: the time to catch up says nothing either.
        lost = iterations < job.done
        samples.append(ev.ProgressSample(run.job, iterations, 0.0 if lost else seconds - since))
        # A job without a limit is done when it exits with 0, and not before: its iterations are
        # for people, and the arbiter often counts one for the whole job.
        most = run.limit or max(0.0, job.target - 1.0)
        return tuple(_at_most(sample, most) for sample in samples)

    def end(self, run: ActiveRun, at: float, *, of_known_app: bool) -> None:
        """A run has ended; its time without progress counts for the next run of its job."""
        self._reported.pop(run.run, None)
        self._first.pop(run.run, None)
        health = self._health.pop(run.run, None)
        if health is not None and of_known_app:
            stalled = self._stalled.get((run.app, run.job), 0.0)
            self._stalled[run.app, run.job] = stalled + max(0.0, at - health.since)

    def close(self, app: AppId) -> None:
        """The app is gone."""
        self._stalled = {job: quiet for job, quiet in self._stalled.items() if job[0] != app}


def _at_most(sample: ev.ProgressSample, most: float) -> ev.ProgressSample:
    """A sample of what a job may do: iterations beyond that say nothing about its speed."""
    return sample if sample.iterations <= most else ev.ProgressSample(sample.job, most, 0.0)


def is_early(run: ActiveRun, state: AppState | None) -> bool:
    """Whether a run exited as finished, though by its own metrics its job is not."""
    if run.code != DONE or state is None or run.job not in state.jobs:
        return False
    return 0.0 < max(run.iterations, state.jobs[run.job].done) < run.limit - _TOLERANCE


def withheld(run: ActiveRun, state: AppState | None) -> float | None:
    """The iterations to count for a job whose run reached its limit and then did not end well.

    Its agent starts it again, because its last checkpoint may be missing. If all of its iterations
    counted, the job would be finished for the arbiter, and never get the GPUs.
    """
    if not run.limit or run.code == DONE or state is None or run.job not in state.jobs:
        return None
    reached = min(run.iterations, state.jobs[run.job].done) >= run.limit
    return max(0.0, run.limit - 1.0) if reached and not state.outcome else None


def restored(job: JobId, iterations: float, state: AppState) -> float | None:
    """The iterations to count for a job that has ended well since, if its last one was withheld."""
    progress = state.jobs.get(job)  # Agents may report any job, also one of another phase.
    if progress is None or state.outcome:
        return None
    reached = min(iterations, progress.target)  # It may have gone a little further.
    return reached if reached - 1.0 <= progress.done < reached else None
