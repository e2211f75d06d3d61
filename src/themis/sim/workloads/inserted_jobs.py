"""Two single jobs of known size among the apps of a workload, as the paper's close look has them.

insert_two(workload, hardware="p100").apps     # with `long` and `short` among them
"""

from dataclasses import dataclass, replace
from random import Random

from themis.core.model import AppId, AppSpec, JobId, JobSpec, OwnerId, Phase
from themis.core.model.zoo import slowdown_of
from themis.sim.workloads.base import SimApp, Workload
from themis.sim.workloads.sampling import draw_model

MINUTE = 60


@dataclass(frozen=True, slots=True)
class Insert:
    """A job: GPU-minutes of work, and how many GPUs it can use."""

    name: str
    gpu_minutes: int
    gpus: int


LONG, SHORT = Insert("long", 580, 4), Insert("short", 83, 2)
INSERTED = (LONG, SHORT)
MIDDLE = (0.25, 0.75)
"""They arrive within this part of the horizon, when the cluster is neither filling nor emptying."""


def insert_two(workload: Workload, hardware: str) -> Workload:
    """The same apps and two single jobs; all that others draw stays as it was.

    The load told is that of the others: two jobs in weeks do not change it.
    """
    extra = tuple(_app(item, workload, hardware) for item in INSERTED)
    apps = tuple(sorted((*workload.apps, *extra), key=lambda app: app.arrival))
    return replace(workload, name=f"{workload.name}-two-jobs", apps=apps)


def _app(item: Insert, workload: Workload, hardware: str) -> SimApp:
    stream = Random(f"{workload.seed}/inserted/{item.name}")
    low, high = MIDDLE
    arrival = workload.horizon * stream.uniform(low, high)
    model = draw_model(stream, None)
    iterations = item.gpu_minutes * MINUTE
    job = JobSpec(JobId("j00"), 1.0, item.gpus, slowdown=slowdown_of(model, hardware))
    spec = AppSpec(AppId(item.name), OwnerId(f"owner-{item.name}"), (job,), (Phase(1, iterations),))
    return SimApp(spec, arrival, model, (stream.random(),))
