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
from functools import cached_property, lru_cache

from themis.core.model import LEVELS, GpuId, GpuPosition, RowTable, TableRow

MOST_REMEMBERED = 4096
"""Sets of GPUs whose worth by one table is remembered."""


def gang_counts(seats: Sequence[GpuPosition], gang: int, gangs: int) -> tuple[int, int, int, int]:
    """How many of these GPUs fit into at most `gangs` gangs that are no worse than each level."""
    if gang == 1 or len(seats) <= 1:
        usable = min(len(seats), gangs * gang)
        return (usable, usable, usable, usable)
    return _gang_counts(tuple(seats), gang, gangs)


@lru_cache(maxsize=2048)
def _gang_counts(
    seats: tuple[GpuPosition, ...], gang: int, gangs: int
) -> tuple[int, int, int, int]:
    # Apps keep their GPUs for many rounds.
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

    table: Sequence[TableRow]
    work_left: float

    @cached_property
    def _columns(self) -> tuple[tuple[list[int], list[float]], ...]:
        """Per level its rising counts with their best seconds.

        Never more seconds for more GPUs: an app may leave some of them unused.
        """
        table = RowTable.of(self.table)
        seconds = table.seconds
        return tuple(
            [
                (counts, list(itertools.accumulate(pick(seconds), min)) if counts else [])
                for counts, pick in table.shape.columns
            ]
        )

    @cached_property
    def _looked_up(self) -> dict[tuple[int, int], float]:
        """What `lookup` found, by level and count."""
        return {}

    @cached_property
    def _found_on(self) -> dict[tuple[tuple[GpuId, ...], int, int], float]:
        """What `seconds_on` found before it was rebased, by GPUs, gang and gangs."""
        return {}

    def lookup(self, level: int, count: int) -> float:
        """Seconds of the best row with no more GPUs at the same or a worse level."""
        known = self._looked_up
        found = known.get((level, count))
        if found is None:
            found = self._best([count if apart >= level else 0 for apart in LEVELS])
            known[level, count] = found
        return found

    def _best(self, most: Sequence[int]) -> float:
        """Seconds of the best row with no more GPUs than are given for its level."""
        best = math.inf
        for (counts, seconds), count in zip(self._columns, most, strict=True):
            index = bisect.bisect_right(counts, count)
            if index and seconds[index - 1] < best:
                best = seconds[index - 1]
        return best

    def seconds(
        self, seats: Sequence[GpuPosition], *, gang: int, gangs: int, work_left: float
    ) -> float:
        """Seconds still needed with these GPUs, rebased on the work that is left now.

        Infinite when they are too few for any row. A worse level with more GPUs may be slower
        than a better one with fewer: the app uses the subset that is fastest.
        """
        if not seats:
            return math.inf
        return self._unbased(seats, gang, gangs) * self._rebase(work_left)

    def _unbased(self, seats: Sequence[GpuPosition], gang: int, gangs: int) -> float:
        # What is close together will also do as GPUs that are farther apart.
        return self._best(list(itertools.accumulate(gang_counts(seats, gang, gangs), max)))

    def seconds_on(
        self,
        gpus: tuple[GpuId, ...],
        seats: Sequence[GpuPosition],
        *,
        gang: int,
        gangs: int,
        work_left: float,
    ) -> float:
        """The same for GPUs by their ids, of a cluster with these seats.

        A table holds for a whole phase, and round after round the same sets of GPUs are weighed:
        they are remembered. GPUs never move, so that ids stand for seats.
        """
        known, key = self._found_on, (gpus, gang, gangs)
        found = known.get(key)
        if found is None:
            if len(known) >= MOST_REMEMBERED:
                known.clear()
            here = [seats[gpu] for gpu in gpus]
            found = known[key] = self._unbased(here, gang, gangs)
        return found * self._rebase(work_left)

    def seconds_at(self, level: int, count: int, *, work_left: float) -> float:
        """Seconds still needed with this many GPUs in gangs at a level, rebased likewise."""
        return self.lookup(level, count) * self._rebase(work_left)

    def _rebase(self, work_left: float) -> float:
        return work_left / self.work_left if self.work_left > 0 else 1.0
