"""Rows that cannot matter, taken out before anybody solves anything."""

import math
from collections.abc import Iterable, Sequence

from themis.auction.problem import Candidate, normal
from themis.model import CLUSTER, Chunk

PAIRWISE_LIMIT = 400
"""Longer tables lose only their duplicates: comparing pairs would cost more than it saves."""


def drop_useless(rows: Sequence[Candidate], rho_nothing: float) -> tuple[Candidate, ...]:
    """Drop rows not better than nothing, and rows another one beats in every respect."""
    return tuple(rows[index] for index in useful(rows, rho_nothing))


def useful(rows: Sequence[Candidate], rho_nothing: float) -> tuple[int, ...]:
    """The indices of the rows that can matter, in order.

    A row is left out only if another one of the same app is at least as good and fits wherever it
    fits, so no solution of the auction, with or without some app, loses value.
    """
    # A gain lost in rounding is no gain: solvers would see a tie with nothing.
    better = [i for i, row in enumerate(rows) if math.log(rho_nothing) - math.log(row.rho) > 0.0]
    # Among equals the least demanding first, so that it is there to beat the others.
    better.sort(key=lambda i: (rows[i].rho, rows[i].gpus, -_looseness(rows[i]), i))
    kept: list[int] = []
    # By the machines that rows are pinned to: rows elsewhere cannot fit inside.
    rivals: dict[frozenset[int], list[tuple[int, _Bulk, tuple[Chunk, ...]]]] = {}
    seen: set[tuple[tuple[int, int, int], ...]] = set()
    pairwise = len(better) <= PAIRWISE_LIMIT
    for i in better:
        chunks = tuple(sorted(map(normal, rows[i].chunks), key=_order))
        name = tuple(map(_order, chunks))
        if name in seen:
            continue
        pins = frozenset(machine for _, _, machine in name if machine >= 0)
        gpus = sum(chunk.count for chunk in chunks)
        bulk = _bulk(name)
        if pairwise and any(
            count <= gpus
            and one[0] <= bulk[0]
            and one[1] <= bulk[1]
            and one[2] <= bulk[2]
            and _fits_inside(some, chunks)
            for where, others in rivals.items()
            if where <= pins
            for count, one, some in others
        ):
            continue
        seen.add(name)
        kept.append(i)
        rivals.setdefault(pins, []).append((gpus, bulk, chunks))
    return tuple(sorted(kept))


_Bulk = tuple[int, int, int]
"""GPUs in chunks of more than one, no wider than a slot, a machine, a rack."""


def _bulk(name: Iterable[tuple[int, int, int]]) -> _Bulk:
    """What must find room in chunks at least as close: a quick test that spares most fitting."""
    totals = [0, 0, 0, 0]
    for level, negative, _ in name:
        if negative < -1:
            totals[level] -= negative
    return (totals[0], totals[0] + totals[1], totals[0] + totals[1] + totals[2])


def _looseness(row: Candidate) -> int:
    return sum(chunk.level + (chunk.machine is None) for chunk in map(normal, row.chunks))


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
