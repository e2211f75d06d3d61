"""The cluster: racks > machines > slots > GPUs, and how close a set of GPUs is.

topology = Topology((Machine("m0", "r0", (2, 2)), Machine("m1", "r0", (2, 2))))
topology.level([GpuId(0), GpuId(1)])   # 0: one slot
topology.level([GpuId(0), GpuId(4)])   # 2: one rack
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from themis.core.model.ids import GpuId, check_count, check_name, check_number
from themis.errors import ConfigError, DuplicateError

SLOT, MACHINE, RACK, CLUSTER = 0, 1, 2, 3
LEVELS = (SLOT, MACHINE, RACK, CLUSTER)
LEVEL_NAMES = ("slot", "machine", "rack", "cluster")
ANY_MODEL = "any"


class GpuPosition(NamedTuple):
    """Where one GPU sits. Slots and machines are numbered across the whole cluster."""

    rack: int
    machine: int
    slot: int
    gpu: GpuId


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine: its rack, the GPUs of each of its slots, and what they are."""

    name: str
    rack: str
    slots: tuple[int, ...]
    gpu_model: str = "p100"
    gpu_memory: float = 16.0

    def __post_init__(self) -> None:
        check_name("machine", self.name)
        check_name("rack", self.rack)
        check_name("gpu_model", self.gpu_model)
        check_number("gpu_memory", self.gpu_memory)
        if not self.slots:
            raise ConfigError(f"slots of {self.name}", self.slots, "at least one slot")
        for size in self.slots:
            check_count(f"slots of {self.name}", size, high=4096)

    @property
    def gpus(self) -> int:
        """How many GPUs it has."""
        return sum(self.slots)


@dataclass(frozen=True)
class Topology:
    """An ordered set of machines with dense GPU ids; machines of a rack stand together.

    A machine that joins later is appended, so ids never change meaning.
    """

    machines: tuple[Machine, ...]
    name: str = "cluster"

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for machine in self.machines:
            if machine.name in seen:
                raise DuplicateError(machine.name, "two machines have this name")
            seen.add(machine.name)

    @staticmethod
    def in_locality_order(machines: Iterable[Machine], name: str = "cluster") -> "Topology":
        """Build a topology whose racks stand together, in order of first appearance."""
        by_rack: dict[str, list[Machine]] = {}
        for machine in machines:
            by_rack.setdefault(machine.rack, []).append(machine)
        return Topology(tuple(m for group in by_rack.values() for m in group), name)

    @cached_property
    def seats(self) -> tuple[GpuPosition, ...]:
        """The seat of each GPU, by id."""
        racks = {name: index for index, name in enumerate(self.racks)}
        seats: list[GpuPosition] = []
        slot = 0
        for index, machine in enumerate(self.machines):
            for size in machine.slots:
                for _ in range(size):
                    seats.append(GpuPosition(racks[machine.rack], index, slot, GpuId(len(seats))))
                slot += 1
        return tuple(seats)

    @cached_property
    def racks(self) -> tuple[str, ...]:
        """Rack names; a rack's number is its place here."""
        return tuple(dict.fromkeys(machine.rack for machine in self.machines))

    @cached_property
    def gpus_of(self) -> tuple[tuple[GpuId, ...], ...]:
        """The GPU ids of each machine, by machine number."""
        groups: list[list[GpuId]] = [[] for _ in self.machines]
        for seat in self.seats:
            groups[seat.machine].append(seat.gpu)
        return tuple(tuple(group) for group in groups)

    @cached_property
    def slots_of(self) -> tuple[tuple[int, ...], ...]:
        """The slot numbers of each machine, by machine number."""
        groups: list[dict[int, None]] = [{} for _ in self.machines]
        for seat in self.seats:
            groups[seat.machine][seat.slot] = None
        return tuple(tuple(group) for group in groups)

    @cached_property
    def number_of(self) -> dict[str, int]:
        """Machine name to machine number."""
        return {machine.name: index for index, machine in enumerate(self.machines)}

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return len(self.seats)

    def level(self, gpus: Collection[GpuId]) -> int:
        """How far apart these GPUs are: 0 one slot, 1 one machine, 2 one rack, 3 across racks."""
        seats = self.seats
        return level_of([seats[gpu] for gpu in gpus])

    def joined_by(self, machine: Machine) -> "Topology":
        """The same cluster with one more machine, whose GPUs get new ids at the end."""
        return Topology((*self.machines, machine), self.name)

    def __getstate__(self) -> dict[str, object]:
        return {"machines": self.machines, "name": self.name}


def level_of(seats: Collection[GpuPosition]) -> int:
    """The locality level of some seats."""
    if len(seats) <= 1:
        return SLOT
    first, *rest = seats
    worst = SLOT
    for seat in rest:
        if seat.rack != first.rack:
            return CLUSTER
        if seat.machine != first.machine:
            worst = RACK
        elif worst == SLOT and seat.slot != first.slot:
            worst = MACHINE
    return worst
