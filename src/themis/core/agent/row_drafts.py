"""Rows of a bid before they are valued: what they ask for, and on what shape the app would run.

drafts = [Draft(0, pinned, chunks_of(MACHINE, 4, 8), 12, MACHINE, held.runs(MACHINE, 4, 8), 35.0)]
best_rows(drafts, clock.seconds_on([draft.runs for draft in drafts]))
"""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from themis.core.agent.training_rates import Runs
from themis.core.auction.problem import MAX_ROWS
from themis.core.auction.row_cap import thinned
from themis.core.model import CLUSTER, MACHINE, SLOT, Chunk, GpuPosition, Row, level_of


class Draft(NamedTuple):
    """One row to be."""

    group: int
    """The same for drafts with the same pins, which are slow to compare."""
    pinned: tuple[Chunk, ...]
    extra: tuple[Chunk, ...]
    gpus: int
    """Of all its chunks."""
    level: int
    """How far apart the extra gangs are at worst."""
    runs: Runs
    """What the app has with it."""
    delay: float
    """Seconds lost to restarts."""


class HeldGpus:
    """GPUs that an app has in any case, to which others are added."""

    def __init__(self, chunks: Iterable[tuple[int, int]]) -> None:
        self._singles = 0
        gangs: dict[tuple[int, int], int] = {}
        self.gpus = 0
        for level, count in chunks:
            self.gpus += count
            if count == 1 or level == CLUSTER:
                self._singles += count
            else:
                gangs[level, count] = gangs.get((level, count), 0) + 1
        self._runs: Runs = tuple((level, n, many) for (level, n), many in sorted(gangs.items()))

    def runs(self, level: int = SLOT, size: int = 1, count: int = 0) -> Runs:
        """The shape with this many more in gangs of a size at a level.

        In one spelling, with single GPUs as one chunk that may be spread anywhere.
        """
        if size == 1 or level == CLUSTER:
            singles = self._singles + count
            return (*self._runs, (CLUSTER, singles, 1)) if singles else self._runs
        whole, rest = divmod(count, size)
        singles = self._singles
        gangs = {(level, size): whole} if whole else {}
        if rest > 1:
            gangs[level, rest] = 1
        else:
            singles += rest
        runs = [
            (apart, width, many + gangs.pop((apart, width), 0)) for apart, width, many in self._runs
        ]
        runs += [(level, width, many) for (level, width), many in gangs.items()]
        if len(runs) > 1:
            runs.sort()
        if singles:
            runs.append((CLUSTER, singles, 1))
        return tuple(runs)


@lru_cache(maxsize=4096)
def chunks_of(level: int, size: int, count: int) -> tuple[Chunk, ...]:
    """This many GPUs as gangs of a size at a level."""
    if size == 1:
        # Any this many GPUs will do: one chunk, which solvers like better than many.
        return (Chunk(CLUSTER if count > 1 else SLOT, count),)
    whole, rest = divmod(count, size)
    chunks = [Chunk(level, size)] * whole
    if rest:
        chunks.append(Chunk(level if rest > 1 else SLOT, rest))
    return tuple(chunks)


def by_machine(pins: Iterable[Chunk]) -> list[Chunk]:
    """Pinned single GPUs, those of a machine together."""
    counts: dict[int | None, int] = {}
    for chunk in pins:
        counts[chunk.machine] = counts.get(chunk.machine, 0) + chunk.count
    return [
        Chunk(MACHINE if count > 1 else SLOT, count, machine) for machine, count in counts.items()
    ]


def pins_of(seats: Sequence[GpuPosition]) -> tuple[Chunk, ...]:
    """One running gang as chunks on the machines where it is."""
    by_machine: dict[int, list[GpuPosition]] = {}
    for seat in seats:
        by_machine.setdefault(seat.machine, []).append(seat)
    return tuple(
        Chunk(min(level_of(group), MACHINE), len(group), machine)
        for machine, group in sorted(by_machine.items())
    )


def best_rows(drafts: Sequence[Draft], values: Sequence[float]) -> tuple[Row, ...]:
    """The rows with their seconds, without those that another one with the same pins beats.

    Which has no more GPUs, is no closer together and no slower.
    """
    rows = []
    for draft, value in zip(drafts, values, strict=True):
        seconds = value + draft.delay
        if seconds < math.inf:
            rows.append((draft.gpus, -draft.level, seconds, draft))
    # Fewer GPUs first, and among equals the least demanding level first: none before is larger.
    rows.sort(key=itemgetter(0, 1, 2))
    # For every level the least seconds of the rows so far that are no more demanding.
    least: dict[int, list[float]] = {}
    kept: list[Row] = []
    for _, _, seconds, draft in rows:
        best = least.get(draft.group)
        if best is None:
            best = least[draft.group] = [math.inf] * (CLUSTER + 1)
        if best[draft.level] > seconds:
            for level in range(draft.level + 1):
                best[level] = min(best[level], seconds)
            kept.append(Row(draft.pinned + draft.extra, seconds))
    return thinned(kept, MAX_ROWS)
