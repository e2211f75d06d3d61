"""A few short apps that want much more than there is, one of which may try to cheat."""

import math

from themis.core.model import AppId, AppSpec, OwnerId, Phase
from themis.core.model.ids import check_number
from themis.core.model.zoo import HARDWARE
from themis.errors import UnwantedKeyError
from themis.sim.workloads.base import SimApp, Workload, realised_load
from themis.sim.workloads.sampling import Options
from themis.sim.workloads.w1 import whole_targets

RIVALS_VERSION = 1
"""To be raised whenever the same arguments would give another workload."""

RIVALS = 8
HOUR = 3600.0
JOB_SIGMA = 0.3
JOBS = (1, 2, 4, 8)
WIDTHS = (1, 2, 4)


def generate_rivals(
    *,
    seed: int,
    apps: int = RIVALS,
    gpus: int = 16,
    load: float | None = None,
    hardware: str = HARDWARE[0],
    gpu_hours: float = 6.0,
    gap: float = 900.0,
) -> Workload:
    """Apps of one phase that come one after the other, long before those before them are done.

    The one in the middle has eight jobs on two GPUs each, so that it can do everything that a liar
    might: split, wait, want more or less. The others are drawn.

    Args:
        seed: Chooses the workload.
        apps: How many.
        gpus: Size of the cluster it is meant for, which only sets the load told.
        load: Cannot be chosen: `gap` and `gpu_hours` set it.
        hardware: Whose slowdowns the models have.
        gpu_hours: Mean work of an app, in hours on one GPU.
        gap: Mean seconds from one arrival to the next.

    Raises:
        ConfigError: An argument is out of range.
    """
    if load is not None:
        raise UnwantedKeyError("load", load, "`gap` and `gpu_hours` set it in this workload")
    check_number("gpu_hours", gpu_hours, above=True, high=1e6)
    check_number("gap", gap, above=True, high=1e9)
    options = Options(seed, apps, gpus, None, False, hardware, None)
    at = 0.0
    made = []
    for index in range(apps):
        at += options.stream("arrival", index).uniform(0.5, 1.5) * gap
        made.append(_app(options, index, at, gpu_hours * HOUR))
    horizon = apps * gap
    return Workload(
        name="rivals",
        apps=tuple(made),
        horizon=horizon,
        load=realised_load(made, gpus, horizon),
        seed=seed,
        generator="rivals",
        version=RIVALS_VERSION,
    )


def _app(options: Options, index: int, arrival: float, mean_work: float) -> SimApp:
    drawn = options.stream("shape", index)
    count, width, size = drawn.choice(JOBS), drawn.choice(WIDTHS), drawn.uniform(0.5, 1.5)
    if index == options.apps // 2:
        count, width, size = 8, 2, 1.0
    model = options.model(index)
    jobs = options.jobs(index, count, width, model)
    spread = options.stream("spread", index)
    sizes = [math.exp(spread.gauss(0.0, JOB_SIGMA)) for _ in jobs]
    targets = whole_targets(jobs, sizes, mean_work * size)
    name = f"{index + 1:02d}"
    spec = AppSpec(
        AppId(f"rival-{name}"),
        OwnerId(f"owner-{name}"),
        jobs,
        (Phase(count, max(targets), targets),),
    )
    return SimApp(spec, arrival, model, options.qualities(index, count))


def contender(apps: int = RIVALS) -> AppId:
    """The app in the middle."""
    return AppId(f"rival-{apps // 2 + 1:02d}")
