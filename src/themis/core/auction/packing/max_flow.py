"""Demands that only need sums: a small maximum flow from machines to chunks."""

from themis.core.auction.packing.free_gpus import shares


def transport(
    ends: dict[int, list[int]], amounts: dict[int, int], free: list[int]
) -> dict[int, dict[int, int]] | None:
    """Fill each demand from the machines it may use, few of them where possible.

    Returns GPUs per demand and machine, or None when they do not suffice. `free` is used up.
    """
    given: dict[int, dict[int, int]] = {index: {} for index in ends}
    for index, amount in amounts.items():
        direct = min(amount, sum(free[m] for m in ends[index]))
        for machine, part in shares(free, ends[index], direct):
            free[machine] -= part
            given[index][machine] = part
        left = amount - direct
        while left:
            moved = _reroute(index, left, ends, given, free)
            if not moved:
                return None
            left -= moved
    return {
        index: {machine: part for machine, part in parts.items() if part}
        for index, parts in given.items()
    }


def _reroute(
    start: int,
    wanted: int,
    ends: dict[int, list[int]],
    given: dict[int, dict[int, int]],
    free: list[int],
) -> int:
    """One augmenting path: others move to free machines so that `start` gets some of theirs."""
    came: dict[int, tuple[int, int]] = {}  # machine -> (demand that wants it, machine it leaves)
    queue = [(start, -1)]
    visited = {start}
    for demand, left in queue:  # grows while it is walked: breadth first
        for machine in ends[demand]:
            if machine in came:
                continue
            came[machine] = (demand, left)
            if free[machine] > 0:
                return _shift(machine, wanted, came, given, free)
            for other, parts in given.items():
                if other not in visited and parts.get(machine, 0) > 0:
                    visited.add(other)
                    queue.append((other, machine))
    return 0


def _shift(
    end: int,
    wanted: int,
    came: dict[int, tuple[int, int]],
    given: dict[int, dict[int, int]],
    free: list[int],
) -> int:
    path: list[tuple[int, int, int]] = []
    machine = end
    amount = min(wanted, free[end])
    while machine >= 0:
        demand, left = came[machine]
        path.append((demand, machine, left))
        if left >= 0:
            amount = min(amount, given[demand][left])
        machine = left
    free[end] -= amount
    for demand, machine, left in path:
        given[demand][machine] = given[demand].get(machine, 0) + amount
        if left >= 0:
            given[demand][left] -= amount
    return amount
