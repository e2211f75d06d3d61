"""Gangs for jobs of different lengths: the longest have the widest, and do not wait.

placement = widened(order, seats, placement, kept, restart)

`carve` takes the jobs of an app to be equally long and cuts gangs of one size. Where they are not,
it leaves GPUs over while the longest job runs on as few as the shortest, and a phase takes longer
than its bid said: bids take GPUs to pass from job to job without loss.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from themis.core.agent.carving import Gang, carve
from themis.core.model import SLOT, GpuPosition, JobId, JobSpec, Slowdown, level_of

WORTH_MOVING = 0.98
"""Moving running jobs must save at least this much time, restarts included."""

WORTH_HAVING = 0.5
"""A GPU that is added must be worth at least so much of one: another app may use it better."""

Work = tuple[JobSpec, float]
"""A job, and serial seconds to its target."""


def widened(
    order: Sequence[Work],
    seats: Sequence[GpuPosition],
    placement: Mapping[JobId, Gang],
    running: Mapping[JobId, Gang],
    restart: float,
) -> dict[JobId, Gang]:
    """The placement, or a better one with gangs of different widths.

    What counts is when the last job ends: as long as another ends as late, none is widened.

    Args:
        order: Jobs and their work, the longest first.
        seats: All GPUs of the app.
        placement: Gangs of one size, or those that jobs run on.
        running: Where jobs run that could stay there.
        restart: Seconds that a job loses which does not stay.
    """
    if not placement or len({job.max_gpus for job, _ in order}) > 1:
        return dict(placement)
    best, soonest = dict(placement), _end(order, placement, running, restart)
    spare = len(seats) - sum(map(len, placement.values()))
    starts = [placement] if spare > 0 and len(placement) == len(order) else []
    sizes, least = _sizes(order, len(seats))
    if sizes and least < soonest * WORTH_MOVING:
        anew = _by_size(order, sizes, seats, running)
        starts += [anew] if anew is not None else []
    for start in starts:
        other = _with_spare(order, seats, start, running, restart)
        end = _end(order, other, running, restart)
        # Some restarts take longer than most: they must pay twice.
        moved = any(other.get(job) != gang for job, gang in running.items())
        if end + (restart if moved else 0.0) < soonest * WORTH_MOVING:
            best, soonest = other, end
    return best


def with_longest(
    order: Sequence[Work],
    placement: Mapping[JobId, Gang],
    running: Mapping[JobId, Gang],
    restart: float,
) -> dict[JobId, Gang]:
    """The placement, or a better one in which longer jobs run and shorter ones wait.

    Bids take the longest job to run all the time, and ask for no more GPUs than that takes: who
    leaves it waiting is later than they said (decision 0051). For jobs of the same widths only.
    Arguments as for `widened`.
    """
    result = dict(placement)
    if not result or len({(job.min_gpus, job.max_gpus) for job, _ in order}) > 1:
        return result
    soonest = _end(order, result, running, restart)
    while len(result) < len(order):
        longest, most = next((job, work) for job, work in order if job.id not in result)
        _, first, least = min(
            (work / _rate(job, result[job.id]), job.id, work)
            for job, work in order
            if job.id in result
        )
        other = {job: gang for job, gang in result.items() if job != first}
        other[longest.id] = result[first]
        end = _end(order, other, running, restart)
        # As below. What ends sooner each time comes to an end itself.
        if most <= least or end + restart >= soonest * WORTH_MOVING:
            break
        result, soonest = other, end
    return result


def _end(
    order: Sequence[Work],
    placement: Mapping[JobId, Gang],
    running: Mapping[JobId, Gang],
    restart: float,
) -> float:
    """When the last job ends; those that wait begin on the first gang that is done."""
    ends, waiting = [], []
    for job, work in order:
        gang = placement.get(job.id)
        if gang is None:
            waiting.append(work)
            continue
        rate = _rate(job, gang)
        ends.append((work / rate + (0.0 if running.get(job.id) == gang else restart), rate))
    heapq.heapify(ends)
    for work in waiting:
        end, rate = ends[0]
        heapq.heapreplace(ends, (end + restart + work / rate, rate))
    return max(ends)[0]


def _rate(job: JobSpec, gang: Gang) -> float:
    return job.slowdown.rate(level_of(gang), len(gang))


def _with_spare(
    order: Sequence[Work],
    seats: Sequence[GpuPosition],
    placement: Mapping[JobId, Gang],
    running: Mapping[JobId, Gang],
    restart: float,
) -> dict[JobId, Gang]:
    """GPUs that no job uses, added to the gangs of those that end last."""
    spare = len(seats) - sum(map(len, placement.values()))
    if spare <= 0 or len(placement) < len(order):
        return dict(placement)
    result, best = dict(placement), dict(placement)
    used = {seat for gang in placement.values() for seat in gang}
    free = [seat for seat in seats if seat not in used]
    ends = [(-work / _rate(job, result[job.id]), n) for n, (job, work) in enumerate(order)]
    heapq.heapify(ends)
    soonest = -ends[0][0]
    while free:
        last, number = ends[0]
        job, work = order[number]
        gang = _wider(job, result[job.id], free)
        end = work / _rate(job, gang) + (restart if job.id in running else 0.0)
        if end >= -last * WORTH_MOVING:
            break  # And then it does not matter when the others end.
        free = [seat for seat in free if seat not in gang]
        result[job.id] = gang
        heapq.heapreplace(ends, (-end, number))
        if -ends[0][0] < soonest * WORTH_MOVING:
            # Not before all that would end last have become faster.
            soonest, best = -ends[0][0], dict(result)
    return best


def _wider(job: JobSpec, gang: Gang, free: Sequence[GpuPosition]) -> Gang:
    """The gang with the fewest of the nearest GPUs that are worth it; itself if none are."""
    near = sorted(free, key=lambda seat: (level_of((*gang, seat)), seat))
    for count in range(1, min(job.max_gpus - len(gang), len(near)) + 1):
        wider = tuple(sorted((*gang, *near[:count])))
        if _rate(job, wider) - _rate(job, gang) >= WORTH_HAVING * count:
            return wider
    return gang


def _by_size(
    order: Sequence[Work],
    sizes: Sequence[int],
    seats: Sequence[GpuPosition],
    running: Mapping[JobId, Gang],
) -> dict[JobId, Gang] | None:
    """All jobs at once, cut anew where they do not run on just as many; the widest gangs first.

    None if gangs would be so far apart that it is a waste.
    """
    result: dict[JobId, Gang] = {}
    for (job, _), size in zip(order, sizes, strict=True):
        if len(running.get(job.id, ())) == size:
            result[job.id] = running[job.id]
    used = {seat for gang in result.values() for seat in gang}
    left = [seat for seat in seats if seat not in used]
    wanted = [
        (job, size)
        for (job, _), size in zip(order, sizes, strict=True)
        if job.id not in result
    ]  # fmt: skip
    for size, count in sorted(Counter(size for _, size in wanted).items(), reverse=True):
        jobs = [job for job, mine in wanted if mine == size]
        gangs = carve(
            left, jobs=count, min_gpus=size, max_gpus=size, slowdown=jobs[0].slowdown
        ).gangs
        if len(gangs) < count or _rate(jobs[0], gangs[-1]) < 1.0 + WORTH_HAVING * (size - 1):
            return None
        result.update({job.id: gang for job, gang in zip(jobs, gangs, strict=True)})
        used = {seat for gang in gangs for seat in gang}
        left = [seat for seat in left if seat not in used]
    return result


def _sizes(order: Sequence[Work], gpus: int) -> tuple[list[int], float]:
    """How wide each job is, if all gangs were as close together as can be; none if it is too many.

    And when the last of them would end at the least, whatever gangs they have: who ends last is
    widened first, so that another would end later yet. Zero where measurements may say otherwise.
    """
    sizes = [job.min_gpus for job, _ in order]
    spare = gpus - sum(sizes)
    if spare < 0:
        return [], 0.0

    def end(number: int) -> float:
        job, work = order[number]
        return work / job.slowdown.rate(SLOT, sizes[number])

    ends = [(-end(number), number) for number in range(len(order))]
    heapq.heapify(ends)
    soonest, best = -ends[0][0], list(sizes)
    while spare > 0:
        _, number = ends[0]
        if sizes[number] >= order[number][0].max_gpus:
            break
        sizes[number] += 1
        spare -= 1
        heapq.heapreplace(ends, (-end(number), number))
        if -ends[0][0] < soonest * WORTH_MOVING:
            soonest, best = -ends[0][0], list(sizes)
    plain = all(_gains_by_width(job.slowdown) for job, _ in order)
    return best, -ends[0][0] if plain else 0.0


@lru_cache(maxsize=1024)
def _gains_by_width(slowdown: Slowdown) -> bool:
    """Whether a wider or a closer gang is never slower."""
    levels = slowdown.levels
    return not slowdown.measured and list(levels) == sorted(levels) and levels[SLOT] <= 2.0
