"""GPUs that no job would use, to the jobs that would end last.

placement = widened(order, seats, placement, kept, restart)

`carve` takes the jobs of an app to be equally long and cuts gangs of one size. Where they are not,
it leaves GPUs over while the longest job runs on as few as the shortest, and a phase takes longer
than its bid said: bids take GPUs to pass from job to job without loss.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence

from themis.agent.carving import Gang, carve
from themis.model import SLOT, JobId, JobSpec, Seat, level_of

WORTH_MOVING = 0.98
"""Moving running jobs must save at least this much time, restarts included."""

WORTH_HAVING = 0.5
"""A GPU that is added must be worth at least so much of one: another app may use it better."""


def widened(
    order: Sequence[tuple[JobSpec, float]],
    seats: Sequence[Seat],
    placement: Mapping[JobId, Gang],
    kept: Mapping[JobId, Gang],
    restart: float,
) -> dict[JobId, Gang]:
    """Give the GPUs that are left to the jobs that end last, as long as the last one ends sooner.

    Args:
        order: Jobs and their work, the longest first.
        seats: All GPUs of the app.
        placement: Where its jobs are to run; nothing changes while one of them waits.
        kept: Those of them that run there already.
        restart: Seconds that such a job loses if it is widened.
    """
    spare = len(seats) - sum(map(len, placement.values()))
    if spare <= 0 or len(placement) < len(order):
        return dict(placement)
    best = _in_place(order, seats, placement, kept, restart)
    if not kept:
        sized = _by_size(order, seats, placement, spare)
        if sized is not None and _end(order, sized) <= _end(order, best):
            return sized
    return best


def _end(order: Sequence[tuple[JobSpec, float]], placement: Mapping[JobId, Gang]) -> float:
    return max(_seconds(job, work, placement[job.id]) for job, work in order)


def _seconds(job: JobSpec, work: float, gang: Gang) -> float:
    return work / _rate(job, gang)


def _rate(job: JobSpec, gang: Gang) -> float:
    return job.slowdown.rate(level_of(gang), len(gang))


def _in_place(
    order: Sequence[tuple[JobSpec, float]],
    seats: Sequence[Seat],
    placement: Mapping[JobId, Gang],
    kept: Mapping[JobId, Gang],
    restart: float,
) -> dict[JobId, Gang]:
    """Add to gangs where they are."""
    result, best = dict(placement), dict(placement)
    used = {seat for gang in placement.values() for seat in gang}
    free = [seat for seat in seats if seat not in used]
    ends = [(-_seconds(job, work, result[job.id]), n) for n, (job, work) in enumerate(order)]
    heapq.heapify(ends)
    soonest = -ends[0][0]
    while free:
        last, number = ends[0]
        job, work = order[number]
        gang = _wider(job, result[job.id], free)
        end = _seconds(job, work, gang) + (restart if job.id in kept else 0.0)
        if end >= -last * WORTH_MOVING:
            break  # And then it does not matter when the others end.
        free = [seat for seat in free if seat not in gang]
        result[job.id] = gang
        heapq.heapreplace(ends, (-end, number))
        if -ends[0][0] < soonest * WORTH_MOVING:
            # Not before all that would end last have become faster.
            soonest, best = -ends[0][0], dict(result)
    return best


def _wider(job: JobSpec, gang: Gang, free: Sequence[Seat]) -> Gang:
    """The gang with the fewest of the nearest GPUs that are worth it; itself if none are."""
    near = sorted(free, key=lambda seat: (level_of((*gang, seat)), seat))
    for count in range(1, min(job.max_gpus - len(gang), len(near)) + 1):
        wider = tuple(sorted((*gang, *near[:count])))
        if _worth_having(job, gang, wider):
            return wider
    return gang


def _worth_having(job: JobSpec, gang: Gang, wider: Gang) -> bool:
    gain = _rate(job, wider) - _rate(job, gang)
    return gain >= WORTH_HAVING * (len(wider) - len(gang))


def _by_size(
    order: Sequence[tuple[JobSpec, float]],
    seats: Sequence[Seat],
    placement: Mapping[JobId, Gang],
    spare: int,
) -> dict[JobId, Gang] | None:
    """Cut anew, the widest gangs first, so that each is close together; None if that fails."""
    sizes = _sizes(order, placement, spare)
    left, result = list(seats), {}
    for size, count in sorted(Counter(sizes).items(), reverse=True):
        carving = carve(
            left, jobs=count, min_gpus=size, max_gpus=size, slowdown=order[0][0].slowdown
        )
        jobs = [job for (job, _), mine in zip(order, sizes, strict=True) if mine == size]
        if len(carving.gangs) < count:
            return None
        result.update({job.id: gang for job, gang in zip(jobs, carving.gangs, strict=True)})
        used = {seat for gang in carving.gangs for seat in gang}
        left = [seat for seat in left if seat not in used]
    worth = (_worth_having(job, placement[job.id], result[job.id]) for job, _ in order)
    return result if all(worth) else None


def _sizes(
    order: Sequence[tuple[JobSpec, float]], placement: Mapping[JobId, Gang], spare: int
) -> list[int]:
    """How wide each job is, if all gangs were as close together as can be."""
    sizes = [len(placement[job.id]) for job, _ in order]

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
    return best
