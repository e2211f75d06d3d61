"""Wrong credentials, counted by where they come from.

    strangers.failed(place, now)             # LimitError: it was one too many

Where too many came from, wrong ones are answered with a wait. Right ones are not: many share an
address, behind a proxy or on one machine with somebody's jobs, and whoever guesses there must not
lock the others out. That a right one is still told from a wrong one helps nobody who guesses: a
secret has 256 bits, and to look at one costs less than to read the request that it came in.
"""

from themis.config.keys import CallerLimits
from themis.errors import LimitError
from themis.security.rate_limits import RateBuckets


class Strangers:
    """How many wrong credentials came from where."""

    def __init__(self, limits: CallerLimits) -> None:
        self._rates = RateBuckets(limits)

    def change(self, limits: CallerLimits) -> None:
        """Go by other limits from now on."""
        self._rates.change(limits)

    def failed(self, place: str, now: float) -> None:
        """Count a wrong one.

        Raises:
            LimitError: It is one too many; says when to come again.
        """
        try:
            self._rates.take(place, now)
        except LimitError as error:
            reason = "too many wrong credentials came from this address"
            raise LimitError(place, reason, error.retry_after) from None
