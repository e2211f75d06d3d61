"""What an app's table says about any set of GPUs: the arbiter's cached view of its value.

A table gives seconds still needed for counts of GPUs in gangs at a level. GPUs an app really
holds rarely match a row, so they are first sorted into gangs as its jobs would use them.

    table = Valuation(bid.table, work_left=3600.0)
    table.seconds(seats, gang=4, gangs=2, work_left=1800.0)   # half the work, half the time
"""

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from themis.model import LEVELS, Seat, TableRow


def gang_counts(seats: Sequence[Seat], gang: int, gangs: int) -> tuple[int, int, int, int]:
    """How many of these GPUs fit into at most `gangs` gangs that are no worse than each level."""
    if gang == 1 or len(seats) <= 1:
        usable = min(len(seats), gangs * gang)
        return (usable, usable, usable, usable)
    slots: dict[int, int] = {}
    machines: dict[int, int] = {}
    racks: dict[int, int] = {}
    for rack, machine, slot, _ in seats:
        slots[slot] = slots.get(slot, 0) + 1
        machines[machine] = machines.get(machine, 0) + 1
        racks[rack] = racks.get(rack, 0) + 1
    return (
        _in_groups(slots.values(), gang, gangs),
        _in_groups(machines.values(), gang, gangs),
        _in_groups(racks.values(), gang, gangs),
        min(len(seats), gangs * gang),
    )


def _in_groups(sizes: Iterable[int], gang: int, gangs: int) -> int:
    whole = 0
    rests: list[int] = []
    for size in sizes:
        whole += size // gang
        rests.append(size % gang)
    if whole >= gangs:
        return gangs * gang
    rests.sort(reverse=True)
    return whole * gang + sum(rests[: gangs - whole])


@dataclass(frozen=True)
class Valuation:
    """A table as given, and the work that was left when it was given."""

    table: tuple[TableRow, ...]
    work_left: float

    @cached_property
    def _by_level(self) -> tuple[tuple[list[int], list[float]], ...]:
        """Per level, rows of that or a worse level: rising counts with their best seconds.

        Never more seconds for more GPUs: an app may leave some of them unused.
        """
        rows: list[list[TableRow]] = [[] for _ in LEVELS]
        for row in self.table:
            rows[row.level].append(row)
        columns: list[tuple[list[int], list[float]]] = []
        best: dict[int, float] = {}
        for level in reversed(LEVELS):
            for row in rows[level]:
                if row.seconds < best.get(row.count, math.inf):
                    best[row.count] = row.seconds
            counts = sorted(best)
            fewest = itertools.accumulate([best[count] for count in counts], min)
            columns.append((counts, list(fewest)))
        return tuple(reversed(columns))

    def lookup(self, level: int, count: int) -> float:
        """Seconds of the best row with no more GPUs at the same or a worse level."""
        counts, seconds = self._by_level[level]
        index = bisect.bisect_right(counts, count) - 1
        return seconds[index] if index >= 0 else math.inf

    def seconds(self, seats: Sequence[Seat], *, gang: int, gangs: int, work_left: float) -> float:
        """Seconds still needed with these GPUs, rebased on the work that is left now.

        Infinite when they are too few for any row. A worse level with more GPUs may be slower
        than a better one with fewer: the app uses the subset that is fastest.
        """
        if not seats:
            return math.inf
        counts = gang_counts(seats, gang, gangs)
        best = min(self.lookup(level, counts[level]) for level in LEVELS)
        return best * self._rebase(work_left)

    def seconds_at(self, level: int, count: int, *, work_left: float) -> float:
        """Seconds still needed with so many GPUs in gangs at a level, rebased likewise."""
        return self.lookup(level, count) * self._rebase(work_left)

    def _rebase(self, work_left: float) -> float:
        return work_left / self.work_left if self.work_left > 0 else 1.0
