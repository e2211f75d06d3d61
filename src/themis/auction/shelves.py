"""Machines sorted by what is free in them, for chunks that come and go.

Machines of the same rack, with the same GPUs free in the same slots, stand on one shelf. A chunk
looks at shelves, not at machines, so a cluster of thousands is as quick as one of dozens.
"""

from collections.abc import Sequence

from themis.auction.problem import OfferedMachine
from themis.auction.solution import Place
from themis.model import CLUSTER, MACHINE, RACK, SLOT, Chunk

Shape = tuple[int, ...]
"""Free GPUs of a machine's slots, most first."""


class Shelves:
    """What is free, and who has what."""

    def __init__(self, machines: Sequence[OfferedMachine]) -> None:
        self.slots = {offered.machine: list(offered.slots) for offered in machines}
        self.rack = {offered.machine: offered.rack for offered in machines}
        self.racks: dict[int, int] = {}
        self.stock: dict[Shape, dict[int, None]] = {}
        """Machines of each shape."""
        self.free = 0
        self.places: dict[int, tuple[Place, ...]] = {}
        for offered in machines:
            self.racks[offered.rack] = self.racks.get(offered.rack, 0) + offered.gpus
            self.free += offered.gpus
            self._shelve(offered.machine)

    def take(self, owner: int, chunks: Sequence[Chunk], allowed: frozenset[int] | None) -> bool:
        """Place all chunks of an owner, or nothing."""
        if sum(chunk.count for chunk in chunks) > self.free:
            return False
        order = sorted(range(len(chunks)), key=lambda i: _order(chunks[i]))
        found: dict[int, Place] = {}
        for i in order:
            place = self._find(chunks[i], allowed)
            if place is None:
                for taken in found.values():
                    self._move(taken, 1)
                return False
            self._move(place, -1)
            found[i] = place
        self.places[owner] = tuple(found[i] for i in range(len(chunks)))
        return True

    def adopt(self, owner: int, places: tuple[Place, ...]) -> None:
        """Note where an owner's chunks lie already."""
        for place in places:
            self._move(place, -1)
        self.places[owner] = places

    def give(self, owner: int) -> None:
        """Take back what an owner has."""
        for place in self.places.pop(owner):
            self._move(place, 1)

    def _find(self, chunk: Chunk, allowed: frozenset[int] | None) -> Place | None:
        if chunk.machine is not None:
            return self._on(chunk)
        if chunk.level <= MACHINE or chunk.count == 1:
            machine = self._best(chunk.count, slotted=chunk.level == SLOT, allowed=allowed)
            if machine is not None:
                return self._cut(machine, chunk)
            return None
        members = [m for m in self.slots if allowed is None or m in allowed]
        if chunk.level == RACK:
            rack = self._tightest_rack(chunk.count, None if allowed is None else members)
            if rack is None:
                return None
            members = [m for m in members if self.rack[m] == rack]
        return self._spread(chunk.count, members)

    def _on(self, chunk: Chunk) -> Place | None:
        machine = chunk.machine
        if machine is None or machine not in self.slots:
            return None
        slots = self.slots[machine]
        room = max(slots, default=0) if chunk.level == SLOT else sum(slots)
        return self._cut(machine, chunk) if room >= chunk.count else None

    def _best(self, count: int, *, slotted: bool, allowed: frozenset[int] | None) -> int | None:
        """The machine that a chunk spoils least: an exact hole, or the smallest that holds it."""
        best: tuple[tuple[int, ...], Shape] | None = None
        for shape, machines in self.stock.items():
            total = sum(shape)
            room = (shape[0] if shape else 0) if slotted else total
            if room < count or not machines:
                continue
            if allowed is not None and not any(machine in allowed for machine in machines):
                continue
            key = (_spoilt(shape, count, slotted=slotted), total, *shape)
            if best is None or key < best[0]:
                best = (key, shape)
        if best is None:
            return None
        machines = self.stock[best[1]]
        return next(m for m in machines if allowed is None or m in allowed)

    def _cut(self, machine: int, chunk: Chunk) -> Place:
        slots = self.slots[machine]
        if chunk.level == SLOT and chunk.count > 1:
            slot = min((size, i) for i, size in enumerate(slots) if size >= chunk.count)[1]
            return ((machine, slot, chunk.count),)
        return self._gather(machine, chunk.count)

    def _gather(self, machine: int, count: int) -> Place:
        """GPUs of one machine, from its smallest slots first: large ones are scarcer."""
        place = []
        for size, slot in sorted((size, i) for i, size in enumerate(self.slots[machine]) if size):
            part = min(size, count)
            if part:
                place.append((machine, slot, part))
                count -= part
        return tuple(sorted(place))

    def _tightest_rack(self, count: int, members: Sequence[int] | None) -> int | None:
        sums = self.racks
        if members is not None:
            sums = {}
            for machine in members:
                rack = self.rack[machine]
                sums[rack] = sums.get(rack, 0) + sum(self.slots[machine])
        fitting = [(room, rack) for rack, room in sums.items() if room >= count]
        return min(fitting)[1] if fitting else None

    def _spread(self, count: int, machines: Sequence[int]) -> Place | None:
        """GPUs of several machines, those with least to lose first."""
        place: list[tuple[int, int, int]] = []
        for machine in sorted(machines, key=lambda m: (sum(self.slots[m]), m)):
            part = min(count, sum(self.slots[machine]))
            if part:
                place.extend(self._gather(machine, part))
                count -= part
            if not count:
                return tuple(sorted(place))
        return None

    def _move(self, place: Place, sign: int) -> None:
        for machine in {machine for machine, _, _ in place}:
            del self.stock[_shape(self.slots[machine])][machine]
        for machine, slot, count in place:
            self.slots[machine][slot] += sign * count
            self.racks[self.rack[machine]] += sign * count
            self.free += sign * count
        for machine in sorted({machine for machine, _, _ in place}):
            self._shelve(machine)

    def _shelve(self, machine: int) -> None:
        self.stock.setdefault(_shape(self.slots[machine]), {})[machine] = None


def _shape(slots: Sequence[int]) -> Shape:
    return tuple(sorted((size for size in slots if size), reverse=True))


def _spoilt(shape: Shape, count: int, *, slotted: bool) -> int:
    """How much of the machine's use for large chunks is lost: none if the hole is exact."""
    total = sum(shape)
    if slotted:
        exact = count in shape
        return (not exact) * 4 + (total - count) % 2
    return total - count if total - count < 2 else 2 + (total - count)


def _order(chunk: Chunk) -> tuple[int, int]:
    rank = -1 if chunk.machine is not None else chunk.level if chunk.count > 1 else CLUSTER + 1
    return (rank, -chunk.count)
