"""The paper's second workload: successive halving, mostly four GPUs per job."""

from dataclasses import replace

from themis.core.fairness.schedules import halving_from_budget
from themis.core.model import AppId, AppSpec, OwnerId
from themis.core.model.ids import check_count
from themis.sim.workloads.base import SimApp, Workload
from themis.sim.workloads.distributions import (
    APP_GPU_SECONDS,
    W2_GPUS_PER_JOB,
    W2_JOBS,
    quantile,
    step,
)
from themis.sim.workloads.inserted_jobs import insert_two
from themis.sim.workloads.sampling import (
    REFERENCE_APPS,
    REFERENCE_GPUS,
    Options,
    assemble,
    check_flag,
)

W2_VERSION = 1
"""To be raised whenever the same seed would give another workload."""


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
    two_jobs: bool = False,
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
        demand_growth: From phase to phase a job can use this many times more GPUs; `eta` gives the
            paper's 1, 2, 4, ...
        two_jobs: Put two single jobs among the apps, `long` and `short`, which arrive some time in
            the middle half of the horizon.

    Raises:
        ConfigError: An argument is out of range.
    """
    options = Options(seed, apps, gpus, load, bursty, hardware, network_intensive)
    check_count("eta", eta, low=2, high=1000)
    check_count("demand_growth", demand_growth, high=8)
    bodies = [_app(options, index, eta, demand_growth) for index in range(apps)]
    check_flag("two_jobs", two_jobs)
    made = assemble("w2", W2_VERSION, options, bodies)
    return insert_two(made, hardware) if two_jobs else made


def _app(options: Options, index: int, eta: int, demand_growth: int) -> SimApp:
    work = quantile(APP_GPU_SECONDS, options.stream("work", index).random())
    count = max(1, round(quantile(W2_JOBS, options.stream("jobs", index).random())))
    max_gpus = step(W2_GPUS_PER_JOB, options.stream("gpus", index).random())
    model = options.model(index)
    jobs = options.jobs(index, count, max_gpus, model)
    phases = halving_from_budget([job.serial_iteration_time for job in jobs], work, eta)
    spec = AppSpec(
        AppId(f"w2-{index + 1:04d}"),
        OwnerId(f"owner-{index + 1:04d}"),
        jobs,
        tuple(
            replace(phase, gpu_factor=demand_growth**number) for number, phase in enumerate(phases)
        ),
    )
    return SimApp(spec, 0.0, model, options.qualities(index, count))
