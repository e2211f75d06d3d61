"""Machines that stand in for each other, and the ways to cut one of them into chunks."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from themis.core.auction.solvers.prepared import PreparedProblem
from themis.core.model import MACHINE, SLOT

MAX_PATTERNS = 2_000
"""Per class; with more, its machines get variables of their own instead."""

Size = tuple[int, int]
"""A kind of chunk that needs a hole: (level, GPUs)."""

Pattern = tuple[int, ...]
"""How many chunks of each size, as the list of sizes is ordered."""


@dataclass(frozen=True, slots=True)
class MachineClass:
    """Machines with the same rack, free GPUs per slot and bidders; a pinned one stands alone."""

    rack: int
    slots: tuple[int, ...]
    groups: frozenset[int]
    """Numbers of the groups of bidders that may use it."""
    pinned: int | None
    members: tuple[int, ...]

    @property
    def gpus(self) -> int:
        """Free GPUs of all its machines together."""
        return sum(self.slots) * len(self.members)


def bidder_groups(prepared: PreparedProblem) -> tuple[list[frozenset[int] | None], tuple[int, ...]]:
    """Distinct sets of allowed machines, and the number of each bidder's."""
    groups: dict[frozenset[int] | None, int] = {}
    numbers = tuple(groups.setdefault(b.machines, len(groups)) for b in prepared.bidders)
    return list(groups), numbers


def machine_classes(prepared: PreparedProblem) -> list[MachineClass]:
    """The classes of a problem, in machine order."""
    groups, _ = bidder_groups(prepared)
    pinned = {
        chunk.machine
        for options in prepared.options
        for option in options
        for chunk in option.chunks
        if chunk.machine is not None
    }
    members: dict[tuple[int, tuple[int, ...], frozenset[int], int | None], list[int]] = {}
    for offered in prepared.machines:
        number = offered.machine
        access = frozenset(
            g for g, allowed in enumerate(groups) if allowed is None or number in allowed
        )
        shape = tuple(sorted((size for size in offered.slots if size), reverse=True))
        if shape:
            key = (offered.rack, shape, access, number if number in pinned else None)
            members.setdefault(key, []).append(number)
    return [MachineClass(*key, tuple(numbers)) for key, numbers in members.items()]


def maximal_patterns(slots: Sequence[int], sizes: Sequence[Size]) -> list[Pattern] | None:
    """All ways to cut a machine that leave no room for one more chunk; None when too many.

    Fewer chunks than a pattern holds always fit too, so the maximal ones say everything.
    """
    small = [size for level, size in sizes if level == SLOT]
    large = [size for level, size in sizes if level == MACHINE]
    total = sum(slots)
    by_slot: set[Pattern] = {tuple(0 for _ in small)}
    for slot in slots:
        fills = list(_fills(small, slot))
        if len(by_slot) * len(fills) > 50 * MAX_PATTERNS:
            return None
        by_slot = {tuple(map(int.__add__, a, b)) for a in by_slot for b in fills}
        if len(by_slot) > MAX_PATTERNS:
            return None
    found: list[Pattern] = []
    for cut in sorted(by_slot):
        left = total - sum(map(int.__mul__, cut, small))
        growable = [
            size
            for index, size in enumerate(small)
            if (*cut[:index], cut[index] + 1, *cut[index + 1 :]) in by_slot
        ]
        for rest in _fills(large, left):
            spare = left - sum(map(int.__mul__, rest, large))
            if spare < min((*growable, *large), default=spare + 1):
                found.append(_merge(sizes, cut, rest))
                if len(found) > MAX_PATTERNS:
                    return None
    return found


def _merge(sizes: Iterable[Size], cut: Pattern, rest: Pattern) -> Pattern:
    small, large = iter(cut), iter(rest)
    return tuple(next(small) if level == SLOT else next(large) for level, _ in sizes)


def _fills(sizes: Sequence[int], room: int) -> Iterator[Pattern]:
    """Every multiset of sizes that fits into a hole, the empty one included."""
    if not sizes:
        yield ()
        return
    for count in range(room // sizes[0] + 1):
        for rest in _fills(sizes[1:], room - count * sizes[0]):
            yield (count, *rest)
