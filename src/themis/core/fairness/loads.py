"""What an app still has to train, phase by phase: the work that every equation starts from.

phases = declared_phases(app)      # before anything ran: its own jobs, then median copies
total_work(phases)                 # GPU-seconds on one GPU
demand_max(phases)                 # the most GPUs it can ever use at once
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from themis.core.model import AppSpec, JobSpec, Phase
from themis.core.model.values import value
from themis.errors import InvariantError


@value
class JobLoad:
    """One job's part of a phase: `work` in seconds on one GPU, without any slowdown."""

    work: float
    max_gpus: int
    min_gpus: int = 1


PhaseLoad = tuple[JobLoad, ...]
"""The jobs that train in one phase."""


def declared_phases(app: AppSpec) -> tuple[PhaseLoad, ...]:
    """The whole app as submitted: its own jobs in the first phase, median copies afterwards."""
    first = app.phases[0]
    starters = app.jobs[: first.jobs]
    loads = tuple(
        load_of(first.job(job), _iterations(first, index)) for index, job in enumerate(starters)
    )
    return remaining_phases(loads, app, starters, 0)


def remaining_phases(
    current: Sequence[JobLoad], spec: AppSpec, survivors: Sequence[JobSpec], phase: int
) -> tuple[PhaseLoad, ...]:
    """The rest of an app that is in phase number `phase` (from 0) with these loads left.

    Later phases do not know who will survive, so they hold copies of the survivors' upper-median
    job. Only a new Hyperband bracket makes the number of jobs grow; it trains other jobs than
    today's survivors, so from there on the median is that of all the app's jobs.
    """
    if not 0 <= phase < len(spec.phases):
        raise InvariantError(f"{spec.id} has no phase {phase}, only {len(spec.phases)}")
    result = [tuple(current)]
    typical = median_job(survivors or spec.jobs)
    for before, after in pairwise(spec.phases[phase:]):
        if after.jobs > before.jobs:
            typical = median_job(spec.jobs)
        result.append(_copies(typical, after))
    return tuple(result)


def load_of(job: JobSpec, iterations: float) -> JobLoad:
    """The load of this many iterations of a job."""
    return JobLoad(iterations * job.serial_iteration_time, job.max_gpus, job.min_gpus)


def median_job(jobs: Sequence[JobSpec]) -> JobSpec:
    """The job with the upper median iteration time, the earlier one among equals."""
    ranked = sorted(jobs, key=lambda job: job.serial_iteration_time)
    median = ranked[len(ranked) // 2].serial_iteration_time
    return next(job for job in jobs if job.serial_iteration_time == median)


def phase_work(phase: Sequence[JobLoad]) -> float:
    """The serial seconds in one phase."""
    return math.fsum(job.work for job in phase)


def total_work(phases: Sequence[PhaseLoad]) -> float:
    """The serial seconds in all phases."""
    return math.fsum(job.work for phase in phases for job in phase)


def phase_demand(phase: Sequence[JobLoad]) -> int:
    """The GPUs that a phase's unfinished jobs can hold together."""
    return sum(job.max_gpus for job in phase if job.work > 0.0)


def demand_max(phases: Sequence[PhaseLoad]) -> int:
    """The most GPUs that any phase can hold; finished jobs want none."""
    return max(map(phase_demand, phases), default=0)


def longest_job(phase: Sequence[JobLoad]) -> float:
    """The seconds below which no number of GPUs brings a phase: its longest job at full width."""
    return max((job.work / job.max_gpus for job in phase), default=0.0)


@dataclass(frozen=True, slots=True)
class PhaseSums:
    """What ideal and best-case times need of a phase, for those who ask often."""

    work: float
    longest: float
    """`longest_job`."""
    demand: int
    """`phase_demand`."""

    @property
    def useful(self) -> float:
        """The GPUs beyond which a phase gets no quicker, because its longest job decides.

        This is W / max_j(w_j / max_gpus_j), which never exceeds the sum of max_gpus: no job is
        longer than the longest.
        """
        return self.work / self.longest if self.work > 0.0 else 0.0

    @staticmethod
    def of(phase: Sequence[JobLoad]) -> "PhaseSums":
        """Of the loads of a phase."""
        return PhaseSums(phase_work(phase), longest_job(phase), phase_demand(phase))


def _copies(job: JobSpec, phase: Phase) -> PhaseLoad:
    if phase.targets:
        return tuple(load_of(phase.job(job), target) for target in phase.targets)
    return (load_of(phase.job(job), phase.iterations),) * phase.jobs


def _iterations(phase: Phase, index: int) -> int:
    return phase.targets[index] if phase.targets else phase.iterations
