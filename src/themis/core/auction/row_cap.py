"""Fewer rows of a bid, where all of them would be too many to look at in time.

thinned(bid.rows, 32)
fair_rows([9, 9, 400], in_all=100)      # 82: who has fewer keeps them all
"""

from collections.abc import Sequence

from themis.core.model import Row

ROWS_IN_ALL = 32_768
"""Of all bidders, which is what a solver gets through within a live round."""
FEWEST_ROWS = 32
"""Which every bidder may have: powers of two of GPUs at every level."""


def fair_rows(counts: Sequence[int], in_all: int = ROWS_IN_ALL, least: int = FEWEST_ROWS) -> int:
    """How many rows each bidder may have at most: as many as possible, the same for all.

    Who writes thousands of rows takes nothing from those who write few.
    """
    left, limit = in_all, max(counts, default=0)
    rising = sorted(counts)
    for number, count in enumerate(rising):
        share = left // (len(rising) - number)
        if count > share:
            limit = share
            break
        left -= count
    return max(least, limit)


def thinned(rows: Sequence[Row], most: int) -> tuple[Row, ...]:
    """At most this many rows, in the order they had: of every number of GPUs the quickest first."""
    if len(rows) <= most:
        return tuple(rows)
    by_gpus: dict[int, list[int]] = {}
    for number in sorted(range(len(rows)), key=lambda number: rows[number].seconds):
        by_gpus.setdefault(rows[number].gpus, []).append(number)
    counts = sorted(by_gpus)
    kept: list[int] = []
    rank = 0
    while len(kept) < most:
        level = [by_gpus[gpus][rank] for gpus in counts if rank < len(by_gpus[gpus])]
        room = most - len(kept)
        if len(level) > room:  # Evenly spread, from the fewest GPUs to the most.
            last, steps = len(level) - 1, max(1, room - 1)
            level = [level[number * last // steps] for number in range(room)]
        kept += level
        rank += 1
    return tuple([rows[number] for number in sorted(kept)])
