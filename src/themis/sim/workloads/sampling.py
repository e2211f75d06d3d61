"""What the generators share: checked options, one random stream per aspect, models, horizon.

Every app draws each of its aspects (size, jobs, model, ...) from its own stream, so asking for
more apps, another load or a share of network-intensive models changes nothing else: runs that
differ in one setting stay comparable app by app.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random

from themis.core.model import JobId, JobSpec
from themis.core.model.ids import check_count, check_number
from themis.core.model.zoo import (
    CATEGORY_SHARES,
    HARDWARE,
    IntensityGroup,
    models_of_category,
    models_of_group,
    slowdown_of,
)
from themis.errors import ConfigError, unknown_name
from themis.sim.workloads.arrivals import arrival_times
from themis.sim.workloads.base import SimApp, Workload, realised_load

# The setting of the paper's macro-benchmark, from which other sizes scale.
REFERENCE_APPS = 85
REFERENCE_GPUS = 64
REFERENCE_HORIZON = 14 * 86400.0

SERIAL_SPREAD = 0.2


@dataclass(frozen=True, slots=True)
class Options:
    """What every generator can be asked for.

    Raises:
        ConfigError: A value out of range.
    """

    seed: int
    apps: int
    gpus: int
    load: float | None
    bursty: bool
    hardware: str
    network_intensive: float | None

    def __post_init__(self) -> None:
        check_count("seed", self.seed, low=0, high=10**18)
        check_count("apps", self.apps, high=100_000)
        check_count("gpus", self.gpus, high=1_000_000)
        check_flag("bursty", self.bursty)
        check_hardware(self.hardware)
        if self.load is not None:
            check_number("load", self.load, above=True, high=10.0)
        if self.network_intensive is not None:
            check_number("network_intensive", self.network_intensive, high=1.0)

    def stream(self, aspect: str, index: int) -> Random:
        """The random numbers of one aspect of one app."""
        return Random(f"{self.seed}/{aspect}/{index}")

    def model(self, index: int) -> str:
        """What app number `index` trains."""
        return draw_model(self.stream("model", index), self.network_intensive)

    def jobs(self, index: int, count: int, max_gpus: int, model: str) -> tuple[JobSpec, ...]:
        """Jobs of app number `index`: alike, but for iterations of one second give or take 20 %."""
        serial = self.stream("serial", index)
        slowdown = slowdown_of(model, self.hardware)
        low, high = 1.0 - SERIAL_SPREAD, 1.0 + SERIAL_SPREAD
        return tuple(
            JobSpec(JobId(f"j{number:02d}"), serial.uniform(low, high), max_gpus, slowdown=slowdown)
            for number in range(count)
        )

    def qualities(self, index: int, count: int) -> tuple[float, ...]:
        """How good the jobs of app number `index` are; lower is better."""
        stream = self.stream("quality", index)
        return tuple(stream.random() for _ in range(count))


def assemble(
    generator: str,
    version: int,
    options: Options,
    bodies: Sequence[SimApp],
    horizon: float = REFERENCE_HORIZON,
) -> Workload:
    """Let apps arrive.

    Args:
        generator: The workload's name; bursty ones get an ending.
        version: Of the generator.
        options: What was asked for.
        bodies: The apps, in order, all with the same arrival.
        horizon: For 85 apps on 64 GPUs; other sizes take their share of it, so that the load stays.
            With a load asked for it is set so that this very workload has exactly that.
    """
    horizon *= (options.apps / REFERENCE_APPS) * (REFERENCE_GPUS / options.gpus)
    if options.load is not None:
        horizon *= realised_load(bodies, options.gpus, horizon) / options.load
    times = arrival_times(options.seed, options.apps, horizon, options.bursty)
    arrived = tuple(replace(app, arrival=at) for app, at in zip(bodies, times, strict=True))
    return Workload(
        name=f"{generator}-bursty" if options.bursty else generator,
        apps=arrived,
        horizon=horizon,
        load=realised_load(arrived, options.gpus, horizon),
        seed=options.seed,
        generator=generator,
        version=version,
    )


def check_flag(key: str, value: object) -> None:
    """Refuse what is not true or false.

    Raises:
        ConfigError: It is not.
    """
    if not isinstance(value, bool):
        raise ConfigError(key, value, "true or false")


def check_hardware(value: object) -> None:
    """Refuse GPUs for which the zoo has no slowdowns.

    Raises:
        ConfigError: It has none.
    """
    if value not in HARDWARE:
        raise unknown_name("hardware", value, HARDWARE)


def draw_model(stream: Random, network_intensive: float | None) -> str:
    """A model by the paper's mix, or by a share of network-intensive ones."""
    first, second = stream.random(), stream.random()
    if network_intensive is None:
        names = models_of_category(_category(first))
    else:
        # One draw against the share: as it rises, apps change sides one by one and never back.
        names = models_of_group(
            IntensityGroup.NETWORK if first < network_intensive else IntensityGroup.COMPUTE
        )
    return names[int(second * len(names))]


def _category(share: float) -> str:
    ends = list(accumulate(CATEGORY_SHARES.values()))
    # The shares may sum to a hair below one.
    return list(CATEGORY_SHARES)[min(bisect_left(ends, share), len(ends) - 1)]
