"""The paper's first workload: performance-curve stopping, many jobs of one or two GPUs."""

import math
from collections.abc import Sequence

from themis.core.model import AppId, AppSpec, JobSpec, OwnerId, Phase
from themis.sim.workloads.base import SimApp, Workload
from themis.sim.workloads.distributions import (
    APP_GPU_SECONDS,
    W1_GPUS_PER_JOB,
    W1_JOBS,
    quantile,
    step,
)
from themis.sim.workloads.sampling import REFERENCE_APPS, REFERENCE_GPUS, Options, assemble

W1_VERSION = 1
"""To be raised whenever the same seed would give another workload."""

JOB_SIGMA = 0.5
"""Spread of the jobs' work within an app: standard deviation of its logarithm."""


def generate_w1(
    *,
    seed: int,
    apps: int = REFERENCE_APPS,
    gpus: int = REFERENCE_GPUS,
    load: float | None = None,
    bursty: bool = False,
    hardware: str = "p100",
    network_intensive: float | None = None,
) -> Workload:
    """The paper's first workload: performance-curve stopping, 1 or 2 GPUs per job.

    Each job stops where its loss curve flattens, at an iteration that agents know: one phase with
    a target for each job. Apps of the same number and seed in W1 and W2 have the same size, model
    and place in the order of arrival; sizes, load, horizon and arrivals as in `generate_w2`. The
    work declared is the work that runs.

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
    return assemble("w1", W1_VERSION, options, [_app(options, index) for index in range(apps)])


def _app(options: Options, index: int) -> SimApp:
    work = quantile(APP_GPU_SECONDS, options.stream("work", index).random())
    count = max(1, round(quantile(W1_JOBS, options.stream("jobs", index).random())))
    max_gpus = step(W1_GPUS_PER_JOB, options.stream("gpus", index).random())
    model = options.model(index)
    jobs = options.jobs(index, count, max_gpus, model)
    spread = options.stream("spread", index)
    sizes = [math.exp(spread.gauss(0.0, JOB_SIGMA)) for _ in jobs]
    targets = whole_targets(jobs, sizes, work)
    spec = AppSpec(
        AppId(f"w1-{index + 1:04d}"),
        OwnerId(f"owner-{index + 1:04d}"),
        jobs,
        (Phase(count, max(targets), targets),),
    )
    return SimApp(spec, 0.0, model, options.qualities(index, count), tuner="curves")


def whole_targets(jobs: Sequence[JobSpec], sizes: Sequence[float], work: float) -> tuple[int, ...]:
    """Iterations of each job, so that works are as the sizes and sum to `work` but for one.

    What rounding takes from a job goes to the next one; no job has less than one iteration.
    """
    unit = work / math.fsum(sizes)
    targets: list[int] = []
    over = 0.0
    for job, size in zip(jobs, sizes, strict=True):
        share = size * unit + over
        targets.append(max(1, math.floor(share / job.serial_iteration_time)))
        over = share - targets[-1] * job.serial_iteration_time
    return tuple(targets)
