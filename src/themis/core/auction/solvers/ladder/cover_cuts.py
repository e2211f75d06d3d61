"""Limits that come from rows being won whole or not at all.

Half of a row that takes four of six holes is no bargain, though the linear program thinks so. If
the rows of some bidders take more of a resource than there is, not all of them can win theirs, nor
rows that take as much: that is a limit of its own (a cover), and the program can be given it.
"""

import numpy as np

from themis.core.auction.solvers.ladder.resource_table import Real, ResourceTable, Whole

LARGEST = 64
"""Of resources with more units than this, single rows take too little for such limits to matter."""

VIOLATED = 0.02
"""How much of a row a limit must cut off to be worth having."""


def covers(table: ResourceTable, taken: Real, prices: Real) -> list[tuple[Whole, int]]:
    """Limits that what the program took breaks: what each row takes, and what there is."""
    found: list[tuple[Whole, int]] = []
    some = np.flatnonzero(taken > 1e-9)
    if not ((taken[some] > 1e-7) & (taken[some] < 1.0 - 1e-7)).any():
        return found
    owner = table.owner
    dear = np.flatnonzero((prices[: len(table.capacity)] > 0.0) & (table.capacity <= LARGEST))
    for resource in dear.tolist():
        limit = _cover(table, owner, taken, some, resource)
        if limit is not None:
            found.append(limit)
    return found


def _cover(
    table: ResourceTable, owner: Whole, taken: Real, some: Whole, resource: int
) -> tuple[Whole, int] | None:
    usage, capacity = table.usage[:, resource], int(table.capacity[resource])
    using = some[usage[some] > 0]
    # Per bidder the least it takes, and how much of its rows that take as much is in the answer.
    least: dict[int, int] = {}
    for row in using.tolist():
        bidder = int(owner[row])
        least[bidder] = min(least.get(bidder, capacity + 1), int(usage[row]))
    share = dict.fromkeys(least, 0.0)
    for row in using.tolist():
        share[int(owner[row])] += float(taken[row])
    order = sorted(least, key=lambda b: ((1.0 - share[b]) / least[b], b))
    cover: list[int] = []
    total = 0
    for bidder in order:
        cover.append(bidder)
        total += least[bidder]
        if total > capacity:
            break
    if total <= capacity:
        return None
    # Whoever is not needed for the excess only weakens the limit.
    for bidder in sorted(cover, key=lambda b: (share[b], b)):
        if total - least[bidder] > capacity:
            cover.remove(bidder)
            total -= least[bidder]
    if sum(share[b] for b in cover) <= len(cover) - 1 + VIOLATED:
        return None
    need = np.full(len(table.first) - 1, max(least[b] for b in cover), dtype=np.int64)
    for bidder in cover:
        need[bidder] = least[bidder]
    return (usage >= need[owner]).astype(np.int64), len(cover) - 1
