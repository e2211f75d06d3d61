"""Questions to agents and their answers.

A bid is a small table. Each row says: with these chunks on top of what I keep, I still need so
many seconds. The arbiter adds the elapsed time and divides by the ideal time; rho is claimed only
where an experiment switches that defence off.

    Row((Chunk(level=MACHINE, count=4), Chunk(MACHINE, 4)), seconds=1800.0)
"""

from collections.abc import Sequence
from dataclasses import dataclass

from themis.core.model.ids import AppId, GpuId
from themis.core.model.slowdown import Slowdown


@dataclass(frozen=True, slots=True, order=True)
class Chunk:
    """GPUs wanted together: at worst this far apart, optionally on one given machine."""

    level: int
    count: int
    machine: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """With these chunks, this many seconds are still needed (restart included)."""

    chunks: tuple[Chunk, ...]
    seconds: float

    @property
    def gpus(self) -> int:
        """How many GPUs the row takes."""
        return sum(chunk.count for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class TableRow:
    """Part of a valuation: `count` GPUs in gangs at this level finish the rest in `seconds`."""

    level: int
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Offer:
    """GPUs offered to an app in a round, and what it keeps in any case."""

    round: int
    gpus: tuple[GpuId, ...]
    kept: tuple[GpuId, ...]
    expiring: tuple[GpuId, ...] = ()
    """Offered GPUs that the app holds now; winning them again needs no restart."""


@dataclass(frozen=True, slots=True)
class RhoClaim:
    """An app's claim about its own rho, as factors on the arbiter's value.

    An app that sends rho itself sends no more than this: it knows its seconds, so that all it can
    add is another elapsed time and another ideal time. Believed only with `inputs=claimed`.
    """

    elapsed: float = 1.0
    ideal_time: float = 1.0


@dataclass(frozen=True, slots=True)
class Bid:
    """An app's answer: rows for the offer, and its general valuation without restarts."""

    app: AppId
    rows: tuple[Row, ...] = ()
    table: Sequence[TableRow] = ()
    """A tuple, or a `Table`, which is quicker to make and to read."""
    profile: Slowdown | None = None
    """The slowdowns that all of this assumes, if they are not those declared."""
    claim: RhoClaim | None = None
