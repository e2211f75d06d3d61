"""How much is taken from one caller: sizes, rates and streams.

    rates = Rates(limits)
    rates.take("vision", now)        # or LimitError with the seconds to wait

Pure: the time is passed in (any clock that does not go back).
"""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from themis.config.keys import CallerLimits
from themis.errors import LimitError

_MAX_CALLERS = 100_000
"""Of so many the rates are remembered; more are only strangers with made-up names."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tokens that come back at a steady rate, up to `size`; empty means wait."""

    rate: float
    size: float
    level: float
    at: float

    def taken(self, now: float, cost: float = 1.0) -> tuple["Bucket", float]:
        """The bucket after this, and how long to wait first (0: it was taken)."""
        level = min(self.size, self.level + max(0.0, now - self.at) * self.rate)
        # A clock that stands still or goes back gives nothing and takes nothing.
        after = Bucket(self.rate, self.size, level, max(now, self.at))
        if cost > level:
            return after, (min(cost, self.size) - level) / self.rate
        return Bucket(self.rate, self.size, level - cost, after.at), 0.0


class RateBuckets:
    """One bucket for each caller."""

    def __init__(self, limits: CallerLimits, most: int = _MAX_CALLERS) -> None:
        self._limits = limits
        self._most = most
        self._buckets: dict[str, Bucket] = {}

    def change(self, limits: CallerLimits) -> None:
        """Other limits from now on; everybody starts with a full bucket."""
        self._limits = limits
        self._buckets.clear()

    def take(self, who: str, now: float, cost: float = 1.0) -> None:
        """Count a call.

        Raises:
            LimitError: It is one too many; says after how many seconds it is not.
        """
        limits = self._limits
        bucket = self._bucket(who, now)
        self._buckets.pop(who, None)
        # What costs more than everything waits for a full bucket, not for ever.
        bucket, wait = bucket.taken(now, min(cost, limits.burst))
        # Put last: the first is then the one that was silent for longest.
        self._buckets[who] = bucket
        if len(self._buckets) > self._most:
            del self._buckets[next(iter(self._buckets))]
        self._refuse(who, wait)

    def look(self, who: str, now: float, cost: float = 1.0) -> None:
        """Whether one more call would pass; counts nothing.

        Raises:
            LimitError: It would not.
        """
        self._refuse(who, self._bucket(who, now).taken(now, cost)[1])

    def _bucket(self, who: str, now: float) -> Bucket:
        limits = self._limits
        full = Bucket(limits.requests, limits.burst, limits.burst, now)
        return self._buckets.get(who, full)

    def _refuse(self, who: str, wait: float) -> None:
        if wait > 0.0:
            reason = f"more than {self._limits.requests:g} calls a second; again in {wait:.1f} s"
            raise LimitError(who, reason, wait)


@lru_cache(maxsize=4096)
def place_of(address: str) -> str:
    """Where somebody calls from, for counting: a whole network is one place where it is one's own.

    Who has one IPv6 address has 2^64 of them.
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{IPv6Address(int(found) >> 64 << 64)}/64"


class OpenStreams:
    """How many streams (logs, events, polls) each caller has open."""

    def __init__(self, limits: CallerLimits) -> None:
        self._most = limits.streams
        self._open: dict[str, int] = {}

    def change(self, limits: CallerLimits) -> None:
        """Other limits from now on; streams that are open stay."""
        self._most = limits.streams

    def open(self, who: str, more: int = 0) -> None:
        """Count one more.

        Args:
            who: The caller.
            more: How many it may have beside those that everybody may have.

        Raises:
            LimitError: It is one too many.
        """
        most = self._most + more
        if self._open.get(who, 0) >= most:
            reason = f"{most} streams are open, more are not allowed: close one"
            raise LimitError(who, reason)
        self._open[who] = self._open.get(who, 0) + 1

    def close(self, who: str) -> None:
        """Count one less."""
        left = self._open.get(who, 0) - 1
        if left > 0:
            self._open[who] = left
        else:
            self._open.pop(who, None)

    def count(self, who: str) -> int:
        """How many this caller has open."""
        return self._open.get(who, 0)
