"""Whether chosen rows fit together, and where: exact.

Best fit settles nearly all cases. Where it fails, a depth-first search decides slots and machines
of chunks that need one, then racks, and a flow fills in the rest.
"""

from collections.abc import Iterable, Iterator, Sequence

from themis.core.auction.packing.free_gpus import ChunkNeed, Room, packing_order
from themis.core.auction.packing.max_flow import transport
from themis.core.auction.problem import OfferedMachine
from themis.core.auction.solution import Place
from themis.core.auction.solvers.prepared import Option, PreparedProblem, is_hard
from themis.core.model import RACK, SLOT


class PackingLimitError(Exception):
    """The search was cut off: it is unknown whether the chunks fit."""


def needs_of(prepared: PreparedProblem, chosen: Iterable[Option]) -> list[ChunkNeed]:
    """The chunks of some options, in their order."""
    return [
        ChunkNeed(chunk, prepared.bidders[option.bidder].machines)
        for option in chosen
        for chunk in option.chunks
    ]


def by_option(chosen: Sequence[Option], places: Sequence[Place]) -> tuple[tuple[Place, ...], ...]:
    """Places of `needs_of`, grouped by option again."""
    rest = iter(places)
    return tuple(tuple(next(rest) for _ in option.chunks) for option in chosen)


def pack(
    machines: Sequence[OfferedMachine], needs: Sequence[ChunkNeed], limit: int | None = None
) -> list[Place] | None:
    """A place for each need, or None when they do not fit together.

    Raises:
        PackingLimitError: More than `limit` steps did not settle it.
    """
    if sum(need.chunk.count for need in needs) > sum(offered.gpus for offered in machines):
        return None
    order = sorted(range(len(needs)), key=lambda index: packing_order(needs[index]))
    quick = Room(machines).take_all(needs[index] for index in order)
    if quick is not None:
        places: list[Place] = [()] * len(needs)
        for index, place in zip(order, quick, strict=True):
            places[index] = place
        return places
    return _PackingSearch(machines, needs, order, limit).run()


_Move = tuple[int, int]
"""(machine, slot), or (machine, -1) when any of its slots will do, or (rack, -2)."""


class _PackingSearch:
    """Depth-first over machines and racks, remembering states that lead nowhere."""

    def __init__(
        self,
        machines: Sequence[OfferedMachine],
        needs: Sequence[ChunkNeed],
        order: Sequence[int],
        limit: int | None,
    ) -> None:
        self.machines = machines
        self.needs = needs
        self.limit = limit
        self.slots = [list(offered.slots) for offered in machines]
        self.spare = [offered.gpus for offered in machines]
        self.usable = [[i for i, m in enumerate(machines) if n.may_use(m)] for n in needs]
        self.loads: dict[tuple[int, int], int] = {}
        # A chunk pinned to a machine, in any of its slots, has nowhere else to go.
        self.reserved = [i for i in order if _is_reserved(needs[i])]
        hard = [i for i in order if is_hard(needs[i].chunk) and not _is_reserved(needs[i])]
        self.steps = [i for i in hard if needs[i].chunk.level == SLOT]
        self.slot_steps = len(self.steps)
        self.steps += [i for i in hard if needs[i].chunk.level != SLOT]
        self.steps += [i for i in order if _is_rack(needs[i])]
        self.loose = [i for i in order if not is_hard(needs[i].chunk) and not _is_rack(needs[i])]
        self.kind = self._kinds()
        self.group = self._groups()

    def run(self) -> list[Place] | None:
        for index in self.reserved:
            if not self.usable[index]:
                return None
            machine = self.usable[index][0]
            self.spare[machine] -= self.needs[index].chunk.count
            if self.spare[machine] < 0:
                return None
        moves = [self._moves(0)]
        done: list[_Move] = []
        names = [self._state(0)]
        dead: set[object] = set()
        work = 0
        while moves:
            if len(done) == len(self.steps):
                flow = self._flow(done)
                if flow is not None:
                    return self._places(done, flow)
            move = next(moves[-1], None)
            if move is None:
                moves.pop()
                dead.add(names.pop())
                if done:
                    self._apply(len(done) - 1, done.pop(), -1)
                continue
            work += 1
            if self.limit is not None and work > self.limit:
                raise PackingLimitError
            self._apply(len(done), move, 1)
            name = self._state(len(done) + 1)
            if name in dead:
                self._apply(len(done), move, -1)
                continue
            done.append(move)
            names.append(name)
            moves.append(self._moves(len(done)))
        return None

    def _moves(self, depth: int) -> Iterator[_Move]:
        """Ways to place the next chunk, tightest first, one of each indistinguishable kind."""
        if depth == len(self.steps):
            return iter(())
        index = self.steps[depth]
        count = self.needs[index].chunk.count
        found: dict[object, tuple[int, int, _Move]] = {}
        for machine in self.usable[index]:
            spare = self.spare[machine]
            if _is_rack(self.needs[index]):
                rack = self.machines[machine].rack
                if rack not in found and (room := self._rack_room(index, rack)) >= count:
                    found[rack] = (room, 0, (rack, -2))
            elif spare < count:
                continue
            elif depth < self.slot_steps:
                shape = tuple(sorted(self.slots[machine]))
                for slot, size in enumerate(self.slots[machine]):
                    if size >= count:
                        key = (self.kind[machine], shape, spare, size)
                        found.setdefault(key, (size, spare, (machine, slot)))
            else:
                found.setdefault((self.kind[machine], spare), (spare, 0, (machine, -1)))
        return iter([move for _, _, move in sorted(found.values())])

    def _apply(self, depth: int, move: _Move, sign: int) -> None:
        index = self.steps[depth]
        count = sign * self.needs[index].chunk.count
        where, slot = move
        if slot == -2:
            key = (where, self.group[index])
            self.loads[key] = self.loads.get(key, 0) + count
            return
        self.spare[where] -= count
        if slot >= 0:
            self.slots[where][slot] -= count

    def _rack_room(self, index: int, rack: int) -> int:
        group = self.group[index]
        mine = self.loads.get((rack, group), 0)
        free = sum(self.spare[m] for m in self.usable[index] if self.machines[m].rack == rack)
        everybody = sum(
            self.spare[m] for m, offered in enumerate(self.machines) if offered.rack == rack
        )
        loaded = sum(load for (where, _), load in self.loads.items() if where == rack)
        return min(free - mine, everybody - loaded)

    def _state(self, depth: int) -> object:
        """What the rest of the search depends on, blind to which of equal machines is which."""
        slots_count = depth < self.slot_steps
        machines = sorted(
            (self.kind[m], spare, tuple(sorted(self.slots[m])) if slots_count else ())
            for m, spare in enumerate(self.spare)
        )
        return depth, tuple(machines), tuple(sorted((k, v) for k, v in self.loads.items() if v))

    def _kinds(self) -> list[tuple[int, ...]]:
        """Machines of equal kind can stand in for each other."""
        lists = dict.fromkeys(tuple(usable) for usable in self.usable)
        groups = [frozenset(usable) for usable in lists]
        return [
            (offered.rack, *(int(i in group) for group in groups))
            for i, offered in enumerate(self.machines)
        ]

    def _groups(self) -> list[int]:
        numbers: dict[tuple[int, ...], int] = {}
        return [numbers.setdefault(tuple(usable), len(numbers)) for usable in self.usable]

    def _flow(self, done: Sequence[_Move]) -> dict[int, dict[int, int]] | None:
        """GPUs per machine for chunks that only need sums, or None."""
        ends: dict[int, list[int]] = {}
        for index, (where, slot) in zip(self.steps, done, strict=True):
            if slot == -2:
                ends[index] = [m for m in self.usable[index] if self.machines[m].rack == where]
        ends.update((index, self.usable[index]) for index in self.loose)
        amounts = {index: self.needs[index].chunk.count for index in ends}
        return transport(ends, amounts, list(self.spare))

    def _places(self, done: Sequence[_Move], flow: dict[int, dict[int, int]]) -> list[Place]:
        room = Room(self.machines)
        places: list[Place] = [()] * len(self.needs)
        whole = [(i, self.usable[i][0]) for i in self.reserved]
        for index, (where, slot) in zip(self.steps, done, strict=True):
            machine = self.machines[where].machine if slot > -2 else -1
            count = self.needs[index].chunk.count
            if slot >= 0:
                room.slots[machine][slot] -= count
                room.free[machine] -= count
                places[index] = ((machine, slot, count),)
            elif slot == -1:
                whole.append((index, where))
        for index, where in whole:
            places[index] = room.cut(self.machines[where].machine, self.needs[index].chunk.count)
        for index, parts in flow.items():
            cuts = (room.cut(self.machines[m].machine, count) for m, count in parts.items())
            places[index] = tuple(sorted(piece for cut in cuts for piece in cut))
        return places


def _is_reserved(need: ChunkNeed) -> bool:
    return need.chunk.machine is not None and (need.chunk.level != SLOT or need.chunk.count == 1)


def _is_rack(need: ChunkNeed) -> bool:
    return need.chunk.level == RACK and need.chunk.machine is None
