"""A tuner made of a few questions that user code answers: the base of own tuners.

    class Half(Stepwise):
        def should_stop(self, trial):
            return trial.iterations >= 10 and trial.cost > 2 * min(t.cost for t in self.training)

It keeps the books: which trials train, how far, and what they reported. It is told where an app is
(`resume`) instead of living through it again, so that the answers may depend on anything.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

from themis.core.fairness.loads import median_job
from themis.core.model import AppSpec, JobId, JobSpec, Phase
from themis.core.tuners.base import (
    AppProgress,
    Decision,
    Finished,
    JobInfo,
    NextPhase,
    Outlook,
    StopTraining,
)
from themis.core.tuners.hyperband import has_brackets
from themis.core.tuners.successive_halving import info_of
from themis.errors import RefusedError, TunerError

MOST_POINTS = 128
"""Points kept of a trial's curve; of longer ones every second is left out."""
_SLACK = 1e-6


@dataclass(slots=True, eq=False)
class Trial:
    """One job of the app, as its tuner sees it. Read it; writing changes nothing."""

    name: str
    params: Mapping[str, Any]
    """Its parameters: those that the search drew, until `suggest` was asked."""
    goal: float = 1.0
    """1 if less of the metric is better, -1 if more is."""
    iterations: float = 0.0
    """At its last report."""
    curve: list[tuple[float, float]] = field(default_factory=list)
    """Iterations and metrics as reported; every second is left out where there are many."""
    began: bool = False
    stopped: bool = False
    """By `should_stop`."""
    failed: bool = False
    """Given up, with all its retries."""
    gpus: int = 0
    """That it has now."""

    @property
    def metric(self) -> float | None:
        """As last reported."""
        return self.curve[-1][1] if self.curve else None

    @property
    def cost(self) -> float:
        """The metric so that less is better; infinity if there is none."""
        return self.goal * self.curve[-1][1] if self.curve and not self.failed else math.inf

    def metric_at(self, iteration: float) -> float | None:
        """The last metric that was reported up to an iteration."""
        found = None
        for at, value in self.curve:
            if at > iteration:
                break
            found = value
        return found

    def note(self, iteration: float, metric: float) -> None:
        """Take a report; one that lost work trains the same iterations again."""
        while self.curve and self.curve[-1][0] >= iteration:
            self.curve.pop()
        self.iterations = iteration
        self.curve.append((iteration, metric))
        if len(self.curve) > MOST_POINTS:
            self.curve = [*self.curve[:-1:2], self.curve[-1]]


class Stepwise:
    """Phases as the app file declares them; who goes on, and who is stopped, is asked.

    `suggest`, `should_stop`, `choose` and `winner` are there to be written anew. Without that it
    is successive halving, Hyperband or no tuning, as the phases are.
    """

    _trials: Mapping[str, Trial] = MappingProxyType({})

    # Questions

    def suggest(self, trial: Trial) -> Mapping[str, Any]:
        """The parameters of a trial that is about to begin, once for each.

        They must have the names that the app file's search has.
        """
        return trial.params

    def should_stop(self, trial: Trial) -> bool:
        """Whether a trial, which has just reported a metric, is ended here for good."""
        return False

    def choose(self, ranked: Sequence[Trial], count: int) -> Iterable[Trial]:
        """Who trains in the next phase, of all trials of this one that were not stopped.

        Args:
            ranked: They, the best first.
            count: How many may go on; `fresh` ones may be among them. With none the app has ended.
        """
        phase = self._phase
        new_bracket = self._phases[phase + 1].jobs > self._phases[phase].jobs
        return (self.fresh if new_bracket else ranked)[:count]

    def winner(self, ranked: Sequence[Trial]) -> Trial:
        """The best of those that came furthest, best first, at the end."""
        return ranked[0]

    def placed(self, trial: Trial, gpus: int) -> None:
        """A trial has this many GPUs from now on; none if it waits or is done."""

    # What it knows

    @property
    def trials(self) -> Mapping[str, Trial]:
        """All trials by name, in the order they were declared."""
        return self._trials

    @property
    def training(self) -> tuple[Trial, ...]:
        """Those of this phase, also if they have reached its end by now."""
        return tuple(self._trials[job] for job in self._chosen)

    @property
    def fresh(self) -> tuple[Trial, ...]:
        """Those that were never in a phase."""
        return tuple(trial for trial in self._trials.values() if not trial.began)

    # The paper's calls

    @property
    def phases(self) -> tuple[Phase, ...]:
        """All phases as declared; the paper's getNumPhases is their number."""
        return self._phases

    @property
    def phase(self) -> int:
        """The phase under way, from 0."""
        return self._phase

    def jobs_in_phase(self, phase: int) -> tuple[JobInfo, ...]:
        """The paper's getJobsInPhase: those chosen, or copies of the median one for later ones."""
        plan = self._phases[phase]
        if phase == self._phase:
            return tuple(
                info_of(plan.job(self._specs[job]), self._increment(plan, index))
                for index, job in enumerate(self._chosen)
            )
        fresh = has_brackets(self._phases[self._phase : phase + 1])
        pool = tuple(self._specs) if fresh else self._chosen
        typical = plan.job(median_job([self._specs[job] for job in pool]))
        return tuple(info_of(typical, self._increment(plan, index)) for index in range(plan.jobs))

    def jobs_remaining(self) -> tuple[JobInfo, ...]:
        """The paper's getJobsRemaining: those that still train, with what is left to do."""
        plan = self._phases[self._phase]
        return tuple(
            info_of(
                plan.job(self._specs[job]),
                max(0.0, self._targets[job] - self._trials[job].iterations),
            )
            for job in self._chosen
            if job not in self._arrived
        )

    # What the agent calls

    def enter(
        self, spec: AppSpec, params: Mapping[JobId, Mapping[str, Any]], *, maximize: bool = False
    ) -> Self:
        """Begin with an app of which nothing is known yet."""
        goal = -1.0 if maximize else 1.0
        self._specs: dict[JobId, JobSpec] = {job.id: job for job in spec.jobs}
        self._phases = spec.phases
        self._phase = 0
        self._trials = {job: Trial(job, params.get(job) or {}, goal) for job in self._specs}
        self._chosen: tuple[JobId, ...] = ()
        self._targets: dict[JobId, float] = {}
        self._arrived: dict[JobId, float] = {}
        """Costs of those of this phase that are done with it,"""
        self._costs: dict[JobId, float] = {}
        """and of all that ever were done with one."""
        return self

    def resume(self, past: AppProgress) -> None:
        """Be where the app is."""
        self._phase = past.phase
        self._chosen = tuple(job for job, _ in past.targets)
        self._targets = dict(past.targets)
        plan = self._phases[past.phase]
        for known in past.jobs:
            trial = self._trials[known.job]
            trial.failed = known.failed
            trial.began = bool(known.iterations) or known.job in self._targets
            if known.params is not None:
                trial.params = known.params
            for iteration, cost in known.curve:
                trial.note(iteration, trial.goal * cost)
            trial.iterations = max(trial.iterations, *known.iterations, 0.0)
            if known.job in self._targets:
                before = [at for at in known.iterations if at < self._targets[known.job] - _SLACK]
                whole = max(before, default=0.0) + plan.iterations
                trial.stopped = not plan.targets and self._targets[known.job] < whole - _SLACK

    def begin(self) -> NextPhase:
        """The first phase, or the one under way."""
        if not self._chosen:
            first = tuple(self._specs)[: self._phases[0].jobs]
            return self._start(first)
        return self._now()

    def reached(self, job: JobId, metric: float) -> Decision | None:
        """A job is done with this phase; with the last of them the next one begins.

        Raises:
            RefusedError: The job is not of this phase.
            TunerError: `choose` or `winner` gave what cannot be.
        """
        if job not in self._targets or job not in self._chosen:
            raise RefusedError(job, f"it is not in phase {self._phase}")
        trial = self._trials[job]
        if math.isinf(metric) and trial.curve:
            trial.failed = True  # One that reported has a metric, unless it was given up.
        elif not trial.stopped:
            trial.iterations = self._targets[job]
        return self._arrive(job, metric)

    def observe(self, job: JobId, iteration: float, loss: float) -> Outlook | None:
        """A job reports; is it worth going on?"""
        trial = self._trials[job]
        trial.note(iteration, trial.goal * loss)
        if job in self._arrived or job not in self._chosen or not self.should_stop(trial):
            return None
        trial.stopped = True
        return StopTraining(job, self._arrive(job, loss))

    def suggested(self, job: JobId, drawn: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """The parameters of a trial that begins.

        Raises:
            TunerError: They are none.
        """
        trial = self._trials[job]
        if drawn is not None:
            trial.params = drawn
        given: object = self.suggest(trial)
        if not isinstance(given, Mapping) or set(given) != set(trial.params):
            names = ", ".join(trial.params) or "no parameters"
            raise TunerError(job, f"suggest gave {given!r}; allowed: values for {names}")
        trial.params = dict(given)
        return trial.params

    def note_placement(self, placement: Mapping[JobId, Sequence[object]]) -> None:
        """Where jobs run now; those for whom that is new are told."""
        for job, trial in self._trials.items():
            count = len(placement.get(JobId(job), ()))
            if count != trial.gpus:
                trial.gpus = count
                self.placed(trial, count)

    # Books

    def _arrive(self, job: JobId, cost: float) -> Decision | None:
        self._arrived[job] = self._costs[job] = cost
        if len(self._arrived) < len(self._chosen):
            return None
        ended = self._ranked(self.training)
        ranked = [trial for trial in ended if not (trial.stopped or trial.failed)]
        if self._phase + 1 == len(self._phases) or not (ranked or self._brackets_left):
            return self._finish()
        plan = self._phases[self._phase + 1]
        chosen = self._checked(self.choose(ranked, plan.jobs), ranked, plan.jobs)
        if not chosen:
            return self._finish()
        self._phase += 1
        return self._start(tuple(job for job in self._specs if job in chosen))

    @property
    def _brackets_left(self) -> bool:
        return bool(self.fresh) and has_brackets(self._phases[self._phase :])

    def _checked(
        self, chosen: Iterable[Trial], ranked: Sequence[Trial], count: int
    ) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(getattr(trial, "name", str(trial)) for trial in chosen))
        allowed = dict.fromkeys(trial.name for trial in (*ranked, *self.fresh))
        wrong = [name for name in names if name not in allowed]
        if wrong or len(names) > count:
            raise TunerError(
                "choose",
                f"it gave {', '.join(names)}; allowed: at most {count} of {', '.join(allowed)}",
            )
        return names

    def _finish(self) -> Finished:
        furthest = max(trial.iterations for trial in self.training)
        also = [t for t in self._trials.values() if t.began and t.iterations >= furthest - _SLACK]
        candidates = dict.fromkeys((*self.training, *also))
        if all(trial.failed for trial in candidates):
            candidates = dict.fromkeys(trial for trial in self._trials.values() if trial.began)
        best = self.winner(self._ranked(tuple(candidates)))
        if best not in candidates:
            names = ", ".join(trial.name for trial in candidates)
            raise TunerError("winner", f"it gave {best!r}; allowed: one of {names}")
        return Finished(JobId(best.name))

    def _ranked(self, trials: Sequence[Trial]) -> list[Trial]:
        """The best first; of equals the one declared first."""
        place = {name: index for index, name in enumerate(self._trials)}
        return sorted(trials, key=lambda trial: (self._cost(trial), place[trial.name]))

    def _cost(self, trial: Trial) -> float:
        cost = self._costs.get(JobId(trial.name), trial.cost)
        return math.inf if math.isnan(cost) else cost

    def _start(self, chosen: tuple[JobId, ...]) -> NextPhase:
        plan = self._phases[self._phase]
        self._chosen, self._arrived = chosen, {}
        for index, job in enumerate(chosen):
            self._targets[job] = self._targets.get(job, 0.0) + self._increment(plan, index)
            self._trials[job].began = True
        return self._now()

    def _now(self) -> NextPhase:
        return NextPhase(self._phase, tuple((job, self._targets[job]) for job in self._chosen))

    @staticmethod
    def _increment(plan: Phase, index: int) -> float:
        return float(plan.targets[index] if plan.targets else plan.iterations)
