"""From a trace to a workload that the simulator runs.

plan = plan_workload(trace, name="philly", options=ImportOptions(duration_scale=0.83))
plan.header.load, plan.trace.dropped
workload = plan.workload()

Each trace job becomes a job with the GPU time it took, as if it had run at its best placement: it
may use up to as many GPUs as it had, and as few as one.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from themis.core.model import AppId, OwnerId
from themis.core.model.ids import check_count, check_number
from themis.core.model.zoo import HARDWARE
from themis.errors import ConfigError, unknown_name
from themis.sim.traces.app_grouping import BURST_GAP, MAX_JOBS, TraceApp, group_apps, select
from themis.sim.traces.compact_apps import CompactApp, digest, draw_model
from themis.sim.traces.trace import Dropped, Trace, TraceJob, collector_paused
from themis.sim.traces.workload_files import WorkloadHeader
from themis.sim.workloads import Workload

VERSION = 1
"""To be raised whenever the same trace would give another workload."""

HOUR, DAY, WEEK = 3600.0, 86400.0, 604800.0
MAX_GPU_SECONDS = 10**15
MAX_BASE = 40

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{,39}\Z")
_NOT_NAME = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What to make of a trace. Times are seconds; the window is on the trace's own clock.

    `gpus` is the cluster that the load is computed for; without `horizon` the window is it, or
    the time from the first to the last submission in whole hours, days or weeks.
    """

    drop_owners: tuple[str, ...] = ()
    start: float | None = None
    until: float | None = None
    burst_gap: float = BURST_GAP
    max_jobs: int = MAX_JOBS
    limit_apps: int | None = None
    duration_scale: float = 1.0
    horizon: float | None = None
    gpus: int = 64
    seed: int = 1
    hardware: str = "p100"

    def __post_init__(self) -> None:
        check_number("duration_scale", self.duration_scale, above=True, high=1e6)
        check_count("gpus", self.gpus, high=1_000_000)
        check_count("seed", self.seed, low=0, high=10**18)
        if self.limit_apps is not None:
            check_count("limit_apps", self.limit_apps)
        if self.horizon is not None:
            check_number("horizon", self.horizon, above=True)
        if self.hardware not in HARDWARE:
            raise unknown_name("hardware", self.hardware, HARDWARE)


class NoJobsError(ConfigError):
    """Nothing to simulate; `trace` tells what became of its rows."""

    def __init__(self, trace: Trace) -> None:
        super().__init__("trace", "no job that is left", "at least one")
        self.trace = trace


@dataclass(frozen=True, slots=True)
class TracePlan:
    """Which apps a trace becomes. They are made one by one, as a million jobs take much room."""

    trace: Trace
    """With only the jobs that are left, and with all that were dropped counted."""
    groups: tuple[TraceApp, ...]
    header: WorkloadHeader
    options: ImportOptions

    def lines(self) -> Iterator[CompactApp]:
        """The apps in order of arrival."""
        names, owner_names = Names(), Names()
        owners: dict[str, OwnerId] = {}
        zero = _zero(self.trace, self.groups, self.options)
        scale, seed = self.options.duration_scale, self.options.seed
        for group in self.groups:
            first = group.jobs[0]
            line = f"line-{first.line}"
            name = AppId(names.new(first.app or line, line))
            owner = owners.get(first.owner)
            if owner is None:
                owner = OwnerId(owner_names.new(first.owner, digest(first.owner).hex()))
                owners[first.owner] = owner
            yield CompactApp(
                app=name,
                owner=owner,
                arrival=first.submit - zero,
                model=draw_model(seed, name),
                gpus=tuple([job.gpus for job in group.jobs]),
                gpu_seconds=tuple(_gpu_seconds(group.jobs, scale)),
            )

    def workload(self) -> Workload:
        """All of it at once."""
        return self.header.workload(self.lines())


@collector_paused()
def plan_workload(trace: Trace, name: str, options: ImportOptions | None = None) -> TracePlan:
    """Choose the jobs, form the apps, and compute the load.

    Raises:
        NoJobsError: No job is left.
        ConfigError: An option is out of range.
    """
    options = options or ImportOptions()
    kept = select(trace, drop_owners=options.drop_owners, start=options.start, until=options.until)
    groups = group_apps(kept.jobs, burst_gap=options.burst_gap, max_jobs=options.max_jobs)
    if options.limit_apps is not None and len(groups) > options.limit_apps:
        kept, groups = _limited(kept, groups, options.limit_apps)
    if not groups:
        raise NoJobsError(kept)
    horizon = _horizon(kept, groups, options)
    work = _work(kept.jobs, options.duration_scale)
    header = WorkloadHeader(
        name=name,
        horizon=horizon,
        load=work / (options.gpus * horizon),
        gpus=options.gpus,
        seed=options.seed,
        generator=f"trace:{trace.format}",
        generator_version=VERSION,
        apps=len(groups),
        hardware=options.hardware,
    )
    return TracePlan(kept, tuple(groups), header, options)


def _limited(trace: Trace, groups: list[TraceApp], limit: int) -> tuple[Trace, list[TraceApp]]:
    left = groups[:limit]
    jobs = tuple(job for group in left for job in group.jobs)
    dropped = {**trace.dropped, str(Dropped.LIMIT): len(trace.jobs) - len(jobs)}
    return replace(trace, jobs=jobs, dropped=dict(sorted(dropped.items()))), left


def _zero(trace: Trace, groups: Sequence[TraceApp], options: ImportOptions) -> float:
    """The trace's time that becomes the workload's 0."""
    return groups[0].submit if options.start is None else trace.origin + options.start


def _horizon(trace: Trace, groups: Sequence[TraceApp], options: ImportOptions) -> float:
    if options.horizon is not None:
        return options.horizon
    zero = _zero(trace, groups, options)
    if options.until is not None:
        return trace.origin + options.until - zero
    span = max(job.submit for job in trace.jobs) - zero
    # Nobody cuts a trace right after its last submission: the period is what people would say.
    unit = next((unit for unit in (WEEK, DAY) if span >= unit), HOUR)
    return max(1, math.ceil(span / unit)) * unit


def _work(jobs: Sequence[TraceJob], scale: float) -> int:
    """GPU-seconds of all jobs.

    Raises:
        ConfigError: One job has more than can be simulated.
    """
    each = _gpu_seconds(jobs, scale)
    longest = max(each)
    if longest > MAX_GPU_SECONDS:
        line = jobs[each.index(longest)].line
        raise ConfigError("duration_scale", scale, f"less: line {line} gets too long")
    return sum(each)


def _gpu_seconds(jobs: Sequence[TraceJob], scale: float) -> list[int]:
    """Whole seconds on one GPU that each job takes, at least one."""
    return [round(duration * scale * gpus) or 1 for _, _, duration, gpus, _, _, _ in jobs]


def _slug(text: str) -> str:
    return _NOT_NAME.sub("-", text.lower())[:MAX_BASE].strip("-")


class Names:
    """Valid names for what a trace calls its owners and apps, each given once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def new(self, text: str, extra: str) -> str:
        """The text in small letters, digits and dashes; with `extra` where that was given before.

        `extra` must be a valid name of at most 20 characters.
        """
        base = text if _NAME.match(text) else _slug(text)
        name = base or extra
        while name in self._given:
            name = f"{base}-{extra}".strip("-")
            extra = digest(name).hex()
        self._given.add(name)
        return name
