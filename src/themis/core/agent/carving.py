"""Cutting the GPUs of an app into gangs for its jobs.

Used for bidding and after the award alike: a bid promises what this code will do.

    carving = carve(seats, jobs=5, min_gpus=1, max_gpus=4, slowdown=vgg)
    carving.gangs[0], carving.rates[0]

Which gangs are best depends only on how many GPUs are where. So the choice is made on counts, and
remembered; only the chosen gangs are really made.
"""

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter

from themis.core.model import (
    CLUSTER,
    LEVELS,
    MACHINE,
    RACK,
    SLOT,
    GpuId,
    GpuPosition,
    Slowdown,
    level_of,
)
from themis.core.model.values import value

Gang = tuple[GpuPosition, ...]

Rack = tuple[tuple[int, ...], ...]
"""GPUs per slot, per machine of one rack."""

Racks = tuple[tuple[Rack, int], ...]
"""Racks and how many there are of each."""

Shape = tuple[tuple[int, int], ...]
"""GPUs as (level, count) chunks: within a chunk they are that far apart, chunks are farther."""

Rated = tuple[tuple[float, int], ...]
"""Rates and how many gangs have each, the fastest first."""

Counted = tuple[tuple[tuple[int, int], int], ...]
"""Gangs as (level, GPUs), and how many there are of each."""

_KEYS: dict[int, Callable[[GpuPosition], int]] = {
    SLOT: attrgetter("slot"),
    MACHINE: attrgetter("machine"),
    RACK: attrgetter("rack"),
}


@value
class Carving:
    """Gangs, the fastest first, with their rates; and how long one unit of work each takes."""

    gangs: tuple[Gang, ...]
    rates: tuple[float, ...]
    makespan: float


@value
class _Cut:
    """A way to cut: gangs of one size, no farther apart than `top`; and what it comes to."""

    size: int
    top: int
    rated: Rated
    makespan: float


def carve(
    seats: Sequence[GpuPosition],
    *,
    jobs: int,
    min_gpus: int,
    max_gpus: int,
    slowdown: Slowdown,
    fixed: tuple[float, ...] = (),
    start: float = 0.0,
) -> Carving:
    """Cut seats into gangs so that this many equal jobs end soonest.

    Larger gangs make fewer waves, smaller ones lose less to distance: every size is tried, and for
    each how far apart a gang may be. `fixed` are rates of jobs that run already and count. `start`
    is how long a job takes to start, over how long it would then train on one GPU: where that is
    much, narrow gangs win, on which more jobs start at once.
    """
    # Where no app waits, it does not matter where they are.
    racks, running = _racks_of(seats) if jobs > 0 else (), tuple(sorted(fixed))
    cut = _best_cut(racks, jobs, min_gpus, max_gpus, slowdown, running, _rounded(start))
    if cut.size == 0:
        return Carving((), (), cut.makespan)
    gangs = _gangs(seats, cut, min_gpus)
    rated = sorted((-slowdown.rate(level_of(gang), len(gang)), gang) for gang in gangs)[:jobs]
    rates = tuple(-rate for rate, _ in rated)
    span = _makespan(Counter((*fixed, *rates)).items(), jobs + len(fixed))
    return Carving(tuple(gang for _, gang in rated), rates, span)


@lru_cache(maxsize=65536)
def shape_rates(
    shape: Shape, jobs: int, min_gpus: int, max_gpus: int, slowdown: Slowdown
) -> tuple[float, float]:
    """The sum of rates that the carving gives on a shape, and the best rate of one job alone."""
    racks = _racks_of_shape(shape)
    together = _best_cut(racks, jobs, min_gpus, max_gpus, slowdown, ()).rated
    speed = sum(rate * many for rate, many in together)
    if jobs == 1:
        return speed, speed
    alone = _best_cut(racks, 1, min_gpus, max_gpus, slowdown, ()).rated
    return speed, max((rate for rate, _ in (*alone, *together)), default=0.0)


# Counting


def _racks_of(seats: Iterable[GpuPosition]) -> Racks:
    tree: dict[int, dict[int, list[int]]] = {}
    for (rack, machine, _), count in Counter([seat[:3] for seat in seats]).items():
        tree.setdefault(rack, {}).setdefault(machine, []).append(count)
    racks = Counter(
        tuple(sorted([tuple(sorted(slots)) for slots in machines.values()]))
        for machines in tree.values()
    )
    return tuple(sorted(racks.items()))


def _racks_of_shape(shape: Shape) -> Racks:
    racks: Counter[Rack] = Counter()
    for level, count in shape:
        if level == SLOT:
            racks[((count,),)] += 1
        elif level == MACHINE:
            racks[((1,) * count,)] += 1
        elif level == RACK:
            racks[((1,),) * count] += 1
        else:
            racks[((1,),)] += count
    return tuple(sorted(racks.items()))


def seats_of_shape(shape: Shape) -> tuple[GpuPosition, ...]:
    """Made-up seats that are as far apart as a shape says, numbered from 0."""
    seats: list[GpuPosition] = []
    for level, count in shape:
        first = len(seats)
        # What a chunk shares is numbered by its first GPU, everything else by each GPU.
        seats += [
            GpuPosition(
                rack=first if level < CLUSTER else number,
                machine=first if level < RACK else number,
                slot=first if level < MACHINE else number,
                gpu=GpuId(number),
            )
            for number in range(first, first + count)
        ]
    return tuple(seats)


@lru_cache(maxsize=65536)
def _best_cut(
    racks: Racks,
    jobs: int,
    low: int,
    high: int,
    slowdown: Slowdown,
    fixed: tuple[float, ...],
    start: float = 0.0,
) -> _Cut:
    total = sum(sum(map(sum, rack)) * many for rack, many in racks)
    if total < low or jobs < 1:
        return _Cut(0, SLOT, (), _makespan(Counter(fixed).items(), jobs + len(fixed)))
    # Any gang is better than none, also where it saves no whole wave: jobs are not quite equal.
    best = _Cut(0, SLOT, (), math.inf)
    running = tuple(Counter(fixed).items())
    for size in gang_sizes(total, jobs, low, high, measured=bool(slowdown.measured)):
        for top in LEVELS if size > 1 else (SLOT,):
            rated = _rated(_count(racks, size, top), jobs, low, slowdown)
            span = _makespan((*running, *rated), jobs + len(fixed), start)
            if span < best.makespan * (1.0 - 1e-9):
                best = _Cut(size, top, rated, span)
    return best


def gang_sizes(seats: int, jobs: int, low: int, high: int, *, measured: bool) -> list[int]:
    """Gang sizes worth trying, the largest first, so that ties keep fewer, wider gangs.

    By a prior the widest gang is the fastest within a level. Measured slowdowns may say otherwise.
    """
    high = min(high, seats)
    if high <= low or (jobs * high <= seats and not measured):
        return [high]
    if high <= 8:
        return list(range(high, low - 1, -1))
    sizes = {high, max(low, seats // jobs), low}
    size = high
    while size > low:
        sizes.add(size)
        size = max(low, size // 2)
    return sorted(sizes, reverse=True)


@lru_cache(maxsize=16384)
def _count(racks: Racks, size: int, top: int) -> Counted:
    """How many gangs of each (level, GPUs) there are, cut as `_gangs` does.

    What is left of several groups counts as far apart as `top`, though it may be closer by luck.
    Remembered, since it is the same for any number of jobs.
    """
    gangs: dict[tuple[int, int], int] = {}
    scattered = 0
    for rack, many in racks:
        in_rack: list[int] = []
        for machine in rack:
            in_machine = [_split(gangs, SLOT, [count], size, many) for count in machine]
            if top == SLOT:
                _leave(gangs, SLOT, in_machine, many)
            else:
                in_rack.append(_split(gangs, MACHINE, in_machine, size, many))
        if top == MACHINE:
            _leave(gangs, MACHINE, in_rack, many)
        elif top >= RACK:
            rest = _split(gangs, RACK, in_rack, size, many)
            if top == RACK:
                _leave(gangs, RACK, [rest], many)
            else:
                scattered += rest * many
    if top == CLUSTER:
        _leave(gangs, CLUSTER, [_split(gangs, CLUSTER, [scattered], size, 1)], 1)
    return tuple(gangs.items())


def _split(
    gangs: dict[tuple[int, int], int], level: int, parts: Sequence[int], size: int, many: int
) -> int:
    """Count the whole gangs in these parts together; returns what is left."""
    whole, rest = divmod(sum(parts), size)
    if whole:
        gangs[level, size] = gangs.get((level, size), 0) + whole * many
    return rest


def _leave(gangs: dict[tuple[int, int], int], level: int, rests: Iterable[int], many: int) -> None:
    """Count what is left as gangs of their own."""
    for rest in rests:
        if rest:
            kind = (level if rest > 1 else SLOT, rest)
            gangs[kind] = gangs.get(kind, 0) + many


def _rated(gangs: Counted, jobs: int, low: int, slowdown: Slowdown) -> Rated:
    rated = sorted(
        [(slowdown.rate(level, count), many) for (level, count), many in gangs if count >= low],
        reverse=True,
    )
    kept: list[tuple[float, int]] = []
    for rate, many in rated:
        if jobs <= 0:
            break
        kept.append((rate, min(many, jobs)))
        jobs -= many
    return tuple(kept)


def _rounded(start: float) -> float:
    """Starts as coarse as decides between gangs, so that what is found can be remembered."""
    if start < 1.0 / 32.0:
        return 0.0
    return float(2.0 ** (round(2.0 * math.log2(min(start, 1024.0))) / 2.0))


def _makespan(rated: Iterable[tuple[float, int]], jobs: int, start: float = 0.0) -> float:
    """When the last of this many jobs of one unit of work ends, each on the first gang free."""
    # Gangs of one rate finish together, so they are followed as one.
    ends = [(start + 1.0 / rate, start + 1.0 / rate, many) for rate, many in rated]
    if not ends:
        return math.inf
    heapq.heapify(ends)
    last = 0.0
    while jobs > 0:
        last, step, many = ends[0]
        jobs -= many
        heapq.heapreplace(ends, (last + step, step, many))
    return last


# Making


def _gangs(seats: Sequence[GpuPosition], cut: _Cut, min_gpus: int) -> list[Gang]:
    """Gangs of one size, as local as they come; then what is left over."""
    free = sorted(seats)
    gangs: list[Gang] = []
    for level in range(cut.top + 1):
        whole, free = _from_groups(free, cut.size, level)
        gangs.extend(whole)
    gangs.extend(rest for rest in _groups(free, cut.top) if len(rest) >= min_gpus)
    return gangs


def _groups(seats: Sequence[GpuPosition], level: int) -> list[Gang]:
    """Sorted seats by what they share at a level."""
    if level == CLUSTER:
        return [tuple(seats)] if seats else []
    return [tuple(group) for _, group in itertools.groupby(seats, _KEYS[level])]


def _from_groups(
    seats: Sequence[GpuPosition], size: int, level: int
) -> tuple[list[Gang], list[GpuPosition]]:
    gangs: list[Gang] = []
    left: list[GpuPosition] = []
    for group in _groups(seats, level):
        whole = len(group) // size * size
        gangs.extend(group[start : start + size] for start in range(0, whole, size))
        left.extend(group[whole:])
    return gangs, left
