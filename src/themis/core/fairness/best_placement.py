"""The fastest way for one job to use some of the GPUs it was given.

rate, gang = best_rate(job.slowdown, job.min_gpus, job.max_gpus, seats)
"""

import math
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from themis.core.model import LEVELS, SLOT, GpuPosition, Slowdown

# What the seats of a group at each level have in common: slot, machine, rack. At cluster level
# all seats are one group.
_SHARED: tuple[Callable[[GpuPosition], int], ...] = (
    attrgetter("slot"),
    attrgetter("machine"),
    attrgetter("rack"),
)


def best_rate(
    slowdown: Slowdown, min_gpus: int, max_gpus: int, seats: Sequence[GpuPosition]
) -> tuple[float, tuple[GpuPosition, ...]]:
    """The best |g| / S(g) over subsets of the seats that the job can run on, and that subset.

    The result is the exact maximum, also for measured slowdowns that are below one or that make
    a wider spread faster: S depends only on (level, count), so it is enough to know which pairs
    some subset has. Ties go to the more local, then the smaller, then the lowest GPU ids. Below
    the gang it is 0.0 and nothing.
    """
    widest = min(max_gpus, len(seats))
    # Unmeasured slowdowns are at least one, so once every GPU counts in full nothing is better.
    ceiling = math.inf if slowdown.measured else float(widest)
    best, gang_level, gang_size = 0.0, SLOT, 0
    for level in LEVELS if widest >= min_gpus else ():
        if best >= ceiling:
            break
        largest = max(map(len, _groups(seats, level)), default=0)
        for size in _sizes(slowdown, level, min_gpus, min(widest, largest)):
            rate = slowdown.rate(level, size)
            if rate > best:
                best, gang_level, gang_size = rate, level, size
    return best, _lowest_gang(seats, gang_level, gang_size)


def _groups(seats: Sequence[GpuPosition], level: int) -> list[list[GpuPosition]]:
    """The groups whose seats, taken together, are exactly this far apart.

    Such a group has subsets of every size from two up that are just as far apart: one seat from
    each of two of its parts, and any others.
    """
    if level == SLOT:
        return _split(seats, _SHARED[SLOT])
    part = _SHARED[level - 1]
    wholes = _split(seats, _SHARED[level]) if level < len(_SHARED) else [list(seats)]
    return [group for group in wholes if any(part(seat) != part(group[0]) for seat in group)]


def _split(
    seats: Iterable[GpuPosition], key: Callable[[GpuPosition], int]
) -> list[list[GpuPosition]]:
    groups: dict[int, list[GpuPosition]] = {}
    for seat in seats:
        groups.setdefault(key(seat), []).append(seat)
    return list(groups.values())


def _sizes(slowdown: Slowdown, level: int, low: int, high: int) -> Iterable[int]:
    low = low if level == SLOT else max(low, 2)
    if slowdown.measured or high <= low:
        return range(low, high + 1)
    # Without measurements S is constant within a level, except that a single GPU has none.
    return (low, high)


def _lowest_gang(seats: Sequence[GpuPosition], level: int, size: int) -> tuple[GpuPosition, ...]:
    if size == 0:
        return ()
    gangs = (
        _lowest_in(sorted(group, key=attrgetter("gpu")), level, size)
        for group in _groups(seats, level)
        if len(group) >= size
    )
    return min(gangs, key=lambda gang: [seat.gpu for seat in gang])


def _lowest_in(group: Sequence[GpuPosition], level: int, size: int) -> tuple[GpuPosition, ...]:
    gang = group[:size]
    if level > SLOT:
        part = _SHARED[level - 1]
        if all(part(seat) == part(gang[0]) for seat in gang):
            # Too close together for the level that was found best: reach into the next part.
            other = next(seat for seat in group if part(seat) != part(gang[0]))
            gang = [*gang[:-1], other]
    return tuple(gang)
