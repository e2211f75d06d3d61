"""Wrong credentials, counted by where they come from.

    strangers.check(place, shown, now)       # LimitError: too many wrong ones came from there
    strangers.failed(place, now)             # this was one
    strangers.passed(place, shown)           # this was none

Where too many came from, none is looked at any more for a while, right or wrong, so that nobody can
try at the speed of the network. But many share an address: behind a proxy, or on one machine with
somebody's jobs. What was right from there before is looked at all the same, so that guessing
locks nobody out who is known.
"""

import re

from themis.errors import LimitError
from themis.live.config import Limits
from themis.live.limits import Rates

_NUMBER = re.compile(r"(?:\bthemis_|^)([0-9a-f]{12})[_-]")
"""The id in a token or a cookie, which is no secret."""
_MOST_KNOWN = 100_000


class Strangers:
    """Who may still try."""

    def __init__(self, limits: Limits, most_known: int = _MOST_KNOWN) -> None:
        self._rates = Rates(limits)
        self._most_known = most_known
        self._known: dict[tuple[str, str], None] = {}
        """Who was let in, and from where; the last one last."""

    def change(self, limits: Limits) -> None:
        """Go by other limits from now on."""
        self._rates.change(limits)

    def check(self, place: str, shown: str, now: float) -> None:
        """Let somebody show what they have.

        Raises:
            LimitError: Too many wrong ones came from there; says when to come again.
        """
        if (place, _number(shown)) in self._known:
            return
        try:
            self._rates.look(place, now)
        except LimitError as error:
            reason = "too many wrong credentials came from this address"
            raise LimitError(place, reason, error.retry_after) from None

    def failed(self, place: str, now: float) -> None:
        """Count a wrong one.

        Raises:
            LimitError: It is one too many.
        """
        self._rates.take(place, now)

    def passed(self, place: str, shown: str) -> None:
        """Remember who was let in."""
        known = (place, _number(shown))
        self._known.pop(known, None)
        self._known[known] = None
        if len(self._known) > self._most_known:
            del self._known[next(iter(self._known))]


def _number(shown: str) -> str:
    found = _NUMBER.search(shown[:80])
    return found[1] if found else ""
