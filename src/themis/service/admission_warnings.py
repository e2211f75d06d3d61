"""Warnings at submission: why the cluster could never serve an app.

    outlook(world, plan.spec)       # None: it gets GPUs sooner or later

`themis explain` would say the same later.
"""

from themis.core.arbiter.app_reasons import never_served
from themis.core.arbiter.cluster_state import World
from themis.core.explain import Explanation, Facts, explain
from themis.core.model import AppSpec
from themis.core.model.apps import Constraint
from themis.core.model.topology import ANY_MODEL


def outlook(world: World, spec: AppSpec) -> Explanation | None:
    """Why an app would never be served by the cluster as it is now; None if it would.

    Args:
        world: The cluster.
        spec: The app, which need not be there yet.
    """
    least = max(job.min_gpus for job in spec.jobs)
    reason = never_served(world, spec.owner, spec.constraint, least)
    if reason is None:
        return None
    return explain(
        Facts(
            app=spec.id,
            reason=reason,
            now=0.0,  # None of these lines has a time.
            least=least,
            cluster=world.present_gpus(Constraint()),
            usable=world.present_gpus(spec.constraint),
            wanted=kind_of(spec),
            quota=world.quotas.get(spec.owner),
        )
    )


def spread(world: World, spec: AppSpec) -> str:
    """A warning for an app whose jobs are larger than any machine; empty for others."""
    least = max(job.min_gpus for job in spec.jobs)
    sizes = [each.gpus for each in world.topology.machines if spec.constraint.allows(each)]
    if not sizes or max(sizes) >= least:
        return ""
    return (
        f"a job needs at least {least} GPUs and the largest machine has {max(sizes)}: it runs over "
        "several machines, which its program must support, and which need a `shared_dir`"
    )


def kind_of(spec: AppSpec) -> str:
    """The kind of GPU that an app asks for, in words; empty if any will do."""
    constraint = spec.constraint
    if constraint.trivial:
        return ""
    model = "any model" if constraint.gpu_model == ANY_MODEL else constraint.gpu_model
    memory = constraint.gpu_memory
    return f"{model} with {memory:g} GB of memory or more" if memory > 0.0 else model
