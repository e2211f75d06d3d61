"""Apps that are all alike and come at once, to see what one of them gains by a lie."""

from themis.core.model import AppId, AppSpec, JobId, JobSpec, OwnerId, Phase
from themis.core.model.ids import check_count, check_number
from themis.core.model.zoo import HARDWARE, entry, slowdown_of
from themis.errors import UnwantedKeyError
from themis.sim.workloads.base import SimApp, Workload, realised_load
from themis.sim.workloads.sampling import check_hardware

TRUTH_VERSION = 1
"""To be raised whenever the same arguments would give another workload."""

TRUTH_APPS = 8
HOUR = 3600


def generate_truth(
    *,
    seed: int,
    apps: int = TRUTH_APPS,
    gpus: int = 64,
    load: float | None = None,
    hardware: str = HARDWARE[0],
    model: str = "VGG16",
    gpu_hours: float = 48.0,
    width: int = 8,
) -> Workload:
    """Identical apps of one job each, all arriving at 0: the paper's truth-telling experiment.

    Eight of them fill 64 GPUs, but on `truth64` only one can have a whole machine to itself.

    Args:
        seed: Draws nothing here; costs of starting, ties and lotteries follow from it.
        apps: How many.
        gpus: Size of the cluster it is meant for, which only sets the horizon.
        load: Cannot be chosen: everything comes at once.
        hardware: Whose slowdowns the model has.
        model: What all of them train.
        gpu_hours: Work of each, in hours on one GPU.
        width: The most GPUs that each can use.

    Raises:
        ConfigError: An argument is out of range.
    """
    check_count("apps", apps, high=10_000)
    check_count("gpus", gpus, high=1_000_000)
    check_count("width", width, high=100_000)
    check_number("gpu_hours", gpu_hours, above=True, high=1e6)
    check_hardware(hardware)
    if load is not None:
        raise UnwantedKeyError("load", load, "all apps of this workload come at once")
    name = entry(model).name
    job = JobSpec(JobId("j00"), 1.0, width, slowdown=slowdown_of(name, hardware))
    phase = Phase(1, max(1, round(gpu_hours * HOUR)))
    made = tuple(
        SimApp(
            AppSpec(AppId(f"truth-{n:02d}"), OwnerId(f"owner-{n:02d}"), (job,), (phase,)),
            0.0,
            name,
            (0.5,),
        )
        for n in range(1, apps + 1)
    )
    horizon = apps * gpu_hours * HOUR / gpus
    return Workload(
        name="truth",
        apps=made,
        horizon=horizon,
        load=realised_load(made, gpus, horizon),
        seed=seed,
        generator="truth",
        version=TRUTH_VERSION,
    )
