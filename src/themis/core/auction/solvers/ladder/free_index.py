"""Machines sorted by what is free in them, for chunks that come and go.

Machines with the same GPUs free in the same slots stand on one shelf. A chunk looks at shelves, not
at machines, so a cluster of thousands is as quick as one of dozens. Chunks that may lie anywhere in
a rack, or anywhere at all, are only counted: where they lie is decided when all is settled, so they
are in nobody's way.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence

from themis.core.auction.packing.exact import PackingLimitError, pack
from themis.core.auction.packing.free_gpus import ChunkNeed, Holes, Room
from themis.core.auction.problem import OfferedMachine
from themis.core.auction.solution import Place
from themis.core.auction.solvers.prepared import is_hard
from themis.core.model import CLUSTER, MACHINE, RACK, SLOT, Chunk

ANYWHERE = -1
"""Stands for a machine: GPUs that are counted for the whole cluster. Racks follow below it."""

Shape = tuple[int, ...]
"""Free GPUs of a machine's slots, most first."""

STEPS, MACHINES = 60, 16
"""How far a packing is searched for, and on how many machines."""

PATIENCE = 20
"""After this many such searches without success there are no more."""


class Shelves:
    """What is free, and who has what."""

    def __init__(self, machines: Sequence[OfferedMachine]) -> None:
        self.slots = {offered.machine: list(offered.slots) for offered in machines}
        self.rack = {offered.machine: offered.rack for offered in machines}
        self.racks: dict[int, int] = {}
        """GPUs of each rack that are not taken, nor counted for chunks that lie somewhere in it."""
        self.members: dict[int, list[int]] = {}
        """Machines of each rack."""
        self.stock: dict[Shape, dict[int, None]] = {}
        """Machines of each shape."""
        self.shape: dict[int, Shape] = {}
        self.free = 0
        """GPUs that are neither taken nor counted for any bidder."""
        self.places: dict[int, tuple[Place, ...]] = {}
        self.failed: Chunk | None = None
        """The chunk that found no place when last something did not."""
        self._patience = PATIENCE
        for offered in machines:
            gpus = offered.gpus
            self.racks[offered.rack] = self.racks.get(offered.rack, 0) + gpus
            self.members.setdefault(offered.rack, []).append(offered.machine)
            self.free += gpus
            self._shelve(offered.machine)
        self._racks = list(self.racks)
        self._number = {rack: number for number, rack in enumerate(self._racks)}

    def take(self, owner: int, chunks: Sequence[Chunk], allowed: frozenset[int] | None) -> bool:
        """Place all chunks of an owner, or nothing."""
        total = sum(chunk.count for chunk in chunks)
        if total > self.free:
            self.failed = Chunk(CLUSTER, total)
            return False
        order = sorted(range(len(chunks)), key=lambda i: _order(chunks[i]))
        found: dict[int, Place] = {}
        for i in order:
            place = self._find(chunks[i], allowed)
            if place is None:
                self.failed = chunks[i]
                for taken in found.values():
                    self._move(taken, 1)
                return False
            self._move(place, -1)
            found[i] = place
        self.places[owner] = tuple(found[i] for i in range(len(chunks)))
        return True

    def take_packed(
        self, owner: int, chunks: Sequence[Chunk], allowed: frozenset[int] | None
    ) -> bool:
        """The same where taking chunk by chunk failed: holes of several sizes are searched for."""
        hard = [i for i, chunk in enumerate(chunks) if is_hard(chunk)]
        if not hard or not self._patience or sum(c.count for c in chunks) > self.free:
            return False
        needs = [ChunkNeed(chunks[i], allowed) for i in hard]
        try:
            packed = pack(self._candidates([chunks[i] for i in hard], allowed), needs, STEPS)
        except PackingLimitError:
            packed = None
        if packed is not None and self._take_around(owner, chunks, allowed, hard, packed):
            return True
        self._patience -= 1
        return False

    def _take_around(
        self,
        owner: int,
        chunks: Sequence[Chunk],
        allowed: frozenset[int] | None,
        hard: Sequence[int],
        packed: Sequence[Place],
    ) -> bool:
        """Place all other chunks where these lie."""
        found = dict(zip(hard, packed, strict=True))
        for place in packed:
            self._move(place, -1)
        # What is free in a machine may be counted for chunks that lie somewhere in its rack.
        if any(self.racks[self.rack[m]] < 0 for place in packed for m, _, _ in place):
            for place in packed:
                self._move(place, 1)
            return False
        for i in sorted(set(range(len(chunks))) - set(hard), key=lambda i: _order(chunks[i])):
            spot = self._find(chunks[i], allowed)
            if spot is None:
                for taken in found.values():
                    self._move(taken, 1)
                return False
            self._move(spot, -1)
            found[i] = spot
        self.places[owner] = tuple(found[i] for i in range(len(chunks)))
        return True

    def _candidates(
        self, chunks: Sequence[Chunk], allowed: frozenset[int] | None
    ) -> list[OfferedMachine]:
        """The machines that chunks name, and some of every shape that can hold one."""
        named = {c.machine for c in chunks if c.machine is not None and c.machine in self.slots}
        free = [chunk for chunk in chunks if chunk.machine is None]
        least = min((chunk.count for chunk in free), default=0)
        shapes = sorted(shape for shape in self.stock if free and sum(shape) >= least)
        others: list[tuple[int, int, int]] = []
        for number, shape in enumerate(shapes):
            here = (m for m in self.stock[shape] if allowed is None or m in allowed)
            some = heapq.nsmallest(len(free), (m for m in here if m not in named))
            others.extend((turn, number, machine) for turn, machine in enumerate(some))
        some_of_each = [machine for _, _, machine in sorted(others)]
        machines = (*named, *some_of_each[: max(0, MACHINES - len(named))])
        return [OfferedMachine(m, self.rack[m], tuple(self.slots[m])) for m in sorted(machines)]

    def adopt(self, owner: int, places: tuple[Place, ...]) -> None:
        """Note where an owner's chunks lie already."""
        for place in places:
            self._move(place, -1)
        self.places[owner] = places

    def adopt_all(self, held: Mapping[int, tuple[Place, ...]]) -> None:
        """The same of many owners: every machine changes its shelf once."""
        touched: dict[int, None] = {}
        for places in held.values():
            for place in places:
                for machine, slot, count in place:
                    self.free -= count
                    if machine < 0:
                        self._count(machine, -count)
                        continue
                    self.slots[machine][slot] -= count
                    self.racks[self.rack[machine]] -= count
                    touched[machine] = None
        for machine in touched:
            del self.stock[self.shape[machine]][machine]
            self._shelve(machine)
        self.places.update(held)

    def rack_of(self, machine: int) -> int | None:
        """The rack of a machine, or of what stands for one in a place; None if that is anywhere."""
        if machine >= 0:
            return self.rack[machine]
        return None if machine == ANYWHERE else self._racks[ANYWHERE - 1 - machine]

    def counted(self, chunk: Chunk, place: Place) -> Place:
        """The place of a chunk that may use all machines: only counted where that will do."""
        if chunk.machine is not None:
            return place
        if chunk.count == 1 or chunk.level == CLUSTER:
            return ((ANYWHERE, 0, chunk.count),)
        if chunk.level == RACK and place[0][0] >= 0:
            return self._somewhere(self.rack[place[0][0]], chunk.count)
        return place

    def _somewhere(self, rack: int, count: int) -> Place:
        return ((ANYWHERE - 1 - self._number[rack], 0, count),)

    def _count(self, machine: int, count: int) -> None:
        rack = self.rack_of(machine)
        if rack is not None:
            self.racks[rack] += count

    def settled(self) -> dict[int, tuple[Place, ...]]:
        """Places of every bidder, with GPUs for those that were only counted."""
        machines = [
            OfferedMachine(machine, self.rack[machine], tuple(slots))
            for machine, slots in self.slots.items()
        ]
        room = Room(machines)
        found = {owner: list(places) for owner, places in self.places.items()}
        loose: list[tuple[int, int, int]] = []
        for owner, places in found.items():
            for index, place in enumerate(places):
                machine, _, count = place[0]
                rack = self.rack_of(machine)
                if machine < 0 and rack is not None:
                    places[index] = room.spread(self.members[rack], count)
                elif machine < 0:
                    loose.append((-count, owner, index))
        holes = Holes(room)
        for negative, owner, index in sorted(loose):
            found[owner][index] = holes.spread(-negative)
        return {owner: tuple(places) for owner, places in found.items()}

    def give(self, owner: int) -> None:
        """Take back what an owner has."""
        for place in self.places.pop(owner):
            self._move(place, 1)

    def _find(self, chunk: Chunk, allowed: frozenset[int] | None) -> Place | None:
        if chunk.machine is not None:
            return self._on(chunk)
        if allowed is None and (chunk.count == 1 or chunk.level == CLUSTER):
            return ((ANYWHERE, 0, chunk.count),)
        if chunk.level <= MACHINE or chunk.count == 1:
            machine = self._best(chunk.count, slotted=chunk.level == SLOT, allowed=allowed)
            return None if machine is None else self._cut(machine, chunk)
        if allowed is None:
            rack = self._tightest_rack(chunk.count, self.racks)
            return None if rack is None else self._somewhere(rack, chunk.count)
        members = [m for m in self.slots if m in allowed]
        if chunk.level == RACK:
            sums: dict[int, int] = {}
            for machine in members:
                rack = self.rack[machine]
                sums[rack] = sums.get(rack, 0) + sum(self.slots[machine])
            sums = {rack: min(room, self.racks[rack]) for rack, room in sums.items()}
            rack = self._tightest_rack(chunk.count, sums)
            if rack is None:
                return None
            members = [m for m in self.members[rack] if m in allowed]
        return self._spread(chunk.count, members)

    def _on(self, chunk: Chunk) -> Place | None:
        machine = chunk.machine
        if machine is None or machine not in self.slots:
            return None
        slots = self.slots[machine]
        room = max(slots, default=0) if chunk.level == SLOT else sum(slots)
        room = min(room, self.racks[self.rack[machine]])
        return self._cut(machine, chunk) if room >= chunk.count else None

    def _best(self, count: int, *, slotted: bool, allowed: frozenset[int] | None) -> int | None:
        """The machine that a chunk spoils least: an exact hole, or the smallest that holds it."""
        best: tuple[tuple[int, ...], int] | None = None
        for shape, machines in self.stock.items():
            total = sum(shape)
            room = (shape[0] if shape else 0) if slotted else total
            if room < count or not machines:
                continue
            key = (_spoilt(shape, count, slotted=slotted), total, *shape)
            if best is not None and key >= best[0]:
                continue
            machine = self._first(machines, count, allowed)
            if machine is not None:
                best = (key, machine)
        return None if best is None else best[1]

    def _first(
        self, machines: Iterable[int], count: int, allowed: frozenset[int] | None
    ) -> int | None:
        """The first of some machines in whose rack so much is left."""
        racks, rack = self.racks, self.rack
        for machine in machines:
            if racks[rack[machine]] >= count and (allowed is None or machine in allowed):
                return machine
        return None

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

    def _tightest_rack(self, count: int, sums: Mapping[int, int]) -> int | None:
        fitting = [(room, rack) for rack, room in sums.items() if room >= count]
        return min(fitting)[1] if fitting else None

    def _spread(self, count: int, machines: Sequence[int]) -> Place | None:
        """GPUs of several machines, those with least to lose first."""
        place: list[tuple[int, int, int]] = []
        spare = dict(self.racks)
        for machine in sorted(machines, key=lambda m: (sum(self.shape[m]), m)):
            rack = self.rack[machine]
            part = min(count, sum(self.shape[machine]), spare[rack])
            if part:
                place.extend(self._gather(machine, part))
                spare[rack] -= part
                count -= part
            if not count:
                return tuple(sorted(place))
        return None

    def _move(self, place: Place, sign: int) -> None:
        before = -1
        for machine, slot, count in place:  # sorted, so the slots of a machine follow each other
            if machine < 0:
                self._count(machine, sign * count)
                self.free += sign * count
                continue
            if machine != before:
                if before >= 0:
                    self._shelve(before)
                del self.stock[self.shape[machine]][machine]
                before = machine
            self.slots[machine][slot] += sign * count
            self.racks[self.rack[machine]] += sign * count
            self.free += sign * count
        if before >= 0:
            self._shelve(before)

    def _shelve(self, machine: int) -> None:
        shape = _shape(self.slots[machine])
        self.shape[machine] = shape
        if shape not in self.stock:
            self.stock[shape] = {}
        self.stock[shape][machine] = None


def _shape(slots: Sequence[int]) -> Shape:
    return tuple(sorted(filter(None, slots), reverse=True))


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
