"""Free GPUs while they are being handed out, best fit first so that big holes stay whole."""

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from themis.core.auction.problem import OfferedMachine
from themis.core.auction.solution import Place
from themis.core.model import CLUSTER, MACHINE, RACK, SLOT, Chunk


@dataclass(frozen=True, slots=True)
class ChunkNeed:
    """A normal chunk to be placed. `rack`, when given, was decided already."""

    chunk: Chunk
    allowed: frozenset[int] | None = None
    rack: int | None = None

    @property
    def anywhere(self) -> bool:
        """Whether any free GPUs will do."""
        chunk = self.chunk
        unbound = chunk.machine is None and self.allowed is None and self.rack is None
        return unbound and (chunk.level == CLUSTER or chunk.count == 1)

    def may_use(self, offered: OfferedMachine) -> bool:
        """Whether the chunk may lie on this machine at all."""
        return (
            self.chunk.machine in {None, offered.machine}
            and (self.allowed is None or offered.machine in self.allowed)
            and self.rack in {None, offered.rack}
        )


class Room:
    """What is still free. Taking is greedy: it may fail where an exact packing exists."""

    def __init__(self, machines: Sequence[OfferedMachine]) -> None:
        self.machines = machines
        self.slots = {offered.machine: list(offered.slots) for offered in machines}
        self.free = {offered.machine: sum(offered.slots) for offered in machines}

    def take(self, need: ChunkNeed) -> Place | None:
        """Place one chunk as tightly as it goes, or change nothing and return None."""
        chunk = need.chunk
        if chunk.machine is None and need.allowed is None and need.rack is None:
            usable = self.machines
        else:
            usable = [offered for offered in self.machines if need.may_use(offered)]
        if chunk.level == SLOT:
            return self._take_slot(usable, chunk.count)
        count = chunk.count
        free = self.free
        holes = [(free[m.machine], m.machine) for m in usable if free[m.machine] >= count]
        if holes:
            return self.cut(min(holes)[1], count)
        return None if chunk.level == MACHINE else self._take_wide(usable, chunk)

    def take_all(self, needs: Iterable[ChunkNeed]) -> list[Place] | None:
        """Place chunks one after the other; all of them or none."""
        places: list[Place] = []
        for need in needs:
            place = self.take(need)
            if place is None:
                for taken in places:
                    self.give(taken)
                return None
            places.append(place)
        return places

    def give(self, place: Place) -> None:
        """Undo a take."""
        for machine, slot, count in place:
            self.slots[machine][slot] += count
            self.free[machine] += count

    def cut(self, machine: int, count: int) -> Place:
        """Take GPUs of one machine, from as few and as tight slots as possible."""
        slots = self.slots[machine]
        self.free[machine] -= count
        # One slot, or all that there is: nearly every cut, and the same as `shares` would make.
        tight = min((size for size in slots if size >= count), default=0)
        if tight:
            slot = slots.index(tight)
            slots[slot] -= count
            return ((machine, slot, count),)
        place: list[tuple[int, int, int]] = []
        if not self.free[machine]:
            place = [(machine, slot, size) for slot, size in enumerate(slots) if size]
            slots[:] = [0] * len(slots)
            return tuple(place)
        for slot, part in shares(slots, range(len(slots)), count):
            slots[slot] -= part
            place.append((machine, slot, part))
        return tuple(sorted(place))

    def _take_slot(self, usable: Sequence[OfferedMachine], count: int) -> Place | None:
        best: tuple[int, int, int, int] | None = None
        for offered in usable:
            machine = offered.machine
            if self.free[machine] < count:
                continue
            for slot, size in enumerate(self.slots[machine]):
                if size >= count:
                    key = (size, self.free[machine], machine, slot)
                    best = key if best is None else min(best, key)
        if best is None:
            return None
        _, _, machine, slot = best
        self.slots[machine][slot] -= count
        self.free[machine] -= count
        return ((machine, slot, count),)

    def _take_wide(self, usable: Sequence[OfferedMachine], chunk: Chunk) -> Place | None:
        racks: dict[int, list[int]] = {}
        for offered in usable:
            racks.setdefault(offered.rack, []).append(offered.machine)
        sums = {rack: sum(self.free[m] for m in members) for rack, members in racks.items()}
        fitting = [(total, rack) for rack, total in sums.items() if total >= chunk.count]
        if fitting:
            return self.spread(racks[min(fitting)[1]], chunk.count)
        if chunk.level == RACK or sum(sums.values()) < chunk.count:
            return None
        place: list[tuple[int, int, int]] = []
        for rack, part in shares(sums, sorted(sums), chunk.count):
            place.extend(self.spread(racks[rack], part))
        return tuple(sorted(place))

    def spread(self, machines: Sequence[int], count: int) -> Place:
        """Take GPUs of some machines, of few of them where possible."""
        place: list[tuple[int, int, int]] = []
        for machine, part in shares(self.free, machines, count):
            place.extend(self.cut(machine, part))
        return tuple(sorted(place))


def shares(
    free: Sequence[int] | dict[int, int], among: Iterable[int], count: int
) -> list[tuple[int, int]]:
    """Split `count` over few holes: whole ones, largest first, then the tightest for the rest."""
    holes = sorted([(free[index], index) for index in among if free[index] > 0])
    parts: list[tuple[int, int]] = []
    while count:
        tight = next((hole for hole in holes if hole[0] >= count), holes[-1])
        holes.remove(tight)
        size, index = tight
        parts.append((index, min(size, count)))
        count -= min(size, count)
    return parts


class Holes:
    """The same split as `shares`, of many machines and for many chunks in turn."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.by_size: dict[int, list[int]] = {}
        for machine, size in room.free.items():
            if size:
                self.by_size.setdefault(size, []).append(machine)
        for machines in self.by_size.values():
            machines.sort()
        self.sizes = sorted(self.by_size)

    def spread(self, count: int) -> Place:
        """Take GPUs of few machines anywhere; there must be this many."""
        place: list[tuple[int, int, int]] = []
        while count:
            size = next((size for size in self.sizes if size >= count), self.sizes[-1])
            machine = self.by_size[size].pop(0 if size >= count else -1)
            if not self.by_size[size]:
                del self.by_size[size]
                self.sizes.remove(size)
            part = min(size, count)
            place.extend(self.room.cut(machine, part))
            count -= part
            if size > part:
                self._put(size - part, machine)
        return tuple(sorted(place))

    def _put(self, size: int, machine: int) -> None:
        if size not in self.by_size:
            self.by_size[size] = []
            insort(self.sizes, size)
        insort(self.by_size[size], machine)


def packing_order(need: ChunkNeed) -> tuple[int, int, int, int]:
    """Hardest first: pinned, then one slot, one machine, one rack, anywhere, single GPUs."""
    chunk = need.chunk
    rank = chunk.level
    if chunk.machine is not None:
        rank -= 2
    elif chunk.count == 1:
        rank = CLUSTER + 1
    room = -1 if need.allowed is None else -1_000_000_000 + len(need.allowed)
    return (rank, room if rank > MACHINE else 0, -chunk.count, room)
