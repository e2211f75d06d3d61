"""Limits on what one caller may do: requests in a second, and open streams.

    rates = RateBuckets(limits)
    rates.take("vision", now)        # or LimitError with the seconds to wait

Pure: callers pass the time in, from any clock that does not go back.
"""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from themis.config.keys import CallerLimits
from themis.errors import LimitError

WRONG_CREDENTIALS = "too many wrong credentials came from this address"

_MAX_CALLERS = 100_000
"""Callers whose rates are remembered; a flood of made-up addresses must not fill the memory."""


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
    """One bucket for each caller; `reason` is what a refused caller reads."""

    def __init__(
        self, limits: CallerLimits, reason: str = "", max_callers: int = _MAX_CALLERS
    ) -> None:
        self._limits = limits
        self._reason = reason
        self._max_callers = max_callers
        self._buckets: dict[str, Bucket] = {}

    def change(self, limits: CallerLimits) -> None:
        """Use other limits from now on; every caller starts with a full bucket."""
        self._limits = limits
        self._buckets.clear()

    def take(self, caller: str, now: float, cost: float = 1.0) -> None:
        """Count a call.

        Raises:
            LimitError: The bucket is empty; has the seconds until it is not.
        """
        # What costs more than a full bucket waits for a full bucket, not for ever.
        bucket, wait = self._bucket(caller, now).taken(now, min(cost, self._limits.burst))
        # Put last: the first is then the caller that was silent for longest.
        self._buckets.pop(caller, None)
        self._buckets[caller] = bucket
        if len(self._buckets) > self._max_callers:
            del self._buckets[next(iter(self._buckets))]
        self._check(caller, wait)

    def look(self, caller: str, now: float, cost: float = 1.0) -> None:
        """Refuse what `take` would refuse now; counts nothing.

        Raises:
            LimitError: The bucket is empty.
        """
        self._check(caller, self._bucket(caller, now).taken(now, cost)[1])

    def _bucket(self, caller: str, now: float) -> Bucket:
        limits = self._limits
        full = Bucket(limits.requests, limits.burst, limits.burst, now)
        return self._buckets.get(caller, full)

    def _check(self, caller: str, wait: float) -> None:
        if wait > 0.0:
            rate = f"more than {self._limits.requests:g} calls a second; again in {wait:.1f} s"
            raise LimitError(caller, self._reason or rate, wait)


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """The address that limits count by: for IPv6 the whole /64, as a host has all of its 2^64."""
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
        """Use other limits from now on; open streams stay open."""
        self._most = limits.streams

    def open(self, caller: str, more: int = 0) -> None:
        """Count one more stream; `more` is how many this caller may have beyond the limit.

        Raises:
            LimitError: It is one too many.
        """
        most = self._most + more
        if self._open.get(caller, 0) >= most:
            reason = f"{most} streams are open, more are not allowed: close one"
            raise LimitError(caller, reason)
        self._open[caller] = self._open.get(caller, 0) + 1

    def close(self, caller: str) -> None:
        """Count one less."""
        left = self._open.get(caller, 0) - 1
        if left > 0:
            self._open[caller] = left
        else:
            self._open.pop(caller, None)

    def count(self, caller: str) -> int:
        """How many streams this caller has open."""
        return self._open.get(caller, 0)
