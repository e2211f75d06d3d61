"""The plan of an app file: the spec that the arbiter schedules, and the trials of the sweep.

plan = plan_app(app, AppId("resnet-lr"), OwnerId("ann"), seed=7)
plan.spec.phases          # 16 jobs x 12 iterations, 8 x 25, ...
plan.trials[3].params     # {"lr": 0.00213, "batch": 64}
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from themis.apps.app_file import AppFile, SearchMethod, StopRule
from themis.apps.program import check_holes
from themis.apps.search_space import Value, grid_trials, random_trials
from themis.core.fairness.schedules import halving_from_max
from themis.core.model import AppId, AppSpec, JobId, JobSpec, OwnerId, Phase
from themis.core.model.apps import Constraint
from themis.core.model.slowdown import NO_SLOWDOWN
from themis.core.model.zoo import slowdown_of
from themis.core.tuners.hyperband import hyperband_phases, jobs_needed
from themis.errors import ConfigError

MOST_JOBS = 1000
UNKNOWN_ITERATION = 1.0
"""The assumed time of an iteration, in seconds, until some are measured."""
UNKNOWN_DURATION = 3600.0
"""The assumed time of a job whose file gives none, in seconds."""


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One job of the app."""

    job: JobId
    params: Mapping[str, Value] | None
    """None until it starts, where Optuna chooses one trial after the other."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A sweep with all its trials."""

    app: AppFile
    seed: int
    spec: AppSpec
    trials: tuple[PlannedTrial, ...]
    tuner: str
    """A name of `themis.core.tuners.TUNERS`."""

    def named(self, name: AppId) -> "SweepPlan":
        """The same sweep under another name."""
        return replace(self, spec=replace(self.spec, id=name))

    @property
    def gpu_seconds(self) -> float:
        """All work of the sweep, as the file declares it."""
        first = self.spec.jobs[0].serial_iteration_time
        return sum(phase.jobs * phase.iterations * first for phase in self.spec.phases)


def plan_app(app: AppFile, name: AppId, owner: OwnerId, seed: int) -> SweepPlan:
    """The plan of a sweep; the same seed draws the same trials.

    Raises:
        ConfigError: The plan is impossible, for example it has more jobs than an app may have.
    """
    trials = _trials(app, seed)
    check_holes(app.command, {} if app.search is None else app.search.params)
    count = len(trials)
    if count > MOST_JOBS:
        raise ConfigError("trials", count, f"at most {MOST_JOBS}")
    iteration = app.iteration_seconds or UNKNOWN_ITERATION
    if not app.counts_iterations:
        iteration = app.duration or UNKNOWN_DURATION
    slowdown = slowdown_of(app.model) if app.model else NO_SLOWDOWN
    width = len(str(count - 1))
    jobs = tuple(
        JobSpec(
            JobId(f"{index:0{width}d}"),
            iteration,
            app.gpus.per_job_max,
            app.gpus.per_job_min,
            slowdown,
        )
        for index in range(count)
    )
    known = app.iteration_seconds if app.counts_iterations else app.duration
    spec = AppSpec(
        name,
        owner,
        jobs,
        _phases(app, count),
        app.weight,
        Constraint(app.gpus.model, app.gpus.memory),
        checkpoint_seconds=app.checkpoint.save,
        restart_seconds=app.checkpoint.restart,
        estimated=not known,
    )
    laid = tuple(PlannedTrial(job.id, params) for job, params in zip(jobs, trials, strict=True))
    return SweepPlan(app, seed, spec, laid, _TUNERS[app.stop.method])


_TUNERS = {
    StopRule.HALVING: "halving",
    StopRule.HYPERBAND: "hyperband",
    StopRule.CURVE: "curves",
    StopRule.NONE: "single",
}


def _trials(app: AppFile, seed: int) -> list[Mapping[str, Value] | None]:
    search = app.search
    if search is None:
        return [{}]
    if search.method is SearchMethod.GRID:
        grid = grid_trials(search.params)
        _check_brackets(app, len(grid))
        return list(grid)
    count = search.n or jobs_needed(_brackets(app))
    _check_brackets(app, count)
    if search.method is SearchMethod.OPTUNA:
        return [None] * count
    return list(random_trials(search.params, count, seed))


def _brackets(app: AppFile) -> tuple[Phase, ...]:
    return hyperband_phases(app.stop.max_iterations, app.stop.eta)


def _check_brackets(app: AppFile, count: int) -> None:
    if app.stop.method is StopRule.HYPERBAND and count != (needed := jobs_needed(_brackets(app))):
        raise ConfigError(
            "trials",
            count,
            f"{needed}, as many as the brackets of hyperband start with these "
            f"max_iterations and eta (search.n may be left out)",
        )


def _phases(app: AppFile, count: int) -> tuple[Phase, ...]:
    stop = app.stop
    match stop.method:
        case StopRule.HALVING:
            return halving_from_max(count, stop.max_iterations, stop.eta)
        case StopRule.HYPERBAND:
            return _brackets(app)
        case StopRule.CURVE | StopRule.NONE:
            return (Phase(count, stop.max_iterations or 1),)
