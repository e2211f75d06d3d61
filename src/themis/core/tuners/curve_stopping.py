"""Performance-curve stopping: watch the losses, foresee where each job will end, stop the hopeless.

    tuner = Curves.of(app.jobs, max_iterations=50)
    tuner.begin()
    tuner.observe(JobId("j0"), 10, 0.42)    # None, Forecast(j0, until=37) or Stop(j0)
    tuner.jobs_remaining()                  # the paper's getJobsRemaining

Forecasts are optimistic throughout: of all curves that fit, a job's end is taken from the one that
sees it train longest, and its final loss from the one that sees it fall lowest. Without any losses
every job trains to its maximum, as with no tuning at all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from themis.core.fairness.curve_stopping_time import stop_iteration
from themis.core.model import JobId, JobSpec, Phase
from themis.core.model.ids import check_count, check_number
from themis.core.tuners.base import Decision, IterationForecast, JobInfo, Outlook, StopTraining
from themis.core.tuners.loss_curves import Fit, fit_curves
from themis.core.tuners.single import Single
from themis.core.tuners.successive_halving import info_of
from themis.errors import RefusedError

MOST_POINTS = 64
"""Of longer histories neighbours are averaged, so that neither time nor memory grows."""

PLAUSIBLE = 3.0
"""Forecasts use curves with up to this factor times the error of the best fit."""


@dataclass(frozen=True, slots=True)
class CurveRule:
    """When a job is stopped. Shares are of its maximum of iterations."""

    tolerance: float = 0.005
    """A gain below this share of the loss is no gain."""
    window: float = 0.1
    """A job has converged when it would gain nothing over this share of more training."""
    grace: float = 0.3
    """No job is judged before this share of its training."""
    least_points: int = 5
    """No job is judged on fewer losses."""
    optimism: float = 0.5
    """Hope that a loss falls by so much further than its best curve says."""
    floor: float | None = 0.0
    """No loss falls below this; ignored for a job of which one has."""
    broken_after: int = 3
    """A job is given up after this many losses in a row that are not finite."""

    def __post_init__(self) -> None:
        check_number("tolerance", self.tolerance, high=1.0)
        check_number("window", self.window, above=True, high=1.0)
        check_number("grace", self.grace, high=1.0)
        check_count("least_points", self.least_points, low=2, high=10**6)
        check_number("optimism", self.optimism, high=100.0)
        check_count("broken_after", self.broken_after, high=10**6)
        if self.floor is not None:
            check_number("floor", self.floor, low=-1e300, high=1e300)


@dataclass(slots=True)
class _History:
    """The loss history of one job."""

    most: int
    points: list[tuple[float, float]] = field(default_factory=list)
    best: float = math.inf
    broken: int = 0
    seen: int = 0
    judge_at: int = 0
    forecast: int = 0
    """Zero for none."""
    last: float = 0.0

    def add(self, iteration: float, loss: float) -> None:
        # A job that lost work trains the same iterations again: what came after counts no more.
        while self.points and self.points[-1][0] >= iteration:
            self.points.pop()
        self.last = iteration
        self.seen += 1
        if not math.isfinite(loss):
            self.broken += 1
            return
        self.broken = 0
        self.best = min(self.best, loss)
        self.points.append((iteration, loss))
        if len(self.points) >= 2 * MOST_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=True)
            self.points = [((a + c) / 2.0, (b + d) / 2.0) for (a, b), (c, d) in pairs]


class Curves(Single):
    """One phase; each job ends at its maximum, where its loss flattens, or where it cannot win."""

    def __init__(
        self, jobs: Sequence[JobSpec], phases: Sequence[Phase], rule: CurveRule | None = None
    ) -> None:
        super().__init__(jobs, phases)
        self._rule = rule or CurveRule()
        most = phases[0].targets or (phases[0].iterations,) * phases[0].jobs
        self._histories = {
            name: _History(limit) for name, limit in zip(self._chosen, most, strict=True)
        }

    @classmethod
    def of(
        cls, jobs: Sequence[JobSpec], max_iterations: int, rule: CurveRule | None = None
    ) -> Self:
        """Every job may train to the same maximum."""
        return cls(jobs, (Phase(len(jobs), max_iterations),), rule)

    def reached(self, job: JobId, metric: float) -> Decision | None:
        """A job trained to its end; one that was stopped before has nothing to add."""
        history = self._histories.get(job)
        if history is None:
            raise RefusedError(job, "this app does not train it")
        if job in self._metrics:
            return None
        if math.isfinite(metric):
            history.best = min(history.best, metric)
        return super().reached(job, metric)

    def observe(self, job: JobId, iteration: float, loss: float) -> Outlook | None:
        """Take a loss; at times look where the job is going, and stop it if that is not worth it.

        Raises:
            RefusedError: The app has no such job, or the iteration is no number.
        """
        history = self._histories.get(job)
        if history is None:
            raise RefusedError(job, "this app does not train it")
        if not math.isfinite(iteration):
            raise RefusedError(job, f"an iteration is a number, got {iteration!r}")
        if job in self._metrics or iteration < 1.0:
            return None  # Over, or an evaluation before any training.
        history.add(iteration, loss)
        if history.broken >= self._rule.broken_after:
            # Its weights are lost, however good it once was: it neither wins nor beats others.
            history.best = math.inf
            return self._stop(job)
        if not self._due(history):
            return None
        return self._judge(job, history)

    def jobs_remaining(self) -> tuple[JobInfo, ...]:
        """The jobs that still train, each with the iterations to its forecast end."""
        return tuple(
            info_of(self._phases[0].job(self._specs[name]), self._left(history))
            for name, history in self._histories.items()
            if name not in self._metrics
        )

    def jobs_in_phase(self, phase: int) -> tuple[JobInfo, ...]:
        """The only phase: the jobs that remain."""
        return self.jobs_remaining() if phase == 0 else super().jobs_in_phase(phase)

    def _left(self, history: _History) -> float:
        return max(0.0, (history.forecast or history.most) - history.last)

    def _due(self, history: _History) -> bool:
        """Fitting takes time: only when a tenth more is known than when it was last done."""
        rule = self._rule
        if history.broken or history.seen < max(rule.least_points, history.judge_at):
            return False
        if len(history.points) < 2 or history.last < rule.grace * history.most:
            return False
        history.judge_at = history.seen + max(1, history.seen // 10)
        return True

    def _judge(self, job: JobId, history: _History) -> Outlook | None:
        fits = fit_curves(history.points, floor=self._rule.floor)
        if not fits:
            return None
        ends = [self._converges_at(fit, history) for fit in self._plausible(fits, history)]
        end = stop_iteration(ends, history.most)
        if end <= history.last or self._hopeless(job, fits, history):
            return self._stop(job)
        history.forecast = max(end, math.floor(history.last) + 1)
        return IterationForecast(job, float(min(history.forecast, history.most)))

    def _plausible(self, fits: Sequence[Fit], history: _History) -> Sequence[Fit]:
        """The best fit and those nearly as good: hope has to agree with what was seen."""
        slack = self._rule.tolerance * abs(fits[0].curve.loss(history.last))
        return [fit for fit in fits if fit.error <= max(PLAUSIBLE * fits[0].error, slack)]

    def _converges_at(self, fit: Fit, history: _History) -> int:
        gain = self._rule.tolerance * abs(fit.curve.loss(history.last))
        return fit.curve.stop_at(self._rule.window * history.most, gain, history.most)

    def _hopeless(self, job: JobId, fits: Sequence[Fit], history: _History) -> bool:
        """Whether a job cannot beat the best loss any other has seen, even with luck."""
        rival = min(
            (other.best for name, other in self._histories.items() if name != job),
            default=math.inf,
        )
        if not math.isfinite(rival):
            return False
        return self._bound(fits, history) > rival - self._rule.tolerance * abs(rival)

    def _bound(self, fits: Sequence[Fit], history: _History) -> float:
        """The lowest loss to hope for at a job's maximum of iterations."""
        bounds = [history.best]
        for fit in fits:
            now, then = fit.curve.loss(history.last), fit.curve.loss(history.most)
            bounds.append(then - self._rule.optimism * (now - then) - fit.error)
        return min(bounds)

    def _stop(self, job: JobId) -> StopTraining:
        best = self._histories[job].best
        return StopTraining(job, super().reached(job, best))
