"""Successive halving: each phase trains the better part of the last one further.

tuner = Halving(app.jobs, app.phases)
tuner.begin()                       # NextPhase(0, ...)
tuner.reached(JobId("j0"), 0.31)    # None, until the last one of the rung
"""

import math
from collections.abc import Sequence

from themis.core.fairness.loads import median_job
from themis.core.model import JobId, JobSpec, Phase
from themis.core.tuners.base import Decision, Finished, JobInfo, NextPhase, Outlook
from themis.errors import RefusedError


class Halving:
    """Synchronous: a phase ends when all its jobs are at their target. One phase is no tuning."""

    def __init__(self, jobs: Sequence[JobSpec], phases: Sequence[Phase]) -> None:
        self._specs = {job.id: job for job in jobs}
        self._phases = tuple(phases)
        self._phase = 0
        self._chosen: tuple[JobId, ...] = tuple(job.id for job in jobs[: phases[0].jobs])
        self._metrics: dict[JobId, float] = {}
        self._targets: dict[JobId, float] = {}

    @property
    def phases(self) -> tuple[Phase, ...]:
        """All phases as declared."""
        return self._phases

    @property
    def phase(self) -> int:
        """The phase under way."""
        return self._phase

    def begin(self) -> NextPhase:
        """The first phase: every job."""
        return self._start()

    def reached(self, job: JobId, metric: float) -> Decision | None:
        """Rank when the last job of the rung is in; ties go to the job declared first.

        Raises:
            RefusedError: The job is not of this phase.
        """
        if job not in self._chosen:
            raise RefusedError(job, f"it is not in phase {self._phase}")
        self._metrics[job] = metric
        if len(self._metrics) < len(self._chosen):
            return None
        ranked = sorted(self._chosen, key=self._rank)
        if self._phase + 1 == len(self._phases):
            return Finished(self._winner(ranked))
        self._phase += 1
        survivors = set(self._next(ranked, self._phases[self._phase].jobs))
        self._chosen = tuple(name for name in self._specs if name in survivors)
        self._metrics = {}
        return self._start()

    def observe(self, job: JobId, iteration: float, loss: float) -> Outlook | None:
        """Nothing is decided before the rung is complete."""
        return None

    def jobs_in_phase(self, phase: int) -> tuple[JobInfo, ...]:
        """Those chosen with what they were given to do, or copies of the survivors' median."""
        plan = self._phases[phase]
        if phase == self._phase:
            return tuple(
                info_of(plan.job(self._specs[name]), self._increment(plan, name))
                for name in self._chosen
            )
        typical = median_job([self._specs[name] for name in self._pool(phase)])
        iterations = plan.targets or (plan.iterations,) * plan.jobs
        return tuple(info_of(plan.job(typical), each) for each in iterations)

    def _rank(self, name: JobId) -> tuple[float, int]:
        metric = self._metrics[name]
        # What is no number is as bad as can be; compared as it is, it would upset the sort.
        return (math.inf if math.isnan(metric) else metric, self._place(name))

    def _winner(self, ranked: Sequence[JobId]) -> JobId:
        return ranked[0]

    def _next(self, ranked: Sequence[JobId], count: int) -> Sequence[JobId]:
        return ranked[:count]

    def _pool(self, phase: int) -> Sequence[JobId]:
        """Whose median stands for the jobs of a phase to come."""
        return self._chosen

    def _start(self) -> NextPhase:
        plan = self._phases[self._phase]
        for name in self._chosen:
            done = self._targets.get(name, 0.0)
            self._targets[name] = done + self._increment(plan, name)
        return NextPhase(self._phase, tuple((name, self._targets[name]) for name in self._chosen))

    def _increment(self, plan: Phase, name: JobId) -> float:
        if plan.targets:
            return float(plan.targets[self._chosen.index(name)])
        return float(plan.iterations)

    def _place(self, name: JobId) -> int:
        return list(self._specs).index(name)


def info_of(job: JobSpec, iterations: float) -> JobInfo:
    """A job with this many iterations left, as an agent sees it."""
    return JobInfo(
        job.id, iterations, job.serial_iteration_time, job.slowdown, job.min_gpus, job.max_gpus
    )
