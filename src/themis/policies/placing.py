"""Choosing which GPUs: packed into gangs, near what an app has, own ones first.

pool = Pool(view.topology, view.offer)
gpus = pool.take(6, gang=4, own=app.expiring, near=app.kept)
"""

import random
from collections.abc import Collection, Iterable

from themis.model import GpuId, Seat, Topology


class Pool:
    """Free GPUs of one round. Taking removes them."""

    def __init__(self, topology: Topology, gpus: Iterable[GpuId]) -> None:
        self._seats = topology.seats
        self._free: set[GpuId] = set(gpus)
        self._tree: dict[int, dict[int, list[GpuId]]] | None = None
        """By machine and slot, once it matters where GPUs are."""

    @property
    def _machines(self) -> dict[int, dict[int, list[GpuId]]]:
        if self._tree is None:
            self._tree = {}
            for gpu in sorted(self._free):
                seat = self._seats[gpu]
                self._tree.setdefault(seat.machine, {}).setdefault(seat.slot, []).append(gpu)
        return self._tree

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
        return sum(
            len(gpus)
            for machine, slots in self._machines.items()
            if machine in machines
            for gpus in slots.values()
        )

    def put_back(self, gpu: GpuId) -> None:
        """Add one GPU."""
        self._free.add(gpu)
        if self._tree is not None:
            seat = self._seats[gpu]
            slot = self._tree.setdefault(seat.machine, {}).setdefault(seat.slot, [])
            slot.append(gpu)
            slot.sort()

    def remove(self, gpus: Iterable[GpuId]) -> None:
        """Take exactly these GPUs."""
        for gpu in gpus:
            self._free.remove(gpu)
            if self._tree is not None:
                seat = self._seats[gpu]
                slots = self._tree[seat.machine]
                slots[seat.slot].remove(gpu)
                if not slots[seat.slot]:
                    del slots[seat.slot]
                    if not slots:
                        del self._tree[seat.machine]

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
        placed = [*near, *mine]
        left = count - len(mine)
        while left > 0:
            part = self.next_part(left, gang=gang, near=placed, machines=machines)
            if not part:
                break
            self.remove(part)
            parts.append(part)
            placed.extend(part)
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
        part = self._completion(gang, most, near, machines)
        if part:
            return part
        close = {self._seats[gpu].machine for gpu in near}
        return self._best_gang(min(gang, most), close, machines)

    def _completion(
        self, gang: int, most: int, placed: Collection[GpuId], machines: frozenset[int] | None
    ) -> list[GpuId]:
        """What a machine that holds part of a gang can add to it; the most nearly whole first."""
        sizes: dict[int, int] = {}
        for gpu in placed:
            machine = self._seats[gpu].machine
            sizes[machine] = sizes.get(machine, 0) + 1
        lacking = sorted(
            (-sizes[machine] % gang, machine)
            for machine in sizes
            if sizes[machine] % gang
            and machine in self._machines
            and (machines is None or machine in machines)
        )
        if not lacking:
            return []
        missing, machine = lacking[0]
        near = [self._seats[gpu].slot for gpu in placed]
        slots = sorted(
            self._machines[machine].items(), key=lambda item: (-near.count(item[0]), item[0])
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
        self, size: int, close: set[int], machines: frozenset[int] | None
    ) -> list[GpuId]:
        """The tightest home for one gang: a slot, else a machine, else a rack, else anywhere."""
        allowed = [machine for machine in self._machines if machines is None or machine in machines]
        best: tuple[tuple[int, int, int, int], list[GpuId]] | None = None
        totals: dict[int, int] = {}
        for machine in allowed:
            far = 0 if machine in close else 1
            total = 0
            for slot, gpus in self._machines[machine].items():
                free = len(gpus)
                total += free
                key = (0, free, far, slot)
                if free >= size and (best is None or key < best[0]):
                    best = (key, gpus[:size])
            totals[machine] = total
        if best is not None:
            return best[1]
        fits = [
            (totals[machine], 0 if machine in close else 1, machine)
            for machine in allowed
            if totals[machine] >= size
        ]
        if fits:
            return self._from_machines([min(fits)[2]], size)
        return self._across_machines(size, close, allowed, totals)

    def _across_machines(
        self, size: int, close: set[int], allowed: list[int], totals: dict[int, int]
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
                self._machines[machine].items(), key=lambda item: (-len(item[1]), item[0])
            )
            for _, gpus in slots:
                chosen.extend(gpus[: size - len(chosen)])
                if len(chosen) == size:
                    return chosen
        return chosen

    def _rack(self, machine: int) -> int:
        slots = self._machines[machine]
        return self.seat(next(iter(slots.values()))[0]).rack

    def holes(self, machines: frozenset[int] | None) -> list[list[GpuId]]:
        """What is left in each slot and on each machine, of the given machines."""
        groups = []
        for machine in sorted(self._machines):
            if machines is None or machine in machines:
                slots = sorted(self._machines[machine].items())
                groups += [list(gpus) for _, gpus in slots]
                groups += [[gpu for _, gpus in slots for gpu in gpus]] if len(slots) > 1 else []
        return groups

    def by_machine(self, gpus: Iterable[GpuId]) -> list[list[GpuId]]:
        """These GPUs by machine, the largest group first."""
        groups: dict[int, list[GpuId]] = {}
        for gpu in gpus:
            groups.setdefault(self._seats[gpu].machine, []).append(gpu)
        return sorted(groups.values(), key=lambda group: (-len(group), group[0]))

    def seat(self, gpu: GpuId) -> Seat:
        """Where a GPU sits."""
        return self._seats[gpu]
