"""Choosing which GPUs: packed into gangs, near what an app has, own ones first.

pool = Pool(view.topology, view.offer)
gpus = pool.take(6, gang=4, own=app.expiring, near=app.kept)
"""

import bisect
import random
from collections.abc import Collection, Iterable, Mapping, Sequence

from themis.core.model import GpuId, GpuPosition, Topology


class _Near:
    """GPUs that an app has already, counted by machine and slot."""

    def __init__(self, seats: Sequence[GpuPosition], gpus: Iterable[GpuId]) -> None:
        self._seats = seats
        self.machines: dict[int, int] = {}
        self.slots: dict[int, int] = {}
        self.add(gpus)

    def add(self, gpus: Iterable[GpuId]) -> None:
        for gpu in gpus:
            seat = self._seats[gpu]
            self.machines[seat.machine] = self.machines.get(seat.machine, 0) + 1
            self.slots[seat.slot] = self.slots.get(seat.slot, 0) + 1


class _Tree:
    """Free GPUs by machine and slot, and slots by how many they have free."""

    def __init__(self, seats: Sequence[GpuPosition], gpus: Iterable[GpuId]) -> None:
        self._seats = seats
        self.machines: dict[int, dict[int, list[GpuId]]] = {}
        self.machine_of: dict[int, int] = {}
        self.totals: dict[int, int] = {}
        self.slots_with: dict[int, set[int]] = {}
        for gpu in sorted(gpus):
            self.add(gpu)

    def add(self, gpu: GpuId) -> None:
        seat = self._seats[gpu]
        slot = self.machines.setdefault(seat.machine, {}).setdefault(seat.slot, [])
        bisect.insort(slot, gpu)
        self.machine_of[seat.slot] = seat.machine
        self.totals[seat.machine] = self.totals.get(seat.machine, 0) + 1
        self._recount(seat.slot, len(slot) - 1, len(slot))

    def remove(self, gpu: GpuId) -> None:
        seat = self._seats[gpu]
        slots = self.machines[seat.machine]
        slot = slots[seat.slot]
        slot.remove(gpu)
        self._recount(seat.slot, len(slot) + 1, len(slot))
        self.totals[seat.machine] -= 1
        if not slot:
            del slots[seat.slot]
            if not slots:
                del self.machines[seat.machine], self.totals[seat.machine]

    def _recount(self, slot: int, before: int, after: int) -> None:
        if before:
            same = self.slots_with[before]
            same.discard(slot)
            if not same:
                del self.slots_with[before]
        if after:
            self.slots_with.setdefault(after, set()).add(slot)


class Pool:
    """Free GPUs of one round. Taking removes them."""

    def __init__(self, topology: Topology, gpus: Iterable[GpuId]) -> None:
        self._seats = topology.seats
        self._free: set[GpuId] = set(gpus)
        self._grown: _Tree | None = None

    @property
    def _tree(self) -> _Tree:
        """Where GPUs are, once that matters."""
        if self._grown is None:
            self._grown = _Tree(self._seats, self._free)
        return self._grown

    def __len__(self) -> int:
        return len(self._free)

    def __contains__(self, gpu: GpuId) -> bool:
        return gpu in self._free

    def gpus(self) -> tuple[GpuId, ...]:
        """What is left, sorted."""
        return tuple(sorted(self._free))

    def count(self, machines: frozenset[int] | None = None) -> int:
        """How many are left on the given machines."""
        if machines is None:
            return len(self._free)
        return sum(total for machine, total in self._tree.totals.items() if machine in machines)

    def put_back(self, gpu: GpuId) -> None:
        """Add one GPU."""
        self._free.add(gpu)
        if self._grown is not None:
            self._grown.add(gpu)

    def remove(self, gpus: Iterable[GpuId]) -> None:
        """Take exactly these GPUs."""
        for gpu in gpus:
            self._free.remove(gpu)
            if self._grown is not None:
                self._grown.remove(gpu)

    def take(
        self,
        count: int,
        *,
        gang: int = 1,
        own: Collection[GpuId] = (),
        near: Collection[GpuId] = (),
        machines: frozenset[int] | None = None,
    ) -> tuple[GpuId, ...]:
        """Take up to `count` GPUs, sorted: own ones first, the rest packed gang by gang."""
        parts = self.take_parts(count, gang=gang, own=own, near=near, machines=machines)
        return tuple(sorted(gpu for part in parts for gpu in part))

    def take_parts(
        self,
        count: int,
        *,
        gang: int = 1,
        own: Collection[GpuId] = (),
        near: Collection[GpuId] = (),
        machines: frozenset[int] | None = None,
    ) -> list[list[GpuId]]:
        """Take up to `count` GPUs in parts: own ones, what makes broken gangs whole, new gangs."""
        mine = self.take_own(count, own, gang)
        parts = [mine] if mine else []
        placed = _Near(self._seats, (*near, *mine))
        left = count - len(mine)
        while left > 0 and self._free:
            part = self._next_part(left, gang, placed, machines)
            if not part:
                break
            self.remove(part)
            parts.append(part)
            placed.add(part)
            left -= len(part)
        return parts

    def next_part(
        self,
        most: int,
        *,
        gang: int,
        near: Collection[GpuId] = (),
        machines: frozenset[int] | None = None,
    ) -> list[GpuId]:
        """What to take next, without taking it: the rest of a broken gang, else a new gang."""
        return self._next_part(most, gang, _Near(self._seats, near), machines)

    def _next_part(
        self, most: int, gang: int, near: _Near, machines: frozenset[int] | None
    ) -> list[GpuId]:
        part = self._completion(gang, most, near, machines) if gang > 1 else []
        return part or self._best_gang(min(gang, most), near.machines, machines)

    def _completion(
        self, gang: int, most: int, near: _Near, machines: frozenset[int] | None
    ) -> list[GpuId]:
        """What a machine that holds part of a gang can add to it; the most nearly whole first."""
        free = self._tree.machines
        lacking = [
            (-size % gang, machine)
            for machine, size in near.machines.items()
            if size % gang and machine in free and (machines is None or machine in machines)
        ]
        if not lacking:
            return []
        missing, machine = min(lacking)
        slots = sorted(
            free[machine].items(), key=lambda item: (-near.slots.get(item[0], 0), item[0])
        )
        return [gpu for _, gpus in slots for gpu in gpus][: min(missing, most)]

    def take_own(self, count: int, own: Collection[GpuId], gang: int = 1) -> list[GpuId]:
        """Take up to `count` of the app's own GPUs, fullest machines first so gangs stay whole."""
        mine = [gpu for gpu in own if gpu in self._free]
        if len(mine) > count:
            sizes: dict[int, int] = {}
            for gpu in mine:
                machine = self._seats[gpu].machine
                sizes[machine] = sizes.get(machine, 0) + 1
            # Machines that hold whole gangs first; then larger parts; then by number.
            mine.sort(
                key=lambda gpu: (
                    -min(sizes[self._seats[gpu].machine], gang),
                    -sizes[self._seats[gpu].machine],
                    self._seats[gpu],
                )
            )
            mine = mine[:count]
        self.remove(mine)
        return mine

    def take_from(
        self,
        source: Iterable[GpuId],
        count: int,
        rng: random.Random,
        *,
        machines: frozenset[int] | None = None,
    ) -> list[GpuId]:
        """Take up to `count` of these GPUs at random: what a policy does that ignores placement."""
        free = [
            gpu
            for gpu in source
            if gpu in self._free and (machines is None or self._seats[gpu].machine in machines)
        ]
        taken = free if len(free) <= count else rng.sample(free, count)
        self.remove(taken)
        return taken

    def _best_gang(
        self, size: int, close: Collection[int], machines: frozenset[int] | None
    ) -> list[GpuId]:
        """The tightest home for one gang: a slot, else a machine, else a rack, else anywhere."""
        tree = self._tree
        for free in sorted(tree.slots_with):
            if free < size:
                continue
            slots: Collection[int] = tree.slots_with[free]
            if machines is not None:
                slots = [slot for slot in slots if tree.machine_of[slot] in machines]
            if slots:
                close_by = [slot for slot in slots if tree.machine_of[slot] in close]
                best = min(close_by or slots)
                return tree.machines[tree.machine_of[best]][best][:size]
        totals = tree.totals
        allowed = [machine for machine in totals if machines is None or machine in machines]
        fits = [
            (totals[machine], 0 if machine in close else 1, machine)
            for machine in allowed
            if totals[machine] >= size
        ]
        if fits:
            return self._from_machines([min(fits)[2]], size)
        return self._across_machines(size, close, allowed, totals)

    def _across_machines(
        self, size: int, close: Collection[int], allowed: list[int], totals: Mapping[int, int]
    ) -> list[GpuId]:
        racks: dict[int, list[int]] = {}
        for machine in allowed:
            racks.setdefault(self._rack(machine), []).append(machine)
        sums = {rack: sum(totals[m] for m in members) for rack, members in racks.items()}
        fits = [(total, rack) for rack, total in sums.items() if total >= size]
        members = racks[min(fits)[1]] if fits else allowed
        order = sorted(members, key=lambda m: (m not in close, -totals[m], m))
        if not fits:
            order.sort(key=lambda m: (-sums[self._rack(m)], self._rack(m)))
        return self._from_machines(order, size)

    def _from_machines(self, machines: list[int], size: int) -> list[GpuId]:
        """GPUs from these machines in order, in each the fullest slots first: fewer stubs stay."""
        chosen: list[GpuId] = []
        for machine in machines:
            slots = sorted(
                self._tree.machines[machine].items(), key=lambda item: (-len(item[1]), item[0])
            )
            for _, gpus in slots:
                chosen.extend(gpus[: size - len(chosen)])
                if len(chosen) == size:
                    return chosen
        return chosen

    def _rack(self, machine: int) -> int:
        slots = self._tree.machines[machine]
        return self.seat(next(iter(slots.values()))[0]).rack

    def holes(self, machines: frozenset[int] | None) -> list[list[GpuId]]:
        """What is left in each slot and on each machine, of the given machines."""
        groups = []
        for machine, free in sorted(self._tree.machines.items()):
            if machines is None or machine in machines:
                slots = sorted(free.items())
                groups += [list(gpus) for _, gpus in slots]
                groups += [[gpu for _, gpus in slots for gpu in gpus]] if len(slots) > 1 else []
        return groups

    def by_machine(self, gpus: Iterable[GpuId]) -> list[list[GpuId]]:
        """These GPUs by machine, the largest group first."""
        groups: dict[int, list[GpuId]] = {}
        for gpu in gpus:
            groups.setdefault(self._seats[gpu].machine, []).append(gpu)
        return sorted(groups.values(), key=lambda group: (-len(group), group[0]))

    def seat(self, gpu: GpuId) -> GpuPosition:
        """Where a GPU sits."""
        return self._seats[gpu]
