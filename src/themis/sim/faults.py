"""What goes wrong in a simulated cluster: processes that die, machines that leave and come back.

    Faults(job_failures_per_gpu_hour=PHILLY_FAILURES_PER_GPU_HOUR, machine_mtbf=30 * 86400.0)

Every process and every machine draws from a stream of its own, so that one more failure here moves
none elsewhere, and the n-th process of a job is as lucky under every policy.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from themis.core.model import AppId, JobId
from themis.core.model.ids import check_number

PHILLY_FAILURES_PER_GPU_HOUR = 0.001885
"""Attempts that another one followed, per GPU-hour of all attempts: 1,456 in 772,361 GPU-hours.

From 3,034 jobs of Microsoft's Philly clusters (2017, CC-BY-4.0), nearly all with 4 GPUs or more and
longer than 10 minutes; short jobs that fail at once are not among them. One in 530 GPU-hours.
"""

FIRST_BACK_OFF = 10.0
LONGEST_BACK_OFF = 300.0
HOPELESS = 1000
"""Losses of a job in a row, without a checkpoint in between, after which a run is given up."""

_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Faults:
    """How often things break; seconds but for the rate. Nothing does by default."""

    job_failures_per_gpu_hour: float = 0.0
    """A process on k GPUs fails k times as often."""
    machine_mtbf: float = 0.0
    """Mean time between failures of one machine, exponential; 0 for never."""
    machine_repair: float = 3600.0
    """How long a machine that failed stays away."""
    checkpoint_every: float = 300.0
    """Jobs save their work after every this many seconds of running, at no cost."""

    def __post_init__(self) -> None:
        check_number("job_failures_per_gpu_hour", self.job_failures_per_gpu_hour, high=1e6)
        check_number("machine_mtbf", self.machine_mtbf, high=1e18)
        check_number("machine_repair", self.machine_repair, high=1e18)
        check_number("checkpoint_every", self.checkpoint_every, above=True, high=1e18)

    def time_to_failure(self, seed: int, app: AppId, job: JobId, start: int, gpus: int) -> float:
        """Seconds that the process of a job's n-th start runs before it dies, if nobody ends it."""
        if self.job_failures_per_gpu_hour <= 0.0:
            return math.inf
        luck = random.Random(f"{seed}/failure/{app}/{job}/{start}").expovariate(1.0)
        return luck * _HOUR / (self.job_failures_per_gpu_hour * gpus)

    def outages(self, seed: int, machine: str) -> Iterator[tuple[float, float]]:
        """When a machine fails and when it is back, for ever."""
        if self.machine_mtbf <= 0.0:
            return
        rng = random.Random(f"{seed}/outage/{machine}")
        now = 0.0
        while True:
            fails = now + rng.expovariate(1.0 / self.machine_mtbf)
            now = fails + self.machine_repair
            yield fails, now

    def saved(self, running: float) -> float:
        """Of this many seconds of running, those that the last periodic checkpoint covers."""
        periods = math.floor(running / self.checkpoint_every * (1.0 + 1e-12))
        return min(running, periods * self.checkpoint_every)


NO_FAULTS = Faults()


def back_off(failures: int) -> float:
    """Seconds that a job waits after this many failures in a row before it starts again."""
    return min(LONGEST_BACK_OFF, FIRST_BACK_OFF * 2.0 ** min(failures - 1, 30))
