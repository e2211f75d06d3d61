"""What users submit: an app is a set of training jobs explored in phases for one goal.

jobs = tuple(JobSpec(JobId(f"j{i}"), serial_iteration_time=1.0, max_gpus=4) for i in range(4))
app = AppSpec(AppId("sweep"), OwnerId("ann"), jobs, (Phase(4, 8), Phase(2, 16), Phase(1, 36)))
"""

from dataclasses import dataclass, replace

from themis.core.model.ids import (
    AppId,
    JobId,
    OwnerId,
    check_count,
    check_name,
    check_number,
    check_weight,
)
from themis.core.model.slowdown import NO_SLOWDOWN, Slowdown
from themis.core.model.topology import ANY_MODEL, Machine
from themis.errors import ConfigError, DuplicateError


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One training job: elastic between `min_gpus` and `max_gpus`, fixed global batch."""

    id: JobId
    serial_iteration_time: float
    max_gpus: int = 1
    min_gpus: int = 1
    slowdown: Slowdown = NO_SLOWDOWN

    def __post_init__(self) -> None:
        check_number(f"serial_iteration_time of {self.id}", self.serial_iteration_time, above=True)
        check_count(f"max_gpus of {self.id}", self.max_gpus, high=100_000)
        check_count(f"min_gpus of {self.id}", self.min_gpus, high=self.max_gpus)


@dataclass(frozen=True, slots=True)
class Phase:
    """How many jobs a phase trains, and for how many more iterations each.

    `targets`, when given, lists the iterations of each job of the app instead (single jobs and
    performance-curve stopping, where jobs stop at different points).
    """

    jobs: int
    iterations: int
    targets: tuple[int, ...] = ()
    gpu_factor: int = 1
    """A factor on each job's `max_gpus` in this phase."""

    def __post_init__(self) -> None:
        check_count("jobs of a phase", self.jobs, high=100_000)
        check_count("iterations of a phase", self.iterations, high=10**15)
        if self.targets and len(self.targets) != self.jobs:
            raise ConfigError("targets of a phase", self.targets, f"{self.jobs} entries")
        for target in self.targets:
            check_count("targets of a phase", target, high=10**15)
        check_count("gpu_factor of a phase", self.gpu_factor, high=10_000)

    def job(self, spec: JobSpec) -> JobSpec:
        """A job as it is in this phase."""
        if self.gpu_factor == 1:
            return spec
        return replace(spec, max_gpus=spec.max_gpus * self.gpu_factor)


@dataclass(frozen=True, slots=True)
class Constraint:
    """What an app demands of its GPUs."""

    gpu_model: str = ANY_MODEL
    gpu_memory: float = 0.0

    def __post_init__(self) -> None:
        check_name("gpu_model", self.gpu_model)
        check_number("gpu_memory", self.gpu_memory)

    @property
    def trivial(self) -> bool:
        """Whether any GPU will do."""
        return self.gpu_model == ANY_MODEL and self.gpu_memory <= 0.0

    def allows(self, machine: Machine) -> bool:
        """Whether the app may run on this machine."""
        return (
            self.gpu_model in {ANY_MODEL, machine.gpu_model}
            and machine.gpu_memory >= self.gpu_memory
        )


@dataclass(frozen=True, slots=True)
class AppSpec:
    """An app as declared at submission. The declared work is binding."""

    id: AppId
    owner: OwnerId
    jobs: tuple[JobSpec, ...]
    phases: tuple[Phase, ...]
    weight: float = 1.0
    constraint: Constraint = Constraint()
    budget: float = 0.0
    """GPU-seconds; 0 means the sum of the phases' work."""
    checkpoint_seconds: float = 7.5
    restart_seconds: float = 35.0
    """Medians, used in bids."""
    estimated: bool = False
    """Whether the iteration time is unknown until the first iterations are measured."""

    def __post_init__(self) -> None:
        check_name("app", self.id)
        check_name("owner", self.owner)
        check_weight(f"weight of {self.id}", self.weight)
        check_number(f"budget of {self.id}", self.budget)
        check_number(f"checkpoint_seconds of {self.id}", self.checkpoint_seconds)
        check_number(f"restart_seconds of {self.id}", self.restart_seconds)
        if not isinstance(self.estimated, bool):
            raise ConfigError(f"estimated of {self.id}", self.estimated, "true or false")
        if not self.jobs:
            raise ConfigError(f"jobs of {self.id}", 0, "at least one job")
        if len({job.id for job in self.jobs}) != len(self.jobs):
            raise DuplicateError(self.id, "two of its jobs have the same id")
        if not self.phases:
            raise ConfigError(f"phases of {self.id}", 0, "at least one phase")
        if self.phases[0].jobs > len(self.jobs):
            raise ConfigError(
                f"jobs in the first phase of {self.id}",
                self.phases[0].jobs,
                f"at most its {len(self.jobs)} jobs",
            )
