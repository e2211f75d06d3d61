"""What a workload is: apps that arrive, with the truth about them.

true_phases(app)                       # what really runs, phase by phase
app.curve(3).loss(iteration=200)       # how far the fourth job's loss has come down
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from themis.core.fairness.loads import PhaseLoad, load_of, total_work
from themis.core.model import AppId, AppSpec, JobSpec, Phase, RhoClaim, Slowdown
from themis.core.model.ids import check_number
from themis.core.tuners import TUNERS, CurveShape, LossCurve
from themis.errors import ConfigError, DuplicateError, unknown_name
from themis.sim.distorted_bids import HONEST, Distortion


@dataclass(frozen=True, slots=True)
class SimJob:
    """A job and how good its configuration is: lower is better."""

    spec: JobSpec
    quality: float


@dataclass(frozen=True, slots=True)
class SimApp:
    """An app that arrives. The qualities settle who survives, whatever the policy does."""

    spec: AppSpec
    """The truth about it."""
    arrival: float
    model: str
    qualities: tuple[float, ...]
    tuner: str = ""
    """How its agent tunes it; without a word its phases tell."""
    declared: AppSpec | None = None
    """What it tells the arbiter, if that is not the truth."""
    distortion: Distortion = HONEST
    """How its bids differ from the truth."""
    priors: tuple[Slowdown, ...] = ()
    """What its agent takes for the slowdown of each job, if that is not the truth."""
    claim: RhoClaim | None = None
    """What it says of its own rho, for arbiters that believe it."""
    adds_work: bool = False
    """Whether it declares the rest of its work when its jobs are at their declared limits."""
    ready: float = 0.0
    """It has nothing to run before this time, whenever it was submitted."""
    dawdle: float = 0.0
    """Seconds for which it leaves its GPUs empty before each start of a job."""

    def __post_init__(self) -> None:
        check_number(f"arrival of {self.spec.id}", self.arrival)
        check_number(f"ready of {self.spec.id}", self.ready)
        check_number(f"dawdle of {self.spec.id}", self.dawdle)
        if self.tuner and self.tuner not in TUNERS:
            raise unknown_name(f"tuner of {self.spec.id}", self.tuner, TUNERS)
        if len(self.qualities) != len(self.spec.jobs):
            raise ConfigError(
                f"qualities of {self.spec.id}",
                len(self.qualities),
                f"one for each of its {len(self.spec.jobs)} jobs",
            )
        if not all(map(math.isfinite, self.qualities)):
            raise ConfigError(f"qualities of {self.spec.id}", "not finite", "finite numbers")
        if self.priors and len(self.priors) != len(self.spec.jobs):
            allowed = f"one for each of its {len(self.spec.jobs)} jobs"
            raise ConfigError(f"priors of {self.spec.id}", len(self.priors), allowed)
        if self.declared is not None:
            self._check_declared(self.declared)

    def _check_declared(self, declared: AppSpec) -> None:
        mine = (self.spec.id, [job.id for job in self.spec.jobs], _shape(self.spec))
        if (declared.id, [job.id for job in declared.jobs], _shape(declared)) != mine:
            allowed = "the same app, with the same jobs in the same phases"
            raise ConfigError(f"what {self.spec.id} declares", declared.id, allowed)

    @property
    def submitted(self) -> AppSpec:
        """The app as the arbiter is told."""
        return self.spec if self.declared is None else self.declared

    @property
    def planned(self) -> AppSpec:
        """The app as its agent has it: cut where its declared limit stops the jobs, with priors."""
        spec = self.spec
        if self.priors:
            jobs = tuple(
                replace(job, slowdown=prior)
                for job, prior in zip(spec.jobs, self.priors, strict=True)
            )
            spec = replace(spec, jobs=jobs)
        if self.declared is None or self.adds_work or self.declared.phases == self.spec.phases:
            return spec
        phases = tuple(map(_shorter, self.spec.phases, self.declared.phases))
        return replace(spec, phases=phases)

    def curve(self, index: int) -> LossCurve:
        """How the loss of its job number `index` falls: exponentially, to the job's quality.

        It is still worth following where the job stops, at its target or at the end of the last
        phase of its bracket: a twentieth of the way down is left.
        """
        first, *later = self.spec.phases
        if first.targets:
            end = first.targets[index]
        else:
            end = first.iterations
            for before, after in zip((first, *later), later, strict=False):
                if after.jobs > before.jobs:
                    break
                end += after.iterations
        return LossCurve(CurveShape.EXPONENTIAL, self.qualities[index], 1.0, -math.log(0.05) / end)

    @property
    def jobs(self) -> tuple[SimJob, ...]:
        """The jobs with their qualities, in the order declared."""
        return tuple(map(SimJob, self.spec.jobs, self.qualities))


@dataclass(frozen=True, slots=True)
class Workload:
    """Apps in order of arrival, and all that is needed to name or to make them again.

    `load` is the realised one: the work of these apps / (GPUs * horizon).
    """

    name: str
    apps: tuple[SimApp, ...]
    horizon: float
    load: float
    seed: int
    generator: str
    version: int

    def __post_init__(self) -> None:
        arrivals = [app.arrival for app in self.apps]
        if arrivals != sorted(arrivals):
            raise ConfigError(f"apps of {self.name}", "out of order", "sorted by arrival")
        seen: set[AppId] = set()
        for app in self.apps:
            if app.spec.id in seen:
                raise DuplicateError(app.spec.id, "two apps have this name")
            seen.add(app.spec.id)


def _shape(spec: AppSpec) -> list[tuple[int, int]]:
    return [(phase.jobs, len(phase.targets)) for phase in spec.phases]


def _shorter(truth: Phase, declared: Phase) -> Phase:
    targets = tuple(map(min, truth.targets, declared.targets))
    return replace(truth, iterations=min(truth.iterations, declared.iterations), targets=targets)


def true_phases(app: SimApp, spec: AppSpec | None = None) -> tuple[PhaseLoad, ...]:
    """The loads of each phase that make up the app, or those of another version of its `spec`.

    A phase keeps the best of those before it (ties: the earlier job). One with more jobs than the
    phase before starts fresh ones, in the order declared, as a Hyperband bracket does.

    Raises:
        ConfigError: The phases start more jobs than the app has.
    """
    spec = spec or app.spec
    jobs = tuple(map(SimJob, spec.jobs, app.qualities))
    alive: list[int] = []
    started = 0
    phases: list[PhaseLoad] = []
    for phase in spec.phases:
        if phase.jobs > len(alive):
            alive = list(range(started, started + phase.jobs))
            started += phase.jobs
            if started > len(jobs):
                raise ConfigError(f"jobs started by {app.spec.id}", started, f"at most {len(jobs)}")
        else:
            best = sorted(alive, key=lambda index: (jobs[index].quality, index))
            alive = sorted(best[: phase.jobs])
        iterations = phase.targets or (phase.iterations,) * phase.jobs
        phases.append(
            tuple(
                load_of(phase.job(jobs[i].spec), n) for i, n in zip(alive, iterations, strict=True)
            )
        )
    return tuple(phases)


def realised_load(apps: Sequence[SimApp], gpus: int, horizon: float) -> float:
    """The work that really runs, as a share of what the GPUs could do within the horizon."""
    return math.fsum(total_work(true_phases(app)) for app in apps) / (gpus * horizon)
