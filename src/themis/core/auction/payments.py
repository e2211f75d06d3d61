"""Hidden payments: what "keeps the fraction c of its row" means for whole GPUs.

award = payment("gpus").award(Won(chunks, 0.6, unit=1, lease=600.0, topology=topology), rng)
award.gpus, award.paid
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from themis.core.auction.problem import Objective
from themis.core.model import GpuId, Topology
from themis.errors import InvariantError, unknown_name

MINIMUM_SECONDS = 60.0
"""Under `time`, no app gets GPUs for less than this: starting would eat it up."""

_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Won:
    """A winner's row before payment: its GPUs per chunk and the fraction of them it keeps."""

    chunks: tuple[tuple[GpuId, ...], ...]
    kept_fraction: float
    unit: int
    """The smallest gang that can use GPUs of this row."""
    lease: float
    topology: Topology

    @property
    def gpus(self) -> tuple[GpuId, ...]:
        """All GPUs of the row, sorted."""
        return tuple(sorted(gpu for chunk in self.chunks for gpu in chunk))


@dataclass(frozen=True, slots=True)
class Award:
    """What one app holds after the hidden payment.

    `until_fraction` is the share of the lease it holds them for (None: all of it). `paid` are the
    GPUs of its row it gave up, wholly or from `until_fraction` on: none may return this round.
    """

    gpus: tuple[GpuId, ...]
    kept_fraction: float
    paid: tuple[GpuId, ...] = ()
    until_fraction: float | None = None


class Payment(Protocol):
    """A reading of "keeps the fraction c"."""

    @property
    def name(self) -> str:
        """What it is called in the registry and in records."""

    @property
    def objective(self) -> Objective:
        """What the auction before it must maximise for the fraction to be a fair price."""

    def award(self, won: Won, rng: random.Random) -> Award:
        """Take the payment. `rng` belongs to this app and round alone."""


@dataclass(frozen=True, slots=True)
class ByGpus:
    """Whole gangs, one more with the probability that makes the mean kept equal the share.

    The paper's reading. When the last gang is cut short by the row's end, the probability rises
    accordingly, so a fraction of one always keeps the whole row.
    """

    name: str = "gpus"
    objective: Objective = Objective.PRODUCT

    def award(self, won: Won, rng: random.Random) -> Award:
        """Keep whole units, the best placed ones."""
        total = sum(map(len, won.chunks))
        share = won.kept_fraction * total
        low = min(total, math.floor(share / won.unit + _TOLERANCE) * won.unit)
        high = min(total, low + won.unit)
        draw = rng.random()
        more = high > low and draw < (share - low) / (high - low) - _TOLERANCE
        return _shrunk(won, high if more else low)


@dataclass(frozen=True, slots=True)
class ByTime:
    """The whole row for a part of the lease."""

    name: str = "time"
    objective: Objective = Objective.PRODUCT

    def award(self, won: Won, rng: random.Random) -> Award:
        """Shorten the lease; below the minimum, draw for the minimum."""
        draw = rng.random()
        if won.kept_fraction >= 1.0 - _TOLERANCE:
            return _shrunk(won, sum(map(len, won.chunks)))
        shortest = min(1.0, MINIMUM_SECONDS / won.lease)
        until = max(won.kept_fraction, shortest)
        if draw >= won.kept_fraction / until:
            return _shrunk(won, 0)
        if until >= 1.0:
            return Award(won.gpus, won.kept_fraction)
        return Award(won.gpus, won.kept_fraction, paid=won.gpus, until_fraction=until)


@dataclass(frozen=True, slots=True)
class Lottery:
    """The whole row with probability c.

    Under the name `lottery-pf` the row itself comes from a ticket that was drawn: the auction then
    maximises over lotteries, and c is the price of the shares in it.
    """

    name: str = "lottery"
    objective: Objective = Objective.PRODUCT

    def award(self, won: Won, rng: random.Random) -> Award:
        """Draw for the row."""
        wins = rng.random() < won.kept_fraction + _TOLERANCE
        return _shrunk(won, sum(map(len, won.chunks)) if wins else 0)


@dataclass(frozen=True, slots=True)
class FloorPayment:
    """Rounded down: a bad example, since an award of one GPU becomes nothing."""

    name: str = "floor"
    objective: Objective = Objective.PRODUCT

    def award(self, won: Won, rng: random.Random) -> Award:
        """Keep the whole GPUs in the share."""
        total = sum(map(len, won.chunks))
        return _shrunk(won, math.floor(won.kept_fraction * total + _TOLERANCE))


_RULES: tuple[Payment, ...] = (
    ByGpus(),
    ByTime(),
    Lottery(),
    Lottery("lottery-pf", Objective.LOTTERY),
    FloorPayment(),
)
_PAYMENTS = {rule.name: rule for rule in _RULES}


def payment(name: str) -> Payment:
    """The payment rule of this name.

    Raises:
        ConfigError: There is none.
    """
    if name not in _PAYMENTS:
        raise unknown_name("payment", name, _PAYMENTS)
    return _PAYMENTS[name]


def _shrunk(won: Won, count: int) -> Award:
    kept = best_placed(won.chunks, count, won.topology)
    taken = set(kept)
    return Award(kept, won.kept_fraction, tuple(gpu for gpu in won.gpus if gpu not in taken))


def best_placed(
    chunks: Sequence[Sequence[GpuId]], count: int, topology: Topology
) -> tuple[GpuId, ...]:
    """The part of a row worth most to its app: whole gangs first, then a local part of one."""
    kept: list[GpuId] = []
    cut: list[Sequence[GpuId]] = []
    for chunk in sorted(chunks, key=lambda chunk: (-len(chunk), topology.level(chunk), min(chunk))):
        if len(chunk) <= count - len(kept):
            kept.extend(chunk)
        else:
            cut.append(chunk)
    missing = count - len(kept)
    if missing and cut:
        # Each chunk left is larger than what is missing, else it had been taken whole.
        parts = [local_part(chunk, missing, topology) for chunk in cut]
        closest = min(parts, key=topology.level)
        kept.extend(closest)
    return tuple(sorted(kept))


def local_part(gpus: Sequence[GpuId], count: int, topology: Topology) -> tuple[GpuId, ...]:
    """`count` of these GPUs, as close together as they come."""
    for depth in (3, 2, 1, 0):  # one slot, one machine, one rack, anywhere
        enough = [group for group in _groups(gpus, depth, topology) if len(group) >= count]
        if not enough:
            continue
        smallest = min(enough, key=len)
        if depth == 3:
            return tuple(smallest[:count])
        first, *rest = sorted(_groups(smallest, depth + 1, topology), key=lambda group: -len(group))
        others = [gpu for group in rest for gpu in group]
        return (*first, *local_part(others, count - len(first), topology))
    raise InvariantError(f"{count} GPUs wanted of {len(gpus)}")


def _groups(gpus: Sequence[GpuId], depth: int, topology: Topology) -> list[list[GpuId]]:
    groups: dict[tuple[int, ...], list[GpuId]] = {}
    for gpu in sorted(gpus):
        groups.setdefault(topology.seats[gpu][:depth], []).append(gpu)
    return list(groups.values())
