"""What a trace is like, in numbers.

trace_stats(plan)["gpu_hours"]
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from themis.sim.traces.app_grouping import burst_sizes
from themis.sim.traces.trace_workload import HOUR, TracePlan

SHARES = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def trace_stats(plan: TracePlan) -> dict[str, Any]:
    """Jobs, apps and owners of a plan, how they are distributed, and the load.

    Durations are scaled as the plan says. Bursts are looked for even where the trace names apps,
    and are not cut at the most jobs an app may have.
    """
    jobs, header, scale = plan.trace.jobs, plan.header, plan.options.duration_scale
    bursts = [size for size in burst_sizes(jobs, plan.options.burst_gap) if size > 1]
    gpu_seconds = math.fsum(job.duration * job.gpus for job in jobs) * scale
    return {
        "format": plan.trace.format,
        "rows": plan.trace.rows,
        "jobs": len(jobs),
        "apps": header.apps,
        "owners": len({job.owner for job in jobs}),
        "gpu_hours": gpu_seconds / HOUR,
        "horizon_s": header.horizon,
        "gpus": header.gpus,
        "load": header.load,
        "duration_s": _quantiles([job.duration * scale for job in jobs]),
        "gpus_per_job": _quantiles([job.gpus for job in jobs]),
        "jobs_per_app": _quantiles([len(group.jobs) for group in plan.groups]),
        "gap_s": _quantiles(_gaps(job.submit for job in jobs)),
        "bursts": len(bursts),
        "jobs_in_bursts": sum(bursts),
        "largest_burst": max(bursts, default=0),
        "statuses": _most([job.status for job in jobs if job.status]),
        "owners_by_jobs": _most([job.owner for job in jobs]),
        "dropped": dict(plan.trace.dropped),
        "problems": dict(plan.trace.problem_counts),
    }


def _gaps(times: Iterable[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(sorted(times))]


def _most(names: Sequence[str], count: int = 10) -> dict[str, int]:
    found = Counter(names)
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return dict(ranked[:count])


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    """Nearest rank, so that counts stay whole; the median as everybody computes it."""
    if not values:
        return {}
    ordered = sorted(values)
    last = len(ordered) - 1
    ranks = {name: ordered[round(share * last)] for name, share in SHARES.items()}
    return {**ranks, "median": median(ordered)}
