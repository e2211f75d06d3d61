"""What the arbiter knows of an app: declared work, measured progress, its last valuation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from themis.core.arbiter.app_status import AppMarks, AppStatus
from themis.core.arbiter.iteration_time_audit import (
    Audit,
    AuditPart,
    corrected_bid,
    corrected_table,
)
from themis.core.arbiter.state_parts import (
    AppPart,
    ClaimsPart,
    JobPart,
    Shelf,
    StandingPart,
    WorkPart,
)
from themis.core.fairness.loads import (
    JobLoad,
    PhaseLoad,
    PhaseSums,
    load_of,
    remaining_phases,
    total_work,
)
from themis.core.fairness.rho import best_case_of_sums, serial_parts
from themis.core.fairness.valuation import Valuation
from themis.core.model import AppId, AppSpec, Bid, JobId, JobSpec, RhoClaim, RowTable, TableRow
from themis.errors import RefusedError

SLACK = 1e-6
"""Iterations within this of a target count as done: floats add up imprecisely."""

MOST_DRAG = 2.0
"""No machine is believed to slow an app more than this: it is the app that says so."""


@dataclass(slots=True)
class JobState:
    """One job of the present phase."""

    spec: JobSpec
    started_at: float
    """Iterations done when the phase began."""
    target: float
    done: float

    @property
    def left(self) -> float:
        """Serial seconds to its target."""
        iterations = self.target - self.done
        return iterations * self.spec.serial_iteration_time if iterations > SLACK else 0.0


class AppState(AppStatus):
    """One app from submission to end. Changes only through its methods."""

    def __init__(
        self, spec: AppSpec, at: float, marks: AppMarks | None = None, *, fresh: bool = True
    ) -> None:
        super().__init__(spec.id, spec.weight, at, marks or AppMarks())
        self._marks.all(spec.id)
        self._declared = spec
        self.spec = spec
        """As declared, with iteration times as they are believed."""
        self.arrival = at
        """Since when it counts: its submission, or when work was added."""
        self.submitted = at
        self.valuation: Valuation | None = None
        self.claim: RhoClaim | None = None
        self.audit = Audit(spec)
        self._serial_factor = 1.0
        self._table: Sequence[TableRow] = ()
        self.drag = 1.0
        """How many times longer than at S = 1 it needs at best, by its last valuation."""
        self.phase = 0
        self._done: dict[JobId, float] = {}
        self._past: list[PhaseLoad] = []
        self._before: list[PhaseLoad] = []
        """What ran before work was added that counts as arriving then."""
        self._added = False
        self.added_work = 0.0
        """Serial seconds that were declared after its submission."""
        self._now_left: PhaseSums | None = None
        self._now_left_then: PhaseSums | None = None
        """When the last valuation was taken."""
        self._whole_sums: tuple[tuple[PhaseSums, ...], float] | None = None
        self.jobs: dict[JobId, JobState] = {}
        if not fresh:
            return  # `restored` counts once everything is there.
        first = spec.phases[0]
        targets = first.targets or (first.iterations,) * first.jobs
        self.jobs = {
            job.id: JobState(first.job(job), 0.0, float(target), 0.0)
            for job, target in zip(spec.jobs[: first.jobs], targets, strict=True)
        }
        self._refresh()

    @property
    def budget(self) -> float | None:
        """GPU-seconds declared; None for the sum of the phases' work."""
        return None if self._added else self.spec.budget or None

    # Work

    def measure(self, job: JobId, iterations: float) -> None:
        """Take a measurement. It may fall: work since the last checkpoint can be lost."""
        state = self.jobs.get(job)
        if state is None:
            return
        done = min(iterations, state.target)
        if done == state.done and job in self._done:
            return
        before = state.left
        self._now_left = None
        self._marks.work.add(self.id)
        state.done = done
        self._done[job] = state.done
        after = state.left
        if (before > 0.0) != (after > 0.0):
            self._count_runnable()
        else:
            self._phase_left += after - before

    def start_phase(self, phase: int, targets: Sequence[tuple[JobId, float]]) -> None:
        """Go on to a later phase with these jobs.

        Raises:
            RefusedError: It is not the next phase, or more than was declared.
        """
        if phase != self.phase + 1 or phase >= len(self.spec.phases):
            raise RefusedError(
                self.id, f"phase {phase} cannot follow {self.phase} of {len(self.spec.phases)}"
            )
        declared = self.spec.phases[phase]
        if not 1 <= len(targets) <= declared.jobs or len(dict(targets)) != len(targets):
            raise RefusedError(
                self.id,
                f"phase {phase} has {len(targets)} jobs, 1 to {declared.jobs} were declared",
            )
        specs = {job.id: job for job in self.spec.jobs}
        limit = max((*declared.targets, declared.iterations))
        jobs: dict[JobId, JobState] = {}
        for job, target in targets:
            if job not in specs:
                raise RefusedError(self.id, f"it has no job {job!r}")
            done = self._done.get(job, 0.0)
            if not done - SLACK <= target <= done + limit + SLACK:
                raise RefusedError(
                    self.id,
                    f"job {job} has done {done:g} and may do {limit} more in phase {phase}, "
                    f"not go to {target!r}",
                )
            jobs[job] = JobState(declared.job(specs[job]), done, target, done)
        self._marks.all(self.id)
        self._past.append(self._whole_phase())
        self.forget_refusals()
        self.jobs = jobs
        self.phase = phase
        self._refresh()

    def revise_targets(self, targets: Sequence[tuple[JobId, float]]) -> None:
        """Let jobs of this phase train less far; below what one has done it ends where it is.

        Raises:
            RefusedError: Not a job of this phase, or more than was declared; nothing is changed.
        """
        for job, target in targets:
            state = self.jobs.get(job)
            if state is None:
                raise RefusedError(self.id, f"job {job!r} is not in phase {self.phase}")
            if target > state.target + SLACK:
                raise RefusedError(
                    self.id, f"job {job} may do {state.target:g} iterations, not {target!r}"
                )
        self._marks.work.add(self.id)
        for job, target in targets:
            state = self.jobs[job]
            state.target = min(state.target, max(target, state.done))
        self._refresh()

    def add_work(self, targets: Sequence[tuple[JobId, float]]) -> None:
        """Let jobs of this phase train further than was declared, counted from their start.

        Raises:
            RefusedError: Not a job of this phase, or no more than was declared; nothing is changed.
        """
        for job, target in targets:
            state = self.jobs.get(job)
            if state is None:
                raise RefusedError(self.id, f"job {job!r} is not in phase {self.phase}")
            if target < state.target - SLACK:
                raise RefusedError(
                    self.id, f"job {job} goes to {state.target:g} already, {target!r} adds nothing"
                )
        self._marks.declared.add(self.id)
        self._marks.work.add(self.id)
        for job, target in targets:
            state = self.jobs[job]
            self.added_work += (target - state.target) * state.spec.serial_iteration_time
            state.target = target
        self._added = True
        self._refresh()

    def begin_anew(self, at: float) -> None:
        """Count only the remaining work from now on."""
        self._marks.declared.add(self.id)
        self._marks.work.add(self.id)
        self._before += self.trained()
        self._past = []
        self.arrival = at
        for state in self.jobs.values():
            state.started_at = state.done
        self._refresh()

    def trained(self) -> tuple[PhaseLoad, ...]:
        """What it has done of the work that counts."""
        # Work that is lost may reach back into the phase before.
        done = (load_of(j.spec, max(0.0, j.done - j.started_at)) for j in self.jobs.values())
        return (*self._past, tuple(done))

    # Claims

    def start_process(self, job: JobId, level: int, count: int) -> None:
        """A process of a job runs on this many GPUs, at this locality level."""
        self._marks.audit.add(self.id)
        self.audit.start(job, level, count)

    def hear(self, bid: Bid, tolerance: float) -> Bid:
        """Remember what it says its GPUs are worth, for the rounds to come.

        Returns:
            What of it is believed.
        """
        self._marks.claims.add(self.id)
        self._marks.audit.add(self.id)
        self.claim = bid.claim
        changed = tolerance and self.audit.hear(bid.profile, tolerance)
        if changed:
            self._believe_measured()
        if bid.table and (changed or not self._has_heard(bid.table)):
            self._table = bid.table
            self._value(self.work_left)
        return corrected_bid(bid, self.audit.level_factors, self._scale(bid.table, self.work_left))

    def _has_heard(self, table: Sequence[TableRow]) -> bool:
        """Whether it says the same again, and nothing was measured in between."""
        before = self.valuation
        return (
            before is not None
            and before.table is table
            and before.work_left == self.work_left
            and self._now_left is not None
            and self._now_left is self._now_left_then
        )

    def _scale(self, table: Sequence[TableRow], work_left: float) -> float:
        """What its seconds are multiplied by, given when so much work was left.

        Who was wrong about its iteration time has no say in how much work is left either: on a
        single GPU it needs what was measured.
        """
        if self._serial_factor == 1.0:
            return 1.0
        alone = _alone(RowTable.of(table))
        return max(1.0, work_left / alone) if alone > 0.0 else 1.0

    def check_speed(self, job: JobId, iterations: float, seconds: float, tolerance: float) -> bool:
        """Hold a measurement against its claims, and believe it where they are contradicted.

        Returns:
            Whether it turns out that it has more work than it said, by more than is tolerated.
        """
        self._marks.audit.add(self.id)
        guessed = self.audit.estimated
        if not self.audit.measure(job, iterations, seconds, tolerance):
            return False
        self._marks.claims.add(self.id)
        # Who did not know how long it would take, or was wrong by a little, kept nothing quiet.
        hidden = 0.0 if guessed else self.audit.charge(tolerance)
        self._believe_measured(hidden)
        if self.valuation is not None:
            self._value(self.valuation.work_left)
        return hidden > 0.0

    def _value(self, work_left: float) -> None:
        """Take its last table, given when so much work was left, for as much as is believed."""
        scale = self._scale(self._table, work_left)
        table = corrected_table(self._table, self.audit.level_factors, scale)
        self.valuation = Valuation(table, work_left)
        self.drag = self._drag(self.valuation)
        self._now_left_then = self._now_left

    def _drag(self, valuation: Valuation) -> float:
        table = RowTable.of(valuation.table)
        least = best_case_of_sums(self.sums_left(), float(table.shape.most))
        if least <= 0.0 or valuation.work_left <= 0.0:
            return 1.0
        said = min(table.seconds)
        # On one GPU nothing is slowed: what it says to need there beyond its declared work is no
        # drag, but undeclared work.
        overstated = max(1.0, _alone(table) / valuation.work_left)
        rest = said * self.work_left / valuation.work_left
        return min(MOST_DRAG, max(1.0, rest / least / overstated))

    def _believe_measured(self, hidden: float = 0.0) -> None:
        """Count work by measured iteration times, in place of what it said or of a guess.

        Args:
            hidden: The share of all its work that it kept quiet about. It counts as if added now.
        """
        factor = self.audit.serial_factor / self._serial_factor
        if factor == 1.0:
            return
        self._marks.declared.add(self.id)
        self._marks.work.add(self.id)
        self._serial_factor = self.audit.serial_factor
        if hidden:
            whole = total_work((*self._past, self._whole_phase(), *self.future))
            self.added_work += whole * factor * hidden

        def timed(job: JobSpec) -> JobSpec:
            return replace(job, serial_iteration_time=job.serial_iteration_time * factor)

        self.spec = replace(
            self.spec, jobs=tuple(map(timed, self.spec.jobs)), budget=self.spec.budget * factor
        )
        for state in self.jobs.values():
            state.spec = timed(state.spec)
        for phases in (self._past, self._before):
            phases[:] = [
                tuple(replace(load, work=load.work * factor) for load in phase) for phase in phases
            ]
        if self.valuation is not None:
            self.valuation = replace(self.valuation, work_left=self.valuation.work_left * factor)
        self._refresh()

    def _whole_phase(self) -> PhaseLoad:
        return tuple(load_of(j.spec, j.target - j.started_at) for j in self.jobs.values())

    def _count_runnable(self) -> None:
        """Recompute what depends on which jobs have work left."""
        count, demand, gang, smallest, left = 0, 0, 0, 0, 0.0
        for job in self.jobs.values():
            iterations = job.target - job.done
            if iterations <= SLACK:
                continue
            spec = job.spec
            count += 1
            demand += spec.max_gpus
            left += iterations * spec.serial_iteration_time
            gang = max(gang, spec.max_gpus)
            if not smallest or spec.min_gpus < smallest:
                smallest = spec.min_gpus
        self.runnable = count
        self.demand = demand
        self.gang = gang or 1
        self.min_gang = smallest or 1
        self._phase_left = left

    def _refresh(self) -> None:
        """Recompute what depends on the jobs of the phase and their targets."""
        self._count_runnable()
        survivors = [job for job in self.spec.jobs if job.id in self.jobs]
        self.future = remaining_phases((), self.spec, survivors, self.phase)[1:]
        self._future_work = total_work(self.future)
        self.whole = (*self._past, self._whole_phase(), *self.future)
        self._now_left = None
        self._whole_sums = None
        self._future_sums = tuple(map(PhaseSums.of, self.future))
        self._future_rest: tuple[int, list[float]] = (0, [])

    @property
    def work_left(self) -> float:
        """Serial seconds left in all phases."""
        return max(0.0, self._phase_left) + self._future_work

    def whole_sums(self) -> tuple[tuple[PhaseSums, ...], float]:
        """Sums over all that was declared, by phase, and the work of all phases."""
        if self._whole_sums is None:
            self._whole_sums = (tuple(map(PhaseSums.of, self.whole)), total_work(self.whole))
        return self._whole_sums

    def sums_left(self) -> tuple[PhaseSums, ...]:
        """Sums over `loads_left`."""
        if self._now_left is None:
            # `JobState.left`, inlined because this loop is hot.
            left = [
                (more * job.spec.serial_iteration_time, job.spec.max_gpus)
                for job in self.jobs.values()
                if (more := job.target - job.done) > SLACK
            ]
            self._now_left = PhaseSums(
                math.fsum([work for work, _ in left]),
                max([work / most for work, most in left], default=0.0),
                sum([most for _, most in left]),
            )
        return (self._now_left, *self._future_sums) if self._now_left.demand else self._future_sums

    def serial_rest(self) -> float:
        """What `fairness.rho.serial_rest` says of `loads_left` and the smallest gang."""
        gang = self.min_gang
        rest = [
            left / min(max(gang, job.spec.min_gpus), job.spec.max_gpus)
            for job in self.jobs.values()
            if (left := job.left) > 0.0
        ]
        if self._future_rest[0] != gang:
            self._future_rest = (gang, serial_parts(self.future, gang))
        return math.fsum([*rest, *self._future_rest[1]])

    def loads_left(self) -> tuple[PhaseLoad, ...]:
        """The work left: this phase as measured, then the phases to come."""
        now = tuple(
            JobLoad(job.left, job.spec.max_gpus, job.spec.min_gpus)
            for job in self.jobs.values()
            if job.left > 0.0
        )
        return (now, *self.future) if now else self.future

    def ran(self) -> tuple[PhaseLoad, ...]:
        """The phases that really ran, the present one included, for final values."""
        return (*self._before, *self._past, self._whole_phase())

    @property
    def wanted(self) -> int:
        """GPUs that it would take, as far as is known."""
        return self.demand if self.enough is None else min(self.demand, self.enough)

    @property
    def active(self) -> bool:
        """Whether it has a runnable job and nothing suspends it."""
        return not self.suspended and self.runnable > 0 and not self.outcome

    # Writing down

    def app_part(self) -> AppPart:
        """What changes with its phases only."""
        times = None
        if self.spec is not self._declared:
            times = tuple(job.serial_iteration_time for job in self.spec.jobs)
        return AppPart(
            self._declared,
            self.submitted,
            self.arrival,
            times,
            self.spec.budget,
            self._serial_factor,
            tuple(self._past),
            tuple(self._before),
            self._added,
            self.added_work,
        )

    def work_part(self) -> WorkPart:
        """How far its jobs have come."""
        jobs = tuple(
            JobPart(name, job.started_at, job.target, job.done) for name, job in self.jobs.items()
        )
        # Of jobs in this phase both say the same.
        retired = tuple(item for item in self._done.items() if item[0] not in self.jobs)
        return WorkPart(self.phase, jobs, retired, self._phase_left)

    def claims_part(self) -> ClaimsPart:
        """What it says its GPUs are worth."""
        said = tuple(self._table)
        if self.valuation is None:
            return ClaimsPart(said, None, None, self.claim, self.drag)
        table = tuple(self.valuation.table)
        believed = None if table == said else table
        return ClaimsPart(said, believed, self.valuation.work_left, self.claim, self.drag)

    def audit_part(self) -> AuditPart:
        """What was measured of its iteration times."""
        return self.audit.part()

    @staticmethod
    def restored(app: AppId, shelf: Shelf, marks: AppMarks) -> "AppState":
        """The app that was written down."""
        part = shelf.one(AppPart, app)
        # What is written down already is marked nowhere.
        state = AppState(part.spec, part.submitted, fresh=False)
        state.arrival = part.arrival
        state._past, state._before = list(part.past), list(part.before)
        state._added, state.added_work = part.added, part.added_work
        state._serial_factor = part.serial_factor
        if part.times is not None:
            jobs = zip(part.spec.jobs, part.times, strict=True)
            timed = tuple(replace(job, serial_iteration_time=time) for job, time in jobs)
            state.spec = replace(part.spec, jobs=timed, budget=part.budget)
        state.audit.take_back(shelf.one(AuditPart, app))
        state._take_back_work(shelf.one(WorkPart, app))
        state._take_back_claims(shelf.one(ClaimsPart, app))
        state.take_back_standing(shelf.one(StandingPart, app))
        state._marks = marks
        return state

    def _take_back_work(self, part: WorkPart) -> None:
        self.phase = part.phase
        phase = self.spec.phases[part.phase]
        specs = {job.id: job for job in self.spec.jobs}
        self.jobs = {
            job.job: JobState(phase.job(specs[job.job]), job.started_at, job.target, job.done)
            for job in part.jobs
        }
        self._done = {**dict(part.retired), **{job.job: job.done for job in part.jobs}}
        self._refresh()
        self._phase_left = part.left

    def _take_back_claims(self, part: ClaimsPart) -> None:
        self._table, self.claim, self.drag = part.table, part.claim, part.drag
        if part.work_left is not None:
            table = part.table if part.believed is None else part.believed
            self.valuation = Valuation(table, part.work_left)


def _alone(table: RowTable) -> float:
    """The seconds that a table says are needed on one GPU; zero if it does not say."""
    return min([table.seconds[index] for index in table.shape.alone], default=0.0)
