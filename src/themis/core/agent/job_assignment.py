"""Which job runs on which of the app's GPUs.

plan = assign(jobs, seats, running)
plan[JobId("j0")]      # (GpuId(4), GpuId(5))
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from themis.core.agent.carving import Carving, Gang, Shape, carve, seats_of_shape
from themis.core.agent.unequal_gangs import WORTH_MOVING, widened, with_longest
from themis.core.fairness.best_placement import best_rate
from themis.core.model import LEVELS, GpuId, GpuPosition, JobId, JobSpec, Slowdown, level_of
from themis.core.model.values import value


class JobNeed(NamedTuple):
    """A job with work to do."""

    spec: JobSpec
    work: float
    """Serial seconds to its target."""


Placement = dict[JobId, tuple[GpuId, ...]]


def assign(
    needs: Sequence[JobNeed],
    seats: Sequence[GpuPosition],
    running: Mapping[JobId, tuple[GpuId, ...]],
    *,
    restart: float = 0.0,
    sticky: bool = True,
    uneven: bool = False,
    giving_way: bool = False,
) -> Placement:
    """Place jobs on GPUs: gangs stay local, running jobs stay put unless moving pays.

    Args:
        needs: Jobs with work left; those that get no GPU wait.
        seats: All GPUs the app may use.
        running: Where jobs run now.
        restart: Seconds a moved job loses.
        sticky: Whether running jobs are left alone where that is no worse.
        uneven: Whether the jobs that end last may have wider gangs than the others.
        giving_way: Whether a running job may have to wait for a longer one.
    """
    placement, kept = _assigned(needs, seats, running, restart=restart, sticky=sticky)
    if giving_way:
        placement = with_longest(longest_first(needs), placement, kept, restart)
    if uneven:
        placement = widened(longest_first(needs), seats, placement, kept, restart)
    return _named(placement)


def _assigned(
    needs: Sequence[JobNeed],
    seats: Sequence[GpuPosition],
    running: Mapping[JobId, tuple[GpuId, ...]],
    *,
    restart: float,
    sticky: bool,
) -> tuple[dict[JobId, Gang], dict[JobId, Gang]]:
    """Gangs of one size, and those of running jobs that could stay."""
    order = longest_first(needs)
    here = {seat.gpu: seat for seat in seats}
    kept = _still_standing(order, here, running)
    if not sticky or not kept:
        fresh = _fresh(order, seats, kept, restart)
        return _filled(order, seats, fresh.placement, restart), kept
    stay = _around(order, seats, kept, restart)
    mean = sum(need.work for need in order) / len(order)
    least = _least_makespan(_jobs_alike(order), len(order), len(seats))
    if least * mean + restart >= stay.makespan * mean * WORTH_MOVING:
        return _filled(order, seats, stay.placement, restart), kept
    fresh = _fresh(order, seats, kept, restart)
    moved = sum(1 for job, gpus in kept.items() if fresh.placement.get(job) != gpus)
    after = fresh.makespan * mean + (restart if moved else 0.0)
    best = fresh if after < stay.makespan * mean * WORTH_MOVING else stay
    return _filled(order, seats, best.placement, restart), kept


@lru_cache(maxsize=1024)
def top_rate(slowdown: Slowdown, most: int) -> float:
    """The best that one job can do with at most this many GPUs, wherever they are."""
    return max(slowdown.rate(level, count) for count in range(1, most + 1) for level in LEVELS)


def _jobs_alike(order: Sequence[JobNeed]) -> tuple[Slowdown, int, int]:
    """What `_carve` takes all jobs to be like."""
    return (
        order[0].spec.slowdown,
        min(need.spec.min_gpus for need in order),
        max(need.spec.max_gpus for need in order),
    )


@lru_cache(maxsize=65536)
def _least_makespan(alike: tuple[Slowdown, int, int], jobs: int, seats: int) -> float:
    """A bound on what any carving can reach: gangs of one size, all of them at their best."""
    slowdown, low, high = alike
    return min(
        math.ceil(jobs / math.ceil(seats / size)) / top_rate(slowdown, size)
        for size in range(low, max(low, min(high, seats)) + 1)
    )


def longest_first(needs: Sequence[JobNeed]) -> list[JobNeed]:
    """The order in which jobs are served."""
    return sorted(needs, key=lambda need: (-need.work, need.spec.id))


@lru_cache(maxsize=16384)
def placed_rates(
    jobs: tuple[JobSpec, ...], shape: Shape
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Rates of jobs, the longest first, where `assign` puts them on a shape; and of each alone.

    For jobs that differ: `shape_rates` gives the sums for those that are alike much sooner.
    Remembered, since without running jobs a placement depends on their order only.
    """
    seats = seats_of_shape(shape)
    # Copies of a job in a phase to come share its name, and names must not change the order.
    named = [replace(job, id=JobId(str(number))) for number, job in enumerate(jobs)]
    needs = [JobNeed(job, float(len(named) - number)) for number, job in enumerate(named)]
    placement = assign(needs, seats, {})
    rates = []
    for job in named:
        gang = [seats[gpu] for gpu in placement.get(job.id, ())]
        rates.append(job.slowdown.rate(level_of(gang), len(gang)))
    alone = (_rate_alone(job.slowdown, job.min_gpus, job.max_gpus, shape) for job in named)
    return tuple(rates), tuple(alone)


@lru_cache(maxsize=16384)
def _rate_alone(slowdown: Slowdown, low: int, high: int, shape: Shape) -> float:
    return best_rate(slowdown, low, high, seats_of_shape(shape))[0]


def _filled(
    order: Sequence[JobNeed],
    seats: Sequence[GpuPosition],
    placement: dict[JobId, Gang],
    restart: float,
) -> dict[JobId, Gang]:
    """Unlike jobs leave parts of gangs unused: those that wait may use them."""
    while len(placement) < len(order) and sum(map(len, placement.values())) < len(seats):
        more = _around(order, seats, placement, restart).placement
        if len(more) == len(placement):
            break
        placement = more
    return placement


@value
class _Option:
    placement: dict[JobId, Gang]
    makespan: float


def _named(placement: Mapping[JobId, Gang]) -> Placement:
    return {job: tuple(sorted(seat.gpu for seat in gang)) for job, gang in placement.items()}


def _still_standing(
    order: Sequence[JobNeed],
    here: Mapping[GpuId, GpuPosition],
    running: Mapping[JobId, tuple[GpuId, ...]],
) -> dict[JobId, Gang]:
    """Running jobs that lost none of their GPUs."""
    kept: dict[JobId, Gang] = {}
    for need in order:
        gpus = running.get(need.spec.id, ())
        if gpus and all(gpu in here for gpu in gpus):
            kept[need.spec.id] = tuple(sorted(here[gpu] for gpu in gpus))
    return kept


def _around(
    order: Sequence[JobNeed], seats: Sequence[GpuPosition], kept: dict[JobId, Gang], restart: float
) -> _Option:
    """Leave running jobs alone and give the rest of the GPUs to those that wait."""
    taken = {seat for gang in kept.values() for seat in gang}
    waiting = [need for need in order if need.spec.id not in kept]
    rates = tuple(
        need.spec.slowdown.rate(level_of(kept[need.spec.id]), len(kept[need.spec.id]))
        for need in order
        if need.spec.id in kept
    )
    free = [seat for seat in seats if seat not in taken]
    carving = _carve(waiting or order, free, rates, jobs=len(waiting), restart=restart)
    placement = {**kept, **_match(waiting, carving, {})}
    return _Option(placement, carving.makespan)


def _fresh(
    order: Sequence[JobNeed], seats: Sequence[GpuPosition], kept: dict[JobId, Gang], restart: float
) -> _Option:
    """Carve everything anew; a gang that is where a job runs already stays that job's."""
    if not order:
        return _Option({}, 0.0)
    carving = _carve(order, seats, (), jobs=len(order), restart=restart)
    return _Option(_match(order, carving, kept), carving.makespan)


def _carve(
    needs: Sequence[JobNeed],
    seats: Sequence[GpuPosition],
    fixed: tuple[float, ...],
    *,
    jobs: int,
    restart: float,
) -> Carving:
    # Jobs of an app are alike as a rule; where they differ the longest one decides the shape.
    slowdown, low, high = _jobs_alike(needs)
    return carve(
        seats,
        jobs=jobs,
        min_gpus=low,
        max_gpus=high,
        slowdown=slowdown,
        fixed=fixed,
        start=restart * len(needs) / sum(need.work for need in needs),
    )


def _match(
    needs: Sequence[JobNeed], carving: Carving, kept: Mapping[JobId, Gang]
) -> dict[JobId, Gang]:
    """Gangs to jobs: identical ones first, then the longest job to the fastest gang."""
    placement: dict[JobId, Gang] = {}
    owner = {gang: job for job, gang in kept.items()}
    free: list[Gang] = []
    for gang in carving.gangs:
        if gang in owner:
            placement[owner[gang]] = gang
        else:
            free.append(gang)
    for need in needs:
        if need.spec.id in placement:
            continue
        for index, gang in enumerate(free):
            if len(gang) >= need.spec.min_gpus:
                placement[need.spec.id] = gang[: need.spec.max_gpus]
                del free[index]
                break
    return placement
