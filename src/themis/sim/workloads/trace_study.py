"""The paper's trace study (figures 1 to 4): what its apps looked like before any scheduling.

Published are only a few figures: 85 apps, about a tenth of them a single job, up to 100 jobs and
75 in the median, 11.5 GPU-days for the median app and 3.75 GPU-hours for the median job, and a
bursty demand of about 50 GPUs on average. The distributions here are ours, chosen to meet them.
"""

import math

from themis.core.model import AppId, AppSpec, OwnerId, Phase
from themis.sim.workloads.base import SimApp, Workload
from themis.sim.workloads.distributions import (
    TRACE_JOBS,
    W1_GPUS_PER_JOB,
    mean_of,
    quantile,
    step,
)
from themis.sim.workloads.sampling import REFERENCE_APPS, REFERENCE_GPUS, Options, assemble

TRACE_STUDY_VERSION = 1
"""To be raised whenever the same seed would give another workload."""

MEDIAN_JOB = 3.75 * 3600.0
MEAN_DEMAND = 50.0

# Lognormal, between apps and between the jobs of one. Together they put the median app at 11.5
# GPU-days while the median job stays at 3.75 GPU-hours.
APP_SIGMA = 0.4
JOB_SIGMA = 0.6

_MEAN_JOB = MEDIAN_JOB * math.exp((APP_SIGMA**2 + JOB_SIGMA**2) / 2.0)
HORIZON = REFERENCE_APPS * mean_of(TRACE_JOBS) * _MEAN_JOB / MEAN_DEMAND
"""85 apps of this size want 50 GPUs on average if they arrive over so long: about 20 days."""


def generate_trace_study(
    *,
    seed: int,
    apps: int = REFERENCE_APPS,
    gpus: int = REFERENCE_GPUS,
    load: float | None = None,
    bursty: bool = True,
    hardware: str = "p100",
    network_intensive: float | None = None,
) -> Workload:
    """Apps like those of the paper's trace study: jobs that train to their end, no tuning.

    GPUs per job as in W1. Without `load` the mean demand is 50 GPUs for every 64 of the cluster, a
    load of 0.78 on average over seeds.

    Args:
        seed: Chooses the workload; the same arguments give the same bytes everywhere.
        apps: How many.
        gpus: Size of the cluster it is meant for, which only sets the horizon.
        load: Work / (gpus * horizon), above 0 to 10.
        bursty: Let 30 % of apps follow the previous one within 10 minutes.
        hardware: Whose slowdowns the models have.
        network_intensive: Draw models from the network-intensive group with this probability and
            else from the compute-intensive one, instead of the paper's mix.

    Raises:
        ConfigError: An argument is out of range.
    """
    options = Options(seed, apps, gpus, load, bursty, hardware, network_intensive)
    bodies = [_app(options, index) for index in range(apps)]
    return assemble("trace-study", TRACE_STUDY_VERSION, options, bodies, HORIZON)


def _app(options: Options, index: int) -> SimApp:
    count = max(1, round(quantile(TRACE_JOBS, options.stream("jobs", index).random())))
    max_gpus = step(W1_GPUS_PER_JOB, options.stream("gpus", index).random())
    model = options.model(index)
    jobs = options.jobs(index, count, max_gpus, model)
    size = MEDIAN_JOB * math.exp(options.stream("work", index).gauss(0.0, APP_SIGMA))
    spread = options.stream("spread", index)
    targets = tuple(
        max(1, round(size * math.exp(spread.gauss(0.0, JOB_SIGMA)) / job.serial_iteration_time))
        for job in jobs
    )
    spec = AppSpec(
        AppId(f"ts-{index + 1:04d}"),
        OwnerId(f"owner-{index + 1:04d}"),
        jobs,
        (Phase(count, max(targets), targets),),
    )
    return SimApp(spec, 0.0, model, options.qualities(index, count), tuner="single")
