"""What an auction decides: machines with free GPUs, and bidders with rows they would like.

    machines = (OfferedMachine(machine=0, rack=0, slots=(4,)),)
    row = Candidate((Chunk(MACHINE, 4),), rho=1.0)
    problem = Problem(machines, (Bidder(AppId("a"), 1.0, rho_nothing=8.0, rows=(row,)),))

A chunk's level is the worst it accepts: 0 all in one slot, 1 in one machine, 2 in one rack,
3 anywhere. A pinned chunk lies on the machine it names.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from themis.core.model import (
    CLUSTER,
    MACHINE,
    SLOT,
    AppId,
    Bid,
    Chunk,
    GpuId,
    RowTable,
    TableRow,
    TableShape,
    Topology,
)
from themis.core.model.ids import check_count, check_number
from themis.errors import ConfigError, InvalidBidError, InvariantError

MAX_ROWS = 512
"""Of a bid. A hundred jobs and 256 GPUs come to about forty."""
MAX_TABLE = 4096
"""Rows of a valuation, and GPUs of one of them."""
MAX_CHUNKS = 1024


@dataclass(frozen=True, slots=True)
class OfferedMachine:
    """The free GPUs of one machine, per slot in the machine's own slot order; zeros allowed."""

    machine: int
    rack: int
    slots: tuple[int, ...]

    @property
    def gpus(self) -> int:
        """How many of its GPUs are offered."""
        return sum(self.slots)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One row of a bid with its price taken: with these chunks, this rho."""

    chunks: tuple[Chunk, ...]
    rho: float

    @property
    def gpus(self) -> int:
        """How many GPUs the row takes."""
        return sum(chunk.count for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class Bidder:
    """An app at the auction. `machines` are the only ones it may use; None means all."""

    app: AppId
    weight: float
    rho_nothing: float
    rows: tuple[Candidate, ...]
    machines: frozenset[int] | None = None

    def gain(self, row: int) -> float:
        """What winning this row adds to the sum of weighted logarithms, over winning nothing."""
        return self.weight * (math.log(self.rho_nothing) - math.log(self.rows[row].rho))

    def log_improvement(self, row: int) -> float:
        """The logarithm of 1/rho with this row less 1/rho with nothing; it must be better."""
        rho = self.rows[row].rho
        # In logarithms, because rho of 1e-200 and 1e200 would give infinity and zero.
        return math.log(self.rho_nothing - rho) - math.log(rho) - math.log(self.rho_nothing)


@dataclass(frozen=True, slots=True)
class Quota:
    """These apps together win at most this many GPUs."""

    apps: tuple[AppId, ...]
    gpus: int


class Objective(StrEnum):
    """What an auction makes as large as it can."""

    PRODUCT = "product"
    """The weighted product of 1/rho over one allocation."""
    LOTTERY = "lottery"
    """The weighted product of expected gains in 1/rho, over lotteries of allocations."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One auction to be solved."""

    machines: tuple[OfferedMachine, ...]
    bidders: tuple[Bidder, ...]
    quotas: tuple[Quota, ...] = ()
    objective: Objective = Objective.PRODUCT

    def __post_init__(self) -> None:
        if len({offered.machine for offered in self.machines}) != len(self.machines):
            raise InvariantError("a machine is offered twice in one auction")
        if len({bidder.app for bidder in self.bidders}) != len(self.bidders):
            raise InvariantError("an app bids twice in one auction")
        for bidder in self.bidders:
            # A NaN would sort anywhere and win or lose by accident, so it stops here.
            numbers = (bidder.weight, bidder.rho_nothing, *(row.rho for row in bidder.rows))
            if not all(math.isfinite(number) and number > 0 for number in numbers):
                raise InvariantError(f"weight and rho of {bidder.app} must be finite and above 0")
            # A row of nothing would be won by every bidder and place nothing.
            for number, row in enumerate(bidder.rows):
                if not row.chunks:
                    raise InvariantError(f"row {number} of {bidder.app} has no chunks")


def offered_machines(gpus: Collection[GpuId], topology: Topology) -> tuple[OfferedMachine, ...]:
    """Count free GPUs per machine and slot; machines without any are left out."""
    seats = topology.seats
    counts: dict[int, int] = {}
    racks: dict[int, int] = {}
    for gpu in gpus:
        rack, machine, slot, _ = seats[gpu]
        racks[machine] = rack
        counts[slot] = counts.get(slot, 0) + 1
    return tuple(
        [
            OfferedMachine(
                machine,
                racks[machine],
                tuple([counts.get(slot, 0) for slot in topology.slots_of[machine]]),
            )
            for machine in sorted(racks)
        ]
    )


def normal(chunk: Chunk) -> Chunk:
    """The same wish in one spelling: one GPU is level 0, a pinned chunk is within its machine."""
    if chunk.count == 1:
        return chunk if chunk.level == SLOT else Chunk(SLOT, 1, chunk.machine)
    if chunk.machine is not None and chunk.level > MACHINE:
        return Chunk(MACHINE, chunk.count, chunk.machine)
    return chunk


def check_bid(bid: Bid, machines: Sequence[OfferedMachine]) -> None:
    """Check one app's answer where it enters.

    Raises:
        InvalidBidError: It asks for something that was not offered, or makes no sense.
    """
    check_bid_on(bid, gpus_by_machine(machines))


def gpus_by_machine(machines: Sequence[OfferedMachine]) -> dict[int, int]:
    """How many GPUs of each machine are offered."""
    return {machine.machine: machine.gpus for machine in machines}


def check_bid_on(bid: Bid, offered: Mapping[int, int]) -> None:
    """The same, by the GPUs that are offered of each machine.

    Raises:
        InvalidBidError: As above.
    """
    total = sum(offered.values())
    try:
        _check_size("rows", len(bid.rows), MAX_ROWS)
        _check_size("rows of its valuation", len(bid.table), MAX_TABLE)
        for number, row in enumerate(bid.rows):
            if not 1 <= len(row.chunks) <= MAX_CHUNKS:
                _check_size(f"chunks of row {number}", len(row.chunks), MAX_CHUNKS, low=1)
            before = None
            for chunk in row.chunks:
                if chunk is not before:  # A row of many gangs has one chunk many times.
                    _check_chunk(chunk, number, offered, total)
                before = chunk
            if not 1 <= (gpus := row.gpus) <= total:
                _check_size(f"GPUs of row {number}", gpus, total, low=1)
            check_number(f"seconds of row {number}", row.seconds, above=True)
        if not (isinstance(bid.table, RowTable) and _is_well(bid.table)):
            _check_table(bid.table)
        if bid.claim is not None:
            check_number("claimed elapsed time", bid.claim.elapsed, high=1e6)
            check_number("claimed ideal time", bid.claim.ideal_time, above=True, high=1e6)
    except ConfigError as error:
        raise InvalidBidError(bid.app, str(error)) from error


def _is_well(table: RowTable) -> bool:
    """Whether a table is surely well: nearly all are, and their shapes are old acquaintances."""
    seconds = table.seconds
    return (
        len(seconds) == len(table.shape.rows)
        and _is_sound(table.shape)
        and {float}.issuperset(map(type, seconds))
        # A NaN is no less than anything, and anything with it added is one.
        and min(seconds, default=1.0) > 0.0
        and sum(seconds) < 1e15
    )


@lru_cache(maxsize=1024)
def _is_sound(shape: TableShape) -> bool:
    return all(
        type(level) is int
        and 0 <= level <= CLUSTER
        and type(count) is int
        and 1 <= count <= MAX_TABLE
        for level, count in shape.rows
    )


def _check_table(table: Sequence[TableRow]) -> None:
    for number, entry in enumerate(table):
        if (
            type(entry.level) is int
            and 0 <= entry.level <= CLUSTER
            and type(entry.count) is int
            and 1 <= entry.count <= MAX_TABLE
            and type(entry.seconds) is float
            and 0.0 < entry.seconds < 1e15
        ):
            continue
        check_count(f"level in its valuation, row {number}", entry.level, low=0, high=CLUSTER)
        check_count(f"GPU count in its valuation, row {number}", entry.count)
        check_number(f"seconds in its valuation, row {number}", entry.seconds, above=True)


def _check_chunk(chunk: Chunk, row: int, offered: Mapping[int, int], total: int) -> None:
    level, count, machine = chunk.level, chunk.count, chunk.machine
    if type(level) is int and type(count) is int and 0 <= level <= CLUSTER:
        # Nearly all are well: the words for what is wrong are found below.
        most = total if machine is None else offered.get(machine, 0)
        if 1 <= count <= most and (machine is None or type(machine) is int):
            return
    check_count(f"level in row {row}", chunk.level, low=0, high=CLUSTER)
    room = total
    if chunk.machine is not None:
        check_count(f"machine in row {row}", chunk.machine, low=0)
        if chunk.machine not in offered:
            raise ConfigError(f"machine in row {row}", chunk.machine, "a machine of the offer")
        room = offered[chunk.machine]
    check_count(f"GPU count in row {row}", chunk.count, high=room)


def _check_size(key: str, size: int, high: int, low: int = 0) -> None:
    if not low <= size <= high:
        raise ConfigError(key, size, f"{low} to {high}")
