"""Hyperband: brackets of successive halving, from many short jobs to few long ones.

    phases = hyperband_phases(81, eta=3)    # 81 jobs x 1, 27 x 2, ..., then 34 fresh ones, ...
    jobs_needed(phases)                     # 143
    tuner = Hyperband(app.jobs, app.phases)

The brackets run one after the other, as phases of one app. Within a bracket the number of jobs only
falls, and each bracket starts more jobs than the last rung of the one before has: so a phase with
more jobs than the one before it is where a bracket begins.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Self

from themis.core.fairness.schedules import hyperband
from themis.core.model import JobId, JobSpec, Phase
from themis.core.tuners.successive_halving import Halving
from themis.errors import ConfigError


def hyperband_phases(max_iterations: int, eta: int = 3) -> tuple[Phase, ...]:
    """The phases of all brackets, in the order they run."""
    return tuple(phase for bracket in hyperband(max_iterations, eta) for phase in bracket.phases)


def has_brackets(phases: Sequence[Phase]) -> bool:
    """Whether some phase starts fresh jobs."""
    return any(after.jobs > before.jobs for before, after in pairwise(phases))


def jobs_needed(phases: Sequence[Phase]) -> int:
    """The jobs that the brackets start together."""
    fresh = (after.jobs for before, after in pairwise(phases) if after.jobs > before.jobs)
    return phases[0].jobs + sum(fresh)


class Hyperband(Halving):
    """Halving within a bracket; a new bracket takes the next jobs declared.

    The best of those that finish a bracket wins: they have all trained to the maximum, while the
    metrics of jobs stopped on the way are of shorter training.
    """

    def __init__(self, jobs: Sequence[JobSpec], phases: Sequence[Phase]) -> None:
        needed = jobs_needed(phases)
        if needed > len(jobs):
            raise ConfigError("jobs for Hyperband", len(jobs), f"the {needed} its brackets start")
        super().__init__(jobs, phases)
        self._fresh = [job.id for job in jobs[phases[0].jobs :]]
        self._finalists: list[tuple[tuple[float, int], JobId]] = []

    @classmethod
    def of(cls, jobs: Sequence[JobSpec], max_iterations: int, eta: int = 3) -> Self:
        """Hyperband as published, with the first of these jobs that its brackets need."""
        return cls(jobs, hyperband_phases(max_iterations, eta))

    def _winner(self, ranked: Sequence[JobId]) -> JobId:
        self._keep_best(ranked)
        return min(self._finalists)[1]

    def _next(self, ranked: Sequence[JobId], count: int) -> Sequence[JobId]:
        if count <= len(ranked):
            return ranked[:count]
        self._keep_best(ranked)
        started, self._fresh = self._fresh[:count], self._fresh[count:]
        return started

    def _keep_best(self, ranked: Sequence[JobId]) -> None:
        self._finalists.append((self._rank(ranked[0]), ranked[0]))

    def _pool(self, phase: int) -> Sequence[JobId]:
        # As the arbiter counts (fairness.loads): from a new bracket on, all jobs.
        if has_brackets(self._phases[self._phase : phase + 1]):
            return tuple(self._specs)
        return self._chosen
