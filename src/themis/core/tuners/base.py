"""What a tuner decides: which jobs train, how far, and who goes on.

The paper's calls between agent and tuner are kept in spirit: `getNumPhases` is `phases`,
`getJobsInPhase` is `jobs_in_phase`, `getJobsRemaining` is `Curves.jobs_remaining`, and `JobInfo`
carries besides itersRemaining (`iterations_left`), avgTimePerIter (`iteration_time`) and
localitySensitivity (`slowdown`) what the paper leaves out: who the job is and how many GPUs it can
use. docs/guides/tuners.md has the whole mapping.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from themis.core.model import JobId, Phase, Slowdown


@dataclass(frozen=True, slots=True)
class JobInfo:
    """One job as the agent must see it to bid."""

    job: JobId
    iterations_left: float
    iteration_time: float
    slowdown: Slowdown
    min_gpus: int
    max_gpus: int


@dataclass(frozen=True, slots=True)
class NextPhase:
    """Train these jobs, each up to this many iterations counted from its start."""

    phase: int
    targets: tuple[tuple[JobId, float], ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The best configuration is known."""

    best: JobId


Decision = NextPhase | Finished


@dataclass(frozen=True, slots=True)
class IterationForecast:
    """A job is expected to train until about this iteration, at most its target."""

    job: JobId
    until: float


@dataclass(frozen=True, slots=True)
class StopTraining:
    """A job must train no further; `then` when it was the last one."""

    job: JobId
    then: Decision | None = None


Outlook = IterationForecast | StopTraining


class Tuner(Protocol):
    """Starts, ranks and stops the jobs of one app."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """All phases as declared."""

    @property
    def phase(self) -> int:
        """The phase under way."""

    def begin(self) -> NextPhase:
        """The first phase."""

    def reached(self, job: JobId, metric: float) -> Decision | None:
        """A job is at its target with this metric (lower is better): what now?"""

    def observe(self, job: JobId, iteration: float, loss: float) -> Outlook | None:
        """A job reports a loss on its way (lower is better): does that change anything?"""

    def jobs_in_phase(self, phase: int) -> tuple[JobInfo, ...]:
        """The jobs of a phase: those chosen, or for a phase to come copies of a typical one."""


@dataclass(frozen=True, slots=True)
class Known:
    """The history of a job. Metrics: lower is better."""

    job: JobId
    iterations: tuple[float, ...] = ()
    """Where it was each time it was said to be done, the oldest first."""
    curve: tuple[tuple[float, float], ...] = ()
    """Iterations and metrics, thinned out where there are many."""
    params: Mapping[str, object] | None = None
    """If they were chosen on the way."""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class AppProgress:
    """Where an app is."""

    phase: int
    targets: tuple[tuple[JobId, float], ...]
    """The jobs of the phase, and how far each trains in it."""
    jobs: tuple[Known, ...]


@runtime_checkable
class ResumableTuner(Tuner, Protocol):
    """One that is told what it decided before, and need not decide the same once more.

    What people write may roll dice, or be changed between two starts.
    """

    def resume(self, past: AppProgress) -> None:
        """Be where the app is.

        `begin` then gives the phase under way, and `reached` follows for those of its jobs that are
        at their targets.
        """
