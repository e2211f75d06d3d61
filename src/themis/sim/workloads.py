"""What a simulated cluster is asked to train: seeded workloads with the published distributions.

w2 = generate_w2(seed=1)                      # 85 apps over 14 days for 64 GPUs, load about 0.91
w2 = workload("w2", seed=1, apps=20, load=0.5)
true_phases(w2.apps[0])                       # what really runs, phase by phase

Every app draws each of its aspects (size, jobs, model, ...) from its own random stream, so asking
for more apps, another load or a share of network-intensive models changes nothing else: runs
that differ in one setting stay comparable app by app.
"""

import inspect
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random

from themis.errors import ConfigError, DuplicateError, unknown_name
from themis.fairness.loads import PhaseLoad, load_of, total_work
from themis.fairness.schedules import halving_from_budget
from themis.model import AppId, AppSpec, JobId, JobSpec, OwnerId
from themis.model.ids import check_count, check_number
from themis.model.zoo import (
    CATEGORY_SHARES,
    HARDWARE,
    Group,
    models_of_category,
    models_of_group,
    slowdown_of,
)

Table = tuple[tuple[float, float], ...]
"""A distribution: values and the share of draws at or below each."""

# Read off the figures of the Themis paper by the authors of PCS (TuftsNATLab/PCS, MIT).
APP_GPU_SECONDS: Table = (
    (3600, 0.0),
    (9216, 0.01),
    (40284, 0.11),
    (108864, 0.28),
    (297072, 0.35),
    (447552, 0.45),
    (1028304, 0.53),
    (1291464, 0.74),
    (1696176, 0.88),
    (2176452, 0.96),
    (2625444, 1.0),
)
W2_JOBS: Table = (
    (1, 0.0),
    (5, 0.43),
    (13, 0.70),
    (23, 0.77),
    (28, 0.87),
    (64, 0.90),
    (87, 0.96),
    (90, 1.0),
)
W2_GPUS_PER_JOB: Table = ((1, 0.20), (2, 0.38), (4, 0.98), (8, 1.0))

# The setting of the paper's macro-benchmark, from which other sizes scale.
REFERENCE_APPS = 85
REFERENCE_GPUS = 64
REFERENCE_HORIZON = 14 * 86400.0

SERIAL_SPREAD = 0.2
FOLLOWERS = 0.3
FOLLOW_WITHIN = 600.0
"""In the bursty variant, this share of apps follows the previous one within so many seconds."""

W2_VERSION = 1
"""To be raised whenever the same seed would give another workload."""


@dataclass(frozen=True, slots=True)
class SimJob:
    """A job and how good its configuration is: lower is better."""

    spec: JobSpec
    quality: float


@dataclass(frozen=True, slots=True)
class SimApp:
    """An app that arrives. The qualities settle who survives, whatever the policy does."""

    spec: AppSpec
    arrival: float
    model: str
    qualities: tuple[float, ...]

    def __post_init__(self) -> None:
        check_number(f"arrival of {self.spec.id}", self.arrival)
        if len(self.qualities) != len(self.spec.jobs):
            raise ConfigError(
                f"qualities of {self.spec.id}",
                len(self.qualities),
                f"one for each of its {len(self.spec.jobs)} jobs",
            )
        if not all(map(math.isfinite, self.qualities)):
            raise ConfigError(f"qualities of {self.spec.id}", "not finite", "finite numbers")

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


def true_phases(app: SimApp) -> tuple[PhaseLoad, ...]:
    """The loads that really run in each phase.

    A phase keeps the best of those before it (ties: the earlier job). One with more jobs than the
    phase before starts fresh ones, in the order declared, as a Hyperband bracket does.

    Raises:
        ConfigError: The phases start more jobs than the app has.
    """
    jobs = app.jobs
    alive: list[int] = []
    started = 0
    phases: list[PhaseLoad] = []
    for phase in app.spec.phases:
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


def generate_w2(
    *,
    seed: int,
    apps: int = REFERENCE_APPS,
    gpus: int = REFERENCE_GPUS,
    load: float | None = None,
    bursty: bool = False,
    hardware: str = "p100",
    network_intensive: float | None = None,
    eta: int = 2,
    demand_growth: int = 1,
) -> Workload:
    """The paper's second workload: successive halving, mostly 4 GPUs per job.

    Without `load` the horizon is exactly 14 days for 85 apps on 64 GPUs and in proportion for
    other sizes, so the load is 0.91 on average over seeds. With `load` the horizon is set so that
    this very workload has exactly that load. Arrivals are a Poisson process given that all `apps`
    come within the horizon; another load only stretches time.

    Apps declare the GPU-seconds drawn. What runs differs a little, because survivors are not the
    median job that declarations count with: up to 20 % for one app, 1 % less over many.

    Args:
        seed: Chooses the workload; the same arguments give the same bytes everywhere.
        apps: How many.
        gpus: Size of the cluster it is meant for, which only sets the horizon. Keep it when the
            cluster shrinks to study contention.
        load: Work / (gpus * horizon), above 0 to 10.
        bursty: Let 30 % of apps follow the previous one within 10 minutes.
        hardware: Whose slowdowns the models have.
        network_intensive: Draw models from the network-intensive group with this probability and
            else from the compute-intensive one, instead of the paper's mix.
        eta: One job in `eta` survives a phase.
        demand_growth: From phase to phase a job can use so many times more GPUs; `eta` gives the
            paper's 1, 2, 4, ...

    Raises:
        ConfigError: An argument is out of range.
    """
    check_count("seed", seed, low=0, high=10**18)
    check_count("apps", apps, high=100_000)
    check_count("gpus", gpus, high=1_000_000)
    check_count("eta", eta, low=2, high=1000)
    check_count("demand_growth", demand_growth, high=8)
    _check_flag("bursty", bursty)
    if hardware not in HARDWARE:
        raise unknown_name("hardware", str(hardware), HARDWARE)
    if load is not None:
        check_number("load", load, above=True, high=10.0)
    if network_intensive is not None:
        check_number("network_intensive", network_intensive, high=1.0)
    bodies = [
        _w2_app(seed, index, hardware, network_intensive, eta, demand_growth)
        for index in range(apps)
    ]
    horizon = REFERENCE_HORIZON * (apps / REFERENCE_APPS) * (REFERENCE_GPUS / gpus)
    if load is not None:
        horizon *= realised_load(bodies, gpus, horizon) / load
    times = _arrivals(seed, apps, horizon, bursty)
    arrived = tuple(replace(app, arrival=at) for app, at in zip(bodies, times, strict=True))
    return Workload(
        name="w2-bursty" if bursty else "w2",
        apps=arrived,
        horizon=horizon,
        load=realised_load(arrived, gpus, horizon),
        seed=seed,
        generator="w2",
        version=W2_VERSION,
    )


GENERATORS: Mapping[str, Callable[..., Workload]] = {"w2": generate_w2}
"""Workloads by name; a new one is a function and a line here."""


def workload(name: str, **options: object) -> Workload:
    """Generate the workload of this name; options are the generator's keyword arguments.

    Raises:
        ConfigError: Unknown name or option, a missing one, or a value out of range.
    """
    generator = GENERATORS.get(name)
    if generator is None:
        raise unknown_name("workload", name, GENERATORS)
    parameters = inspect.signature(generator).parameters
    for key in options:
        if key not in parameters:
            raise unknown_name(f"option of workload {name}", key, parameters)
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in options:
            raise ConfigError(f"{key} of workload {name}", None, "a value: it has no default")
    return generator(**options)


def quantile(table: Table, share: float) -> float:
    """The value below which this share of draws lies, linear between the rows of the table."""
    index = max(1, bisect_left(table, share, key=lambda row: row[1]))
    (low, below), (high, upto) = table[index - 1], table[index]
    return low + (high - low) * (share - below) / (upto - below)


def _w2_app(
    seed: int,
    index: int,
    hardware: str,
    network_intensive: float | None,
    eta: int,
    demand_growth: int,
) -> SimApp:
    def stream(aspect: str) -> Random:
        return Random(f"{seed}/{aspect}/{index}")

    work = quantile(APP_GPU_SECONDS, stream("work").random())
    count = max(1, round(quantile(W2_JOBS, stream("jobs").random())))
    max_gpus = _step(W2_GPUS_PER_JOB, stream("gpus").random())
    model = _draw_model(stream("model"), network_intensive)
    slowdown = slowdown_of(model, hardware)
    serial, quality = stream("serial"), stream("quality")
    jobs = tuple(
        JobSpec(
            JobId(f"j{number:02d}"),
            serial.uniform(1.0 - SERIAL_SPREAD, 1.0 + SERIAL_SPREAD),
            max_gpus,
            slowdown=slowdown,
        )
        for number in range(count)
    )
    phases = halving_from_budget([job.serial_iteration_time for job in jobs], work, eta)
    spec = AppSpec(
        AppId(f"w2-{index + 1:04d}"),
        OwnerId(f"owner-{index + 1:04d}"),
        jobs,
        tuple(
            replace(phase, gpu_factor=demand_growth**number) for number, phase in enumerate(phases)
        ),
    )
    return SimApp(spec, 0.0, model, tuple(quality.random() for _ in jobs))


def _step(table: Table, share: float) -> int:
    """A draw from a distribution of a few whole values."""
    return next(int(value) for value, upto in table if share < upto)


def _draw_model(stream: Random, network_intensive: float | None) -> str:
    first, second = stream.random(), stream.random()
    if network_intensive is None:
        names = models_of_category(_category(first))
    else:
        # One draw against the share: as it rises, apps change sides one by one and never back.
        names = models_of_group(Group.NETWORK if first < network_intensive else Group.COMPUTE)
    return names[int(second * len(names))]


def _category(share: float) -> str:
    ends = list(accumulate(CATEGORY_SHARES.values()))
    # The shares may sum to a hair below one.
    return list(CATEGORY_SHARES)[min(bisect_left(ends, share), len(ends) - 1)]


def _arrivals(seed: int, apps: int, horizon: float, bursty: bool) -> list[float]:
    """Times of arrival within the horizon, rising.

    Exponential gaps, one more than apps, scaled so that together they fill the horizon: exactly a
    Poisson process given its number of points. Followers come at unscaled distances.
    """
    gaps = [Random(f"{seed}/gap/{index}").expovariate(1.0) for index in range(apps + 1)]
    follows = [0.0] * (apps + 1)
    if bursty:
        # Where the mean gap is shorter than the window, so are the bursts: they have to fit.
        window = min(FOLLOW_WITHIN, horizon / apps)
        for index in range(1, apps):
            stream = Random(f"{seed}/burst/{index}")
            if stream.random() < FOLLOWERS:
                gaps[index], follows[index] = 0.0, window * stream.random()
    scale = (horizon - math.fsum(follows)) / math.fsum(gaps)
    steps = (gap * scale + follow for gap, follow in zip(gaps, follows, strict=True))
    return list(accumulate(steps))[:apps]


def _check_flag(key: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(key, value, "true or false")
