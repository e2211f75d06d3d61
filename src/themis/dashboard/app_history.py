"""The rho, GPUs and reasons of apps from round to round, in bounded memory.

histories.note_round(record)
histories.of(app).rho            # points, thinned
"""

from collections import OrderedDict
from collections.abc import Sequence

from themis.core.arbiter.records import RoundRecord
from themis.dashboard.model import Point, finite

MOST_POINTS = 256
"""Points of a curve; a curve of twice as many loses every second one."""
MOST_REASONS = 200
"""Changes of reason, the newest."""
MOST_APPS = 5000


class AppHistory:
    """The history of one app."""

    def __init__(self) -> None:
        self._rho: list[Point] = []
        self._held: list[Point] = []
        self._reasons: list[tuple[float, str]] = []

    def note(self, at: float, rho: float | None, held: int, reason: str) -> None:
        """Add a round."""
        known = finite(rho)
        if known is not None:
            self._rho.append((at, known))
            if len(self._rho) > 2 * MOST_POINTS:
                self._rho = thinned(self._rho, MOST_POINTS)
        if not self._held or self._held[-1][1] != held:
            self._held.append((at, float(held)))
            if len(self._held) > 2 * MOST_POINTS:
                del self._held[:MOST_POINTS]
        if not self._reasons or self._reasons[-1][1] != reason:
            self._reasons.append((at, reason))
            del self._reasons[:-MOST_REASONS]

    @property
    def rho(self) -> tuple[Point, ...]:
        """Rho over time."""
        return tuple(self._rho)

    @property
    def held(self) -> tuple[Point, ...]:
        """How many GPUs it had from each time on."""
        return tuple(self._held)

    @property
    def reasons(self) -> tuple[tuple[float, str], ...]:
        """Each reason with the time from which it held."""
        return tuple(self._reasons)

    def short(self, most: int) -> tuple[Point, ...]:
        """Rho in at most this many points."""
        return tuple(thinned(self._rho, most))


_NONE = AppHistory()


class AppHistories:
    """The histories of all apps; of too many, the longest absent are forgotten."""

    def __init__(self, most: int = MOST_APPS) -> None:
        self._most = most
        self._apps: OrderedDict[str, AppHistory] = OrderedDict()

    def note_round(self, record: RoundRecord) -> None:
        """Add a round with all its apps."""
        for row in record.apps:
            self.note(row.app, record.opened, row.rho, row.held, str(row.reason))

    def note(self, app: str, at: float, rho: float | None, held: int, reason: str) -> None:
        """Add an app of a round."""
        history = self._apps.setdefault(app, AppHistory())
        self._apps.move_to_end(app)
        history.note(at, rho, held, reason)
        if len(self._apps) > self._most:
            self._apps.popitem(last=False)

    def of(self, app: str) -> AppHistory:
        """The history of an app; an empty one if it was in no round."""
        return self._apps.get(app, _NONE)

    def forget(self, app: str) -> None:
        """Drop the history of a name: another app uses it."""
        self._apps.pop(app, None)


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most this many of the points, with the first and the last."""
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(index * step)] for index in range(most)]
