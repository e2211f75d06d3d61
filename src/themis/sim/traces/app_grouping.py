"""From jobs to apps: which jobs are left in, and which belong together.

kept = select(trace, drop_owners=("11cb48",))
apps = group_apps(kept.jobs)          # same owner, same GPUs, at most a minute apart

Traces seldom say which jobs explore one goal, but a sweep shows as a burst of like jobs.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter

from themis.core.model.ids import check_count, check_number
from themis.sim.traces.trace import Dropped, Trace, TraceJob

BURST_GAP = 60.0
MAX_JOBS = 100
MAX_NAMED = 10_000
"""An app that the trace names is cut only where it would be more than can be simulated."""

# Sorting is stable, and jobs come in the order of their lines.
_SUBMIT = attrgetter("submit")


@dataclass(frozen=True, slots=True)
class TraceApp:
    """Jobs that belong together, in order of submission."""

    jobs: tuple[TraceJob, ...]

    @property
    def submit(self) -> float:
        """When the first job came."""
        return self.jobs[0].submit

    @property
    def owner(self) -> str:
        """Whose jobs they are, as the trace spells it."""
        return self.jobs[0].owner

    @property
    def name(self) -> str | None:
        """What the trace calls it, if it does."""
        return self.jobs[0].app


def select(
    trace: Trace,
    *,
    drop_owners: Iterable[str] = (),
    start: float | None = None,
    until: float | None = None,
) -> Trace:
    """The trace without some owners and only within a window of its own clock.

    Args:
        trace: As read.
        drop_owners: Names as the trace spells them.
        start: The first second that counts.
        until: The first second that no longer does.

    Raises:
        ConfigError: The window is empty.
    """
    unwanted = frozenset(drop_owners)
    low, high = _window(trace, start, until)
    kept, dropped = [], Counter(trace.dropped)
    for job in trace.jobs:
        if job.owner in unwanted:
            dropped[str(Dropped.OWNER)] += 1
        elif low <= job.submit < high:
            kept.append(job)
        else:
            dropped[str(Dropped.WINDOW)] += 1
    return replace(trace, jobs=tuple(kept), dropped=dict(sorted(dropped.items())))


def _window(trace: Trace, start: float | None, until: float | None) -> tuple[float, float]:
    low, high = float("-inf"), float("inf")
    if start is not None:
        low = trace.origin + check_number("from", start)
    if until is not None:
        high = trace.origin + check_number("until", until, low=start or 0.0, above=True)
    return low, high


def group_apps(
    jobs: Iterable[TraceJob], *, burst_gap: float = BURST_GAP, max_jobs: int = MAX_JOBS
) -> list[TraceApp]:
    """Apps in order of their first submission.

    Jobs that name an app belong to it. Others of the same owner with the same number of GPUs
    belong together while each comes at most `burst_gap` seconds after the one before; a burst of
    more than `max_jobs` makes several apps.

    Raises:
        ConfigError: The gap or the number is out of range.
    """
    check_number("burst_gap", burst_gap)
    check_count("max_jobs", max_jobs, high=MAX_NAMED)
    open_apps: dict[tuple[str, str | int], list[TraceJob]] = {}
    apps: list[list[TraceJob]] = []
    for job in sorted(jobs, key=_SUBMIT):
        _, submit, _, gpus, owner, app, _ = job
        key = (owner, gpus if app is None else app)
        current = open_apps.get(key)
        if current is not None:
            room = len(current) < (max_jobs if app is None else MAX_NAMED)
            if room and (app is not None or submit - current[-1].submit <= burst_gap):
                current.append(job)
                continue
        open_apps[key] = current = [job]
        apps.append(current)
    return [TraceApp(tuple(each)) for each in apps]


def burst_sizes(jobs: Iterable[TraceJob], gap: float = BURST_GAP) -> list[int]:
    """How many jobs each burst has, of any length, whether or not the trace names apps."""
    latest: dict[tuple[str, int], tuple[float, int]] = {}
    sizes: list[int] = []
    for job in sorted(jobs, key=_SUBMIT):
        before, index = latest.get((job.owner, job.gpus), (float("-inf"), -1))
        if job.submit - before > gap:
            index = len(sizes)
            sizes.append(0)
        sizes[index] += 1
        latest[job.owner, job.gpus] = job.submit, index
    return sizes
