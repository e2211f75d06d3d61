"""How good an auction can get at best, from prices on what is scarce.

Some counts limit every allocation: GPUs in all, quotas, and for a size k the number of k-wide
pieces that slots, machines or racks can be cut into. A chunk of s GPUs uses floor(s / k) such
pieces, and floors add up safely, so each count is a valid constraint. With a price on each, what
is left of every app's best row gives an upper bound, whatever the prices; subgradient steps make
it tight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from themis.core.auction.solvers.prepared import Option, PreparedProblem
from themis.core.model import CLUSTER, MACHINE, RACK, SLOT

MAX_PIECE_COUNTS = 10
"""More kinds of pieces than this cost more time than their bound saves."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Capacities, and what each option takes of them, as prepared.options is laid out."""

    capacity: tuple[int, ...]
    usage: tuple[tuple[tuple[int, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices and the bound they prove."""

    prices: tuple[float, ...]
    bound: float


def count_scarce(prepared: PreparedProblem) -> Counts:
    """The counting constraints worth a price in this problem."""
    total = sum(offered.gpus for offered in prepared.machines)
    pieces = _piece_counts(prepared, total)
    shared = _contested_machines(prepared)
    free = {offered.machine: offered.gpus for offered in prepared.machines}
    capacity = [total, *(cap.gpus for cap in prepared.caps)]
    capacity += [room for _, _, room in pieces]
    capacity += [free[machine] for machine in shared]

    def use(option: Option) -> tuple[int, ...]:
        quotas = [option.gpus if option.bidder in cap.bidders else 0 for cap in prepared.caps]
        cuts = [
            sum(chunk.count // k for chunk in option.chunks if chunk.level <= level)
            for level, k, _ in pieces
        ]
        pinned: dict[int | None, int] = {}
        for chunk in option.chunks:
            pinned[chunk.machine] = pinned.get(chunk.machine, 0) + chunk.count
        return (option.gpus, *quotas, *cuts, *(pinned.get(m, 0) for m in shared))

    usage = tuple(tuple(use(option) for option in options) for options in prepared.options)
    return Counts(tuple(capacity), usage)


def _piece_counts(prepared: PreparedProblem, total: int) -> list[tuple[int, int, int]]:
    """(level, k, pieces) where cutting wastes GPUs; without waste the sum of GPUs says it all."""
    sizes: dict[tuple[int, int], None] = {}
    for options in prepared.options:
        for option in options:
            for chunk in option.chunks:
                if chunk.count > 1 and chunk.level < CLUSTER:
                    sizes.update(((level, chunk.count), None) for level in (0, 1, 2)[chunk.level :])
    racks: dict[int, int] = {}
    for offered in prepared.machines:
        racks[offered.rack] = racks.get(offered.rack, 0) + offered.gpus
    holes = {
        SLOT: [size for offered in prepared.machines for size in offered.slots],
        MACHINE: [offered.gpus for offered in prepared.machines],
        RACK: list(racks.values()),
    }
    counted = [(level, k, sum(hole // k for hole in holes[level])) for level, k in sorted(sizes)]
    wasteful = [item for item in counted if item[1] * item[2] < total]
    wasteful.sort(key=lambda item: (item[1] * item[2], item))
    return wasteful[:MAX_PIECE_COUNTS]


def _contested_machines(prepared: PreparedProblem) -> list[int]:
    """Machines that more than one bidder is pinned to."""
    pinned: dict[int, set[int]] = {}
    for options in prepared.options:
        for option in options:
            for chunk in option.chunks:
                if chunk.machine is not None:
                    pinned.setdefault(chunk.machine, set()).add(option.bidder)
    return sorted(machine for machine, bidders in pinned.items() if len(bidders) > 1)


def price(
    prepared: PreparedProblem,
    counts: Counts,
    bidders: Sequence[int],
    floor: float,
    start: Prices | None = None,
    steps: int = 40,
) -> Prices:
    """Prices that prove a low bound for these bidders; stops early once it meets `floor`."""
    capacity = counts.capacity
    rows = [
        [(o.gain, u) for o, u in zip(prepared.options[i], counts.usage[i], strict=True)]
        for i in bidders
    ]
    prices = list(start.prices) if start else _first_prices(rows, capacity)
    best: Prices | None = None
    pace = 1.0
    for _ in range(steps):
        bound, spare = _evaluate(rows, capacity, prices)
        if best is None or bound < best.bound:
            best = Prices(tuple(prices), bound)
        else:
            pace *= 0.8
        # Only a direction that prices can follow counts: they never fall below zero.
        length = sum(s * s for s, p in zip(spare, prices, strict=True) if s < 0 or p > 0)
        if best.bound <= floor or not length:
            break
        step = pace * (bound - floor) / length
        prices = [max(0.0, p - step * s) for p, s in zip(prices, spare, strict=True)]
    assert best is not None
    return best


def bound_without(
    prepared: PreparedProblem, counts: Counts, found: Prices
) -> Callable[[int], float]:
    """The bound for all bidders but one, at the same prices and at almost no cost.

    Only what the one that stays away would have chosen is gone.
    """

    def without(bidder: int) -> float:
        options = zip(prepared.options[bidder], counts.usage[bidder], strict=True)
        hopes = (
            option.gain - sum(p * used for p, used in zip(found.prices, usage, strict=True))
            for option, usage in options
        )
        return found.bound - max(0.0, max(hopes, default=0.0))

    return without


def _first_prices(
    rows: Sequence[Sequence[tuple[float, tuple[int, ...]]]], capacity: Sequence[int]
) -> list[float]:
    hopes = sum(options[0][0] for options in rows if options)
    return [hopes / (2 * max(1, capacity[0])), *(0.0 for _ in capacity[1:])]


def _evaluate(
    rows: Sequence[Sequence[tuple[float, tuple[int, ...]]]],
    capacity: Sequence[int],
    prices: Sequence[float],
) -> tuple[float, list[int]]:
    """The bound these prices prove, and what the apps' favourite rows leave of each count."""
    spare = list(capacity)
    active = [k for k, p in enumerate(prices) if p > 0]
    bound = sum(prices[k] * capacity[k] for k in active)
    for options in rows:
        most = 0.0
        favourite: tuple[int, ...] | None = None
        for gain, usage in options:
            if gain <= most:
                break  # options come in falling order of gain, and prices are never negative
            left = gain
            for k in active:
                left -= prices[k] * usage[k]
            if left > most:
                most = left
                favourite = usage
        bound += most
        if favourite is not None:
            for k, used in enumerate(favourite):
                spare[k] -= used
    return bound, spare
