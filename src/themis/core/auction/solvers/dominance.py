"""Rows that cannot matter, taken out before the solver begins."""

import math
from collections.abc import Mapping, Sequence

from themis.core.auction.problem import Candidate, normal
from themis.core.model import CLUSTER, MACHINE, SLOT, Chunk

PAIRWISE_LIMIT = 400
"""Longer tables lose only their duplicates: comparing pairs would cost more than it saves."""


Counts = tuple[tuple[tuple[int, int, int], int], ...]
"""Normal chunks and how many there are of each: ((level, -GPUs, machine or -1), count), sorted."""


def counted(chunks: tuple[Chunk, ...]) -> tuple[tuple[Chunk, ...], int, Counts]:
    """The same chunks in normal form, how many GPUs they are, and how many there are of each."""
    if not chunks:
        return chunks, 0, ()
    first, many = chunks[0], len(chunks)
    # Most rows of large auctions are one chunk, or the same one several times.
    if many == 1 or (chunks[-1] is first and chunks.count(first) == many):
        chunk = normal(first)
        pin = -1 if chunk.machine is None else chunk.machine
        name = (((chunk.level, -chunk.count, pin), many),)
        return chunks if chunk is first else (chunk,) * many, chunk.count * many, name
    gpus = 0
    changed = False
    counts: dict[tuple[int, int, int], int] = {}
    # What `normal` does, spelled out: this is most of what it takes to prepare an auction.
    for chunk in chunks:
        level, count, machine = chunk.level, chunk.count, chunk.machine
        gpus += count
        if count == 1:
            if level != SLOT:
                level = SLOT
                changed = True
        elif machine is not None and level > MACHINE:
            level = MACHINE
            changed = True
        key = (level, -count, -1 if machine is None else machine)
        counts[key] = counts.get(key, 0) + 1
    return (
        tuple(map(normal, chunks)) if changed else chunks,
        gpus,
        tuple(sorted(counts.items())) if len(counts) > 1 else tuple(counts.items()),
    )


class RowShape:
    """What a row asks for, in normal chunks; how it compares with others, worked out once."""

    __slots__ = ("_sorted", "bulk", "chunks", "gpus", "looseness", "name", "pins")

    def __init__(self, chunks: tuple[Chunk, ...]) -> None:
        self.chunks, self.gpus, self.name = counted(chunks)
        looseness = 0
        totals = [0, 0, 0, 0]
        pins: list[int] = []
        for (level, negative, machine), count in self.name:
            if machine < 0:
                looseness += (level + 1) * count
            else:
                looseness += level * count
                pins.append(machine)
            if negative < -1:
                totals[level] -= negative * count
        self.looseness = looseness
        self.pins = frozenset(pins)
        # GPUs in chunks of more than one, no wider than a slot, a machine, a rack. They must find
        # room in chunks at least as close: a quick test that spares most fitting.
        self.bulk = (totals[0], totals[0] + totals[1], totals[0] + totals[1] + totals[2])
        self._sorted: tuple[Chunk, ...] | None = None

    @property
    def sorted(self) -> tuple[Chunk, ...]:
        """The chunks, closest and largest first."""
        if self._sorted is None:
            self._sorted = tuple(sorted(self.chunks, key=_order))
        return self._sorted


def useful_shapes(rows: Sequence[Candidate], rho_nothing: float) -> list[tuple[int, RowShape]]:
    """The indices of the rows that can matter, in order, with what they ask for.

    A row is left out only if another one of the same app is at least as good and fits wherever it
    fits, so no solution of the auction, with or without some app, loses value.
    """
    nothing = math.log(rho_nothing)
    # A gain lost in rounding is no gain: solvers would see a tie with nothing.
    better = [
        (row.rho, i, RowShape(row.chunks))
        for i, row in enumerate(rows)
        if nothing - math.log(row.rho) > 0.0
    ]
    # Among equals the least demanding first, so that it is there to beat the others.
    better.sort(key=lambda one: (one[0], one[2].gpus, -one[2].looseness, one[1]))
    kept: list[tuple[int, RowShape]] = []
    # By the machines that rows are pinned to: rows elsewhere cannot fit inside.
    rivals: dict[frozenset[int], list[RowShape]] = {}
    seen: set[Counts] = set()
    pairwise = len(better) <= PAIRWISE_LIMIT
    for _, i, shape in better:
        if shape.name in seen:
            continue
        if pairwise and _is_beaten(shape, rivals):
            continue
        seen.add(shape.name)
        kept.append((i, shape))
        rivals.setdefault(shape.pins, []).append(shape)
    kept.sort(key=lambda one: one[0])
    return kept


def _is_beaten(shape: RowShape, rivals: Mapping[frozenset[int], Sequence[RowShape]]) -> bool:
    gpus, pins = shape.gpus, shape.pins
    slots, machines, racks = shape.bulk
    for where, others in rivals.items():
        if where <= pins:
            for other in others:
                mine = other.bulk
                if (
                    other.gpus <= gpus
                    and mine[0] <= slots
                    and mine[1] <= machines
                    and mine[2] <= racks
                    and _fits_inside(other.sorted, shape.sorted)
                ):
                    return True
    return False


def _order(chunk: Chunk) -> tuple[int, int, int]:
    return (chunk.level, -chunk.count, -1 if chunk.machine is None else chunk.machine)


def _fits_inside(small: tuple[Chunk, ...], big: tuple[Chunk, ...]) -> bool:
    """Whether GPUs that satisfy `big` always contain GPUs that satisfy `small`.

    First fit, so it may miss a way to fit; it never invents one.
    """
    room = [chunk.count for chunk in big]
    if sum(chunk.count for chunk in small) > sum(room):
        return False
    for chunk in small:
        if chunk.level == CLUSTER or (chunk.count == 1 and chunk.machine is None):
            continue  # taken from whatever the others leave, and the sum was checked
        for index, container in enumerate(big):
            if room[index] >= chunk.count and _within(container, chunk):
                room[index] -= chunk.count
                break
        else:
            return False
    return True


def _within(container: Chunk, chunk: Chunk) -> bool:
    if chunk.machine is not None and container.machine != chunk.machine:
        return False
    # A single GPU stands in one slot whatever its container allows.
    return container.level <= chunk.level or chunk.count == 1


def can_stand_in(chunks: Sequence[Chunk], place: Sequence[Chunk]) -> bool:
    """Whether normal chunks fit wherever these others do; False proves nothing."""
    return _fits_inside(tuple(sorted(chunks, key=_order)), tuple(sorted(place, key=_order)))
