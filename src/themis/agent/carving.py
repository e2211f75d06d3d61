"""Cutting the GPUs of an app into gangs for its jobs.

Used for bidding and after the award alike: a bid promises what this code will do.

    gangs = carve(seats, jobs=5, min_gpus=1, max_gpus=4, slowdown=vgg)
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from themis.model import CLUSTER, LEVELS, MACHINE, RACK, SLOT, GpuId, Seat, Slowdown, level_of

Gang = tuple[Seat, ...]

_KEYS: dict[int, Callable[[Seat], int]] = {
    SLOT: lambda seat: seat.slot,
    MACHINE: lambda seat: seat.machine,
    RACK: lambda seat: seat.rack,
    CLUSTER: lambda _: 0,
}


@dataclass(frozen=True, slots=True)
class Carving:
    """Gangs, the fastest first, with their rates; and how long one unit of work each takes."""

    gangs: tuple[Gang, ...]
    rates: tuple[float, ...]
    makespan: float


def carve(
    seats: Sequence[Seat],
    *,
    jobs: int,
    min_gpus: int,
    max_gpus: int,
    slowdown: Slowdown,
    fixed: tuple[float, ...] = (),
) -> Carving:
    """Cut seats into gangs so that this many equal jobs end soonest.

    Larger gangs make fewer waves, smaller ones lose less to distance: every size is tried, and for
    each how far apart a gang may be. `fixed` are rates of jobs that run already and count.
    """
    best = Carving((), (), _makespan(fixed, jobs + len(fixed)))
    if len(seats) < min_gpus or jobs < 1:
        return best
    for size in _sizes(len(seats), jobs, min_gpus, max_gpus):
        for top in LEVELS if size > 1 else (SLOT,):
            candidate = _cut(seats, size, top, jobs, min_gpus, slowdown, fixed)
            if candidate.makespan < best.makespan * (1.0 - 1e-9):
                best = candidate
    return best


def _sizes(seats: int, jobs: int, low: int, high: int) -> list[int]:
    """Gang sizes worth trying, the largest first, so that ties keep fewer, wider gangs."""
    high = min(high, seats)
    if jobs * high <= seats or high <= low:
        return [high]
    if high <= 8:
        return list(range(high, low - 1, -1))
    sizes = {high, max(low, seats // jobs), low}
    size = high
    while size > low:
        sizes.add(size)
        size = max(low, size // 2)
    return sorted(sizes, reverse=True)


def _cut(
    seats: Sequence[Seat],
    size: int,
    top: int,
    jobs: int,
    min_gpus: int,
    slowdown: Slowdown,
    fixed: tuple[float, ...],
) -> Carving:
    """Gangs of one size, as local as they come and no wider than `top`; then what is left over."""
    free = sorted(seats)
    gangs: list[Gang] = []
    for level in range(top + 1):
        whole, free = _from_groups(free, size, level)
        gangs.extend(whole)
    gangs.extend(rest for rest in _groups(free, top) if len(rest) >= min_gpus)
    rated = sorted(((slowdown.rate(level_of(gang), len(gang)), gang) for gang in gangs), key=_order)
    rated = rated[:jobs]
    rates = tuple(rate for rate, _ in rated)
    return Carving(
        tuple(gang for _, gang in rated), rates, _makespan((*fixed, *rates), jobs + len(fixed))
    )


def _order(rated: tuple[float, Gang]) -> tuple[float, Gang]:
    return (-rated[0], rated[1])


def _groups(seats: Sequence[Seat], level: int) -> list[Gang]:
    groups: dict[int, list[Seat]] = {}
    key = _KEYS[level]
    for seat in seats:
        groups.setdefault(key(seat), []).append(seat)
    return [tuple(group) for group in groups.values()]


def _from_groups(seats: Sequence[Seat], size: int, level: int) -> tuple[list[Gang], list[Seat]]:
    gangs: list[Gang] = []
    left: list[Seat] = []
    for group in _groups(seats, level):
        whole = len(group) // size * size
        gangs.extend(group[start : start + size] for start in range(0, whole, size))
        left.extend(group[whole:])
    return gangs, left


def _makespan(rates: Iterable[float], jobs: int) -> float:
    """When the last of so many jobs of one unit of work ends, each on the first gang free."""
    gangs = Counter(rates)
    if not gangs:
        return math.inf
    # Gangs of one rate finish together, so they are followed as one.
    ends = [(1.0 / rate, 1.0 / rate, many) for rate, many in gangs.items()]
    heapq.heapify(ends)
    last = 0.0
    while jobs > 0:
        last, step, many = heapq.heappop(ends)
        jobs -= many
        heapq.heappush(ends, (last + step, step, many))
    return last


Shape = tuple[tuple[int, int], ...]
"""GPUs as (level, count) chunks: within a chunk they are that far apart, chunks are farther."""


@lru_cache(maxsize=65536)
def shape_rates(
    shape: Shape, jobs: int, min_gpus: int, max_gpus: int, slowdown: Slowdown
) -> tuple[float, float]:
    """The sum of rates that `carve` gives on a shape, and the best rate of one job alone."""
    chunks = Counter(shape)
    together = _best_cut(chunks, jobs, min_gpus, max_gpus, slowdown)
    speed = sum(rate * many for rate, many in together)
    if jobs == 1:
        return speed, speed
    alone = _best_cut(chunks, 1, min_gpus, max_gpus, slowdown)
    return speed, max((rate for rate, _ in (*alone, *together)), default=0.0)


_Rated = list[tuple[float, int]]
"""Rates and how many gangs have each, the fastest first."""


def _best_cut(
    chunks: Mapping[tuple[int, int], int], jobs: int, low: int, high: int, slowdown: Slowdown
) -> _Rated:
    """`carve` on chunks, counting gangs that are alike instead of making them."""
    total = sum(count * many for (_, count), many in chunks.items())
    if total < low:
        return []
    best: tuple[float, _Rated] = (math.inf, [])
    for size in _sizes(total, jobs, low, high):
        for top in LEVELS if size > 1 else (SLOT,):
            rated = _count_gangs(chunks, size, top, jobs, low, slowdown)
            span = _makespan((rate for rate, many in rated for _ in range(many)), jobs)
            if span < best[0] * (1.0 - 1e-9):
                best = (span, rated)
    return best[1]


def _count_gangs(
    chunks: Mapping[tuple[int, int], int],
    size: int,
    top: int,
    jobs: int,
    min_gpus: int,
    slowdown: Slowdown,
) -> _Rated:
    gangs: Counter[tuple[int, int]] = Counter()
    scattered = 0
    for (level, count), many in chunks.items():
        inside = SLOT if count == 1 else level
        if size == 1:
            gangs[SLOT, 1] += count * many
        elif inside <= top:
            gangs[inside, size] += count // size * many
            if top < CLUSTER and count % size:
                gangs[inside, count % size] += many
            elif top == CLUSTER:
                scattered += count % size * many
        else:
            gangs[SLOT, 1] += count * many
    gangs[CLUSTER, size] += scattered // size
    if scattered % size:
        gangs[CLUSTER, scattered % size] += 1
    rated = sorted(
        (
            (slowdown.rate(level, count), many)
            for (level, count), many in gangs.items()
            if many and count >= min_gpus
        ),
        reverse=True,
    )
    return _first(rated, jobs)


def _first(rated: _Rated, jobs: int) -> _Rated:
    kept: _Rated = []
    for rate, many in rated:
        if jobs <= 0:
            break
        kept.append((rate, min(many, jobs)))
        jobs -= many
    return kept


def seats_of(shape: Shape) -> list[Seat]:
    """Made-up seats as far apart as each chunk says at worst."""
    seats: list[Seat] = []
    for number, (level, count) in enumerate(shape):
        first = (number + 1) * 1_000_000
        for index in range(count):
            spread = first + index
            seats.append(
                Seat(
                    rack=spread if level == CLUSTER else first,
                    machine=spread if level >= RACK else first,
                    slot=spread if level >= MACHINE else first,
                    gpu=GpuId(spread),
                )
            )
    return seats
