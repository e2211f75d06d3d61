"""Chunks onto machines in one pass, where that spoils least for those still to come.

Best fit looks at one chunk at a time; here every chunk goes where it destroys the fewest holes of
the sizes that are scarce, and racks keep room for the chunks that need one. It may fail where a
packing exists.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, product

from themis.core.auction.packing.free_gpus import ChunkNeed, Holes, Room
from themis.core.auction.problem import OfferedMachine
from themis.core.auction.solution import Place
from themis.core.model import CLUSTER, MACHINE, RACK, SLOT, Chunk

_POWERS = (4.0, 1.0)
"""How much scarcity counts: some demands are served by one, some by another."""

_WIDEST, _CHOICES = 3, 60
"""Chunks whose racks are chosen one by one, and how many choices are tried."""

_MOST_LOOKS = 2_000
"""Choices of racks that are looked at, whether they can be or not."""

_NO_RACKS = 2**31
"""More GPUs than any chunk has."""

_Entry = tuple[float, int, int, int, int]
"""A machine on offer: (loss, preference, GPUs spare when offered, machine, slot)."""


class Loading:
    """One attempt. Needs must be free to use all machines, but for pins."""

    def __init__(self, machines: Sequence[OfferedMachine]) -> None:
        self.machines = machines
        self.index = {offered.machine: i for i, offered in enumerate(machines)}
        self.slots = [list(offered.slots) for offered in machines]
        self.spare = [offered.gpus for offered in machines]
        self.rack = [offered.rack for offered in machines]
        self.racks: dict[int, int] = {}
        for rack, gpus in zip(self.rack, self.spare, strict=True):
            self.racks[rack] = self.racks.get(rack, 0) + gpus
        self.where: dict[int, tuple[int, int]] = {}
        """Per need: (machine index, slot), (machine index, -1), (rack, -2) or anywhere."""
        self.failed: list[int] | None = None
        """Needs that found no place, where that is no reason to stop."""
        self.worth: list[tuple[bool, int, float]] = []
        """What holes are worth: (in a slot, GPUs, worth of one)."""

    def run(
        self,
        needs: Sequence[ChunkNeed],
        *,
        racks_first: int,
        slots_first: bool,
        power: float,
        tight: bool = False,
    ) -> bool:
        """Decide where every need goes; False when that failed.

        With `tight`, rack chunks that come first take the fullest rack they fit into, else the one
        that has least to lose.
        """
        pinned, slots, whole, wide = _sorted(needs)
        wide = [i for i in wide if i not in self.where]
        if not all(self._pin(i, needs[i]) or self._fail([i]) for i in pinned):
            return False
        self._value([needs[i].chunk for i in (*slots, *whole)], power)
        # Rack chunks of at least this many GPUs come first, the others last.
        early = [i for i in wide if needs[i].chunk.count >= racks_first]
        if early and not self._reserve(early, needs, None if tight else self._density()):
            return False
        hard = [*slots, *whole]
        if not slots_first:
            hard.sort(key=lambda i: (-needs[i].chunk.count, needs[i].chunk.level))
        late = [i for i in wide if needs[i].chunk.count < racks_first]
        if not self._place(hard, needs) or not self._reserve(late, needs):
            return False
        lost = set(self.failed or ())
        loose = [i for i in range(len(needs)) if i not in self.where and i not in lost]
        missing = sum(needs[i].chunk.count for i in loose) - sum(self.racks.values())
        while missing > 0:
            if not self._fail(loose[-1:]):
                return False
            missing -= needs[loose.pop()].chunk.count
        return True

    def hold(self, racks: Mapping[int, int], needs: Sequence[ChunkNeed]) -> None:
        """Before a run: keep room for some needs in these racks, which have it."""
        for i, rack in racks.items():
            self.racks[rack] -= needs[i].chunk.count
            self.where[i] = (rack, -2)

    def _fail(self, some: Sequence[int]) -> bool:
        """Whether to go on without these."""
        if self.failed is None:
            return False
        self.failed.extend(some)
        return True

    def _pin(self, i: int, need: ChunkNeed) -> bool:
        machine = self.index.get(need.chunk.machine if need.chunk.machine is not None else -1)
        count = need.chunk.count
        if machine is None or self.spare[machine] < count:
            return False
        if self.racks[self.rack[machine]] < count:
            return False
        slot = -1
        if need.chunk.level == SLOT and count > 1:
            sizes = [(size, s) for s, size in enumerate(self.slots[machine]) if size >= count]
            if not sizes:
                return False
            slot = min(sizes)[1]
            self.slots[machine][slot] -= count
        self._take(i, machine, slot, count)
        return True

    def _take(self, i: int, machine: int, slot: int, count: int) -> None:
        self.spare[machine] -= count
        self.racks[self.rack[machine]] -= count
        self.where[i] = (machine, slot)

    def _value(self, chunks: Sequence[Chunk], power: float) -> None:
        """Holes of each size are worth more the more are asked for of what there is."""
        for slotted in (True, False):
            counts = [chunk.count for chunk in chunks if not slotted or chunk.level == SLOT]
            for k in sorted(set(counts)):
                if slotted:
                    there = sum(size // k for slots in self.slots for size in slots)
                else:
                    there = sum(spare // k for spare in self.spare)
                asked = sum(count // k for count in counts)
                if there:
                    self.worth.append((slotted, k, min(2.0, asked / there) ** power * k))

    def _place(self, some: Sequence[int], needs: Sequence[ChunkNeed]) -> bool:
        """Slot or machine chunks, in this order."""
        start = 0
        while start < len(some):
            chunk = needs[some[start]].chunk
            end = start
            while end < len(some) and needs[some[end]].chunk == chunk:
                end += 1
            if not self._place_equal(some[start:end], chunk.count, slotted=chunk.level == SLOT):
                return False
            start = end
        return True

    def _place_equal(self, some: Sequence[int], count: int, *, slotted: bool) -> bool:
        losses: dict[tuple[int, ...], tuple[float, int, int] | None] = {}
        heap: list[_Entry] = []
        for machine, spare in enumerate(self.spare):
            if spare >= count and (entry := self._offer(machine, count, losses, slotted)):
                heap.append(entry)
        heapq.heapify(heap)
        for number, i in enumerate(some):
            while True:
                if not heap:
                    return self._fail(some[number:])
                _, _, spare, machine, slot = heapq.heappop(heap)
                if self.spare[machine] == spare and self.racks[self.rack[machine]] >= count:
                    break
            if slot >= 0:
                self.slots[machine][slot] -= count
            self._take(i, machine, slot, count)
            if self.spare[machine] >= count and (
                entry := self._offer(machine, count, losses, slotted)
            ):
                heapq.heappush(heap, entry)
        return True

    def _offer(
        self,
        machine: int,
        count: int,
        losses: dict[tuple[int, ...], tuple[float, int, int] | None],
        slotted: bool,
    ) -> _Entry | None:
        spare = self.spare[machine]
        state = (spare, *self.slots[machine])
        if state not in losses:
            losses[state] = self._loss(spare, self.slots[machine], count, slotted)
        found = losses[state]
        return None if found is None else (found[0], found[1], spare, machine, found[2])

    def _loss(
        self, spare: int, slots: Sequence[int], count: int, slotted: bool
    ) -> tuple[float, int, int] | None:
        """What a chunk here spoils for others, a preference among equals, and the slot."""
        if not slotted:
            lost = self._holes(spare, slots) - self._holes(spare - count, slots)
            return lost, spare, -1
        sizes = [(size, slot) for slot, size in enumerate(slots) if size >= count]
        if not sizes:
            return None
        slot = min(sizes)[1]
        after = list(slots)
        after[slot] -= count
        lost = self._holes(spare, slots) - self._holes(spare - count, after)
        # A hole that is lost anyway should hold many chunks.
        pieces = min(spare, sum(size // count * count for size, _ in sizes))
        return lost, -pieces, slot

    def _holes(self, spare: int, slots: Sequence[int]) -> float:
        total = 0.0
        for slotted, k, worth in self.worth:
            pieces = spare // k
            if slotted and pieces:
                pieces = min(pieces, sum(size // k for size in slots))
            total += worth * pieces
        return total

    def _density(self) -> dict[int, float]:
        """What the holes of a rack are worth per GPU."""
        worth = dict.fromkeys(self.racks, 0.0)
        known: dict[tuple[int, ...], float] = {}
        for machine, spare in enumerate(self.spare):
            state = (spare, *self.slots[machine])
            if state not in known:
                known[state] = self._holes(spare, self.slots[machine])
            worth[self.rack[machine]] += known[state]
        return {rack: worth[rack] / max(1, room) for rack, room in self.racks.items()}

    def _reserve(
        self,
        some: Sequence[int],
        needs: Sequence[ChunkNeed],
        density: Mapping[int, float] | None = None,
    ) -> bool:
        """Room in racks: where little is lost, else in the tightest that has it."""
        for i in some:
            count = needs[i].chunk.count
            fitting = [
                (0.0 if density is None else density[rack], room, rack)
                for rack, room in self.racks.items()
                if room >= count
            ]
            if not fitting:
                if not self._fail([i]):
                    return False
                continue
            rack = min(fitting)[2]
            self.racks[rack] -= count
            self.where[i] = (rack, -2)
        return True

    def places(self, needs: Sequence[ChunkNeed]) -> list[Place]:
        """Where the GPUs of every need lie, after a successful run."""
        room, places = self._cut(needs)
        members: dict[int, list[int]] = {}
        for offered in self.machines:
            members.setdefault(offered.rack, []).append(offered.machine)
        for i, (rack, slot) in self.where.items():
            if slot == -2:
                places[i] = room.spread(members[rack], needs[i].chunk.count)
        holes = Holes(room)
        lost = set(self.failed or ())
        for i in sorted(range(len(needs)), key=lambda i: -needs[i].chunk.count):
            if i not in self.where and i not in lost:
                places[i] = holes.spread(needs[i].chunk.count)
        return places

    def outline(self, needs: Sequence[ChunkNeed]) -> list[Place]:
        """The same where only holes matter: one machine for a whole rack, nothing for anywhere."""
        _, places = self._cut(needs)
        some = {offered.rack: offered.machine for offered in self.machines}
        for i, (rack, slot) in self.where.items():
            if slot == -2:
                places[i] = ((some[rack], 0, needs[i].chunk.count),)
        return places

    def _cut(self, needs: Sequence[ChunkNeed]) -> tuple[Room, list[Place]]:
        """Places of chunks that need a slot or a machine, and what is left."""
        room = Room(self.machines)
        places: list[Place] = [()] * len(needs)
        for i, (machine, slot) in self.where.items():
            if slot >= 0:
                number, count = self.machines[machine].machine, needs[i].chunk.count
                room.slots[number][slot] -= count
                room.free[number] -= count
                places[i] = ((number, slot, count),)
        for i, (machine, slot) in self.where.items():
            if slot == -1:
                places[i] = room.cut(self.machines[machine].machine, needs[i].chunk.count)
        return room, places


def _sorted(needs: Sequence[ChunkNeed]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Needs that are pinned, need a slot, a machine, a rack; large ones first, slots before all."""
    pinned, slots, whole, wide = [], [], [], []
    order = sorted(range(len(needs)), key=lambda i: (-needs[i].chunk.count, i))
    for i in order:
        chunk = needs[i].chunk
        if chunk.machine is not None:
            pinned.append(i)
        elif chunk.count == 1 or chunk.level == CLUSTER:
            continue
        elif chunk.level == RACK:
            wide.append(i)
        elif chunk.level == MACHINE:
            whole.append(i)
        else:
            slots.append(i)
    pinned.sort(key=lambda i: needs[i].chunk.level != SLOT or needs[i].chunk.count == 1)
    return pinned, slots, whole, wide


def load(
    machines: Sequence[OfferedMachine], needs: Sequence[ChunkNeed], *, once: bool = False
) -> Loading | None:
    """A loading that worked, or None; `once` tries a single one."""
    if _restricted(needs):
        return None
    for power in _POWERS:
        for slots_first in (True, False):
            for racks_first in _orders(machines, needs):
                attempt = Loading(machines)
                if attempt.run(
                    needs, racks_first=racks_first, slots_first=slots_first, power=power
                ):
                    return attempt
                if once:
                    return None
    return None


def load_by_racks(machines: Sequence[OfferedMachine], needs: Sequence[ChunkNeed]) -> Loading | None:
    """A loading with some choice of racks for the widest chunks, or None.

    They are few, so that most of their choices can be tried.
    """
    wide = _sorted(needs)[3][:_WIDEST]
    if _restricted(needs) or not wide:
        return None
    room: dict[int, int] = {}
    for offered in machines:
        room[offered.rack] = room.get(offered.rack, 0) + offered.gpus
    counts = [needs[i].chunk.count for i in wide]
    # Racks that are too small for a chunk are never asked; choices that fail by room alone, or
    # come twice, cost little but count: there may be thousands of racks.
    fitting = [[rack for rack, gpus in room.items() if gpus >= count] for count in counts]
    tried: set[tuple[tuple[int, int], ...]] = set()
    for choice in islice(product(*fitting), _MOST_LOOKS):
        name = tuple(sorted(zip(choice, counts, strict=True)))
        if name in tried or not _may_hold(room, name):
            continue
        if len(tried) >= _CHOICES:
            break
        tried.add(name)
        attempt = Loading(machines)
        attempt.hold(dict(zip(wide, choice, strict=True)), needs)
        if attempt.run(needs, racks_first=_NO_RACKS, slots_first=True, power=_POWERS[0]):
            return attempt
    return None


def _may_hold(room: Mapping[int, int], held: Sequence[tuple[int, int]]) -> bool:
    """Whether racks have room for these: (rack, GPUs)."""
    taken: dict[int, int] = {}
    for rack, count in held:
        taken[rack] = taken.get(rack, 0) + count
    return all(count <= room[rack] for rack, count in taken.items())


def _orders(machines: Sequence[OfferedMachine], needs: Sequence[ChunkNeed]) -> list[int]:
    """From how many GPUs on rack chunks come first: those wider than a machine, none, all."""
    widest = max((offered.gpus for offered in machines), default=0)
    spans = [need.chunk.count for need in needs if need.chunk.level == RACK]
    orders = [widest + 1] if max(spans, default=0) > widest else []
    return [*orders, _NO_RACKS, 0] if spans else [_NO_RACKS]


def load_most(
    machines: Sequence[OfferedMachine],
    needs: Sequence[ChunkNeed],
    owners: Sequence[int],
    losses: Sequence[float],
    enough: Callable[[], bool],
) -> tuple[list[Place], set[int]]:
    """Outlined places for as many owners as go at once, and the owners that go without any.

    Args:
        machines: Where.
        needs: What.
        owners: Whose each need is.
        losses: By owner, what going without costs; the cheapest of several attempts counts.
        enough: Whether to make do with the attempts so far.
    """
    best: tuple[float, set[int], Loading] | None = None
    orders = [(order, tight) for order in _orders(machines, needs) for tight in (True, False)]
    for order, tight in orders:
        attempt = Loading(machines)
        attempt.failed = []
        attempt.run(needs, racks_first=order, slots_first=False, power=_POWERS[0], tight=tight)
        failed = {owners[i] for i in attempt.failed}
        lost = sum(losses[owner] for owner in sorted(failed))
        if best is None or lost < best[0]:
            best = (lost, failed, attempt)
        if not failed or enough():
            break
    assert best is not None
    # What the others of a row that failed in part would take stays free for whoever comes next.
    return best[2].outline(needs), best[1]


def _restricted(needs: Iterable[ChunkNeed]) -> bool:
    return any(need.allowed is not None or need.rack is not None for need in needs)
